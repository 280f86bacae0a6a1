"""Programs killed at random moments: nothing is lost, nothing different, nothing left over.

  python -m tests.test_kills --kills 100 --seed 0 [--programs pretraining,builder,finetuning]

A run of each program is killed again and again, by SIGKILL or SIGTERM, at a moment drawn from its start-up or its work,
until it gets to its end; then all that it leaves must be what an undisturbed run leaves: metrics, evaluations, scores,
weights bit for bit, the names of its files. Runs follow one another until there were as many kills as asked for.

The programs run in processes forked from one that has imported TensorFlow, or most kills would hit that import.
"""

import argparse
import collections
import contextlib
import hashlib
import json
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
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from electra_tf2.formats.checkpoint_files import write_state
from tests.corpus.test_build_pretraining_dataset import write_corpus
from tests.support import golden, training
from tests.support.finetuning import write_lines
from tests.support.programs import start_fork_server as start_server
from tests.support.programs import start_forked as start

MOST_KILLS = 6  # of one run
_WORDS = ["the", "file", "is", "open", "read", "first", "line", "list", "of", "names", "value", "type", "object"]
_OF_THE_CLOCK = {"examples_per_second", "seconds", "peak_memory", "model_dir", "pretrained_model_dir", "output_dir"}


class Program(NamedTuple):
    """A program to kill.

    words: its command line, given the folder of the run.
    began: whether it has got to its work, by the folder and what it printed.
    """

    name: str
    words: Callable[[Path], list[str]]
    began: Callable[[Path, str], bool]


def pretraining(data: Path) -> Program:
    training.write_records(data / "pretrain_tfrecords")
    hparams = training.hparams(
        data,
        num_train_steps=45,
        iterations_per_loop=5,
        save_checkpoints_steps=3,
        keep_checkpoint_max=2,
        eval_every_steps=4,
        num_eval_steps=2,
        do_eval=True,
        eval_tfrecords=str(data / "pretrain_tfrecords" / "*"),
    )

    def words(folder: Path) -> list[str]:
        results = {f"results_{kind}": str(folder / f"results.{kind}") for kind in ("txt", "json")}
        return ["run_pretraining.py", "--hparams", json.dumps(hparams | {"model_dir": str(folder)} | results)]

    return Program("pretraining", words, lambda folder, log: "\nstep " in log)


def builder(data: Path) -> Program:
    corpus = write_corpus(data / "corpus", documents=2000)
    settings = {"--corpus-dir": corpus, "--vocab-file": golden.CHECKPOINT / "vocab.txt", "--max-seq-length": 32}
    settings |= {"--dev-fraction": 0.05, "--num-shards": 12, "--num-processes": 2}
    words = [str(word) for item in settings.items() for word in item]
    return Program(
        "builder",
        lambda folder: ["build_pretraining_dataset.py", *words, "--output-dir", str(folder)],
        lambda folder, log: (folder / "unfinished.json").exists(),
    )


def finetuning(data: Path) -> Program:
    rng = random.Random(0)
    for split, size in (("train", 80), ("dev", 24)):
        rows = [(rng.choices(_WORDS, k=rng.randint(3, 9)), rng.randrange(2)) for _ in range(size)]
        lines = [{"text": " ".join(words + ["error"] * label), "label": ["no", "yes"][label]} for words, label in rows]
        write_lines(data / "finetuning_data" / "mine" / f"{split}.jsonl", *map(json.dumps, lines))
    sizes = json.loads((golden.CHECKPOINT / "hparams.json").read_text())
    hparams = {name: sizes[name] for name in ("model_hparam_overrides", "embedding_size", "vocab_size")} | {
        "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
        "init_checkpoint": str(golden.CHECKPOINT),
        "data_dir": str(data),
        "tasks": {"mine": {"type": "classification", "text_columns": ["text"]}},
        "task_names": ["mine"],
        "max_seq_length": 16,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "num_train_epochs": 2.0,
        "num_trials": 2,
        "keep_all_models": False,
        "iterations_per_loop": 5,
        "save_checkpoints_steps": 3,
        "eval_every_steps": 4,
        "keep_best": True,
        "learning_rate": 1e-3,
    }

    def words(folder: Path) -> list[str]:
        return ["run_finetuning.py", "--hparams", json.dumps(hparams | {"pretrained_model_dir": str(folder)})]

    return Program("finetuning", words, lambda folder, log: "\nstep " in log)


