"""Tables as people have them: what a file is, which splits a folder holds, columns and rows.

    delimited   .csv, .tsv, .tab: a header names the columns; without one they are called "0", "1", ...
    json        .jsonl, .ndjson, .json: an object a line, or one list of objects
    columnar    .parquet, .arrow (with pyarrow)
    text        a text a line

Each may be compressed (.gz, .bz2, .xz, .zst). The name says what a file is, in any case; where it does not, a look
inside. A folder is a table in parts, as `datasets` saves it or as it lies in a hub's repository. Fine-tuning,
prediction and corpora read their tables here.
"""

import ast
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from electra_tf2.files.columnar import read_columnar
from electra_tf2.files.content import (
    DAMAGED,
    LOOK,
    is_json,
    is_markup,
    is_no_data,
    is_object,
    no_text,
    opened,
    plain_name,
)
from electra_tf2.files.delimited import SAMPLE, SAMPLE_ROWS, Cells, numbered_lines, rows_of_cells
from electra_tf2.files.reading import parse_json, read_text
from electra_tf2.util.errors import UserError, closest, reason, shown

Format = Literal["delimited", "json", "columnar", "text"]
Column = str | int | tuple[str | int, ...]  # name, 0-based number, or several of them, the first that is there
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
    suffix = Path(plain_name(path)).suffix
    return next((format for format, suffixes in _FORMATS.items() if suffix in suffixes), None)


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
    files = parse_json(read_text(state, "task"), str(state)).get("_data_files", [])
    return [str(file["filename"]) for file in files if isinstance(file, dict) and "filename" in file] or None


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
        if file.is_file() and format_by_name(file) and file.name not in NOT_DATA and not is_left_over(file):
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


# Rows.


class TableRow(NamedTuple):
    """A row of a table.

    line: its 1-based line, or in lists and columnar files its number. values: by the columns' names.
    problem: what is wrong with it, with file and line; "" if nothing.
    """

    line: int
    values: dict[str, Any]
    problem: str = ""


