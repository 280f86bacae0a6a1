"""Tables of text: GLUE's tsv files as they are distributed, csv, and JSON lines.

A row is what a line says under the columns that a task needs. Lines that cannot be used are refused with file and line.
A few in a thousand are passed over with a warning instead, since GLUE's own files (QQP) hold such lines.
"""

import contextlib
import csv
import io
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.finetune.tasks.spec import Column, Columns
from electra_tf2.util import columnar
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest
from electra_tf2.util.reading import parse_json, read_text

TOLERATED = 0.002  # share of unusable lines in a file
JSON_LINES = (".jsonl", ".json")
_LONGEST_CELL = 2**31 - 1
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE, _SAMPLE_ROWS = 100_000, 20  # characters and rows by which a csv file's delimiter is found


class Span(NamedTuple):
    """The characters [start, end) of the text of a number."""

    text: int
    start: int
    end: int


class TextExample(NamedTuple):
    """One or two texts, and a label: a name, a number, or None; of a file's line first as it stands there.

    id: of the example in a submission. spans: parts of the texts that the task is about. line: 1-based.
    """

    texts: tuple[str, ...]
    label: Any
    id: Any = None
    spans: tuple[Span, ...] = ()
    line: int = 0


def read_rows(
    path: Path, columns: Columns, json_columns: Columns, tolerated: float = TOLERATED, label_optional: bool = False
) -> list[TextExample]:
    """The rows of a file.

    Args:
      columns: of tsv and csv. json_columns: of JSON lines, whose texts and label are tuples of alternative keys.
      tolerated: share of unusable lines, those with an empty text among them, that are passed over with a warning.
        0 or 1: none, or all as the original does, and a text may be empty.
      label_optional: where there is no label column, labels are None.

    Raises:
      UserError: file, line and what is wrong with it.
    """
    problems: list[str] = []
    rows: list[TextExample] = []
    lines = 0
    objects = path.suffix in JSON_LINES or columnar.is_columnar(path)
    found = (_object_rows if objects else _table_rows)(path, json_columns if objects else columns, label_optional)
    for item in found:
        lines += 1
        if isinstance(item, TextExample):
            rows.append(item)
            if 0 < tolerated < 1 and not all(text.strip() for text in item.texts):
                problems.append(f"{path}, line {item.line}: an empty sentence")
        else:
            problems.append(item)
    if not rows and not problems:
        raise UserError(f"{path} holds no examples")
    if problems:
        if not rows or len(problems) > tolerated * lines:
            more = f" ({len(problems) - 1} more like it)" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{more}")
        print(f"WARNING: {len(problems)} of {lines} lines are unusual; the first: {problems[0]}", file=sys.stderr)
    return rows


def table_lines(text: str, comma: bool, where: str, columns: Columns | None = None) -> Iterator[tuple[int, list[str]]]:
    """(1-based number of the first line, cells) of the rows of a table; blank lines are left out.

    Args:
      comma: csv, whose quoted cells may hold delimiters and line ends; else tab-separated without quoting, as GLUE's
        files.
      where: the file, for error messages.
      columns: whose delimiter and quoting count where they say any.

    Raises:
      UserError: what the csv parser refuses.
    """
    delimiter, quoted = ("", None) if columns is None else (columns.delimiter, columns.quoted)
    if not (comma if quoted is None else quoted):
        delimiter = delimiter or ("," if comma else "\t")
        for number, line in enumerate(text.split("\n"), start=1):
            if line.rstrip("\r"):
                yield number, line.rstrip("\r").split(delimiter)
        return
    csv.field_size_limit(_LONGEST_CELL)
    delimiter = delimiter or (_delimiter_of(text) if comma else "\t")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{where}, line {number}: {error}") from None
        if cells is None:
            return
        if cells:
            yield number, cells


