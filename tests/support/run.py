"""Runs the tests, each file in a process that ends with it: what XLA compiled is freed only then.

    python -m tests.support.run [--jobs 2] [--durations 30] [FILE_OR_FOLDER ...]

The processes are forked from one that has imported TensorFlow, so that a file costs no start; those that tests start
come from one process, too. Of a file that fails the whole output is printed. At the end stand the slowest tests, and
time and memory of all.
"""

import argparse
import gc
import multiprocessing
import multiprocessing.forkserver
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
NOTHING_CHOSEN = pytest.ExitCode.NO_TESTS_COLLECTED
SHARED = re.compile(r"\b(trained|data_dir)\b")  # fixtures of tests/finetune/conftest.py that several files share


class Durations:
    """Plugin of pytest that writes the seconds of every test, fixtures included, to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{report.duration}\t{report.nodeid}\n")


class Result(NamedTuple):
    """How a process of tests ended.

    seconds: of the processor, with the processes that it started.
    memory: of this process at most, in bytes.
    """

    files: list[Path]
    code: int
    output: str
    seconds: float
    memory: int


def groups(chosen: list[Path]) -> list[list[Path]]:
    """The files of each process, long ones first: one file, or those that share a fixture which trains."""
    files = sorted({file for path in chosen for file in (path.rglob("test_*.py") if path.is_dir() else [path])})
    together = [one for one in files if one.parent.name == "finetune" and SHARED.search(one.read_text("utf-8"))]
    alone = [[one] for one in files if one not in together]
    return sorted([*alone, together] if together else alone, key=lambda one: -sum(f.stat().st_size for f in one))


def start(files: list[Path], folder: Path, words: list[str]) -> int:
    """Runs pytest on files in a fork. Returns the process's number, which names its log in the folder."""
    child = os.fork()
    if child:
        return child
    output = os.open(folder / f"{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # It runs, as the child of this process's parent, whom alone the system would tell so.
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    # What this process has imported is not imported anew to have its assertions rewritten.
    words = ["-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning", *words]
    words += [str(file.relative_to(ROOT)) for file in files]
    code = pytest.main(words, plugins=[Durations(folder / f"{os.getpid()}.durations")])
    sys.stdout.flush()
    os._exit(code)


def finished(running: dict[int, list[Path]], folder: Path) -> Result:
    """Waits for the next process."""
    child, status, usage = os.wait4(-1, 0)
    code = os.waitstatus_to_exitcode(status)
    output = (folder / f"{child}.log").read_text(errors="replace")
    return Result(running.pop(child), code, output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"], help="files or folders of tests")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--durations", type=int, default=30, help="number of slowest tests that are shown")
    given, words = parser.parse_known_args()
    os.chdir(ROOT)
    begun, results = time.monotonic(), []
    running: dict[int, list[Path]] = {}
    waiting = groups([path.resolve() for path in given.paths])
    import tests.conftest  # noqa: F401 - TensorFlow, for all that are forked
    from electra_tf2.corpus.worker_pool import PRELOADED
    from electra_tf2.util.environment import errors_unseen

    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    with errors_unseen():  # it would tell of the semaphores that an ended file has left
        multiprocessing.forkserver.ensure_running()
    gc.freeze()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while waiting or running:
            while waiting and len(running) < given.jobs:
                files = waiting.pop(0)
                running[start(files, folder, words)] = files
            result = finished(running, folder)
            results.append(result)
            good = result.code in (0, NOTHING_CHOSEN)
            last = result.output.rstrip().rpartition("\n")[2]
            where = ", ".join(str(file.relative_to(ROOT)) for file in result.files)
            cost = f"{result.seconds:.0f} s of a processor, {result.memory / 1e9:.1f} GB"
            print(f"{'' if good else result.output}{where}: {last} ({cost})", flush=True)
        lines = [line for path in folder.glob("*.durations") for line in path.read_text().splitlines()]
    seconds: dict[str, float] = {}
    for line in lines:
        duration, _, test = line.partition("\t")
        seconds[test] = seconds.get(test, 0.0) + float(duration)
    print(f"slowest {given.durations} of {len(seconds):,} tests, with their fixtures:")
    for test in sorted(seconds, key=lambda test: -seconds[test])[: given.durations]:
        print(f"{seconds[test]:7.1f} s {test}")
    bad = [result for result in results if result.code not in (0, NOTHING_CHOSEN)]
    for result in bad:
        print("\n".join(re.findall(r"^(?:FAILED|ERROR) .*", result.output, re.MULTILINE) or [f"ended: {result.files}"]))
    print(
        f"{len(results)} processes, {len(bad)} with failures, in {time.monotonic() - begun:.0f} s: "
        f"{sum(result.seconds for result in results):.0f} s of processors; the largest process took "
        f"{max(result.memory for result in results) / 1e9:.1f} GB"
    )
    counts = {
        kind: sum(counted(result, kind) for result in results) for kind in ("passed", "failed", "error", "skipped")
    }
    broken = sum(not counted(result, "failed") + counted(result, "error") for result in bad)  # died, or not collected
    failed = counts["failed"] + counts["error"] + broken
    print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
    return int(bool(bad))


def counted(result: Result, kind: str) -> int:
    """Tests of a kind in pytest's last line."""
    found = re.search(rf"(\d+) {kind}", result.output.rstrip().rpartition("\n")[2])
    return int(found[1]) if found else 0


if __name__ == "__main__":
    sys.exit(main())
