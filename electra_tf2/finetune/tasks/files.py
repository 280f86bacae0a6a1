"""Finds the files of a task's splits, and writes JSON lines about them."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files import table_files
from electra_tf2.files.content import SUFFIXES, is_no_data
from electra_tf2.files.writing import write_atomically
from electra_tf2.util.errors import UserError

FEW_SHOT_DEV = "few_shot_dev"  # K examples of each label, of the training data, beside the K that train


class TaskFiles:
    """Finds the files of a task's splits.

    Args:
      name: of the task; its files lie in `config.task_data_dir(name)`.
      endings: endings of files' names, the first that exists wins; files may be compressed.
      files: by split, the path of a file or folder elsewhere, relative to data_dir; with "train" among them, these are
        all splits.
      held_out: share of the training data that is held out if there is no file of development data.
      folders: other names of the task's folder.
      file_names: by split, other names of its file, with or without an ending.
      patterns: patterns of many files that make up a split, such as "{split}/*.txt", looked for first.
      submission: by split, the name of a file of predictions that a benchmark's server scores; these splits come
        without labels.
    """

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        endings: Sequence[str] = table_files.ENDINGS,
        files: Mapping[str, str] | None = None,
        held_out: float = 0.0,
        folders: Sequence[str] = (),
        file_names: Mapping[str, Sequence[str]] | None = None,
        patterns: Sequence[str] = (),
        submission: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.endings = tuple(endings)
        self.held_out = held_out
        self.submission = submission or {}
        self.data_dir = Path(config.task_data_dir(name))
        self.folders = [self.data_dir, *(self.data_dir.parent / folder for folder in folders)]
        self._elsewhere = dict(files or {})
        self._names = file_names or {}
        self._patterns = patterns

    def paths(self, split: str) -> list[Path]:
        """Lists the files of a split: one, or several of a folder. Raises UserError: there is none."""
        return self._by_pattern(split) or table_files.files_of(self.path(split), split)

    def path(self, split: str) -> Path:
        """Finds a split's file or folder: the one that the description names, else the first in the task's folders.

        Raises:
          UserError: there is none; says where it was looked for.
        """
        if split in self._elsewhere:
            places = [Path(self.config.data_dir, self._elsewhere[split]), Path(self._elsewhere[split])]
            for place in places:
                if place.is_file() or table_files.splits_of(place):
                    return place
            raise UserError(f"tasks: {self.name}: files: there is no file {places[0]}")
        if "train" in self._elsewhere:
            # Data that lie elsewhere have nothing to do with a folder of the task's name.
            raise UserError(f"tasks: {self.name}: files names no file of split {split!r} beside that of train")
        tried = self._candidates(split)
        for suffix in ("", *SUFFIXES):
            for candidate in tried:
                path = candidate.with_name(candidate.name + suffix)
                if path.is_file():
                    return path
        raise UserError(self._not_found(split, tried))

    def _candidates(self, split: str) -> list[Path]:
        """Lists every path that a split's file may have in the task's folders."""
        file_names: list[str] = []
        for name in (split, *self._names.get(split, ())):
            if Path(name).suffix:
                file_names.append(name)
            else:
                file_names += [f"{name}.{ending}" for ending in self.endings]
        return [folder / name for folder in self.folders for name in dict.fromkeys(file_names)]

    def _by_pattern(self, split: str) -> list[Path]:
        for folder in self.folders:
            paths: list[Path] = []
            for pattern in self._patterns:
                matches = sorted(folder.glob(pattern.format(split=split)))
                paths += [path for path in matches if not is_no_data(path.name)]
            if paths:
                return paths
        return []

    def _not_found(self, split: str, tried: Sequence[Path]) -> str:
        there = [str(path) for folder in self.folders if folder.is_dir() for path in sorted(folder.iterdir())][:8]
        names = ", ".join(dict.fromkeys(path.name for path in tried))
        folders = " and ".join(map(str, self.folders))
        message = f"no file of split {split!r}: looked for {names} in {folders}"
        if there:
            message += f"; there are {', '.join(there)}"
        if split == "dev" and self.name in self.config.tasks:
            message += '. "files" in its description names a file elsewhere; '
            message += '"held_out": 0.1 scores on a tenth of the training data'
        return message

    def exists(self, split: str) -> bool:
        """Tells whether there is a file of a split. One that the description names must be there, or `path` fails."""
        if split in self._elsewhere:
            return True
        try:
            return bool(self.paths(split))
        except UserError:
            return False

    def may_have_labels(self, split: str) -> bool:
        """Tells whether a test split may have labels: it has files, and no server keeps its labels."""
        return split not in self.submission and self.exists(split)

    @property
    def holds_out(self) -> bool:
        """Tells whether the development data are held out from the training data."""
        return bool(self.held_out) and not self.exists("dev")

    def file_of(self, split: str) -> str:
        """The split whose file holds the examples of a split: "train" for those that are held out from it."""
        if split == FEW_SHOT_DEV or (split == "dev" and self.holds_out):
            return "train"
        return split

    def remembered(self, split: str) -> list[Path]:
        """The files whose content a trial remembers: the split's, or all in the folder of a task that reads others."""
        file = self.file_of(split)
        if self.exists(file):
            return self.paths(file)
        return sorted(path for path in self.data_dir.rglob("*") if path.is_file() and not is_no_data(path.name))


def predictions_file(folder: str | os.PathLike[str], task: str, split: str) -> Path:
    """Path of a fine-tuned model's answers to a split."""
    return Path(folder) / "predictions" / f"{task}_{split}.jsonl"


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    write_atomically(path, json_lines(rows))


def json_lines(rows: Iterable[dict[str, Any]]) -> str:
    """Makes JSON lines of rows. Values that JSON has no type for, such as dates of a columnar file, become text."""
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
