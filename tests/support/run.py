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
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
NOTHING_CHOSEN = pytest.ExitCode.NO_TESTS_COLLECTED
# A test that asks for a fixture of tests/finetune/conftest.py which trains, and that several files share.
SHARED_FIXTURES = re.compile(r"def test_\w+\([^)]*\b(trained|data_dir|copied)\b")

# Files that take long for their size: they begin first, so that the end does not wait for one of them.
LONG = """
    test_every_task test_every_paper test_lowered_steps test_pretraining_modes test_phases test_distribution
    test_resume test_brackets test_notebook test_readme_commands test_own_python_task test_training test_plan
"""


class Durations:
    """Plugin of pytest that writes the seconds of every test, fixtures included, to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{report.duration}\t{report.nodeid}\n")


class Result(NamedTuple):
    """The end of a process of tests.

    seconds: of the processor, without the programs that tests fork from another process.
    memory: peak of this process, in bytes.
    """

    files: list[Path]
    code: int
    output: str
    seconds: float
    memory: int

    @property
    def passed(self) -> bool:
        return self.code in (0, NOTHING_CHOSEN)

    @property
    def last_line(self) -> str:
        """pytest's summary."""
        return self.output.rstrip().rpartition("\n")[2]

    def count(self, kind: str) -> int:
        """Tests of a kind ("passed", "failed", ...) in pytest's summary."""
        match = re.search(rf"(\d+) {kind}", self.last_line)
        return int(match[1]) if match else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"], help="files or folders of tests")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--durations", type=int, default=30, help="number of slowest tests that are shown")
    values, pytest_words = parser.parse_known_args()
    os.chdir(ROOT)
    begun = time.monotonic()
    waiting = groups([path.resolve() for path in values.paths])
    prepare_to_fork()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = run_groups(waiting, folder, values.jobs, pytest_words)
        stop_fork_server()
        seconds = seconds_of_tests(folder)
    show_slowest(seconds, values.durations)
    show_failures(results)
    show_summary(results, time.monotonic() - begun)
    return 0 if all(result.passed for result in results) else 1


def groups(chosen: list[Path]) -> list[list[Path]]:
    """The files of each process: one file, or those that share a fixture which trains. Long ones come first."""
    files: set[Path] = set()
    for path in chosen:
        files.update(path.rglob("test_*.py") if path.is_dir() else [path])
    sharing = []
    divided = []
    for file in sorted(files):
        if file.parent.name == "finetune" and SHARED_FIXTURES.search(file.read_text("utf-8")):
            sharing.append(file)
        else:
            divided.append([file])
    if sharing:
        divided.append(sharing)

    def order(group: list[Path]) -> tuple[bool, int]:
        is_long = len(group) > 1 or group[0].stem in LONG.split()
        return not is_long, -sum(file.stat().st_size for file in group)

    return sorted(divided, key=order)


def prepare_to_fork() -> None:
    """Imports what all tests need, and starts the process from which programs of tests are forked."""
    import tests.conftest  # noqa: F401 - TensorFlow
    from electra_tf2.corpus.worker_pool import PRELOADED
    from electra_tf2.util.environment import errors_unseen

    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    with errors_unseen():  # it would tell of the semaphores that an ended file has left
        multiprocessing.forkserver.ensure_running()
    gc.freeze()  # so that the collector of a forked process leaves the pages shared


def stop_fork_server() -> None:
    """Waits for its end, so that what the programs of tests took counts among what this process's children took."""
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


def run_groups(waiting: list[list[Path]], folder: Path, jobs: int, pytest_words: list[str]) -> list[Result]:
    """Runs each group in a process of its own, so many at a time, and prints how each ended."""
    results = []
    running: dict[int, list[Path]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            files = waiting.pop(0)
            running[start(files, folder, pytest_words)] = files
        result = wait_for_one(running, folder)
        results.append(result)
        names = ", ".join(str(file.relative_to(ROOT)) for file in result.files)
        cost = f"{result.seconds:.0f} s of a processor, {result.memory / 1e9:.1f} GB"
        if not result.passed:
            print(result.output, end="")
        print(f"{names}: {result.last_line} ({cost})", flush=True)
    return results


def start(files: list[Path], folder: Path, pytest_words: list[str]) -> int:
    """Runs pytest on files in a fork. Returns the process's number, which names its log in the folder."""
    child = os.fork()
    if child:
        return child
    output = os.open(folder / f"{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The fork server runs. It is a child of this process's parent, and Python would take it for dead here.
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    # pytest would import again, to rewrite their assertions, modules that the parent has imported: it warns instead.
    words = ["-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning", *pytest_words]
    words += [str(file.relative_to(ROOT)) for file in files]
    code = pytest.main(words, plugins=[Durations(folder / f"{os.getpid()}.durations")])
    sys.stdout.flush()
    os._exit(code)


def wait_for_one(running: dict[int, list[Path]], folder: Path) -> Result:
    """Waits for the next process that ends."""
    child, status, usage = os.wait4(-1, 0)
    code = os.waitstatus_to_exitcode(status)
    output = (folder / f"{child}.log").read_text(errors="replace")
    return Result(running.pop(child), code, output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def seconds_of_tests(folder: Path) -> dict[str, float]:
    """Test -> its seconds: set-up, call and tear-down."""
    seconds: dict[str, float] = {}
    for path in folder.glob("*.durations"):
        for line in path.read_text().splitlines():
            duration, _, test = line.partition("\t")
            seconds[test] = seconds.get(test, 0.0) + float(duration)
    return seconds


def show_slowest(seconds: dict[str, float], count: int) -> None:
    print(f"slowest {count} of {len(seconds):,} tests, with their fixtures:")
    for test in sorted(seconds, key=lambda test: -seconds[test])[:count]:
        print(f"{seconds[test]:7.1f} s {test}")


def show_failures(results: list[Result]) -> None:
    for result in results:
        if not result.passed:
            lines = re.findall(r"^(?:FAILED|ERROR) .*", result.output, re.MULTILINE)
            print("\n".join(lines or [f"ended: {result.files}"]))


def show_summary(results: list[Result], seconds: float) -> None:
    bad = [result for result in results if not result.passed]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = children.ru_utime + children.ru_stime
    memory = max(result.memory for result in results)
    print(
        f"{len(results)} processes, {len(bad)} with failures, in {seconds:.0f} s: "
        f"{processor:.0f} s of processors; the largest process took {memory / 1e9:.1f} GB"
    )
    passed = sum(result.count("passed") for result in results)
    failed = sum(result.count("failed") + result.count("error") for result in results)
    skipped = sum(result.count("skipped") for result in results)
    # A process that died, or whose files could not be collected, counts none: it is a failure all the same.
    for result in bad:
        if not result.count("failed") + result.count("error"):
            failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    sys.exit(main())
