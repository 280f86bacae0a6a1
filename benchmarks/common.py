"""Parts that the benchmarks share: command lines, turns, processes that answer questions."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 30522
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
SENTENCE = "The model reads every word in its place and says what came before, that year when all went"
_SPECIAL = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}


def parser_of(doc: str | None, **flags: Any) -> argparse.ArgumentParser:
    """A parser whose help is the program's docstring.

    Args:
      flags: by name the default, of the flag's type; False: a switch; a tuple: the choices, its default first; a type:
        the flag must be given.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in flags.items():
        kind: dict[str, Any] = {"type": type(value), "default": value, "help": f"default {value}"}
        if value is False:
            kind = {"action": "store_true"}
        elif isinstance(value, tuple):
            kind = {"choices": value, "default": value[0]}
        elif isinstance(value, type):
            kind = {"type": value, "required": True}
        parser.add_argument(f"--{name.replace('_', '-')}", **kind)
    return parser


def turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Numbers that contenders return; they take turns, so that what else the machine does hits all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, turn in contenders.items():
            found[name].append(turn())
    return found


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Time of a call."""
    start = clock()
    call()
    return clock() - start


class Worker:
    """A process that answers questions by `answer_questions`. Raises OSError, with its last message, where it ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=-1, stdout=-1, stderr=self._messages, text=True
        )

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return json.loads(next(line for line in self._process.stdout if line.startswith("{")))
        except (BrokenPipeError, StopIteration):
            self.end()
            self._messages.seek(0)
            raise OSError((self._messages.read().strip() or "it ended").split("\n")[-1]) from None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def answer_questions(make: Callable[[], Callable[..., Any]]) -> None:
    """Answers lines of JSON by what `make` makes, a function of their fields; what else is printed is a message."""
    out, sys.stdout = sys.stdout, sys.stderr
    answer = make()
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=out, flush=True)


def processor() -> str:
    """Name of the processor, the cores that may be used, and its units that multiply matrices, where Linux says so."""
    cores, path = len(os.sched_getaffinity(0)), Path("/proc/cpuinfo")
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line) if path.exists() else {}
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    units = [unit for unit in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if unit in facts.get("flags", "").split()]
    return f"{facts.get('model name', 'unknown processor')}, {cores} cores, {', '.join(units)}"


def texts_of(number: int, longest: int = 120) -> list[str]:
    """Texts of 3 to `longest` words, most of them short, the same in every run."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(2.8, 0.8, number), 3, longest).astype(int)
    return [" ".join(random.choice(SENTENCE.split(), length)) for length in lengths]


def write_vocabulary(path: Path, size: int = VOCABULARY) -> None:
    """A vocabulary of made-up words with the special tokens at BERT's places."""
    path.write_text("".join(f"{_SPECIAL.get(i, f'word{i}')}\n" for i in range(size)))
