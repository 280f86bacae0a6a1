"""Saving and restoring a run: weights, optimizer, step and loss scale, and the weights that did best.

A checkpoint is written while training goes on, of a copy of the state (training.checkpoints): aside, then it gets
checksums and its name (formats.checkpoint_files). One that is damaged is passed over, aloud, for the newest good one;
where none is good nothing starts anew.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from electra_tf2.files.reading import no_pattern, read_json
from electra_tf2.files.writing import write_json
from electra_tf2.formats import checkpoint_files as files
from electra_tf2.training.run_folder import GO_ON
from electra_tf2.util.errors import UserError, reason
from electra_tf2.util.progress import say


class Snapshot:
    """A copy of variables in the host's memory, which keep in its `checkpoint` the names they have in their own.

    Args:
      tracked: modules by name, as for tf.train.Checkpoint.
    """

    def __init__(self, tracked: Mapping[str, tf.Module]) -> None:
        self._variables: list[tuple[tf.Variable, tf.Variable]] = []  # and their copies
        self._twins: dict[int, Any] = {}  # by the id of what they stand for, which may be reached by several paths
        self._kept = tf.train.Checkpoint(**tracked)
        self.checkpoint: tf.train.Checkpoint = self._twin(self._kept)

    def _twin(self, original: Any) -> Any:
        if id(original) not in self._twins:
            if isinstance(original, tf.Variable):
                name = original.name.partition(":")[0]
                self._twins[id(original)] = copy = tf.Variable(_on_host(original), trainable=False, name=name)
                self._variables.append((original, copy))
            else:
                self._twins[id(original)] = twin = tf.train.Checkpoint()
                for name, child in tf.train.TrackableView.children(original).items():
                    setattr(twin, name, self._twin(child))
        return self._twins[id(original)]

    def take(self) -> None:
        """Copies the variables as they are now."""
        for variable, copy in self._variables:
            copy.assign(_on_host(variable))


def _on_host(variable: tf.Variable) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.raw_ops.DeepCopy(x=variable)  # a plain read shares memory, which the next step would copy


class Writer:
    """A thread that does one piece of work at a time; what goes wrong there is raised where its end is waited for."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "checkpoint writer")
        self._work: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begins a piece of work, after the one before. Raises what went wrong with that."""
        self.wait()
        self._work = self._thread.submit(work)

    @property
    def is_busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def settle(self) -> None:
        """Waits for the end of the work, whatever it may be."""
        if self._work is not None:
            futures.wait([self._work])

    def check(self) -> None:
        """Raises, once, what has gone wrong by now."""
        if self._work is not None and self._work.done():
            work, self._work = self._work, None
            work.result()

    def wait(self) -> None:
        """Waits for the end of the work. Raises what went wrong."""
        self.settle()
        self.check()


_BEST = "best.json"


class Checkpoints:
    """Checkpoints in the folder of a run.

    Args:
      tracked: what is saved, by name; "model" is what is kept of the best.
      keep: how many.

    Attributes:
      writer: writes what `save` was given.
    """

    def __init__(self, folder: Path, tracked: Mapping[str, tf.Module], keep: int) -> None:
        self.folder, self._keep, self._tracked = folder, keep, tracked
        self._best_folder = folder / "best"
        self._model = tf.train.Checkpoint(model=tracked["model"])
        self._snapshot: Snapshot | None = None
        self.writer = Writer()

    def save(self, step: int, memory: Mapping[str, Any]) -> None:
        """Saves everything, as it is now, under the number of a step, after what is still being saved.

        It returns when the state has been copied; `writer` tells when it is on the disk, or why it cannot be.

        Args:
          memory: a JSON object that `restore` gives back.
        """
        self.writer.wait()
        if self._snapshot is None:
            self._snapshot = Snapshot(self._tracked)
        else:
            self._snapshot.take()
        checkpoint = self._snapshot.checkpoint

        def write() -> None:
            with self._writing(self.folder, step):
                _write(checkpoint, self.folder, step, memory)
                self._tidy(step)

        self.writer.start(write)

    def tidy(self, step: int) -> None:
        """Ends what a kill kept the last `save` from: older checkpoints go, `checkpoint` names this step's."""
        with self._writing(self.folder, step):
            self._tidy(step)

    def _tidy(self, step: int) -> None:
        files.write_state(self.folder, files.keep(self.folder, step, self._keep))

    def save_best(self, step: int, value: float) -> None:
        """Saves the model's weights as those that did best so far, unless they did not.

        What an interrupted run did at later steps does not count.
        """
        before = self._read_best()
        if before is not None and before["step"] < step and before["value"] >= value:
            return
        with self._writing(self._best_folder, step):
            _write(self._model, self._best_folder, step, {})
            name = files.prefix(self._best_folder, step).name
            write_json(self._best_folder / _BEST, {"step": step, "value": value, "path": name})
            files.keep(self._best_folder, step, 1)

    def newest(self) -> str:
        """Path of the newest good checkpoint, for messages."""
        for step in files.steps(self.folder):
            with contextlib.suppress(UserError):
                if files.problem(self.folder, step) is None:
                    return str(files.prefix(self.folder, step))
        return "none was saved yet"

    def pass_over(self, step: int) -> None:
        """Renames the checkpoint of a step whose next one was not finite, as its weights may have been ruined before;
        the only checkpoint stays."""
        if step in files.steps(self.folder)[:-1]:
            say(f"{files.prefix(self.folder, step)} may hold ruined weights: its files are called ruined-... now")
            files.pass_over(self.folder, step)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Restores the newest good checkpoint. Returns its step and its memory; None if there is no checkpoint.

        Raises:
          UserError: there are checkpoints, but none is good; or it is another model's.
        """
        step, problems = newest_good(self.folder)
        if step is not None:
            if problems:
                say(f"WARNING: {'; '.join(problems)}. Going on from step {step:,}.")
            self._warn_of_state(step)
            self._read(self._tracked, self.folder, step)
            return step, files.memory(self.folder, step)
        if problems:
            raise UserError(
                f"{'; '.join(problems)}. To start anew at step 0, give another --model-name, or --overwrite to rename "
                "what is left of that run."
            )
        return None

    @property
    def has_best(self) -> bool:
        return (self._best_folder / _BEST).exists()

    @property
    def best_step(self) -> int:
        """Step of the weights that did best so far; 0 without any."""
        best = self._read_best()
        return 0 if best is None else int(best["step"])

    def restore_best(self) -> int:
        """Restores the weights that did best. Returns their step."""
        best = self._read_best()
        if best is None:
            raise UserError(f"{self.folder} holds no best checkpoint: train with keep_best")
        step = int(best["step"])
        problem = files.problem(self._best_folder, step)
        if problem is not None:
            raise UserError(f"{files.prefix(self._best_folder, step)} is damaged ({problem})")
        self._read({"model": self._tracked["model"]}, self._best_folder, step)
        return step

    def _read_best(self) -> dict[str, Any] | None:
        if not self.has_best:
            return None
        best = read_json(self._best_folder / _BEST, "best checkpoint")
        if not (isinstance(best.get("step"), int) and isinstance(best.get("value"), int | float)):
            raise UserError(f"{self._best_folder / _BEST} is damaged (no step and value): delete it to choose anew")
        return best

    def _read(self, tracked: Mapping[str, tf.Module], folder: Path, step: int) -> None:
        path = str(files.prefix(folder, step))
        try:
            with no_pattern(path) as readable:
                names = [name for name, _ in tf.train.list_variables(readable)]
                if not any(name.startswith("loss_scale/") for name in names):  # it goes on in float16 from now on only
                    tracked = {name: one for name, one in tracked.items() if name != "loss_scale"}
                checkpoint = tf.train.Checkpoint(**tracked)
                checkpoint.read(readable).assert_existing_objects_matched().expect_partial()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise UserError(f"{path} is not a checkpoint of this model: {error}") from None

    def _warn_of_state(self, step: int) -> None:
        state = self.folder / "checkpoint"
        name = files.prefix(self.folder, step).name
        with contextlib.suppress(OSError):
            text = state.read_bytes().decode(errors="replace")
            if re.search(rf'^model_checkpoint_path: ".*{re.escape(name)}"', text):
                return
        say(f"WARNING: {state} does not name {name}, the newest good checkpoint. Going on from that.")

    @contextlib.contextmanager
    def _writing(self, folder: Path, step: int) -> Iterator[None]:
        """Turns errors into one line and deletes what is half-written."""
        try:
            yield
        except (OSError, tf.errors.OpError, UserError) as error:
            files.clear_staging(folder)
            why = "the disk is full" if "No space left" in str(error) else reason(error)
            raise UserError(
                f"cannot save {files.prefix(folder, step)}: {why}. Last checkpoint: {self.newest()}. "
                f"{GO_ON} when that is mended."
            ) from error


def _write(checkpoint: tf.train.Checkpoint, folder: Path, step: int, memory: Mapping[str, Any]) -> None:
    files.clear_staging(folder)
    checkpoint.write(str(files.staging(folder, step)))
    files.publish(folder, step, dict(memory))


def newest_good(folder: Path) -> tuple[int | None, list[str]]:
    """Finds the step of the checkpoint that `Checkpoints.restore` restores, if one is good, and others' problems."""
    problems: list[str] = []
    for step in files.steps(folder):
        problem = files.problem(folder, step) or _unreadable(folder, step)
        if problem is None:
            return step, problems
        problems.append(f"{files.prefix(folder, step)} is damaged ({problem})")
    return None, problems


def _unreadable(folder: Path, step: int) -> str | None:
    """Finds why a checkpoint without checksums cannot be read, if so; TensorFlow has its own for each tensor."""
    if files.has_checksums(folder, step):
        return None
    try:
        with no_pattern(files.prefix(folder, step)) as readable:
            reader = tf.train.load_checkpoint(readable)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        if os.strerror(errno.EIO) in str(error):
            raise UserError(f"cannot read the checkpoint {files.prefix(folder, step)} now: {error}") from None
        return str(error)
    return None
