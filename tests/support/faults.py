"""Faults at named points: a program is stopped before or after a rename, or meets a full disk, and nothing is lost.

  python -m tests.support.faults --faults 200 --seed 0 [--programs pretraining,trials] [--kinds kill,full] [--list]

An undisturbed run of a program records every call that changes or opens a file of its folder (rename, fsync, truncate,
unlink, open). Each of these is a point at which a later run meets one fault:

  kill        the process ends before or after the call, as by SIGKILL or a power cut without loss of what was written
  full        no space is left on the device, from that call on
  readonly    the file system refuses to be written, from that call on
  eio         one call fails with an input/output error; the next ones succeed
  clock       the clock jumps back by a day and forward by a year

After the fault the same command runs again until it comes to its end. What it leaves must be what the undisturbed run
left, a process that was not killed must have ended with one line of error, and nothing may be left over.
tests/test_kills.py stops programs at random moments instead.
"""

import argparse
import builtins
import collections
import errno
import functools
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.formats import checkpoint_files
from electra_tf2.util.files import write_json
from tests import test_kills
from tests.support import golden, programs
from tests.support.finetuning import TASKS, write_lines
from tests.test_kills import Program, differences, left_by

KINDS = ("kill", "full", "readonly", "eio", "clock")
CHANGES = ("replace", "rename", "fsync", "ftruncate", "truncate", "unlink", "rmdir", "mkdir")  # functions of os
# Calls that a kind of fault has nothing to do with.
_UNTOUCHED = {"kill": ("read",), "full": ("read", "unlink", "rmdir"), "readonly": ("read",)}
DAY, YEAR = 86_400.0, 365 * 86_400.0


class Point(NamedTuple):
    """A call in the folder of a run: the number-th, from 0, of its name; "write" and "read" are openings."""

    call: str
    number: int


class Fault(NamedTuple):
    """A fault at a point; `after` of a kill: behind the call."""

    kind: str
    point: Point
    after: bool = False

    def __str__(self) -> str:
        side = f" {'after' if self.after else 'before'}" if self.kind == "kill" else " at"
        return f"{self.kind}{side} {self.point.call} {self.point.number}"


class _Injector:
    """Counts the calls of this process in a folder, and causes a fault at one of them."""

    def __init__(self, folder: Path, fault: Fault | None, record: Path | None) -> None:
        self.folder, self.fault, self.record = str(folder.resolve()), fault, record
        self.counts: collections.Counter[str] = collections.Counter()
        self.broken, self.process = 0, os.getpid()  # errno of all further writing

    def _is_inside(self, path: object) -> bool:
        if isinstance(path, int):  # a descriptor
            try:
                path = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return False
        if not isinstance(path, str | bytes | os.PathLike) or os.getpid() != self.process:
            return False
        # The folder's neighbours belong to it: what --overwrite moves aside.
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder)

    def call(self, name: str, path: object, function: Callable[[], Any]) -> Any:
        """Runs a call, or the fault in its place or around it."""
        if not self._is_inside(path):
            return function()
        point = Point(name, self.counts[name])
        self.counts[name] += 1
        if self.record is not None and os.getpid() == self.process:
            with _open(self.record, "a") as file:
                file.write(f"{name}\n")
        if self.broken and name != "read":
            raise _error(self.broken, path)
        if self.fault is None or point != self.fault.point:
            return function()
        kind = self.fault.kind
        if kind == "kill":
            if self.fault.after:
                function()
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "clock":
            _jump()
            return function()
        number = {"full": errno.ENOSPC, "readonly": errno.EROFS, "eio": errno.EIO}[kind]
        self.broken = 0 if kind == "eio" else number
        raise _error(number, path)


_open = io.open


def _error(number: int, path: object) -> OSError:
    named = os.fspath(path) if isinstance(path, str | bytes | os.PathLike) else None
    return OSError(number, os.strerror(number), named)


def _jump() -> None:
    """The clock goes a day back, and a year ahead a second later."""
    start, now = time.monotonic(), time.time
    time.time = lambda: now() + (YEAR if time.monotonic() > start + 1 else -DAY)


def inject(folder: Path, fault: Fault | None, record: Path | None) -> None:
    """Changes this process for good: its calls in a folder are recorded, and one of them meets a fault."""
    injector = _Injector(folder, fault, record)
    for name in CHANGES:
        function = getattr(os, name)

        def changed(path: Any, *rest: Any, _name: str = name, _function: Any = function, **options: Any) -> Any:
            call = functools.partial(_function, path, *rest, **options)
            return injector.call(_name, path, call) if "dir_fd" not in options else call()

        setattr(os, name, changed)

    def opened(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        writes = any(letter in mode for letter in "wax+")
        return injector.call("write" if writes else "read", path, lambda: _open(path, mode, *rest, **options))

    builtins.open = io.open = opened  # type: ignore[assignment]


def _run_in_child(words: list[str], log: Path, folder: Path, fault: Fault | None, record: Path | None) -> None:
    inject(folder, fault, record)
    programs._run_in_child(words, log, {})


def start(words: list[str], log: Path, folder: Path, fault: Fault | None = None, record: Path | None = None) -> Any:
    """`python words` in a process of its own, with a fault."""
    import multiprocessing

    programs.start_fork_server()
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_run_in_child, args=(words, log, folder, fault, record))
    process.start()
    return process