PROGRAMS = {make.__name__: make for make in (pretraining, builder, finetuning)}


# ---- a program in a process of its own ----


def wait_until(condition: Callable[[], bool], process: ForkServerProcess) -> bool:
    """True if the condition came true before the process ended."""
    while process.exitcode is None:
        if condition():
            return True
        process.join(0.01)
    return False


def workers(process: ForkServerProcess) -> list[int]:
    """The children of a process, and theirs."""
    found: list[int] = []
    waiting = [process.pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):
            children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
            found += children
            waiting += children
    return found


def used(process: ForkServerProcess) -> float:
    """Seconds of the processor that a process and its children have used; 0 once it is gone."""
    ticks = 0
    for pid in (process.pid, *workers(process)):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def outlive(process: ForkServerProcess, seconds: float) -> bool:
    """True if a process goes on for so many seconds of the processor: what else the machine does changes no moment."""
    begun = used(process)
    return wait_until(lambda: used(process) >= begun + seconds, process)


def group_is_gone(group: int) -> bool:
    """True if no process of a group is left, once those that are about to end had their time."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


# ---- what a run leaves ----


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_clock(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {name: _without_clock(one, folder) for name, one in value.items() if name not in _OF_THE_CLOCK}
    if isinstance(value, list):
        return [_without_clock(one, folder) for one in value]
    return value.replace(str(folder), "<folder>") if isinstance(value, str) else value


def _weights(index: Path) -> dict[str, str]:
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("_CHECKPOINTABLE")]
        return {name: hashlib.sha256(np.asarray(reader.get_tensor(name)).tobytes()).hexdigest() for name in names}
    except tf.errors.OpError as error:  # a difference, and the campaign goes on
        return {"cannot be read": str(error)}


def left_by(folder: Path) -> dict[str, Any]:
    """Path in the folder of a run -> content, without times. TensorBoard's events are not looked at."""
    left: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if "events" in path.parts or re.search(r"ckpt-\d+\.(json|data-)", name):
            continue
        if path.suffix == ".index":
            left[name] = _weights(path)
        elif path.suffix == ".json":
            left[name] = _without_clock(json.loads(path.read_text()), folder)
        elif path.suffix == ".jsonl":
            left[name] = [_without_clock(json.loads(line), folder) for line in path.read_text().splitlines()]
        elif path.suffix == ".zip":  # beside the times
            with zipfile.ZipFile(path) as archive:
                left[name] = {one.filename: one.CRC for one in archive.infolist()}
        else:
            left[name] = _digest(path)
    return left


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        f"{'lost' if name not in found else 'left over' if name not in expected else 'different'}: {name}"
        for name in sorted(expected.keys() | found.keys())
        if name not in expected or name not in found or expected[name] != found[name]
    ]


_INDEX = re.compile(r"model\.ckpt-(\d+)\.index")


def with_saved(expected: dict[str, Any], found: dict[str, Any], saved: set[int]) -> dict[str, Any]:
    """What is expected where signals saved steps of their own: the newest are kept, whoever saved them.

    An undisturbed run does not tell the weights of such a step; those of the steps after it show that they were right.
    """
    regular = sorted(int(match[1]) for name in expected if (match := _INDEX.fullmatch(name)))
    kept = sorted({*regular, *saved})[-len(regular) :] if regular else []
    if kept == regular:
        return expected
    names = {f"model.ckpt-{step}.index" for step in kept}
    result = {name: value for name, value in expected.items() if name in names or not _INDEX.fullmatch(name)}
    result |= {name: found.get(name) for name in names - result.keys()}
    with tempfile.TemporaryDirectory() as folder:
        write_state(Path(folder), kept)
        return result | {"checkpoint": _digest(Path(folder, "checkpoint"))}


# ---- kills ----


