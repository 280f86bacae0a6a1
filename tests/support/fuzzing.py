"""Fuzzing: damaged command lines, folders, records and task files; each must be taken or refused in one line.

  python -m tests.support.fuzzing --kind folders --cases 10000 --seed 0

A case is a function of kind, seed and number: --first NUMBER --cases 1 repeats it. A case fails if any exception but a
UserError comes out, if a program says something other than one `error:` line with exit code 2, or if it takes more
than --limit seconds of the processor.
"""

import argparse
import collections
import contextlib
import io
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from electra_tf2.util.environment import before_tensorflow

before_tensorflow()

from electra_tf2.util.errors import UserError  # noqa: E402
from tests.support.fuzzed_doors import KINDS  # noqa: E402

LIMIT = 20.0  # seconds of the processor


class Hang(BaseException):
    """Nothing that the code under test catches."""


class Fault(NamedTuple):
    """A case that failed."""

    kind: str
    number: int
    what: str
    trace: str


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises Hang in what takes more of the processor's time, or ten times as long: the machine may be busy."""

    def ring(*_: object) -> None:
        raise Hang(f"more than {seconds:g} s")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 10 * seconds))
    before = [(number, signal.signal(number, ring)) for _, number, _ in timers]
    try:
        for timer, _, limit in timers:
            signal.setitimer(timer, limit)
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def wrong_line(message: str) -> str | None:
    """Says what is wrong with the one line of an error; None if nothing is."""
    if not message or "\n" in message:
        return f"not one line: {message!r}"
    if len(message) > 12000:
        return f"a line of {len(message)} characters"
    try:
        message.encode()
    except UnicodeEncodeError:
        return f"no characters: {message!r}"
    return None


def fuzz(
    kind: str, cases: int, seed: int, folder: Path, first: int = 0, limit: float = LIMIT,
    report: Callable[[Fault], None] = lambda fault: None,
) -> tuple[list[Fault], collections.Counter[str]]:  # fmt: skip
    """Runs cases of a kind.

    Returns:
      Those that failed, and the number of cases that were taken and refused.
    """
    case = KINDS[kind](folder)
    faults, ends = [], collections.Counter[str]()
    for number in range(first, first + cases):
        rng = random.Random(f"{kind} {seed} {number}")
        what, trace = "", ""
        here = os.getcwd()
        try:
            with at_most(limit), silent(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case(rng)
            ends["taken"] += 1
        except UserError as error:
            ends["refused"] += 1
            what = wrong_line(str(error)) or ""
        except Hang as error:
            what, trace = f"hang: {error}", traceback.format_exc()
        except Exception as error:
            what, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
        os.chdir(here)
        if what:
            faults.append(Fault(kind, number, what, trace))
            report(faults[-1])
    return faults, ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--cases", type=int, default=1000, help="number of cases of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=LIMIT, help="processor seconds that a case may take")
    given = parser.parse_args()
    failed = 0
    for kind in KINDS if given.kind == "all" else [given.kind]:
        places: collections.Counter[str] = collections.Counter()

        def report(fault: Fault, places: collections.Counter[str] = places) -> None:
            lines = [line.strip() for line in fault.trace.splitlines() if line.startswith("  File ")]
            ours = [line for line in lines if "/tests/" not in line and "site-packages" not in line] or lines or [""]
            places[ours[-1]] += 1
            if places[ours[-1]] <= 2:
                print(f"FAULT {fault.kind} {fault.number}: {fault.what[:500]}\n  {ours[-1]}", flush=True)

        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            faults, ends = fuzz(kind, given.cases, given.seed, Path(folder), given.first, given.limit, report)
        hangs = sum(fault.what.startswith("hang") for fault in faults)
        print(
            f"{kind}: {given.cases:,} cases in {time.monotonic() - start:.0f} s, {ends['taken']:,} taken, "
            f"{ends['refused']:,} refused, {len(faults) - hangs} foreign exceptions, {hangs} hangs",
            flush=True,
        )
        for place, count in places.most_common():
            print(f"  {count} x {place}", flush=True)
        failed += len(faults)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
