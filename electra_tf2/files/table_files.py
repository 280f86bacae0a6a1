"""Recognises files of tables: their format, by name or content, and the splits in a folder.

    delimited   .csv, .tsv, .tab
    json        .jsonl, .ndjson, .json
    columnar    .parquet, .arrow
    text        any other name

All but the columnar ones may be compressed (.gz, .bz2, .xz, .zst). Upper and lower case in names do not matter. A table
may also be a folder of several files, as `datasets` saves it or a hub's repository holds it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from electra_tf2.files.content import DAMAGED, LOOK, is_json, is_markup, is_no_data, no_text, opened, plain_name
from electra_tf2.files.reading import how_to_convert, parse_json, read_text
from electra_tf2.util.errors import UserError, reason

Format = Literal["delimited", "json", "columnar", "text"]
SPLITS = ("train", "dev", "test")

_FORMATS: dict[Format, tuple[str, ...]] = {
    "delimited": (".csv", ".tsv", ".tab"),
    "json": (".jsonl", ".ndjson", ".json"),
    "columnar": (".parquet", ".arrow"),
}
ENDINGS = ("tsv", "jsonl", "csv", "parquet", "arrow", "json", "ndjson", "tab")
NOT_DATA = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")  # written by `datasets`
_NAMES_OF_SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val", "development"),
    "test": ("test", "testing"),
}


# Files.


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yields the lines of a file, decompressed, with their ends. Raises UserError if it cannot be read."""
    try:
        with opened(path) as file:
            for line_number, line in enumerate(file, start=1):
                yield line.decode().removeprefix("\ufeff" if line_number == 1 else "")
    except UnicodeDecodeError:
        raise UserError(
            f"{path}, line {line_number}: this is not UTF-8 text: save it as UTF-8, or convert it: "
            f"{how_to_convert(path)}"
        ) from None
    except DAMAGED as error:
        raise UserError(f"{path} cannot be read: {reason(error)}") from None


def format_by_name(path: str | os.PathLike[str]) -> Format | None:
    """The format of a file by its name; None if the name does not tell."""
    suffix = Path(plain_name(path)).suffix
    for format, suffixes in _FORMATS.items():
        if suffix in suffixes:
            return format
    return None


def format_of(path: str | os.PathLike[str], content: str | None = None) -> Format:
    """The format of a file, by its name and its content. Content that is clearly of a format counts more.

    Args:
      content: the file's text, if it has been read.

    Raises:
      UserError: the file is no text, or holds markup.
    """
    named = format_by_name(path)
    if named == "columnar":
        return named
    if content is None:
        if not os.path.isfile(path):  # a pipe can be read only once, so not here
            return named or "text"
        try:
            with opened(path) as file:
                start = file.read(LOOK)
        except (*DAMAGED, ValueError):
            return named or "text"  # reading it will raise the error
        if start.startswith((b"PAR1", b"ARROW1")):
            return "columnar"
        problem = no_text(start)
        if problem:
            raise UserError(f"{path} is not UTF-8 text: it holds {problem}. {_to_text(problem)}")
        content = start.decode("utf-8", "ignore")
    if is_json(content):
        return "json"
    if named is None and is_markup(content):
        raise UserError(f"{path} holds markup, not texts: extract its texts to JSON lines or a table")
    return named or "text"


def _to_text(problem: str) -> str:
    """Says how a file becomes text."""
    if "UTF-16" in problem:
        return "In Excel save it as CSV UTF-8, or convert it: iconv -f UTF-16 -t UTF-8"
    if "spreadsheet" in problem:
        return "Unpack it; a spreadsheet is saved as CSV UTF-8"
    return "Unpack or convert it"


# Folders.


def split_of_name(name: str) -> str:
    """The split that is a word of a name, as in train-00000-of-00001.parquet and imdb_test.csv; "" if there is none."""
    words = re.findall(r"[a-z]+", name.lower())
    for split, names in _NAMES_OF_SPLITS.items():
        if any(word in names for word in words):
            return split
    return ""


def _listed(folder: Path) -> list[str] | None:
    """Names of the files of a table that `datasets` saved, from its state.json; None if there is no such file."""
    state = folder / "state.json"
    if not state.is_file():
        return None
    names = []
    for file in parse_json(read_text(state, "task"), str(state)).get("_data_files", []):
        if isinstance(file, dict) and "filename" in file:
            names.append(str(file["filename"]))
    return names or None


def is_left_over(path: Path) -> bool:
    """True for an Arrow file that is not part of its folder's table: `datasets` caches results of `map` beside it."""
    if path.suffix.lower() != ".arrow":
        return False
    listed = _listed(path.parent)
    if listed is None:
        return path.name.startswith("cache-")
    return path.name not in listed


def splits_of(folder: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """Finds the files of tables in a folder: split -> files. The split is "" if a file's name has none.

    It looks at the files in the folder itself; if there are none, in subfolders with the name of a split; if there are
    none, in a subfolder "data".
    """
    path = Path(folder)
    if not os.path.isdir(path):
        return {}
    listed = _listed(path)
    if listed:
        return {"": [path / name for name in listed]}
    entries = sorted(entry for entry in path.iterdir() if not is_no_data(entry.name))
    files: dict[str, list[Path]] = {}
    for entry in entries:
        is_table = entry.is_file() and format_by_name(entry) is not None
        if is_table and entry.name not in NOT_DATA and not is_left_over(entry):
            files.setdefault(split_of_name(entry.name), []).append(entry)
    if files:
        return files
    for entry in entries:
        split = split_of_name(entry.name)
        if not split or not entry.is_dir():
            continue
        for inner_files in splits_of(entry).values():
            files.setdefault(split, []).extend(inner_files)
    if files:
        return files
    return splits_of(path / "data")


def files_of(path: str | os.PathLike[str], split: str | None = None) -> list[Path]:
    """The files of a table: the path itself, or files in a folder.

    Args:
      split: the split to choose if a folder holds several.

    Raises:
      UserError: a folder holds no tables, or several splits without this one.
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
