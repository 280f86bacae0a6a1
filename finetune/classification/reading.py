"""Tables of text: GLUE's tsv files as they are distributed, csv, and JSON lines.

A row is what a line says under the columns that a task needs. Lines that cannot be used are refused with file and line.
A few in a thousand are passed over with a warning instead, since GLUE's own files (QQP) hold such lines.
"""

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from finetune.classification.spec import Columns
from util.errors import UserError
from util.hparams import closest

_TOLERATED = 0.002  # share of unusable lines in a file
EXTENSIONS = ("tsv", "jsonl", "csv")


class Row(NamedTuple):
    """A usable line: its 1-based number, its texts, its label as it stands there (None without one)."""

    line: int
    texts: tuple[str, ...]
    label: Any


def find_file(folders: Sequence[Path], split: str, extensions: Sequence[str] = EXTENSIONS) -> Path:
    """The file of a split; the first that exists. Raises UserError that says where it was looked for."""
    tried = [folder / f"{split}.{extension}" for folder in folders for extension in extensions]
    for path in tried:
        if path.is_file():
            return path
    there = [str(path) for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())][:8]
    found = f"; there are {', '.join(there)}" if there else ""
    raise UserError(f"no file of split {split!r}: looked for {', '.join(map(str, tried))}{found}")


def read_rows(path: Path, columns: Columns, json_columns: Columns, tolerant: bool = False) -> list[Row]:
    """The rows of a file.

    Args:
      columns: of tsv and csv. json_columns: of JSON lines, whose texts and label are tuples of alternative keys.
      tolerant: pass over every unusable line with a warning, as the original does.

    Raises:
      UserError: file, line and what is wrong with it.
    """
    problems: list[str] = []
    rows: list[Row] = []
    lines = 0
    reader = _json_rows if path.suffix == ".jsonl" else _table_rows
    for item in reader(path, json_columns if path.suffix == ".jsonl" else columns):
        lines += 1
        if isinstance(item, Row):
            rows.append(item)
            if not tolerant and not all(text.strip() for text in item.texts):
                problems.append(f"{path}, line {item.line}: an empty sentence")
        else:
            problems.append(item)
    if not rows and not problems:
        raise UserError(f"{path} holds no examples")
    if problems:
        if not rows or not (tolerant or len(problems) <= _TOLERATED * lines):
            more = f" ({len(problems) - 1} more like it)" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{more}")
        print(f"WARNING: {len(problems)} of {lines} lines are unusual; the first: {problems[0]}", file=sys.stderr)
    return rows


def _text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:  # a lone "\r" in a sentence ends no line
            return file.read()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): convert it") from None


def _table_rows(path: Path, columns: Columns) -> Iterator[Row | str]:
    text = _text(path)
    if path.suffix == ".csv":
        numbered = enumerate(csv.reader(io.StringIO(text)), start=1)
    else:  # GLUE's files have no quoting: a quotation mark is one
        numbered = enumerate((line.rstrip("\r").split("\t") for line in text.split("\n")), start=1)
    header: list[str] | None = None
    width = 0
    for number, cells in numbered:
        if cells in ([], [""]):
            continue
        if not width:
            width = len(cells)
            header = cells if columns.header else None
            places = [_place(path, column, header, width) for column in columns.texts]
            label = None if columns.label is None else _place(path, columns.label, header, width)
            if columns.header:
                continue
        if len(cells) != width:
            yield f"{path}, line {number}: {len(cells)} columns, but {width} are expected: {cells[:4]}"
            continue
        yield Row(number, tuple(cells[place] for place in places), None if label is None else cells[label])


def _place(path: Path, column: int | str, header: list[str] | None, width: int) -> int:
    """The number of a column."""
    if isinstance(column, str):
        if header is None:
            raise UserError(f"{path}: column {column!r} is named, but the file is said to have no header: give numbers")
        if column not in header:
            raise UserError(f"{path} has no column {column!r}{closest(column, header)}: it has {', '.join(header)}")
        return header.index(column)
    if not -width <= column < width:
        raise UserError(f"{path}, line 1: {width} columns, but column {column} is needed")
    return column


def _json_rows(path: Path, columns: Columns) -> Iterator[Row | str]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            yield f"{path}, line {number}: not JSON: {error}"
            continue
        try:
            yield row_from_json(row, columns, f"{path}, line {number}", number)
        except UserError as error:
            yield str(error)


def row_from_json(row: Any, columns: Columns, where: str, number: int) -> Row:
    """The row of a JSON object. Raises UserError."""
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is needed, got {type(row).__name__}")
    texts = []
    for names in columns.texts:
        text = _value(row, names, where)
        if not isinstance(text, str):
            raise UserError(f"{where}: {'/'.join(_alternatives(names))} must be text, got {text!r}")
        texts.append(text)
    return Row(number, tuple(texts), None if columns.label is None else _value(row, columns.label, where))


def _alternatives(names: Any) -> tuple[str, ...]:
    return names if isinstance(names, tuple) else (names,)


def _value(row: dict[str, Any], names: Any, where: str) -> Any:
    for name in _alternatives(names):
        if name in row:
            return row[name]
    raise UserError(f"{where}: no field {' or '.join(map(repr, _alternatives(names)))}; it has {', '.join(row)}")
