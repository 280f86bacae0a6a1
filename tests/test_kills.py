"""Programs that are killed or meet a fault: nothing is lost, nothing different, nothing left over.

  python -m tests.test_kills --kills 60 --faults 200 --seed 0 [--programs pretraining,builder]

An undisturbed run of each program records the calls that open or change a file of its folder. Later runs are disturbed:

  SIGKILL, SIGTERM   a signal at a random moment (--kills), up to six times in a run
  kill               the process ends at a named call (--faults), as by a power cut without loss of what was written
  full, readonly     from that call on no space is left, or the file system refuses to be written
  eio                one call fails with an input/output error
  clock              the clock jumps back by a day, and forward by a year a second later

The same command runs again until it comes to its end. What it leaves must be what the undisturbed run left, but for
times: metrics, evaluations, scores, weights bit for bit, the names of the files. A process that was not killed must
have ended with one line of error.
"""

import argparse
import bisect
import collections
import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.formats import checkpoint_files
from tests.support import golden, programs, training
from tests.support.corpora import write_corpus
from tests.support.finetuning import TASKS, write_lines
from tests.support.finetuning_runs import command

SIGNALS = ("SIGKILL", "SIGKILL", "SIGTERM")
FAULTS = ("kill", "full", "readonly", "eio", "clock")
_ERRORS = {"full": errno.ENOSPC, "readonly": errno.EROFS, "eio": errno.EIO}
_UNTOUCHED = {"kill": ("read",), "full": ("read", "remove", "rmdir"), "readonly": ("read",)}  # calls by kind of fault
_CALLS = {f"os.{name}": name for name in ("rename", "remove", "mkdir", "rmdir", "truncate", "fsync")}  # by event
_OF_THE_CLOCK = {"examples_per_second", "seconds", "peak_memory", "model_dir", "pretrained_model_dir", "output_dir"}
Words = Callable[[Path], list[str]]  # the command line of a run in a folder


def pretraining(data: Path, *flags: str, **overrides: Any) -> Words:
    training.write_records(data / "pretrain_tfrecords")
    # Every step is reported, so a signal cannot end an interval of the report early.
    steps = {"num_train_steps": 15, "iterations_per_loop": 1, "save_checkpoints_steps": 3, "keep_checkpoint_max": 1}
    evaluation = {"eval_tfrecords": str(data / "pretrain_tfrecords" / "*"), "eval_every_steps": 4, "num_eval_steps": 2}
    hparams = training.hparams(data, do_eval=True, **steps, **evaluation, **overrides)

    def words(folder: Path) -> list[str]:
        places = {f"results_{kind}": str(folder / f"results.{kind}") for kind in ("txt", "json")}
        return ["run_pretraining.py", "--hparams", json.dumps(hparams | places | {"model_dir": str(folder)}), *flags]

    return words


