"""Folder of a training run: one process at a time, no mixing of two runs, nothing ever deleted.

  with RunFolder(path, overwrite=True) as folder:      # locked
      folder.check(config_json, free)                   # the same run, or none yet
      ...                                               # everything that can go wrong before training
      folder.begin(config_json, vocab_file)             # an old run gets another name, the configuration is written
      ...                                               # training

Imports no TensorFlow: a mistake is answered at once.
"""

import contextlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from electra_tf2.files.reading import read_json, read_text
from electra_tf2.files.writing import lock, remove_left_over, write_atomically, writing
from electra_tf2.formats import checkpoint_files
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

GO_ON = "Run the same command, without --overwrite, to go on"  # which would start the run anew
_CONFIG, _VOCABULARY, _LOCK = "config.json", "vocab.txt", ".lock"
_OF_ANY_CONFIG = {"model_name", "data_dir", "model_dir", "train_batch_size"}  # by these a config.json is ours
_OF_THE_COMMAND = {"do_train", "do_eval", "overwrite", "debug"}  # say nothing about the run


class RunFolder:
    """Holds a run's folder; a context manager.

    Args:
      chief: whether this process is the one that writes; the others of a job look on.
      overwrite: start anew; a run that is there gets another name (`set_aside`).
      advice: what to do about another run in that folder.
    """

    def __init__(self, path: Path, chief: bool = True, overwrite: bool = False, advice: str = "") -> None:
        self.path, self._chief, self.overwrite, self._advice = path, chief, overwrite, advice
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> "RunFolder":
        if self._chief:
            self._take_lock()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _take_lock(self) -> None:
        busy = f"another process trains in {self.path}: wait for it or stop it, or give another --model-name"
        self._lock.enter_context(lock(self.path / _LOCK, busy))

    def check(
        self,
        config_json: str,
        free: Collection[str],
        comparable: Callable[[str, Any], Any] = lambda name, value: value,
    ) -> None:
        """Raises UserError if the folder holds a run with another configuration or vocabulary.

        A folder without a checkpoint holds no run yet.

        Args:
          config_json: of the run that is to go on there; names its vocab_file.
          free: names of the hparams that may differ when a run is resumed.
          comparable: what counts of a hparam's value, by name and value.
        """
        if not self._chief or not (self.path / _CONFIG).exists():
            return
        before, now = self._config(), json.loads(config_json)
        if self.overwrite or not holds_work(self.path):
            return
        own = self.path / _name_of(now["vocab_file"])
        if own.exists() and read_text(own, "vocabulary").split() != read_text(now["vocab_file"], "vocab_file").split():
            raise UserError(
                f"{now['vocab_file']} holds other tokens than {own}, with which the run began. {self._advice}"
            )
        changed = [
            name
            for name in before.keys() & now.keys() - set(free)
            if comparable(name, before[name]) != comparable(name, now[name])
        ]
        if changed:
            raise UserError(
                f"{self.path} holds a run with other hparams: {_changes(changed, before, now)}. {self._advice}"
            )

    def _config(self) -> dict[str, Any]:
        """Configuration of the run in the folder. Raises UserError: it is something else's."""
        config = read_json(self.path / _CONFIG, "the configuration of the run")
        if not config.keys() >= _OF_ANY_CONFIG:
            raise UserError(
                f"{self.path / _CONFIG} is not that of a run: give another folder, this one is left as it is"
            )
        return config

    def begin(self, config_json: str, vocab_file: str | Path) -> None:
        """Starts the run or goes on: sets an old one aside where it is to be overwritten, says which hparams changed,
        and writes the configuration.

        The folder gets a copy of the vocabulary as well, so that it can be moved.
        """
        if not self._chief:
            return
        if self.overwrite and holds_work(self.path):
            set_aside(self.path)
            self._lock.close()
            self._take_lock()
        for folder in (self.path, self.path / "best"):
            remove_left_over(folder)
            checkpoint_files.clear_staging(folder)
        if checkpoint_files.steps(self.path):
            before, now = self._config(), json.loads(config_json)
            names = before.keys() & now.keys() - _OF_THE_COMMAND
            changed = [name for name in names if before[name] != now[name]]
            if changed:
                say(f"going on with other hparams: {_changes(changed, before, now)}")
        vocabulary = self.path / _name_of(vocab_file)
        if not (vocabulary.exists() and vocabulary.samefile(vocab_file)):
            write_atomically(vocabulary, read_text(vocab_file, "vocab_file"))
        write_atomically(self.path / _CONFIG, config_json)


def set_aside(folder: Path) -> Path:
    """Renames a folder to the first `<folder>.old-N` that is free, and says so. Raises UserError as `writing`.

    Returns:
      The new path.
    """
    number = 1
    while os.path.lexists(aside := folder.with_name(f"{folder.name}.old-{number}")):
        number += 1
    with writing(aside):
        folder.rename(aside)
    (aside / _LOCK).unlink(missing_ok=True)
    say(f"--overwrite: what was in {folder} is in {aside} now")
    return aside


def holds_work(folder: Path) -> bool:
    """Tells whether something was trained there: a checkpoint is left, or what came of one that was deleted."""
    return bool(checkpoint_files.steps(folder)) or (folder / "scores.json").exists()


def _name_of(vocab_file: str | Path) -> str:
    """Name of a folder's own copy of a vocabulary."""
    return "tokenizer.json" if str(vocab_file).endswith(".json") else _VOCABULARY


def _changes(names: Collection[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Says what the hparams were and are; of those that are dicts, the entries that changed."""
    told = []
    for name in sorted(names):
        old, new = before[name], now[name]
        if isinstance(old, dict) and isinstance(new, dict):
            entries = [(entry, old.get(entry), new.get(entry)) for entry in sorted(old | new)]
            told += [(f"{name}: {entry}", one, other) for entry, one, other in entries if one != other]
        else:
            told.append((name, old, new))
    return "; ".join(f"{name} was {old!r}, is {new!r}" for name, old, new in told)
