"""Where a task's texts come from: the files of its splits, the part that is held out, and rows that it is to answer."""

import json
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.util import tables
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.files import write_atomically
from electra_tf2.util.progress import say

T = TypeVar("T")


class TaskFiles:
    """Files of a task.

    Args:
      name: of the task; its files lie in `config.task_data_dir(name)`.
      files: split -> path of a file or folder elsewhere, which counts from data_dir; with "train" among them, all that
        there are.
      held_out: share of the training data that are the development data where there is no file of those.
      folders: other names of the task's folder.
      file_names: split -> other names of its file, with or without an ending.
      submission: split -> file name of its predictions on a benchmark's server, which has the labels of these splits.
    """

    endings: tuple[str, ...] = tables.ENDINGS  # of files' names, the first that is there, also compressed
    text_keys: Sequence[tuple[str, ...]] = ()  # of plain texts in `parse`'s objects, one for each; (): objects alone

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        files: Mapping[str, str] | None = None,
        held_out: float = 0.0,
        folders: Sequence[str] = (),
        file_names: Mapping[str, Sequence[str]] | None = None,
        submission: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.config = name, config
        self.data_dir = Path(config.task_data_dir(name))
        self.folders = [self.data_dir, *(self.data_dir.parent / folder for folder in folders)]
        self._given, self._names, self.held_out = files or {}, file_names or {}, held_out
        self.submission = submission or {}

    def path(self, split: str) -> Path:
        """File or folder of a split: the given one, else the first in the task's folders by one of its names.

        Raises:
          UserError: there is none; says where it was looked for.
        """
        if split in self._given:
            places = [Path(self.config.data_dir, self._given[split]), Path(self._given[split])]
            path = next((one for one in places if one.is_file() or tables.splits_of(one)), None)
            if path is None:
                raise UserError(f"tasks: {self.name}: files: there is no file {places[0]}")
            return path
        if "train" in self._given:  # data that lie elsewhere have nothing to do with a folder of the task's name
            raise UserError(f"tasks: {self.name}: files names no file of split {split!r} beside that of train")
        names = (split, *self._names.get(split, ()))
        files = [name if Path(name).suffix else f"{name}.{end}" for name in names for end in self.endings]
        tried = [folder / file for folder in self.folders for file in dict.fromkeys(files)]
        for path in [*tried, *(path.with_name(f"{path.name}.gz") for path in tried)]:
            if path.is_file():
                return path
        there = [str(path) for folder in self.folders if folder.is_dir() for path in sorted(folder.iterdir())][:8]
        found = f"; there are {', '.join(there)}" if there else ""
        remedy = ""
        if split == "dev" and self.name in self.config.tasks:
            remedy = '. "files" in its description names a file elsewhere; '
            remedy += '"held_out": 0.1 scores on a tenth of the training data'
        raise UserError(f"no file of split {split!r}: looked for {', '.join(map(str, tried))}{found}{remedy}")

    def exists(self, split: str) -> bool:
        """Tells whether there is a file of a split."""
        try:
            self.path(split)
        except UserError:
            return False
        return True

    def has_labels(self, split: str) -> bool:
        """Tells whether there may be labelled data of a test split, as far as its files tell."""
        return split not in self.submission and self.exists(split)

    def paths(self, split: str) -> list[Path]:
        """The files of a split: several of a folder. Raises UserError: there is none."""
        return tables.files_of(self.path(split), split)

    def files(self, split: str) -> list[Path]:
        """The files that a split is read from, for what a trial remembers of its data: the split's own or, of a task
        that reads others, all in its folder."""
        split = self.file_of(split)
        if self.exists(split):
            return self.paths(split)
        return sorted(path for path in self.data_dir.rglob("*") if path.is_file())

    @property
    def holds_out(self) -> bool:
        """Tells whether the development data are a part of the training data, which is not trained on."""
        return bool(self.held_out) and not self.exists("dev")

    def file_of(self, split: str) -> str:
        """The split whose file holds the examples of a split: with `holds_out` the training data have both."""
        return "train" if split == "dev" and self.holds_out else split

    def part_of(
        self,
        split: str,
        items: Sequence[T],
        group_of: Callable[[T], Hashable],
        class_of: Callable[[T], Hashable] = lambda item: None,
    ) -> list[T]:
        """Picks those of a file's examples that belong to a split, in their order; all of them but with `holds_out`.

        Args:
          group_of: what examples share that must not lie on both sides: their texts.
          class_of: of which each has its share on either side.
        """
        if split not in ("train", "dev") or not self.holds_out:
            return list(items)
        random = np.random.default_rng([self.config.seed, 3])
        chosen = held_out_part([*map(group_of, items)], [*map(class_of, items)], self.held_out, random)
        kept = [item for number, item in enumerate(items) if (number in chosen) == (split == "dev")]
        if not kept:
            raise UserError(f"{self.path('train')} holds too few examples to hold out {self.held_out:g} of them")
        if split == "dev":
            say(f"{self.name}: no dev file: {100 * self.held_out:.3g} % of train held out (seed {self.config.seed})")
        return kept

    def share(self, examples: int) -> list[int]:
        """The numbers of the training examples that are used, in their order; a larger share has those of a smaller."""
        kept = max(1, round(examples * self.config.train_share))
        return sorted(np.random.default_rng([self.config.seed, 2]).permutation(examples)[:kept].tolist())

    # Rows that are to be answered.

    def row_of(self, text: Any) -> dict[str, Any]:
        """A text, several texts or an object, from Python, as `parse` wants it. Raises UserError."""
        if isinstance(text, dict):
            return text
        if not isinstance(text, (str, tuple, list)):
            raise UserError(f"predict: a text, a tuple of texts, a list of words or an object, not {shown(text)}")
        return self._keyed((text,) if isinstance(text, str) else tuple(text), "predict", text)

    def row_of_line(self, line: str) -> dict[str, Any]:
        """A line of plain text, with tabs between several texts, as `parse` wants it; for --predict."""
        return self._keyed(line.split("\t"), "--predict", line)

    def _keyed(self, texts: Sequence[str], flag: str, given: Any) -> dict[str, Any]:
        keys = next((keys for keys in self.text_keys if len(keys) == len(texts)), None)
        if keys is not None:
            return dict(zip(keys, texts, strict=True))
        if not self.text_keys:
            raise UserError(f"{flag}: {self.name} cannot read plain text {shown(given)}: give JSON objects or a table")
        needed = " or ".join(
            f"{len(keys)} text(s){' a line, a tab between' * (flag == '--predict')} ({', '.join(keys)})"
            for keys in self.text_keys
        )
        raise UserError(f"{flag}: {self.name} has {needed}; got {len(texts)}: {shown(given)}")

    def opened(self, path: str | Path, what: str, content: str | None = None) -> tables.Table:
        """A file of rows for --predict. Raises UserError."""
        return tables.open_table(path, what, content=content, of_line=self.row_of_line)

    def located(self, table: tables.Table) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Function from a table's rows to those that `parse` reads."""
        del table
        return lambda row: row


