"""Growth of a pre-training step with batch, length, vocabulary, layers and width: time, memory, share of its limit.

  taskset -c 1 python -m benchmarks.scaling benchmarks/scaling.json
  python -m benchmarks.scaling benchmarks/scaling.json --figure docs/scaling.png

One factor at a time is varied round a base: four layers as wide as electra_small's, with its kind of generator. Every
point is a process of its own (benchmarks/step_contenders.py), because memory is a high-water mark, and so are the
matrix products of that step alone, its limit. Points are written as they are measured, and those that the file has are
not measured again; --figure draws what the file has and measures nothing. Times are processor time, which other work on
the machine disturbs little: on one thread, the default, the least of some steps is what a quiet core takes.

An exponent is the slope of the line through the logarithms, and in brackets that of the last two points, where what
does not grow counts least. Beside that of the time stands that of the FLOPs: a time that grows faster has a cause.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ONE_THREAD, parser_of, processor
from benchmarks.step import Contender
from benchmarks.step_job import Job, Size, product_flops
from electra_tf2.util.files import write_json

BASE = Job("pretraining", Size(256, 4, 4, 128, 4, 32768), batch_size=32, length=128, precision="bfloat16")
FACTORS = {
    "vocabulary": (8192, 32768, 131072),
    "layers": (2, 4, 8, 24),
    "width": (128, 256, 512, 1024),
    "batch": (8, 32, 128, 512),
    "length": (64, 128, 256, 512, 1024, 2048),
}
# Beside the base's program: micro-batches, and layers computed again.
BESIDE = [("ours_accumulated", "batch", 128), ("ours_recompute", "batch", 128), ("ours_recompute", "layers", 24)]
_HEAD_SIZE = 64
_SECONDS = 4.0  # that a point's steps may take, once there are two of them
_STEPS = 3


def job_of(factor: str, value: int) -> Job:
    """The base, but for one factor."""
    if factor in ("batch", "length"):
        return BASE._replace(length=value) if factor == "length" else BASE._replace(batch_size=value)
    changed = {"hidden": value, "heads": value // _HEAD_SIZE} if factor == "width" else {factor: value}
    return BASE._replace(size=BASE.size._replace(**changed))


def point(options: argparse.Namespace, points: dict[str, Any], program: str, job: Job) -> dict[str, float] | None:
    """Seconds of the processor and of the clock, and the most bytes of memory, of a step: read, or measured; None if
    it is not there, or ended with an error, as for want of memory."""
    contender, sizes = f"{program}_{job.precision}", ",".join(map(str, job.size))
    key = f"{contender} {sizes} {job.batch_size} {job.length} {job.what}"
    if key in points or options.figure:
        return points.get(key)
    points[key] = None
    try:
        process = Contender(contender, job)
        wall = process.turn(1)
        for _ in range(min(_STEPS, max(2, int(_SECONDS / wall))) - 1):
            wall = min(wall, process.turn(1))
        points[key] = {"seconds": round(process.processor_seconds, 4), "wall": round(wall, 4), "memory": process.memory}
        process.end()
    except OSError as error:
        print(error, file=sys.stderr)
    write_json(options.file, {"processor": processor(), "points": points})
    print(key, points[key], flush=True)
    return points[key]


def exponents(values: list[int], measured: list[float]) -> str:
    """Slopes between logarithms: of all points, and of the last two."""
    x, y = np.log(values), np.log(measured)
    return f"{np.polyfit(x, y, 1)[0]:.2f} ({(y[-1] - y[-2]) / (x[-1] - x[-2]):.2f})" if len(x) > 1 else "-"


def draw(path: Path, factor_rows: dict[str, list[tuple[int, dict[str, float]]]]) -> None:
    """A panel per factor with the time of a step, and one with the memory of all."""
    from electra_tf2.analysis.figures import curve, panels

    with panels(path.with_suffix(""), [*(f"time and {factor}" for factor in factor_rows), "memory"]) as axes:
        for number, (axis, (factor, rows)) in enumerate(zip(axes[:-1], factor_rows.items(), strict=True)):
            values, found = (list(part) for part in zip(*rows, strict=True))
            seconds = [point["seconds"] for point in found]
            curve(axis, values, seconds, 0, f"step, exponent {exponents(values, seconds).split()[0]}")
            limits = {value: point["limit"] for value, point in rows if "limit" in point}
            curve(axis, list(limits), list(limits.values()), 1, "its products alone")
            base = next(value for value, _ in rows if job_of(factor, value) == BASE)
            memory = [point["memory"] / 1e9 for point in found]
            curve(axes[-1], [value / base for value in values], memory, number, factor)
            axis.set(xlabel=factor, ylabel="seconds of one core", yscale="log")
            axis.set_xscale("log", base=2)
            axis.set_xticks(values, [f"{value // 1024}k" if value > 4096 else str(value) for value in values])
            axis.minorticks_off()
            axis.legend()
        axes[-1].set(xlabel="multiple of the base", ylabel="gigabytes")
        axes[-1].set_xscale("log", base=2)
        axes[-1].set_yscale("log", base=2)
        axes[-1].legend()


def main() -> None:
    parser = parser_of(__doc__, threads=1)
    parser.add_argument("file", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    os.environ |= dict.fromkeys(ONE_THREAD, str(options.threads))
    stored: dict[str, Any] = {"processor": processor(), "points": {}}
    if options.file.exists():
        stored = json.loads(options.file.read_text(encoding="utf-8"))
    if not options.figure and stored["processor"] != processor():
        sys.exit(f"error: {options.file} was measured on {stored['processor']}; give another file for this processor.")
    points, drawn = stored["points"], dict[str, list[tuple[int, dict[str, float]]]]()
    lines = ["| factor | | s a step | share of its products alone | GB |", "|---|---|---|---|---|"]
    for factor, values in FACTORS.items():
        drawn[factor] = []
        for value in values:
            found, limit = (point(options, points, name, job_of(factor, value)) for name in ("ours", "products"))
            if found:
                share = f"{limit['seconds'] / found['seconds']:.0%}" if limit else ""
                lines.append(
                    f"| {factor} | {value:,} | {found['seconds']:.3g} | {share} | {found['memory'] / 1e9:.2f} |"
                )
                drawn[factor].append((value, found | ({"limit": limit["seconds"]} if limit else {})))
        there = [value for value, _ in drawn[factor]]
        time, memory = (exponents(there, [one[name] for _, one in drawn[factor]]) for name in ("seconds", "memory"))
        flops = exponents(there, [product_flops(job_of(factor, value)) for value in there])
        lines.append(f"| | exponents | {time}; of FLOPs {flops} | | {memory} |")
    print(stored["processor"], *lines, sep="\n")
    for program, factor, value in BESIDE:
        job = job_of(factor, value)
        plain, other = point(options, points, "ours", job), point(options, points, program, job)
        if plain and other:
            memory = f"{other['memory'] / 1e9:.2f} GB in place of {plain['memory'] / 1e9:.2f}"
            what = f"{program}, batch {job.batch_size}, {job.size.layers} layers"
            print(f"{what}: {other['seconds'] / plain['seconds']:.2f} times the time, {memory}")
    if options.figure:
        draw(options.figure, drawn)


if __name__ == "__main__":
    main()