# ---- the programs ----


def short_pretraining(data: Path) -> Program:
    """A run of a few checkpoints, one of them the best of an evaluation."""
    program = test_kills.pretraining(data)

    def words(folder: Path) -> list[str]:
        script, flag, hparams = program.words(folder)
        shorter = {"num_train_steps": 9, "save_checkpoints_steps": 3, "eval_every_steps": 5}
        return [script, flag, json.dumps(json.loads(hparams) | shorter)]

    return program._replace(words=words)


def conversion(data: Path) -> Program:
    """A checkpoint of the original becomes a Hugging Face directory."""
    del data
    words = ["convert_model.py", "--from", str(golden.CHECKPOINT), "--format", "huggingface", "--overwrite"]
    return Program("conversion", lambda folder: [*words, "--to", str(folder / "model")], lambda folder, log: True)


class Scenario(NamedTuple):
    """A program and what surrounds it.

    prepare: makes what is in the folder of a run before its first start.
    problem: why the folder after a fault is not as promised; None if it is.
    """

    make: Callable[[Path], Program]
    prepare: Callable[[Program, Path], None] = lambda program, folder: None
    problem: Callable[[Path], str | None] = lambda folder: None


def overwriting(data: Path) -> Program:
    """A pre-training run that replaces another one."""
    program = short_pretraining(data)
    return program._replace(name="overwriting", words=lambda folder: [*program.words(folder), "--overwrite"])


def _old_run(program: Program, folder: Path) -> None:
    """A finished run of another seed, made once and copied."""
    old = folder.parent / "old"
    if not old.exists():
        script, flag, hparams, _ = program.words(old)
        _run_well([script, flag, json.dumps(json.loads(hparams) | {"seed": 1})], old)
    shutil.copytree(old, folder)


def _run_well(words: list[str], folder: Path) -> None:
    log = folder.with_suffix(".log")
    log.write_text("")
    process = start(words, log, folder)
    process.join()
    assert process.exitcode == 0, log.read_text()


def _holds_a_run(folder: Path) -> str | None:
    """The old run is there, or has the name that --overwrite gave it."""
    for place in (folder, *folder.parent.glob(f"{folder.name}.old-*")):
        for index in place.glob("model.ckpt-*.index"):
            if checkpoint_files.problem(place, int(index.stem.rpartition("-")[2])) is None:
                return None
    return "the old run is gone"


def multi_task(data: Path) -> Program:
    """Two tasks learned together, with the files and the archive of GLUE's server."""
    program = test_kills.finetuning(data)
    several = {"task_names": ["sst", "rte"], "num_trials": 1, "write_test_outputs": True}
    for path in [*TASKS.glob("sst/*"), *TASKS.glob("rte/*")]:
        rows = [line for line in path.read_text().splitlines() if all(cell.strip() for cell in line.split("\t"))]
        write_lines(data / "finetuning_data" / path.parent.name / path.name, *rows)  # without damaged ones

    def words(folder: Path) -> list[str]:
        script, flag, hparams = program.words(folder)
        return [script, flag, json.dumps(json.loads(hparams) | several)]

    return program._replace(name="multi_task", words=words)


def prediction(data: Path) -> Program:
    """Rows of a file are labelled by a fine-tuned model."""
    rows = write_lines(data / "rows.jsonl", *(json.dumps({"text": f"the {word} is open"}) for word in ("file", "line")))
    words = ["run_finetuning.py", "--predict", str(rows)]

    def of(folder: Path) -> list[str]:
        return [*words, "--model-dir", str(folder / "model"), "--predict-output", str(folder / "labelled.jsonl")]

    return Program("prediction", of, lambda folder, log: True)


def _trained(program: Program, folder: Path) -> None:
    """A fine-tuned model, made once and copied."""
    del program
    run = folder.parent / "trained"
    if not run.exists():
        script, flag, hparams = test_kills.finetuning(folder.parent / "data").words(run)
        _run_well([script, flag, json.dumps(json.loads(hparams) | {"num_trials": 1, "num_train_epochs": 1.0})], run)
    shutil.copytree(run / "finetuning_models" / "mine_model_1", folder / "model")


