"""Folder of a training run: used by one process at a time, never by two runs; an old run is renamed, never deleted.

  with RunFolder(path, overwrite=True) as folder:  # locks the folder
      folder.check(config_json, free)              # it holds the same run, or none yet
      ...                                          # everything that can fail before training
      folder.begin(config_json, vocab_file)        # renames an old run, writes the configuration
      ...                                          # training

A run of `debug` is never worth keeping in the way of another: a run without it takes its place, as with overwrite.

Imports no TensorFlow, so that mistakes are answered at once.
"""

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from electra_tf2.corpus.vocabulary import TOKENIZER_FILE, is_wordpiece, load_tokens
from electra_tf2.files.reading import read_json, read_text
from electra_tf2.files.writing import lock, name_aside, remove_left_over, write_atomically, writing
from electra_tf2.formats import checkpoint_files
from electra_tf2.formats.folders import SCORES, VOCABULARY, read_config
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say, warn

GO_ON = "Run the same command, without --overwrite, to go on"
_CONFIG = "config.json"
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
        if not self._chief:
            return
        if self.overwrite and self._has_damaged_config():
            return  # `begin` renames the folder
        before = self._config()
        if self.overwrite or not holds_work(self.path):
            return
        now = json.loads(config_json)
        self._check_vocabulary(now["vocab_file"])
        changed = []
        for name in before.keys() & (now.keys() - set(free)):
            if comparable(name, before[name]) != comparable(name, now[name]):
                changed.append(name)
        if changed and chosen is not None and resolve is not None:
            changed = _causes(changed, before, now, chosen, resolve)
        if changed:
            raise UserError(
                f"{self.path} holds a run with other hparams: {_changes(changed, before, now)}. {self._advice}"
            )

    def _check_vocabulary(self, vocab_file: str) -> None:
        """Raises UserError if the run began with another vocabulary, as a file of either name."""
        for name in (VOCABULARY, TOKENIZER_FILE):
            copy = self.path / name
            if copy.exists() and not _are_same_vocabulary(copy, Path(vocab_file)):
                raise UserError(
                    f"{vocab_file} holds other tokens than {copy}, with which the run began. {self._advice}"
                )

    def _config(self) -> dict[str, Any]:
        """Reads the configuration of the run in the folder; {} if there is none.

        Raises:
          UserError: it is damaged, or another program wrote it.
        """
        path = self.path / _CONFIG
        if not path.exists():
            return {}
        if self._has_damaged_config():
            raise UserError(f"{path} is damaged, so that it does not tell which run the folder holds. {self._advice}")
        config = read_json(path, "the configuration of the run", object)
        if not isinstance(config, dict) or not config.keys() >= _RUN_KEYS:
            raise UserError(f"{path} is not that of a run: give another folder, this one is left as it is")
        return config

    def _has_damaged_config(self) -> bool:
        """True if there is a configuration that is no JSON."""
        path = self.path / _CONFIG
        if not path.exists():
            return False
        try:
            read_json(path, "the configuration of the run", object)
        except UserError:
            return True
        return False

    def begin(self, config_json: str, vocab_file: str | Path) -> None:
        """Begins or resumes the run: renames an old run if `overwrite`, or prints which hparams changed.

        Writes the configuration and a copy of the vocabulary, so that the folder can be moved.
        """
        if not self._chief:
            return
        if self.overwrite and (holds_work(self.path) or self._has_damaged_config()):
            set_aside(self.path)
            # The lock is in the renamed folder.
            self._lock.close()
            self._take_lock()
        for folder in (self.path, self.path / checkpoint_files.BEST_FOLDER):
            remove_left_over(folder)
            checkpoint_files.clear_staging(folder)
        if checkpoint_files.steps(self.path):
            self._report_changes(json.loads(config_json))
        elif self._config():
            # A run without a checkpoint may begin anew with a vocabulary of another kind.
            for name in {VOCABULARY, TOKENIZER_FILE} - {_name_of(vocab_file)}:
                (self.path / name).unlink(missing_ok=True)
        vocabulary = self.path / _name_of(vocab_file)
        if not (vocabulary.exists() and vocabulary.samefile(vocab_file)):
            write_atomically(vocabulary, read_text(vocab_file, "vocab_file"))
        write_atomically(self.path / _CONFIG, config_json)

    def _report_changes(self, now: Mapping[str, Any]) -> None:
        """Prints which hparams of a run that goes on changed."""
        before = self._config()
        if not before:
            warn(f"{self.path} holds checkpoints and no {_CONFIG}, so whether they are of this run was not checked")
            return
        names = before.keys() & (now.keys() - _COMMAND_HPARAMS)
        changed = [name for name in names if before[name] != now[name]]
        if changed:
            say(f"going on with other hparams: {_changes(changed, before, now)}")


def begins_anew(folder: Path, overwrite: bool, debug: bool) -> bool:
    """True if a training renames what a folder holds: with `overwrite`, and a run of `debug` where this is none.

    Args:
      overwrite, debug: hparams of the training.
    """
    return overwrite or (not debug and holds_debug_run(folder))


def holds_debug_run(folder: str | Path) -> bool:
    """True if something was trained in a folder, by a run of `debug`."""
    if not holds_work(Path(folder)):
        return False
    with contextlib.suppress(UserError):  # a damaged configuration tells nothing
        config = read_config(folder) or {}
        return config.get("debug") is True
    return False


def set_aside(folder: Path) -> Path:
    """Renames a folder to the first free name `<folder>.old-N`, and prints it. Returns the new path.

    Raises:
      UserError: the folder cannot be renamed.
    """
    aside = name_aside(folder)
    line = f"--overwrite: what was in {folder} is in {aside} now"
    if holds_debug_run(folder):
        line = f"{folder} held a run of debug: that is in {aside} now"
    with writing(aside):
        folder.rename(aside)
    (aside / _LOCK).unlink(missing_ok=True)
    say(line)
    return aside


def holds_work(folder: Path) -> bool:
    """True if something was trained there: the folder holds checkpoints, or scores of a model."""
    return bool(checkpoint_files.steps(folder)) or (folder / SCORES).exists()


def _name_of(vocab_file: str | Path) -> str:
    """Name of the copy of a vocabulary in a run's folder."""
    if str(vocab_file).endswith(".json"):
        return TOKENIZER_FILE
    return VOCABULARY


def _are_same_vocabulary(first: Path, second: Path) -> bool:
    """True if two files give every token the same id; tokenizers other than WordPiece must be equal as a whole."""
    if is_wordpiece(first) and is_wordpiece(second):
        return load_tokens(first) == load_tokens(second)
    if is_wordpiece(first) or is_wordpiece(second):
        return False
    return read_json(first, "tokenizer") == read_json(second, "tokenizer")


def _causes(
    changed: Collection[str],
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    chosen: Mapping[str, Any],
    resolve: Callable[[Mapping[str, Any]], str],
) -> list[str]:
    """The hparams from whose change those of others follow.

    Args:
      changed: names of hparams that must not change. A cause may itself be an hparam that may change, such as `model`.
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
