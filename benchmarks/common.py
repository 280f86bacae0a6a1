"""Helpers that the benchmarks share: command lines, taking turns, worker processes, made-up texts."""

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
_MATRIX_UNITS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose help begins with the program's docstring, and shows the default of each flag."""

    def __init__(self, doc: str | None) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_flag(self, name: str, default: Any, help: str = "", choices: Sequence[str] | None = None) -> None:
        """Adds a flag of the default's type."""
        help_with_default = f"{help} [{default}]".strip()
        self.add_argument(name, type=type(default), default=default, choices=choices, help=help_with_default)

    def add_switch(self, name: str, help: str = "") -> None:
        self.add_argument(name, action="store_true", help=help)


def turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Lets contenders take turns, so that other work of the machine disturbs all of them alike.

    Returns:
      Name of a contender -> what it returned in each round.
    """
    results: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, turn in contenders.items():
            results[name].append(turn())
    return results


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Time of a call."""
    start = clock()
    call()
    return clock() - start


class Worker:
    """A process that runs `answer_questions`. Raises OSError, with its last message, if it ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        except BrokenPipeError:
            pass
        # The process has ended: its output is closed, or its input.
        self.end()
        self._messages.seek(0)
        messages = self._messages.read().strip() or "it ended"
        raise OSError(messages.split("\n")[-1])

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def answer_questions(make: Callable[[], Callable[..., Any]]) -> None:
    """Answers questions, which are lines of JSON on standard input, on standard output.

    Args:
      make: makes the function that answers; it is called with a question's fields. Its prints go to standard error.
    """
    output = sys.stdout
    sys.stdout = sys.stderr
    answer = make()
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=output, flush=True)


def processor() -> str:
    """Name of the processor, number of usable cores, and its units for matrix products, as far as Linux tells."""
    facts = {}
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    name = facts.get("model name", "unknown processor")
    cores = len(os.sched_getaffinity(0))
    flags = facts.get("flags", "").split()
    units = [unit for unit in _MATRIX_UNITS if unit in flags]
    return f"{name}, {cores} cores, {', '.join(units)}"


def made_up_texts(count: int, longest: int = 120) -> list[str]:
    """Makes texts of 3 to `longest` words, most of them short, the same in every run."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(2.8, 0.8, count), 3, longest).astype(int)
    words = SENTENCE.split()
    return [" ".join(random.choice(words, length)) for length in lengths]


def write_vocabulary(path: Path, size: int = VOCABULARY) -> None:
    """Writes a vocabulary of made-up words, in which special tokens have BERT's ids."""
    tokens = [_SPECIAL.get(token_id, f"word{token_id}") for token_id in range(size)]
    path.write_text("".join(f"{token}\n" for token in tokens))
