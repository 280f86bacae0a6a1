"""Files that hold tables: which format one has, by its name or by a look inside, and which splits a folder holds.

    delimited   .csv, .tsv, .tab
    json        .jsonl, .ndjson, .json
    columnar    .parquet, .arrow
    text        any other name

Each may be compressed (.gz, .bz2, .xz, .zst), and names are read in any case. A folder is a table in parts, as
`datasets` saves it or as it lies in a hub's repository.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from electra_tf2.files.content import DAMAGED, LOOK, is_json, is_markup, is_no_data, no_text, opened, plain_name
from electra_tf2.files.reading import parse_json, read_text
from electra_tf2.util.errors import UserError, reason

Format = Literal["delimited", "json", "columnar", "text"]
SPLITS = ("train", "dev", "test")

_FORMATS: dict[Format, tuple[str, ...]] = {
    "delimited": (".csv", ".tsv", ".tab"),
    "json": (".jsonl", ".ndjson", ".json"),
    "columnar": (".parquet", ".arrow"),
}
ENDINGS = ("tsv", "jsonl", "csv", "parquet", "arrow", "json", "ndjson")
NOT_DATA = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")  # what `datasets` writes
_NAMES_OF_SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val", "development"),
    "test": ("test", "testing"),
}


# Files.


def lines_of(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a file, decompressed, one at a time, with their ends. Raises UserError."""
    try:
        with opened(path) as file:
            for number, line in enumerate(file, start=1):
                yield line.decode().removeprefix("\ufeff" if number == 1 else "")
    except UnicodeDecodeError:
        raise UserError(f"{path}, line {number}: this is not UTF-8 text: save or convert it as UTF-8") from None
    except DAMAGED as error:
        raise UserError(f"{path} cannot be read: {reason(error)}") from None


def format_by_name(path: str | os.PathLike[str]) -> Format | None:
    """The format that a file's name says; None where it says nothing."""
    suffix = Path(plain_name(path)).suffix
    for format, suffixes in _FORMATS.items():
        if suffix in suffixes:
            return format
    return None


def format_of(path: str | os.PathLike[str], content: str | None = None) -> Format:
    """Format of a file, by its name; by its content where the name says nothing or the content is plainly another.

    Args:
      content: its text, where that has been read.

    Raises:
      UserError: it holds markup.
    """
    named = format_by_name(path)
    if named == "columnar":
        return named
    if content is None:
        if not os.path.isfile(path):  # a pipe is read once
            return named or "text"
        try:
            with opened(path) as file:
                start = file.read(LOOK)
        except (*DAMAGED, ValueError):
            return named or "text"  # who reads it tells what is wrong
        if start.startswith((b"PAR1", b"ARROW1")):
            return "columnar"
        problem = no_text(start)
        if problem:
            raise UserError(f"{path} is not UTF-8 text: it holds {problem}; unpack or convert it")
        content = start.decode("utf-8", "ignore")
    if is_json(content):
        return "json"
    if named is None and is_markup(content):
        raise UserError(f"{path} holds markup, not texts: extract its texts to JSON lines or a table")
    return named or "text"


# Folders.


def split_of_name(name: str) -> str:
    """The split that a file's name has as a word, "" without one: train-00000-of-00001.parquet, imdb_test.csv."""
    words = re.findall(r"[a-z]+", name.lower())
    for split, names in _NAMES_OF_SPLITS.items():
        if any(word in names for word in words):
            return split
    return ""


def _listed(folder: Path) -> list[str] | None:
    """The files of a table that `datasets` saved, as its state.json lists them; None without one."""
    state = folder / "state.json"
    if not state.is_file():
        return None
    names = []
    for file in parse_json(read_text(state, "task"), str(state)).get("_data_files", []):
        if isinstance(file, dict) and "filename" in file:
            names.append(str(file["filename"]))
    return names or None


def is_left_over(path: Path) -> bool:
    """Tells whether an Arrow file is none of the table in its folder: what `map` or `shuffle` keeps beside it."""
    if path.suffix.lower() != ".arrow":
        return False
    listed = _listed(path.parent)
    if listed is None:
        return path.name.startswith("cache-")
    return path.name not in listed


def splits_of(folder: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """The files of tables in a folder, by the split that they or their folders are named after; {} without any.

    Files whose names have no split are those of "". Where a folder has no such files, those in folders that are named
    after splits count, and without any those in a folder "data".
    """
    path = Path(folder)
    if not os.path.isdir(path):
        return {}
    listed = _listed(path)
    if listed:
        return {"": [path / name for name in listed]}
    inside = sorted(entry for entry in path.iterdir() if not is_no_data(entry.name))
    files: dict[str, list[Path]] = {}
    for file in inside:
        is_table = file.is_file() and format_by_name(file) is not None
        if is_table and file.name not in NOT_DATA and not is_left_over(file):
            files.setdefault(split_of_name(file.name), []).append(file)
    if files:
        return files
    for inner in inside:
        split = split_of_name(inner.name)
        if not split or not inner.is_dir():
            continue
        for files_of_split in splits_of(inner).values():
            files.setdefault(split, []).extend(files_of_split)
    return files or splits_of(path / "data")


def files_of(path: str | os.PathLike[str], split: str | None = None) -> list[Path]:
    """The files of a table: the path itself, or those of a folder.

    Args:
      split: which one is meant where a folder holds several.

    Raises:
      UserError: a folder without tables; one with several splits, none of which is the one that is meant.
    """
    if not os.path.isdir(path):
        return [Path(path)]
    splits = splits_of(path)
    if not splits:
        raise UserError(f"{path} is a folder without tables: give one of {', '.join(ENDINGS)}, or a folder of those")
    if len(splits) == 1 and ("" in splits or split is None):
        return next(iter(splits.values()))
    if split in splits:
        return splits[split]
    listed = ", ".join(files[0].name for files in splits.values())
    raise UserError(f"{path} holds tables of several splits ({listed}, ...): name the file of the one that is meant")