def held_out_part(
    groups: Sequence[Hashable], classes: Sequence[Hashable], share: float, random: np.random.Generator
) -> set[int]:
    """Draws the numbers of the examples that are held out: whole groups, of each class its share."""
    members: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    of_class: dict[Hashable, list[list[int]]] = {}
    for rows in members.values():
        of_class.setdefault(classes[rows[0]], []).append(rows)
    wanted = {name: share * sum(map(len, rows)) for name, rows in of_class.items()}
    room = {name: int(size) for name, size in wanted.items()}
    left = max(1, round(share * len(groups))) - sum(room.values())
    for name in sorted(room, key=lambda name: room[name] - wanted[name])[:left]:  # the largest remainders
        room[name] += 1
    chosen: set[int] = set()
    for name, grouped in of_class.items():
        for place in random.permutation(len(grouped)):
            if len(grouped[place]) <= room[name]:
                chosen.update(grouped[place])
                room[name] -= len(grouped[place])
    return chosen or set(min(members.values(), key=lambda rows: len([*rows])))


def same_text(*texts: str) -> Hashable:
    """Equal for texts that differ in case, white space and order alone."""
    return frozenset(" ".join(text.split()).casefold() for text in texts)


def predictions_file(folder: str | os.PathLike[str], task: str, split: str) -> Path:
    """File of a fine-tuned model's answers to a split."""
    return Path(folder) / "predictions" / f"{task}_{split}.jsonl"


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    write_atomically(path, json_lines(rows))


def json_lines(rows: Iterable[dict[str, Any]]) -> str:
    """JSON lines; what JSON has no type for, dates of a columnar file say, is text."""
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
