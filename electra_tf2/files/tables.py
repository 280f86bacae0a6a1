"""Tables as people have them: rows by the names of their columns, whatever the format.

    delimited   a header names the columns; without one they are called "0", "1", ...
    json        an object a line, or one list of objects
    columnar    parquet and Arrow (with pyarrow)
    text        a text a line

`files.table_files` says which format a file has and which files a folder's table is made of; `files.cells` gives a cell
the type of its field. Fine-tuning, prediction and corpora read their tables here.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from electra_tf2.files.columnar import read_columnar
from electra_tf2.files.content import is_object
from electra_tf2.files.delimited import SAMPLE, SAMPLE_ROWS, Cells, numbered_lines, rows_of_cells
from electra_tf2.files.reading import parse_json, read_text
from electra_tf2.files.table_files import format_by_name, format_of
from electra_tf2.util.errors import UserError, closest, shown

Column = str | int | tuple[str | int, ...]  # name, 0-based number, or several of them, the first that is there

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
        return Table(name, "row", _columnar_rows(path))
    text = content
    if text is None:
        text = read_text(path, what)
    is_list = re.match(r"\s*\[\s*[{\]\[]", text) is not None  # of objects or pairs, or an empty one
    if format == "json" and is_list:
        return Table(name, "row", _list_rows(parse_json(text, name, list), name))
    if format == "json":
        _refuse_data_frame(text, name)
        return Table(name, "line", _json_rows(text, name))
    if format == "text" and of_line is not None:
        _refuse_table(text, name)
        return Table(name, "line", _text_rows(text, of_line))
    return _delimited(rows_of_cells(text, name, delimiter, quoted), name, header)


def _columnar_rows(path: str | os.PathLike[str]) -> Iterator[TableRow]:
    for number, row in enumerate(read_columnar(path), start=1):
        yield TableRow(number, row)


def _text_rows(text: str, of_line: Callable[[str], dict[str, Any]]) -> Iterator[TableRow]:
    for number, line in numbered_lines(text):
        if line.strip():
            yield TableRow(number, of_line(line))


def _list_rows(values: list[Any], name: str) -> Iterator[TableRow]:
    for number, value in enumerate(values, start=1):
        is_pair = isinstance(value, list) and len(value) == 2
        if is_pair and isinstance(value[0], str) and isinstance(value[1], dict):
            value = {"text": value[0]} | value[1]  # as spaCy's training data were
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
    lengths = {len(column) if isinstance(column, list) else -1 for column in value.values()}
    is_of_lists = len(value) > 1 and len(lengths) == 1 and min(lengths) > 0
    is_by_rows = isinstance(value.get("0"), dict)
    is_split = {"columns", "data"} <= value.keys() or {"schema", "data"} <= value.keys()
    if value and (is_by_columns or is_by_rows or is_split or is_of_lists):
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