def finetuning(data: Path, **overrides: Any) -> Words:
    """Trials of two tasks, with the files and the archive of GLUE's server."""
    for split, size in (("train", 40), ("dev", 16), ("test", 4)):
        lines = [{"text": f"the {word}", "label": "some"} for word in ("file", "error") for _ in range(size // 2)]
        lines[1::2] = [line | {"label": "none"} for line in lines[1::2]]
        write_lines(data / "finetuning_data" / "kind" / f"{split}.jsonl", *map(json.dumps, lines))
        rows = [row for row in (TASKS / "rte" / f"{split}.tsv").read_text().splitlines() if all(row.split("\t"))]
        write_lines(data / "finetuning_data" / "rte" / f"{split}.tsv", *rows)
    hparams: dict[str, Any] = {"task_names": ["kind", "rte"], "num_trials": 2, "keep_all_models": False}
    hparams |= {"save_checkpoints_steps": 3, "eval_every_steps": 4, "keep_best": True, "write_test_outputs": True}
    return lambda folder: command(data, folder, **hparams | overrides)[1:]


def prediction(data: Path) -> Words:
    rows = write_lines(data / "rows.jsonl", '{"text": "the file is open"}', '{"text": "the line is open"}')
    quick = {
        "task_names": ["kind"],
        "num_trials": 1,
        "num_train_epochs": 0.2,
        "keep_best": False,
        "eval_every_steps": 0,
    }
    train = finetuning(data, **quick, write_test_outputs=False)(data)
    assert run(train, data / "log", data)[0] == 0
    model = str(data / "finetuning_models" / "kind_model_1")
    words = ["run_finetuning.py", "--predict", str(rows), "--model-dir", model, "--predict-output"]
    return lambda folder: [*words, str(folder / "labelled.jsonl")]


def builder(data: Path) -> Words:
    corpus = write_corpus(data / "corpus", documents=2000)
    settings = {"--corpus-dir": corpus, "--vocab-file": golden.CHECKPOINT / "vocab.txt", "--max-seq-length": 32}
    settings |= {"--dev-fraction": 0.05, "--num-shards": 12, "--num-processes": 2}
    words = [str(word) for item in settings.items() for word in item]
    return lambda folder: ["build_pretraining_dataset.py", *words, "--output-dir", str(folder)]


def conversion(data: Path) -> Words:
    words = ["convert_model.py", "--from", str(golden.CHECKPOINT), "--format", "huggingface", "--overwrite", "--to"]
    return lambda folder: [*words, str(folder / "model")]


def _old_run(folder: Path, shared: Path) -> None:
    """A finished run of another seed, made once and copied."""
    if not shared.exists():
        words = pretraining(shared.with_name("old_data"), seed=1)
        assert run(words(shared), shared.with_suffix(".log"), shared)[0] == 0
    shutil.copytree(shared, folder)


def _holds_a_run(folder: Path) -> bool:
    """The old run is there, or has the name that --overwrite gave it."""
    return any(checkpoint_files.steps(place) for place in folder.parent.glob(f"{folder.name}*"))


class Program(NamedTuple):
    """A program to disturb."""

    make: Callable[[Path], Words]  # writes its data to a folder
    prepare: Callable[[Path, Path], None] = lambda folder, shared: None  # of a run, before its first start
    holds: Callable[[Path], bool] = lambda folder: True  # what every disturbed run must leave at once


PROGRAMS = {
    "pretraining": Program(pretraining),
    "overwriting": Program(lambda data: pretraining(data, "--overwrite"), _old_run, _holds_a_run),
    "finetuning": Program(finetuning),
    "prediction": Program(prediction),
    "builder": Program(builder),
    "conversion": Program(conversion),
}


class Disturbance(NamedTuple):
    """A kind of FAULTS at the number-th call of a name, from 0, or one of SIGNALS some seconds after so many calls."""

    kind: str
    call: str
    number: int
    delay: float = 0.0


def _run_in_child(words: list[str], log: Path, folder: Path, fault: Disturbance | None) -> None:
    """In the process: the program, whose calls in a folder are written beside its log; one of them meets a fault.

    The folder's neighbours of the same beginning belong to it: what --overwrite moves aside.
    """
    counts: collections.Counter[str] = collections.Counter()
    record, process, fsync, now = os.open(log.with_suffix(".calls"), os.O_WRONLY), os.getpid(), os.fsync, time.time
    broken, started = 0, time.monotonic()  # errno of all further writing

    def audited_fsync(file: int) -> None:
        sys.audit("os.fsync", file)
        fsync(file)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal broken
        call = _CALLS.get(event)
        if event == "open" and not isinstance(arguments[0], int):
            call = "write" if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else "read"
        if call is None or os.getpid() != process:
            return
        path = arguments[0]
        path = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        if not path.startswith(str(folder)):
            return
        os.write(record, f"{call} {time.monotonic() - started}\n".encode())
        kind = fault.kind if fault is not None and fault[1:3] == (call, counts[call]) else ""
        counts[call] += 1
        if kind == "kill":
            os.kill(process, signal.SIGKILL)
        if kind == "clock":
            begun = time.monotonic()
            time.time = lambda: now() + (365 * 86_400.0 if time.monotonic() > begun + 1 else -86_400.0)
        number = _ERRORS.get(kind, 0 if call == "read" else broken)
        broken = number if kind in ("full", "readonly") else broken
        if number:
            raise OSError(number, os.strerror(number), path)

    os.fsync = audited_fsync  # type: ignore[assignment]  # which Python does not audit itself
    sys.addaudithook(hook)
    programs.run_in_child(words, log, {}, formulas=True)


def run(words: list[str], log: Path, folder: Path, disturbance: Disturbance | None = None) -> tuple[int | None, str]:
    """`python words` in a process of its own. Returns its exit code, None if it hung or left processes, and output."""
    programs.start_fork_server()
    for path in (log, log.with_suffix(".calls")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_run_in_child, args=(words, log, folder, disturbance))
    process.start()
    hung = time.monotonic() + 300
    if disturbance is not None and disturbance.kind in SIGNALS:
        while (
            process.exitcode is None
            and time.monotonic() < hung
            and log.with_suffix(".calls").read_bytes().count(b"\n") < disturbance.number
        ):
            process.join(0.01)
        process.join(disturbance.delay)
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, signal.Signals[disturbance.kind])
    process.join(max(0.0, hung - time.monotonic()))
    code, end = process.exitcode, time.monotonic() + 60  # by which the group is gone
    with contextlib.suppress(ProcessLookupError):
        while process.pid is not None and code is not None:
            os.killpg(process.pid, 0)
            code = None if time.monotonic() > end else code
            time.sleep(0.1)
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
    return code, log.read_text()


def left_by(folder: Path) -> dict[str, Any]:
    """Path in the folder of a run -> content, without times. TensorBoard's events are not compared."""
    left: dict[str, Any] = {}

    def timeless(entries: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in entries.items() if name not in _OF_THE_CLOCK}

    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if "events" in path.parts or re.search(r"ckpt-\d+\.(json|data-)", name):
            continue
        if path.suffix == ".index":
            reader = tf.train.load_checkpoint(str(path.with_suffix("")))
            names = [key for key in reader.get_variable_to_shape_map() if not key.startswith("_CHECKPOINTABLE")]
            left[name] = {key: np.asarray(reader.get_tensor(key)).tobytes() for key in names}
        elif path.suffix in (".json", ".jsonl"):
            texts = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
            texts = [text.replace(str(folder), "<folder>") for text in texts]
            left[name] = [json.loads(text, object_hook=timeless) for text in texts]
        elif path.suffix == ".zip":
            # Its bytes hold times; the checksums of its members do not.
            with zipfile.ZipFile(path) as archive:
                left[name] = {member.filename: member.CRC for member in archive.infolist()}
        else:
            left[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return left


def _ended_as_it_may(disturbance: Disturbance, code: int | None, text: str) -> bool:
    """True if a disturbed program ended without a traceback, and after an error of the disk with one line of error."""
    if code is None or "Traceback" in text:
        return False
    if disturbance.kind == "clock":
        return code == 0
    if disturbance.kind in _ERRORS and code:
        return text.count("error: ") == 1
    return True


class Campaign:
    """Disturbs runs of one program and counts what comes of it."""

    def __init__(self, name: str, work: Path) -> None:
        self.name, self.work, self.program = name, work / name, PROGRAMS[name]
        self.words = self.program.make(self.work / "data")
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        folder, log = self._prepared("undisturbed")
        code, text = run(self.words(folder), log, folder)
        assert code == 0, text
        self.expected = left_by(folder)
        calls = [line.split() for line in log.with_suffix(".calls").read_text().splitlines()]
        self.calls = collections.Counter(name for name, _ in calls)
        self.times = [0.0, *(float(seconds) for _, seconds in calls)]

    def moment(self, rng: random.Random) -> Disturbance:
        """A signal between two calls, any two of them or those around any time."""
        by_time = bisect.bisect(self.times, rng.uniform(0, self.times[-1])) - 1
        number = rng.choice([by_time, rng.randrange(len(self.times) - 1)])
        return Disturbance(rng.choice(SIGNALS), "", number, rng.uniform(0, self.times[number + 1] - self.times[number]))

    def _prepared(self, name: str) -> tuple[Path, Path]:
        """The folder of a run, and its log beside what a fault may hit."""
        self.program.prepare(self.work / name, self.work / "shared")
        return self.work / name, self.work / "logs" / f"{name}.txt"

    def disturb(self, *disturbances: Disturbance) -> None:
        """Disturbs a run, once each time that it is started, until it comes to its end."""
        self.counts["runs"] += 1
        folder, log = self._prepared(f"run-{self.counts['runs']}")
        problems: list[str] = []
        code: int | None = 1
        for disturbance in disturbances:
            code, text = run(self.words(folder), log, folder, disturbance)
            self.counts[disturbance.kind] += disturbance.kind in FAULTS or code != 0
            if not _ended_as_it_may(disturbance, code, text):
                problems.append(f"{disturbance}: exit code {code}: {text[-1500:]}")
            if not self.program.holds(folder):
                problems.append(f"{disturbance}: the old run is gone")
            if code == 0:
                break
        if code != 0:
            code, text = run(self.words(folder), log, folder)
            if code != 0:
                problems.append(f"exit code {code}: {text[-1500:]}")
        left = left_by(folder)
        if disturbance.kind == "eio" and disturbance.call == "remove":
            # It may be the file that could not be removed; no process holds its lock (flock).
            left.pop(".lock", None)
        for name in sorted(self.expected.keys() | left.keys()):
            if self.expected.get(name) != left.get(name):
                problems.append(f"lost, left over or other: {name}")
        self.problems += [f"{folder}, {disturbances}: {problem}" for problem in problems]
        if not problems:
            shutil.rmtree(folder)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return "\n".join([f"{self.name}: {counts}; {len(self.problems)} problems", *self.problems])


def campaign(name: str, kills: int, faults: int, seed: int, work: Path) -> Campaign:
    """So many signals, of which one run gets several if they come early, and faults, each at another point."""
    result, rng = Campaign(name, work), random.Random(f"{name} {seed}")
    while (missing := kills - sum(result.counts[kind] for kind in {*SIGNALS})) > 0:
        if result.counts["runs"] > 2 * kills + 3:  # a signal after a program's end is none
            result.problems.append(f"{missing} of {kills} signals met no run")
            break
        result.disturb(*(result.moment(rng) for _ in range(min(6, missing))))
        print(result, flush=True)
    points = [
        Disturbance(kind, call, number)
        for kind in FAULTS
        for call, count in sorted(result.calls.items())
        for number in range(0 if call in _UNTOUCHED.get(kind, ()) else count)
    ]
    for point in rng.sample(points, min(faults, len(points))):
        result.disturb(point)
        print(result, flush=True)
    return result


def test_a_program_that_met_a_fault_leaves_what_it_leaves_undisturbed(tmp_path: Path) -> None:
    """The quickest program; the slow test below asks the others, too."""
    assert not campaign("conversion", 0, 2, 0, tmp_path).problems


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_killed_leaves_what_it_leaves_undisturbed(name: str, tmp_path: Path) -> None:
    assert not campaign(name, 6, 6, 0, tmp_path).problems


def test_every_test_that_the_promises_name_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (programs.ROOT / "docs" / "reliability.md").read_text("utf-8")))
    texts = [path.read_text("utf-8") for path in (programs.ROOT / "tests").rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}
    assert len(named) > 40 and named <= there, named - there


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="signals in all, divided among the programs")
    parser.add_argument("--faults", type=int, default=0, help="faults in all, divided among the programs")
    parser.add_argument("--seed", type=int, default=0, help="seed of moments and points")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="programs to disturb")
    given = parser.parse_args()
    names, problems = given.programs.split(","), 0
    with tempfile.TemporaryDirectory() as work:
        for n, name in enumerate(names):
            kills, faults = (of * (n + 1) // len(names) - of * n // len(names) for of in (given.kills, given.faults))
            problems += len(campaign(name, kills, faults, given.seed, Path(work)).problems)
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
