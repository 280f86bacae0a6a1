"""Folder of a training run: used by one process at a time, never by two runs; an old run is renamed, never deleted.

  with RunFolder(path, overwrite=True) as folder:  # locks the folder
      folder.check(config_json, free)              # it holds the same run, or none yet
      ...                                          # everything that can fail before training
      folder.begin(config_json, vocab_file)        # renames an old run, writes the configuration
      ...                                          # training

Imports no TensorFlow, so that mistakes are answered at once.
"""

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from electra_tf2.files.reading import read_json, read_text
from electra_tf2.files.writing import lock, name_aside, remove_left_over, write_atomically, writing
from electra_tf2.formats import checkpoint_files
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

GO_ON = "Run the same command, without --overwrite, to go on"
_CONFIG = "config.json"
_VOCABULARY = "vocab.txt"
_LOCK = ".lock"
# Keys that the config.json of a run has, and those of other programs have not.
_RUN_KEYS = {"model_name", "data_dir", "model_dir", "train_batch_size"}
# Hparams that say what a command does, not what the run is: changes of them are not reported.
_COMMAND_HPARAMS = {"do_train", "do_eval", "overwrite", "debug"}


class RunFolder:
    """A run's folder, locked within the context.

    Args:
      chief: false on all but the first host of a job: these neither lock nor write.
      overwrite: starts anew and renames a run that the folder holds (`set_aside`).
      advice: end of the messages about another run in the folder: what the user can do.
    """

    def __init__(self, path: Path, chief: bool = True, overwrite: bool = False, advice: str = "") -> None:
        self.path = path
        self.overwrite = overwrite
        self._chief = chief
        self._advice = advice
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> "RunFolder":
        if self._chief:
            self._take_lock()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _take_lock(self) -> None:
        busy = f"another process trains in {self.path}: wait for it, stop it, or train in another folder (model_dir)"
        self._lock.enter_context(lock(self.path / _LOCK, busy))

    def check(
        self,
        config_json: str,
        free: Collection[str],
        comparable: Callable[[str, Any], Any] = lambda name, value: value,
        chosen: Mapping[str, Any] | None = None,
        resolve: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        """Raises UserError if the folder holds a run with another configuration or vocabulary.

        A folder without a checkpoint holds no run yet.

        Args:
          config_json: configuration of this run.
          free: names of the hparams that may differ when a run is resumed.
          comparable: (name, value) of an hparam -> the part of the value that must not change.
          chosen: the hparams that the user gave.
          resolve: hparams that a user gives -> the configuration that follows, as JSON. With these two arguments the
            message lists what the user changed, and not what follows from it.
        """
        if not self._chief or not (self.path / _CONFIG).exists():
            return
        before = self._config()
        now = json.loads(config_json)
        if self.overwrite or not holds_work(self.path):
            return
        self._check_vocabulary(now["vocab_file"])
        changed = []
        for name in before.keys() & now.keys() - set(free):
            if comparable(name, before[name]) != comparable(name, now[name]):
                changed.append(name)
        if changed and chosen is not None and resolve is not None:
            changed = _causes(changed, before, now, chosen, resolve)
        if changed:
            raise UserError(
                f"{self.path} holds a run with other hparams: {_changes(changed, before, now)}. {self._advice}"
            )

    def _check_vocabulary(self, vocab_file: str) -> None:
        copy = self.path / _name_of(vocab_file)
        if not copy.exists():
            return
        if read_text(copy, "vocabulary").split() != read_text(vocab_file, "vocab_file").split():
            raise UserError(f"{vocab_file} holds other tokens than {copy}, with which the run began. {self._advice}")

    def _config(self) -> dict[str, Any]:
        """Reads the configuration of the run in the folder. Raises UserError if another program wrote it."""
        config = read_json(self.path / _CONFIG, "the configuration of the run")
        if not config.keys() >= _RUN_KEYS:
            raise UserError(
                f"{self.path / _CONFIG} is not that of a run: give another folder, this one is left as it is"
            )
        return config

    def begin(self, config_json: str, vocab_file: str | Path) -> None:
        """Begins or resumes the run: renames an old run if `overwrite`, or prints which hparams changed.

        Writes the configuration and a copy of the vocabulary, so that the folder can be moved.
        """
        if not self._chief:
            return
        if self.overwrite and holds_work(self.path):
            set_aside(self.path)
            # The lock is in the renamed folder.
            self._lock.close()
            self._take_lock()
        for folder in (self.path, self.path / "best"):
            remove_left_over(folder)
            checkpoint_files.clear_staging(folder)
        if checkpoint_files.steps(self.path):
            before = self._config()
            now = json.loads(config_json)
            names = before.keys() & now.keys() - _COMMAND_HPARAMS
            changed = [name for name in names if before[name] != now[name]]
            if changed:
                say(f"going on with other hparams: {_changes(changed, before, now)}")
        vocabulary = self.path / _name_of(vocab_file)
        if not (vocabulary.exists() and vocabulary.samefile(vocab_file)):
            write_atomically(vocabulary, read_text(vocab_file, "vocab_file"))
        write_atomically(self.path / _CONFIG, config_json)


def set_aside(folder: Path) -> Path:
    """Renames a folder to the first free name `<folder>.old-N`, and prints it. Returns the new path.

    Raises:
      UserError: the folder cannot be renamed.
    """
    aside = name_aside(folder)
    with writing(aside):
        folder.rename(aside)
    (aside / _LOCK).unlink(missing_ok=True)
    say(f"--overwrite: what was in {folder} is in {aside} now")
    return aside


def holds_work(folder: Path) -> bool:
    """True if something was trained there: the folder holds checkpoints, or scores of a model."""
    return bool(checkpoint_files.steps(folder)) or (folder / "scores.json").exists()


def _name_of(vocab_file: str | Path) -> str:
    """Name of the copy of a vocabulary in a run's folder."""
    if str(vocab_file).endswith(".json"):
        return "tokenizer.json"
    return _VOCABULARY


def _causes(
    changed: Collection[str],
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    chosen: Mapping[str, Any],
    resolve: Callable[[Mapping[str, Any]], str],
) -> list[str]:
    """The hparams from whose change those of others follow.

    Args:
      changed: names of hparams that must not change. What they follow from may be one that may, such as the model.
    """
    candidates = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    follow: dict[str, set[str]] = {}
    for name in candidates:
        follow[name] = {name}
        without = {other: value for other, value in chosen.items() if other != name}
        for hparams in (without, without | {name: before[name]}):
            with contextlib.suppress(UserError):  # what does not go with the rest explains nothing
                config = json.loads(resolve(hparams))
                follow[name] |= {other for other in candidates if config.get(other) == before[other]}
    causes = []
    unexplained = set(changed)
    while unexplained:
        # The one that most others follow from.
        cause = max(candidates, key=lambda name: (len(follow[name] & unexplained), len(follow[name])))
        causes.append(cause)
        unexplained -= follow[cause]
    return causes


def _changes(names: Collection[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Lists old and new values of hparams; for dicts, those of the entries that changed."""
    changes = []
    for name in sorted(names):
        old = before[name]
        new = now[name]
        if isinstance(old, dict) and isinstance(new, dict):
            for entry in sorted(old | new):
                if old.get(entry) != new.get(entry):
                    changes.append(f"{name}: {entry} was {old.get(entry)!r}, is {new.get(entry)!r}")
        else:
            changes.append(f"{name} was {old!r}, is {new!r}")
    return "; ".join(changes)