def objects_of(
    text: str,
    suffix: str,
    where: str,
    of_line: Callable[[str], dict[str, Any]],
    header_of: Callable[[list[str]], tuple[list[str], bool]] = lambda first: (first, True),
    columns: Columns | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(1-based line, object) of JSON lines, of a table or of plain text, as the suffix of their file says.

    Args:
      of_line: the object of a line of plain text.
      header_of: names of a table's columns by its first row, and whether that is a header.
      columns: as of `table_lines`.

    Raises:
      UserError: names the file, given by `where`, and the line.
    """
    names: list[str] = []
    for number, cells in table_lines(text, suffix == ".csv", where, columns) if suffix in (".csv", ".tsv") else ():
        if not names:
            names, header = header_of(cells)
            if header:
                continue
        if len(cells) != len(names):
            raise UserError(
                f"{where}, line {number}: {len(cells)} columns, but {len(names)} are expected: {shown(cells)}"
            )
        yield number, dict(zip(names, cells, strict=True))
    for number, line in enumerate(text.split("\n"), start=1) if suffix not in (".csv", ".tsv") else ():
        if line.strip():
            is_json = suffix in JSON_LINES
            yield number, parse_json(line, f"{where}, line {number}") if is_json else of_line(line.rstrip("\r"))


def _delimiter_of(text: str) -> str:
    """The delimiter of a csv file: the first by which its first rows have equally many cells, more than one; else that
    of which the first line has most."""
    for delimiter in _DELIMITERS:
        try:
            reader = csv.reader(io.StringIO(text[:_SAMPLE], newline=""), delimiter=delimiter)
            widths = {len(cells) for cells in itertools.islice(reader, _SAMPLE_ROWS) if cells}
        except csv.Error:
            continue
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return max(_DELIMITERS, key=text.partition("\n")[0].count)


def _table_rows(path: Path, columns: Columns, label_optional: bool) -> Iterator[TextExample | str]:
    lines = table_lines(read_text(path, "task"), path.suffix == ".csv", str(path), columns)
    places: list[int] = []
    label = only = first_label = None
    labels = set()
    for number, cells in lines:
        if not places:
            width, header = len(cells), cells if columns.header else None
            places = [_place(path, column, header, width) for column in columns.texts]
            if columns.label is not None:
                with contextlib.suppress(UserError) if label_optional else contextlib.nullcontext():
                    label = _place(path, columns.label, header, width)
            if columns.only is not None:
                only = _place(path, columns.only[0], header, width)
            if columns.header:
                first_label = None if label is None else cells[label]
                continue
        if len(cells) != width:
            yield f"{path}, line {number}: {len(cells)} columns, but {width} are expected: {shown(cells[:4])}"
            continue
        if only is not None and columns.only is not None and cells[only] != columns.only[1]:
            continue
        if label is not None:
            labels.add(cells[label])
        texts = tuple(cells[place] for place in places)
        yield TextExample(texts, None if label is None else cells[label], line=number)
    if first_label is not None and first_label in labels:
        print(
            f'WARNING: {path}: the first line was taken for a header, but its label {first_label!r} is one: "header": '
            "false in the task's description keeps that line",
            file=sys.stderr,
        )


def _place(path: Path, column: Column, header: list[str] | None, width: int) -> int:
    """The number of a column: of a number, a name, or the first of alternative names that is there."""
    if not isinstance(column, int):
        names = alternatives(column)
        listed = " or ".join(map(repr, names))
        if header is None:
            raise UserError(f"{path}: column {listed} is named, but the file is said to have no header: give numbers")
        found = next((name for name in names if name in header), None)
        if found is None:
            raise UserError(
                f"{path} has no column {listed}{closest(names[0], header)}: its first line is {shown(header)}. If that "
                'is no header, give the numbers of the columns and "header": false'
            )
        return header.index(found)
    if not -width <= column < width:
        raise UserError(f"{path}, line 1: {width} columns, but column {column} is needed")
    return column


def _object_rows(path: Path, columns: Columns, label_optional: bool) -> Iterator[TextExample | str]:
    """The rows of JSON lines, and of Parquet and Arrow files."""
    lines = path.suffix in JSON_LINES
    found: Iterable[Any] = read_text(path, "task").split("\n") if lines else columnar.read_rows(path)
    for number, row in enumerate(found, start=1):
        where = f"{path}, {'line' if lines else 'row'} {number}"
        if lines and not row.strip():
            continue
        try:
            yield row_from_json(parse_json(row, where) if lines else row, columns, where, number, label_optional)
        except UserError as error:
            yield str(error)


def row_from_json(
    row: dict[str, Any], columns: Columns, where: str, number: int, label_optional: bool = False
) -> TextExample:
    """The row of a JSON object. Raises UserError."""
    texts = []
    for names in columns.texts:
        text = _value(row, names, where)
        if not isinstance(text, str):
            raise UserError(f"{where}: {'/'.join(alternatives(names))} must be text, got {shown(text)}")
        texts.append(text)
    found = TextExample(tuple(texts), None, row.get(columns.id), line=number)
    if columns.label is None or (label_optional and not any(name in row for name in alternatives(columns.label))):
        return found
    return found._replace(label=_value(row, columns.label, where))


def alternatives(column: Column) -> tuple[str, ...]:
    """The names of a column."""
    return column if isinstance(column, tuple) else (str(column),)


def _value(row: dict[str, Any], names: Column, where: str) -> Any:
    for name in alternatives(names):
        if name in row:
            return row[name]
    raise UserError(f"{where}: no field {' or '.join(map(repr, alternatives(names)))}; it has {shown(', '.join(row))}")
