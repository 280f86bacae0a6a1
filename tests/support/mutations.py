"""Changes the code in one place at a time, and tells which changes no test notices.

    python -m tests.support.mutations [--only PART_OF_A_NAME] [--jobs 1]

mutations.txt lists the changes and, for each, the tests that must fail under it. A change is made in a copy of
the tree, never in the tree itself. The exit code is 1 if a change survives, and also if its tests fail without it.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".txt")
_LEFT_OUT = (".*", "__pycache__", "build", "data", "demo_data", "dist", "shared")
_LIMIT = 300  # seconds; a change that makes the tests hang is noticed, too
_FAILED = 1  # pytest's exit code when tests ran and some failed


class Mutation(NamedTuple):
    """A change of the code.

    file: from the root of the tree.
    title: what goes wrong under it.
    old, new: part of a line of the file, which occurs once, and what takes its place.
    tests: pytest's names of the tests that must fail.
    """

    file: str
    title: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.file}: {self.title}"


def mutations(table: str) -> list[Mutation]:
    """Reads the table. Raises ValueError where a paragraph is no mutation."""
    found = []
    for paragraph in table.split("\n\n"):
        lines = [line for line in paragraph.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        marks = [line[:2] for line in lines]
        if len(lines) < 4 or marks[1:3] != ["- ", "+ "] or set(marks[3:]) != {"  "} or ": " not in lines[0]:
            raise ValueError(f"not a mutation: {paragraph}")
        file, _, title = lines[0].partition(": ")
        found.append(Mutation(file, title, lines[1][2:], lines[2][2:], tuple(line[2:] for line in lines[3:])))
    return found


@contextlib.contextmanager
def applied(mutation: Mutation, tree: Path) -> Iterator[None]:
    """Makes the change in a tree meanwhile. Raises ValueError if the old text is not there exactly once."""
    path = tree / mutation.file
    before, times = path.read_text(), path.stat()
    if before.count(mutation.old) != 1:
        raise ValueError(f"the old text occurs {before.count(mutation.old)} times")
    try:
        path.write_text(before.replace(mutation.old, mutation.new))
        os.utime(path, (times.st_atime, times.st_mtime + 10))  # else Python could take the bytecode of the old text
        yield
    finally:
        path.write_text(before)
        os.utime(path, (times.st_atime, times.st_mtime))


class Failures:
    """Plugin of pytest that writes the names of the tests that fail to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            with self.path.open("a") as file:
                file.write(f"{report.nodeid}\n")


def started(tree: Path, tests: Sequence[str], log: Path, failures: Path | None = None) -> int:
    """Runs tests of a tree in a fork of this process, which has imported TensorFlow. Returns the number of the child.

    Args:
      log: file of what pytest says.
      failures: file of the names of all tests that fail, where the tree is unchanged; None: stop at the first.
    """
    import pytest

    child = os.fork()
    if child:
        return child
    signal.alarm(_LIMIT if failures is None else 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(tree)
    sys.dont_write_bytecode = failures is None
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("electra_tf2", "tests")]:
        del sys.modules[name]
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    os._exit(pytest.main(["-x", *words]) if failures is None else pytest.main(words, plugins=[Failures(failures)]))


def outcome(status: int) -> str:
    """Says what became of a mutation whose tests ended with this status."""
    if os.WIFSIGNALED(status):
        return "killed"
    return {0: "SURVIVED", _FAILED: "killed"}.get(os.WEXITSTATUS(status), "BROKEN")


def campaign(chosen: Sequence[Mutation], trees: Sequence[Path]) -> dict[str, list[Mutation]]:
    """Tries every mutation, as many at a time as there are trees. Prints a line each. Returns them by outcome."""
    results: dict[str, list[Mutation]] = {"killed": [], "SURVIVED": [], "BROKEN": [], "the old text is gone": []}
    waiting, free = list(reversed(chosen)), list(trees)
    running: dict[int, tuple[Mutation, Path, contextlib.ExitStack, float]] = {}

    def told(result: str, mutation: Mutation, seconds: float) -> None:
        results[result].append(mutation)
        print(f"{result:8} {mutation.name} ({seconds:.0f} s)", flush=True)

    while waiting or running:
        while waiting and free:
            mutation, tree, change = waiting.pop(), free.pop(), contextlib.ExitStack()
            try:
                change.enter_context(applied(mutation, tree))
            except ValueError:
                told("the old text is gone", mutation, 0.0)
                free.append(tree)
                continue
            child = started(tree, mutation.tests, tree.with_suffix(".log"))
            running[child] = (mutation, tree, change, time.monotonic())
        if running:
            child, status = os.wait()
            mutation, tree, change, begun = running.pop(child)
            change.close()
            free.append(tree)
            told(outcome(status), mutation, time.monotonic() - begun)
            if outcome(status) == "BROKEN":
                print(tree.with_suffix(".log").read_text()[-2000:])
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutations whose name (file: title) contains this")
    parser.add_argument("--jobs", type=int, default=1, help="tests that run at the same time")
    given = parser.parse_args()
    chosen = [mutation for mutation in mutations(TABLE.read_text()) if given.only in mutation.name]
    if not chosen:
        parser.error(f"no mutation's name contains {given.only!r}")
    begun = time.monotonic()
    os.chdir(ROOT)
    import tests.conftest  # noqa: F401 - TensorFlow, for all that are forked

    with tempfile.TemporaryDirectory() as folder:
        trees = [Path(folder) / str(number) for number in range(max(1, given.jobs))]
        shutil.copytree(ROOT, trees[0], symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        log, failures = Path(folder) / "unchanged.log", Path(folder) / "unchanged.failures"
        every = dict.fromkeys(test for one in chosen for test in one.tests)
        _, status = os.waitpid(started(trees[0], [*every], log, failures), 0)
        failed = failures.read_text().splitlines()
        if status:
            print(f"{log.read_text()[-4000:]}\nTests that fail without a change tell nothing of it.")
        if status and not failed:
            return 1
        sound = [one for one in chosen if not any(name.startswith(one.tests) for name in failed)]
        print(f"{len(every)} tests without a change: {len(failed)} fail ({time.monotonic() - begun:.0f} s)", flush=True)
        for tree in trees[1:]:
            shutil.copytree(trees[0], tree, symlinks=True)
        results = campaign(sound, trees)
    counts = ", ".join(f"{len(found)} {result}" for result, found in results.items() if found)
    counts += f", {len(chosen) - len(sound)} not tried" if len(sound) < len(chosen) else ""
    print(f"{len(chosen)} mutations: {counts} ({time.monotonic() - begun:.0f} s)")
    return int(len(results["killed"]) < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
