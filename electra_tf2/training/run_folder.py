"""Folder of a training run: one process at a time, no mixing of two runs, nothing lost to --overwrite.

`RunFolder` is held from the first check to the last file:

  with RunFolder(path) as folder:          # locked; what an interrupted --overwrite had moved aside comes back
      folder.check(config_json, free)      # the same run, or none yet
      ...                                  # everything that can go wrong before training
      folder.begin(config_json, vocab_file)  # the old run is moved aside, the configuration written
      ...                                  # training; `after_checkpoint` deletes the old run

Imports no TensorFlow: a mistake is answered at once.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from electra_tf2.training import checkpoint_files
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import lock, write_atomically, write_json, writing
from electra_tf2.util.progress import say
from electra_tf2.util.reading import read_json, read_text

GO_ON = "Run the same command, without --overwrite, to go on"  # which would start the run anew
_CONFIG, _VOCABULARY = "config.json", "vocab.txt"
_OF_ANY_CONFIG = {"model_name", "data_dir", "model_dir", "train_batch_size"}  # by these a config.json is ours
_OF_OLDER_RUNS = {"optimizer": "adamw", "ema_decay": 0.0}  # what they had before there was a choice
_LOCK = ".lock"
_OVERWRITING = ".overwriting"  # in a new run's folder as long as the old one lies aside
_MOVED = ".moved_aside"  # in the old one's, so that no other run of that name is taken for it
_NOT_FINITE = "not_finite.json"  # a run stopped there, and may go on with other values of these:
_MENDS = ("learning_rate", "num_warmup_steps", "precision")
_LEFTOVERS = (_MOVED, "*.tmp", "*/*.tmp", ".saving", "best/.saving", f"{checkpoint_files.PREFIX}*_temp")


class RunFolder:
    """Holds a run's folder; a context manager.

    Args:
      chief: whether this process is the one that writes; the others of a job look on.
      overwrite: a run that is there is to be replaced.
      advice: what to do about another run in that folder.
    """

    def __init__(self, path: Path, chief: bool = True, overwrite: bool = False, advice: str = "") -> None:
        self.path, self._chief, self.overwrite, self._advice = path, chief, overwrite, advice
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> "RunFolder":
        if self._chief:
            self._take_lock()
            if _restore_overwritten(self.path):
                self._take_lock()
            if self.overwrite:
                self._check_ours()
        return self

    def __exit__(self, *_: object) -> None:
        if self._chief:
            _restore_overwritten(self.path)
            self._lock.close()

    def _take_lock(self) -> None:
        self._lock.close()
        busy = f"another process trains in {self.path}: wait for it or stop it, or give another --model-name"
        self._lock.enter_context(lock(self.path / _LOCK, busy))

    def _check_ours(self) -> None:
        if not self._holds_anything():
            return
        with contextlib.suppress(UserError):
            if read_json(self.path / _CONFIG, "configuration").keys() >= _OF_ANY_CONFIG:
                return
        self._lock.close()
        raise UserError(
            f"--overwrite: {self.path} holds no {_CONFIG} of a run, so it is no model of ours; delete it yourself"
        )

    def _holds_anything(self) -> bool:
        return any(path.name != _LOCK for path in self.path.iterdir())

    def check(
        self,
        config_json: str,
        free: Collection[str],
        comparable: Callable[[str, Any], Any] = lambda name, value: value,
    ) -> None:
        """Raises UserError if the folder holds a run with another configuration or vocabulary.

        A folder without a checkpoint holds no run yet. One that stopped at a loss that is not finite may go on with
        another learning rate, a longer warm-up or in float32.

        Args:
          config_json: of the run that is to go on there; names its vocab_file.
          free: names of the hparams that may differ when a run is resumed.
          comparable: what counts of a hparam's value, by name and value.
        """
        saved = self.path / _CONFIG
        if not self._chief or self.overwrite or not saved.exists() or not holds_work(self.path):
            return
        before, now = _OF_OLDER_RUNS | read_json(saved, "the configuration of the run"), json.loads(config_json)
        self._check_vocabulary(now["vocab_file"])
        both = before.keys() & now.keys() - set(free)
        changed = {name for name in both if comparable(name, before[name]) != comparable(name, now[name])}
        mended = {name for name in changed if self._is_mend(name, now[name])}
        if changed - mended:
            raise UserError(
                f"{self.path} holds a run with other hparams: {_changes(changed - mended, before, now)}. {self._advice}"
            )
        if mended:
            say(f"going on after a loss that was not finite: {_changes(mended, before, now)}")

    def _check_vocabulary(self, vocab_file: str) -> None:
        own = self.path / _name_of(vocab_file)
        if own.exists() and read_text(own, "vocabulary").split() != read_text(vocab_file, "vocab_file").split():
            raise UserError(f"{vocab_file} holds other tokens than {own}, with which the run began. {self._advice}")

    def _is_mend(self, name: str, value: Any) -> bool:
        stopped = (self.path / _NOT_FINITE).exists()
        return stopped and name in _MENDS and (name != "precision" or value == "float32")

    def begin(self, config_json: str, vocab_file: str | Path) -> None:
        """Starts the run or goes on: moves an old one aside where it is to be overwritten, writes the configuration.

        The folder gets a copy of the vocabulary as well, so that it can be moved.
        """
        if not self._chief:
            return
        if self.overwrite and self._holds_anything():
            self._move_aside()
        for pattern in _LEFTOVERS:
            for path in self.path.glob(pattern):
                _delete(path)
        vocabulary = self.path / _name_of(vocab_file)
        if not (vocabulary.exists() and vocabulary.samefile(vocab_file)):
            write_atomically(vocabulary, read_text(vocab_file, "vocab_file"))
        write_atomically(self.path / _CONFIG, config_json)

    def _move_aside(self) -> None:
        aside = _aside(self.path)
        with writing(aside):
            (self.path / _MOVED).touch()
            os.rename(self.path, aside)
        write_atomically(self.path / _OVERWRITING, f"{aside}\n")
        self._take_lock()


def _name_of(vocab_file: str | Path) -> str:
    """Name of a folder's own copy of a vocabulary."""
    return "tokenizer.json" if str(vocab_file).endswith(".json") else _VOCABULARY