class Table(NamedTuple):
    """An open table.

    name: path for messages. unit: "line" or "row", what rows are counted in. rows: read once.
    columns: names of all columns; None where each row has its own, as in JSON.
    header: whether the names are the file's. doubled: names that several columns have; the later ones' end in _2, ...
    """

    name: str
    unit: str
    rows: Iterator[TableRow]
    columns: list[str] | None = None
    header: bool = False
    doubled: frozenset[str] = frozenset()

    def where(self, line: int) -> str:
        return f"{self.name}, {self.unit} {line}"

    def readable(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line and values of every row. Raises UserError at the first that cannot be read."""
        for line, values, problem in self.rows:
            if problem:
                raise UserError(problem)
            yield line, values


def open_table(
    path: str | os.PathLike[str],
    what: str = "task",
    *,
    content: str | None = None,
    header: bool | Callable[[list[str]], bool] = True,
    delimiter: str = "",
    quoted: bool | None = None,
    of_line: Callable[[str], dict[str, Any]] | None = None,
) -> Table:
    """Opens a file.

    Args:
      what: the flag or the thing that it is, for messages.
      content: its text, where that has been read.
      header: whether the first row of a delimited file names its columns, or what tells that by its cells.
      delimiter: between the cells of a delimited file; "": tabs, but in csv what is found there.
      quoted: whether cells may stand in quotes; None: in csv, and where the cells of others say so.
      of_line: makes the row of a line of plain text; None: plain text is a table with tabs.

    Raises:
      UserError: it cannot be read; says where.
    """
    if content is None and format_by_name(path) != "columnar" and not os.path.isfile(path):
        content = read_text(path, what)
    name = str(path)
    format = format_of(path, content)
    if format == "columnar":
        return Table(name, "row", (TableRow(number, row) for number, row in enumerate(read_columnar(path), start=1)))
    text = read_text(path, what) if content is None else content
    if format == "json" and re.match(r"\s*\[\s*[{\]]", text):
        return Table(name, "row", _list_rows(parse_json(text, name, list), name))
    if format == "json":
        _refuse_data_frame(text, name)
        return Table(name, "line", _json_rows(text, name))
    if format == "text" and of_line is not None:
        _refuse_table(text, name)
        lines = ((number, line) for number, line in numbered_lines(text) if line.strip())
        return Table(name, "line", (TableRow(number, of_line(line)) for number, line in lines))
    return _delimited(rows_of_cells(text, name, delimiter, quoted), name, header)


def _list_rows(values: list[Any], name: str) -> Iterator[TableRow]:
    for number, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield TableRow(number, value)
        else:
            yield TableRow(number, {}, f"{name}, row {number}: a JSON object is needed, got {shown(value)}")


def _json_rows(text: str, name: str) -> Iterator[TableRow]:
    for number, line in numbered_lines(text):
        if not line.strip():
            continue
        try:
            yield TableRow(number, parse_json(line, f"{name}, line {number}"))
        except UserError as error:
            if line.strip() == "{" and is_object(text):
                raise UserError(f"{name} is one JSON object over several lines: an object a line is needed") from None
            yield TableRow(number, {}, str(error))


def _refuse_data_frame(text: str, name: str) -> None:
    """Raises UserError for a data frame in one JSON object, as pandas' `to_json` writes it by default."""
    if not text.lstrip().startswith("{") or "\n" in text.strip():
        return
    try:
        value = json.loads(text)
    except ValueError:
        return  # whoever reads the rows tells what is wrong
    is_by_columns = all(isinstance(column, dict) and "0" in column for column in value.values())
    is_by_rows = isinstance(value.get("0"), dict)
    is_split = {"columns", "data"} <= value.keys() or {"schema", "data"} <= value.keys()
    if value and (is_by_columns or is_by_rows or is_split):
        raise UserError(
            f"{name} holds a whole data frame in one JSON object, not a row a line: "
            "pandas writes rows by frame.to_json(path, orient='records', lines=True)"
        )


def _refuse_table(text: str, name: str) -> None:
    """Raises UserError for lines of plain text that all have the same number of tabs, at least two."""
    lines = [line for line in text[:SAMPLE].split("\n")[:SAMPLE_ROWS] if line.strip()]
    tabs = {line.count("\t") for line in lines}
    if len(lines) > 1 and len(tabs) == 1 and min(tabs) > 1:
        raise UserError(f"{name} is a table by its tabs, not text: call it .tsv")


def _delimited(lines: Iterator[Cells], name: str, header: bool | Callable[[list[str]], bool]) -> Table:
    """The table of numbered lines of cells. Arguments as `open_table`."""
    first = next(lines, None)
    if first is None:
        return Table(name, "line", iter(()))
    first_cells = first[1]
    has_header = header if isinstance(header, bool) else header(first_cells)
    if has_header:
        columns = _different(first_cells)
        doubled = frozenset(column for column in first_cells if first_cells.count(column) > 1)
    else:
        columns = [str(number) for number in range(len(first_cells))]
        doubled = frozenset()
        lines = itertools.chain([first], lines)

    def rows() -> Iterator[TableRow]:
        for number, cells in lines:
            if len(cells) == len(columns):
                yield TableRow(number, dict(zip(columns, cells, strict=True)))
            elif len(cells) == 1 and not cells[0].strip():
                continue  # a line of blanks alone
            else:
                counts = f"{len(cells)} columns, but {len(columns)} are expected"
                yield TableRow(number, {}, f"{name}, line {number}: {counts}: {shown(cells[:4])}")

    return Table(name, "line", rows(), columns, has_header, doubled)


def _different(names: Sequence[str]) -> list[str]:
    """The names of columns; of equal ones the later get a number, with which no other column is called."""
    different: list[str] = []
    for name in names:
        new = name
        number = 1
        while new in different or (number > 1 and new in names):
            number += 1
            new = f"{name}_{number}"
        different.append(new)
    return different


# Cells.


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def cell(row: dict[str, Any], name: str, kind: Literal["truth", "list", "whole"], where: str) -> Any:
    """The value of a field in the type that the field has; None where it is missing or empty.

    Every cell of a delimited table is text, and so are many values in JSON: "False" is no truth, "[1, 2]" no list.
    Fields that are anything else than text are read through here, whatever the format.

    Args:
      kind: "truth" gives a bool, "list" a list or an object (also as Python prints one), "whole" an integer.

    Raises:
      UserError: a value of another type.
    """
    value = row.get(name)
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "" or value != value:  # NaN is unequal to itself: pandas' missing value
        return None
    if kind == "truth":
        truth = _TRUTHS.get(str(value).lower().removesuffix(".0"))
        if truth is None:
            raise UserError(f"{where}: {name} must be true or false, got {shown(value)}")
        return truth
    if kind == "whole":
        try:
            number = float(value)
            if number != int(number) or isinstance(value, bool):
                raise ValueError
        except (OverflowError, TypeError, ValueError):
            raise UserError(f"{where}: {name} must be a whole number, got {shown(value)}") from None
        return int(number)
    if isinstance(value, str) and value.startswith(("[", "{")):
        return _literal(value, f"{where}: {name}")
    return value


def _literal(text: str, what: str) -> Any:
    """The list or object that a text spells, in JSON or as Python prints one (pandas writes such cells)."""
    try:
        return parse_json(text, what, object)
    except UserError as error:
        if "'" not in text:
            raise
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise error from None


# Columns.


def alternatives(column: Column) -> tuple[str | int, ...]:
    return column if isinstance(column, tuple) else (column,)


def names_of(column: Column) -> tuple[str, ...]:
    """The names that a column may have in JSON, where numbers are names, too."""
    return tuple(dict.fromkeys(map(str, alternatives(column))))


def place(table: Table, columns: Sequence[Column], optional: Sequence[Column] = ()) -> list[str] | None:
    """The names under which a delimited table's rows have some columns, "" for optional ones that are not there.

    Columns that may be found by a name or by a number are found by names all together, if one of them is there by its
    name, else by numbers. None where each row has names of its own.

    Raises:
      UserError: one is not there, or twice.
    """
    if table.columns is None:
        return None
    header = table.columns if table.header else []
    by_name = False
    for column in columns:
        if any(name in header for name in alternatives(column)):
            by_name = True
    names = [_place(table, table.columns, column, by_name) for column in columns]
    for column in optional:
        try:
            names.append(_place(table, table.columns, column, by_name))
        except UserError:
            names.append("")
    return names


def _place(table: Table, columns: list[str], column: Column, by_name: bool) -> str:
    names = [name for name in alternatives(column) if isinstance(name, str)]
    numbers = [number for number in alternatives(column) if isinstance(number, int)]
    for name in names:
        if name in table.doubled:
            raise UserError(f"{table.name}: the column {name!r} is there twice: give the two different names")
        if table.header and name in columns:
            return name
    # Where other columns were found by their names, one that has names as well is missing.
    if numbers and not (by_name and names):
        if not -len(columns) <= numbers[0] < len(columns):
            raise UserError(f"{table.name}, line 1: {len(columns)} columns, but column {numbers[0]} is needed")
        return columns[numbers[0]]
    listed = " or ".join(map(repr, names))
    # "#" alone names a column of numbers in many tables.
    if columns[0].startswith(("# ", "//")) or (columns[0].startswith("#") and len(columns) == 1):
        raise UserError(f"{table.name}, line 1: {shown(columns[0])} is a comment: the first line must name the columns")
    if not table.header:
        raise UserError(f"{table.name}: column {listed} is named, but the file is said to have no header: give numbers")
    raise UserError(
        f"{table.name} has no column {listed}{closest(names[0], columns)}: its first line is {shown(columns)}. Rename "
        "the column, or name yours by --text-column or --label-column when training. If that line is no header, add "
        'one, or describe the task with the numbers of its columns and "header": false'
    )