PROGRAMS: dict[str, Scenario] = {
    "pretraining": Scenario(short_pretraining),
    "overwriting": Scenario(overwriting, _old_run, _holds_a_run),
    "trials": Scenario(test_kills.finetuning),
    "multi_task": Scenario(multi_task),
    "prediction": Scenario(prediction, _trained),
    "builder": Scenario(test_kills.builder),
    "conversion": Scenario(conversion),
}


# ---- the campaign ----


class Campaign:
    """Faults in runs of one program."""

    def __init__(self, name: str, work: Path) -> None:
        self.name, self.work = name, work
        self.scenario = PROGRAMS[name]
        self.program = self.scenario.make(work / "data")
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        folder, record = work / "undisturbed", work / "calls.txt"
        self.scenario.prepare(self.program, folder)
        code, text = self._run(folder, record=record)
        assert code == 0, text
        self.expected = left_by(folder)
        self.calls = collections.Counter(record.read_text().split())

    def points(self, kinds: tuple[str, ...]) -> list[Fault]:
        """Every fault that there can be, in the order of kinds, calls and numbers."""
        found = []
        for kind in kinds:
            for call, count in sorted(self.calls.items()):
                if call in _UNTOUCHED.get(kind, ()):
                    continue
                for number in range(count):
                    sides = (False, True) if kind == "kill" else (False,)
                    found += [Fault(kind, Point(call, number), after) for after in sides]
        return found

    def _run(self, folder: Path, fault: Fault | None = None, record: Path | None = None) -> tuple[int | None, str]:
        log = self.work / "logs" / f"{folder.name}.txt"  # beside what a fault may hit
        log.parent.mkdir(exist_ok=True)
        log.write_text("")
        process = start(self.program.words(folder), log, folder, fault, record)
        process.join(300)
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return None, log.read_text()
        if not test_kills.group_is_gone(process.pid):
            self.problems.append(f"{folder.name}: processes are left")
        return process.exitcode, log.read_text()

    def run(self, number: int, fault: Fault) -> None:
        """One run that meets the fault, and its repetition."""
        folder, before = self.work / f"run-{number}", len(self.problems)
        self.scenario.prepare(self.program, folder)
        code, text = self._run(folder, fault)
        self.counts[fault.kind] += 1
        where = f"{self.name}, {fault}"
        broken = self.scenario.problem(folder)
        if broken is not None:
            self.problems.append(f"{where}: {broken}")
        if code is None:
            self.problems.append(f"{where}: hangs: {text[-500:]}")
        elif "Traceback" in text:
            self.problems.append(f"{where}: {text[-1500:]}")
        elif fault.kind in ("full", "readonly", "eio") and code > 0 and text.count("error: ") != 1:
            self.problems.append(f"{where}: exit code {code} without one line of error: {text[-500:]}")
        elif fault.kind == "clock" and code:
            self.problems.append(f"{where}: exit code {code}: {text[-500:]}")
        if code:
            code, text = self._run(folder)
            if code:
                self.problems.append(f"{where}, then again: exit code {code}: {text[-1500:]}")
        left = left_by(folder)
        if fault.kind == "eio" and fault.point.call == "unlink":
            left.pop(".lock", None)  # may be what could not be removed; nothing holds it (flock)
        self.problems += [f"{where}: {one}" for one in differences(self.expected, left)]
        if len(self.problems) == before:
            shutil.rmtree(folder)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return "\n".join([f"{self.name}: {counts}; {len(self.problems)} problems", *self.problems])


def campaign(name: str, faults: int, seed: int, kinds: tuple[str, ...], work: Path) -> Campaign:
    """So many faults, drawn without repetition from all that there can be."""
    work = work / name
    work.mkdir(parents=True)
    result = Campaign(name, work)
    drawn = result.points(kinds)
    random.Random(f"{name} {seed}").shuffle(drawn)
    for number, fault in enumerate(drawn[:faults]):
        result.run(number, fault)
        print(f"{name} {number + 1}/{min(faults, len(drawn))}: {fault}; {len(result.problems)} problems", flush=True)
    return result


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200, help="faults in all, divided among the programs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice among all points")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--list", action="store_true", help="print the calls of each program, and stop")
    parser.add_argument("--output", help="JSON file of the figures")
    arguments = parser.parse_args()
    names, kinds = arguments.programs.split(","), tuple(arguments.kinds.split(","))
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(names):
            if arguments.list:
                (Path(temporary) / name).mkdir()
                print(name, dict(Campaign(name, Path(temporary) / name).calls))
                continue
            share = arguments.faults * (number + 1) // len(names) - arguments.faults * number // len(names)
            results.append(campaign(name, share, arguments.seed, kinds, Path(temporary)))
            print(results[-1], flush=True)
    if arguments.output:
        write_json(arguments.output, {one.name: {**one.counts, "problems": one.problems} for one in results})
    return int(any(one.problems for one in results))


if __name__ == "__main__":
    sys.exit(main())
