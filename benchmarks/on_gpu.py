"""Measures speed, memory and correctness on a GPU, by one command, within a given time.

  python -m benchmarks.on_gpu --out DIR --minutes 8
  python -m benchmarks.on_gpu --out DIR --tiny --parts machine,data  # a trial on any machine

The parts, the most important first:

  machine      versions, devices, the peak of products and of memory
  small        electra_small 128 x 128 in bfloat16: ours in several forms, Hugging Face's, a profile of the kernels
  base         electra_base 256 x 128 and 256 x 512: MFU and memory
  correctness  the golden arrays, ten steps beside the processor's, a killed run that goes on, float16
  use          fine-tuning and inference beside Hugging Face's
  data         the input beside what a step takes

Each part is a process, which is killed when its share of the time is over. Time that it does not use goes to later
parts. Every result is at once a line of DIR/results.jsonl. DIR/table.md is written anew after each part, and
DIR/log.txt has their output. Failures and missing packages (torch, transformers, pytest) are results, too.
--torch-python names a Python that has torch and transformers, if this one has not.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, ArgumentParser
from benchmarks.on_gpu_results import Part, read_rows
from benchmarks.on_gpu_run_part import PARTS
from electra_tf2.files.writing import write_atomically

# Shares of the time.
SHARES = {"machine": 0.05, "small": 0.32, "base": 0.27, "correctness": 0.22, "use": 0.1, "data": 0.04}


def limited(command: list[str], limit: float, log: Path) -> str:
    """Runs a command for at most `limit` seconds, and kills it and its children. Returns how it ended."""
    with log.open("a") as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait(limit)
            ended = f"failed with exit code {code}" if code else "done"
        except subprocess.TimeoutExpired:
            ended = "ended at its limit"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also children that a failed part left behind
        process.wait()
    return ended


def table(rows: list[dict[str, Any]]) -> str:
    """Formats the results in Markdown, with a table for each part."""
    lines: list[str] = []
    newest: dict[str, dict[str, dict[str, Any]]] = {}  # part -> what was measured -> its last row
    for row in rows:
        newest.setdefault(row["part"], {})[row["what"]] = row
    for part, part_rows in newest.items():
        lines += [f"## {part}", "", "| | | |", "|---|---|---|"]
        for what, row in part_rows.items():
            value = row["value"]
            if isinstance(value, float):
                value = f"{value:,}"
            lines.append(f"| {what} | {value} {row['unit']} | {row['note']} |".replace("  ", " "))
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = ArgumentParser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a folder, new or of an earlier call, to which it adds")
    parser.add_flag("--minutes", 8.0, "minutes in all")
    parser.add_flag("--parts", ",".join(PARTS), "parts, in their order")
    parser.add_switch("--tiny", "sizes for a trial on any machine")
    parser.add_flag("--torch-python", sys.executable, "a Python that has torch and transformers")
    options = parser.parse_args()
    names = options.parts.split(",")
    for name in names:
        if name not in PARTS:
            parser.error(f"--parts: there is no {name!r}; one or more of {','.join(PARTS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    end = time.monotonic() + 60 * options.minutes
    for index, name in enumerate(names):
        part = Part(name, out, options.tiny, options.torch_python)
        began = time.monotonic()
        remaining = max(0.0, end - began)
        share = SHARES[name] / sum(SHARES[other] for other in names[index:])
        limit = share * remaining
        ended = limited(part.command(name), limit, out / "log.txt")
        took = time.monotonic() - began
        part.record("(this part)", took, "s", f"{ended}, {limit:.0f} s")
        write_atomically(out / "table.md", table(read_rows(out)))
        print(f"{name}: {ended}, {took:.0f} of {limit:.0f} s", flush=True)
    print((out / "table.md").read_text())


if __name__ == "__main__":
    main()