class Attack:
    """Kills runs of one program and counts what comes of it."""

    def __init__(self, program: Program, work: Path, rng: random.Random) -> None:
        self.program, self.work, self.rng = program, work, rng
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self.saved: set[int] = set()  # steps that signals saved in the run at hand
        self.starting = self.working = 0.0  # seconds of the processor in an undisturbed run
        self.expected = self._undisturbed()

    def _start(self, folder: Path) -> tuple[ForkServerProcess, Path]:
        log = self.work / f"{folder.name}.log"
        log.write_text("")
        return start(self.program.words(folder), log), log

    def _began(self, folder: Path, log: Path) -> Callable[[], bool]:
        return lambda: self.program.began(folder, log.read_text())

    def _undisturbed(self) -> dict[str, Any]:
        folder = self.work / "undisturbed"
        start_server()
        process, log = self._start(folder)
        wait_until(self._began(folder, log), process)
        self.starting = total = used(process)
        while process.exitcode is None:
            total = max(total, used(process))
            process.join(0.01)
        self.working = total - self.starting
        assert process.exitcode == 0, log.read_text()
        return left_by(folder)

    def run(self, kills: int) -> None:
        """Runs, one after the other, until there were so many kills in all."""
        while self.counts["kills"] < kills:
            self.counts["runs"] += 1
            folder = self.work / f"run-{self.counts['runs']}"
            most = min(MOST_KILLS, kills - self.counts["kills"])
            killed, self.saved = 0, set()
            while killed < most and self._kill_once(folder):
                killed += 1
            self._finish(folder)
            print(self, flush=True)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return "\n".join([f"{self.program.name}: {counts}; {len(self.problems)} problems", *self.problems])

    def _kill_once(self, folder: Path) -> bool:
        """Starts the run, or goes on with it, and kills it; False if it came to its end before."""
        process, log = self._start(folder)
        if self.rng.random() < 0.15:
            alive, phase = outlive(process, self.rng.uniform(0, self.starting)), "starting"
        else:
            moment = self.rng.uniform(0, self.working) / self.rng.choice([1, 3])  # some are killed several times
            alive = wait_until(self._began(folder, log), process)
            alive, phase = alive and outlive(process, moment), "working"
        kind = signal.SIGTERM if self.rng.random() < 0.2 else signal.SIGKILL
        assert process.pid is not None
        target = process.pid
        others = workers(process)
        if others and self.rng.random() < 0.3:
            target, phase, kind = self.rng.choice(others), "a worker", signal.SIGKILL
        if alive:
            try:
                os.kill(target, kind)
            except ProcessLookupError:
                alive = False
        process.join()
        text = log.read_text()
        if not alive:
            self._check_end(folder, process, text)
            return False
        if not group_is_gone(process.pid):
            self.problems.append(f"{folder.name}: processes are left after {kind.name}")
        if "Traceback" in text:
            self.problems.append(f"{folder.name}: {kind.name} while {phase}: {text[-2000:]}")
        self.saved |= {int(step.replace(",", "")) for step in re.findall(r"SIGTERM: saved .* at step ([\d,]+)", text)}
        self.counts["kills"] += 1
        self.counts[f"{kind.name} {phase}"] += 1
        if "resuming at" in text or "resuming " in text or "going on with" in text:
            self.counts["resumed"] += 1
        return True

    def _finish(self, folder: Path) -> None:
        process, log = self._start(folder)
        process.join()
        self._check_end(folder, process, log.read_text())
        left = left_by(folder)
        found = differences(with_saved(self.expected, left, self.saved), left)
        self.problems += [f"{folder.name}: {one}" for one in found]
        if not found:
            shutil.rmtree(folder)

    def _check_end(self, folder: Path, process: ForkServerProcess, text: str) -> None:
        if process.exitcode != 0:
            self.problems.append(f"{folder.name}: exit code {process.exitcode}: {text[-2000:]}")


def attack(name: str, kills: int, seed: int, work: Path) -> Attack:
    (work / name).mkdir(parents=True)
    attack = Attack(PROGRAMS[name](work / name / "data"), work / name, random.Random(f"{name} {seed}"))
    attack.run(kills)
    return attack


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_killed_leaves_what_it_leaves_undisturbed(name: str, tmp_path: Path) -> None:
    assert not attack(name, 10, 0, tmp_path).problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="kills in all, divided among the programs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="programs to kill")
    parser.add_argument("--work", help="folder of the runs, which stays; a temporary one if not given")
    arguments = parser.parse_args()
    names = arguments.programs.split(",")
    problems = 0
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(names):
            kills = arguments.kills * (number + 1) // len(names) - arguments.kills * number // len(names)
            result = attack(name, kills, arguments.seed, Path(arguments.work or temporary))
            problems += len(result.problems)
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
