"""Saving and restoring a run: weights, optimizer, step and loss scale, and the best weights of all evaluations.

A checkpoint is written while training goes on, from a copy of the state: first into a staging folder, then, with
checksums, under its name (formats.checkpoint_files). A run resumes from the newest good checkpoint and warns of newer
damaged ones; if none is good, it refuses to start anew.
"""

import contextlib
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
from electra_tf2.util.progress import warn


class Snapshot:
    """A copy of all variables of some modules in the host's memory.

    Its `checkpoint` saves them under the same names as a checkpoint of the modules themselves.

    Args:
      tracked: modules by name, as for tf.train.Checkpoint.
    """

    def __init__(self, tracked: Mapping[str, tf.Module]) -> None:
        self._variables: list[tuple[tf.Variable, tf.Variable]] = []  # (variable, copy)
        # Id of an original object -> its twin. An object may be reached by several paths and has one twin.
        self._twins: dict[int, Any] = {}
        # Kept, because ids are unique only while their objects live.
        self._originals = tf.train.Checkpoint(**tracked)
        self.checkpoint: tf.train.Checkpoint = self._twin(self._originals)

    def _twin(self, original: Any) -> Any:
        """Copies a variable, or an object with all variables that it tracks."""
        if id(original) in self._twins:
            return self._twins[id(original)]
        if isinstance(original, tf.Variable):
            copy = tf.Variable(_on_host(original), trainable=False, name=original.name.partition(":")[0])
            self._variables.append((original, copy))
            self._twins[id(original)] = copy
            return copy
        twin = tf.train.Checkpoint()
        # Recorded before its children are copied, because they may refer back to it.
        self._twins[id(original)] = twin
        for name, child in tf.train.TrackableView.children(original).items():
            setattr(twin, name, self._twin(child))
        return twin

    def take(self) -> None:
        """Copies the variables as they are now."""
        for variable, copy in self._variables:
            copy.assign(_on_host(variable))


def _on_host(variable: tf.Variable) -> tf.Tensor:
    with tf.device("CPU:0"):
        # A plain read shares the variable's memory, so the next step would have to copy it before writing.
        return tf.raw_ops.DeepCopy(x=variable)


class Writer:
    """Runs one function at a time in a thread. `check`, `wait` and the next `start` raise its error."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "checkpoint writer")
        self._work: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begins some work when the work before it has ended."""
        self.wait()
        self._work = self._thread.submit(work)

    def settle(self) -> None:
        """Waits for the end of the work without raising its error."""
        if self._work is not None:
            futures.wait([self._work])

    def check(self) -> None:
        """Raises, once, the error of work that has ended."""
        if self._work is not None and self._work.done():
            work = self._work
            self._work = None
            work.result()

    def wait(self) -> None:
        """Waits for the end of the work and raises its error."""
        self.settle()
        self.check()