def after_checkpoint(folder: Path) -> None:
    """Deletes what a checkpoint of the run puts an end to: the run that was moved aside, an earlier stop."""
    if (folder / _OVERWRITING).exists():
        _delete(_aside(folder))
        _delete(folder / _OVERWRITING)
    _delete(folder / _NOT_FINITE)


def mark_not_finite(folder: Path, step: int) -> None:
    """Remembers that the run stopped because a loss or gradient of a step (counted from 1) was not finite."""
    write_json(folder / _NOT_FINITE, {"step": step})


def suspect_checkpoint(folder: Path) -> int | None:
    """Finds the step whose next one was not finite, if the run stopped so: a checkpoint of it is ruined."""
    path = folder / _NOT_FINITE
    if not path.exists():
        return None
    step = read_json(path, "stop").get("step")
    if not isinstance(step, int):
        raise UserError(f"{path} names no step: delete it to go on from the newest checkpoint")
    return step - 1


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.overwritten")


def _restore_overwritten(folder: Path) -> bool:
    """Puts a run that was moved aside back, if the new one did not get to a checkpoint, and says whether it did so."""
    aside = _aside(folder)
    killed_while_moving = (aside / _MOVED).exists() and not (folder / _CONFIG).exists()
    if not (folder / _OVERWRITING).exists() and not killed_while_moving:
        return False
    if any(checkpoint_files.problem(folder, step) is None for step in checkpoint_files.steps(folder)):
        after_checkpoint(folder)
        return False
    if not aside.exists():
        _delete(folder / _OVERWRITING)
        say(f"note: the run that --overwrite was to replace is not in {aside} any more")
        return False
    _delete(folder)
    with writing(folder):
        os.rename(aside, folder)
    _delete(folder / _LOCK)
    _delete(folder / _MOVED)
    say(f"the run that --overwrite was to replace is in {folder} again, as it was")
    return True


def holds_work(folder: Path) -> bool:
    """Tells whether something was trained there: a checkpoint is left, or what came of one that was deleted."""
    return bool(checkpoint_files.steps(folder)) or (folder / "scores.json").exists()


def _delete(path: Path) -> None:
    """Deletes a file, a folder with all that is in it, or a link, which is not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _changes(names: Collection[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    return "; ".join(f"{name} was {before[name]!r}, is {now[name]!r}" for name in sorted(names))