class Checkpoints:
    """Checkpoints in the folder of a run.

    Args:
      tracked: modules to save, by name; the best checkpoint holds only "model".
      keep: how many checkpoints are kept.

    Attributes:
      writer: thread that writes checkpoints.
    """

    def __init__(self, folder: Path, tracked: Mapping[str, tf.Module], keep: int) -> None:
        self.folder = folder
        self._keep = keep
        self._tracked = tracked
        self._best_folder = folder / files.BEST_FOLDER
        self._model = tf.train.Checkpoint(model=tracked["model"])
        self._snapshot: Snapshot | None = None
        self.writer = Writer()

    def save(self, step: int) -> None:
        """Saves the state as the checkpoint of a step, after the save before it has ended.

        Returns when the state is copied to host memory. The write goes on in a thread; `writer.check()` raises its
        errors.
        """
        self.writer.wait()
        if self._snapshot is None:
            self._snapshot = Snapshot(self._tracked)
        else:
            self._snapshot.take()
        checkpoint = self._snapshot.checkpoint

        def write() -> None:
            with self._writing(self.folder, step):
                _write(checkpoint, self.folder, step)
                self._tidy(step)

        self.writer.start(write)

    def tidy(self, step: int) -> None:
        """Does what comes after the write of a checkpoint: deletes older ones, names this one in `checkpoint`.

        For a save that was killed before that.
        """
        with self._writing(self.folder, step):
            self._tidy(step)

    def _tidy(self, step: int) -> None:
        files.write_state(self.folder, files.keep(self.folder, step, self._keep))

    def save_best(self, step: int, value: float) -> None:
        """Saves the model's weights as the best so far, if `value` is higher than that of the best before."""
        before = self._read_best()
        # A best of a later step is from before the run went back to an earlier checkpoint: it is replaced in any case.
        if before is not None and before["step"] < step and before["value"] >= value:
            return
        with self._writing(self._best_folder, step):
            _write(self._model, self._best_folder, step)
            name = files.prefix(self._best_folder, step).name
            write_json(self._best_folder / files.BEST, {"step": step, "value": value, "path": name})
            files.keep(self._best_folder, step, 1)

    def newest_step(self) -> int | None:
        """Step of the newest good checkpoint."""
        for step in files.steps(self.folder):
            with contextlib.suppress(UserError):
                if files.problem(self.folder, step) is None:
                    return step
        return None

    def newest(self) -> str:
        """Path of the newest good checkpoint, for messages."""
        step = self.newest_step()
        if step is None:
            return "none was saved yet"
        return str(files.prefix(self.folder, step))

    def restore(self) -> int | None:
        """Restores the newest good checkpoint. Returns its step; None if there is no checkpoint.

        Raises:
          UserError: there are checkpoints, but none is good; the newest good one is of another model.
        """
        step, problems = newest_good(self.folder)
        if step is None and problems:
            raise UserError(
                f"{'; '.join(problems)}. To start anew at step 0, give another --model-name, or --overwrite to rename "
                "what is left of that run."
            )
        if step is None:
            return None
        if problems:
            warn(f"{'; '.join(problems)}. Going on from step {step:,}.")
        self._warn_of_state(step)
        self._read(self._tracked, self.folder, step)
        return step

    @property
    def has_best(self) -> bool:
        return (self._best_folder / files.BEST).exists()

    @property
    def best_step(self) -> int:
        """Step of the best checkpoint; 0 if there is none."""
        best = self._read_best()
        if best is None:
            return 0
        return int(best["step"])

    def restore_best(self) -> int:
        """Restores the best weights. Returns their step."""
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
        path = self._best_folder / files.BEST
        best = read_json(path, "best checkpoint")
        if not (isinstance(best.get("step"), int) and isinstance(best.get("value"), int | float)):
            raise UserError(f"{path} is damaged (no step and value): delete it to choose anew")
        return best

    def _read(self, tracked: Mapping[str, tf.Module], folder: Path, step: int) -> None:
        path = str(files.prefix(folder, step))
        try:
            with no_pattern(path) as readable:
                names = [name for name, _ in tf.train.list_variables(readable)]
                modules = dict(tracked)
                if not any(name.startswith("loss_scale/") for name in names):
                    # Saved in another precision than float16: the run goes on with a new loss scale.
                    modules.pop("loss_scale", None)
                checkpoint = tf.train.Checkpoint(**modules)
                checkpoint.read(readable).assert_existing_objects_matched().expect_partial()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise UserError(f"{path} is not a checkpoint of this model: {error}") from None

    def _warn_of_state(self, step: int) -> None:
        """Warns if TensorFlow's file `checkpoint` does not name the checkpoint of this step."""
        state = self.folder / "checkpoint"
        name = files.prefix(self.folder, step).name
        with contextlib.suppress(OSError):
            text = state.read_bytes().decode(errors="replace")
            if re.search(rf'^model_checkpoint_path: ".*{re.escape(name)}"', text):
                return
        warn(f"{state} does not name {name}, the newest good checkpoint. Going on from that.")

    @contextlib.contextmanager
    def _writing(self, folder: Path, step: int) -> Iterator[None]:
        """Turns errors into UserErrors and deletes half-written files."""
        try:
            yield
        except (OSError, tf.errors.OpError, UserError) as error:
            files.clear_staging(folder)
            why = reason(error)
            if "No space left" in str(error):
                why = "the disk is full"
            raise UserError(
                f"cannot save {files.prefix(folder, step)}: {why}. Last checkpoint: {self.newest()}. "
                f"{GO_ON} when that is mended."
            ) from error


def _write(checkpoint: tf.train.Checkpoint, folder: Path, step: int) -> None:
    files.clear_staging(folder)
    checkpoint.write(str(files.staging(folder, step)))
    files.publish(folder, step)


def newest_good(folder: Path) -> tuple[int | None, list[str]]:
    """Finds the newest good checkpoint. Returns its step, None if there is none, and the problems of newer ones."""
    problems: list[str] = []
    for step in files.steps(folder):
        problem = files.problem(folder, step)
        if problem is None:
            return step, problems
        problems.append(f"{files.prefix(folder, step)} is damaged ({problem})")
    return None, problems
