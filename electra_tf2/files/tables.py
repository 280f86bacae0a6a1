"""Opens a table of any format: its rows are dicts by column names.

    delimited   a header names the columns; without a header their names are "0", "1", ...
    json        an object on each line, or one list of objects
    columnar    parquet and Arrow (with pyarrow)
    text        a text on each line

`files.table_files` recognises a file's format and finds a table's files in a folder. `files.cells` converts cells to
the type of their field. Fine-tuning and prediction read their tables here.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from electra_tf2.files.columnar import read_columnar
from electra_tf2.files.content import is_object
from electra_tf2.files.delimited import SAMPLE, SAMPLE_ROWS, Cells, numbered_lines, read_cells
from electra_tf2.files.reading import parse_json, read_text
from electra_tf2.files.table_files import format_by_name, format_of
from electra_tf2.util.errors import UserError, closest, shown

# A name, an index, or alternatives, of which the first one that exists is taken.
Column = str | int | tuple[str | int, ...]

ADVICE_ON_HEADER = (
    "--text-column names that of the texts (A,B: those of pairs), and in training --label-column that of the labels, "
    "--task-type what is no text with a label (qa: questions, tagging: tagged words). If that line is no header, add "
    'one, or describe the task with the numbers of its columns and "header": false'
)

# Rows.


class WordRow(NamedTuple):
    """A row of a table with a word in each. has_word: False: a blank one, or one of other columns alone."""

    values: dict[str, Any]
    has_word: bool


class TableRow(NamedTuple):
    """A row of a table.

    line: its line number, or in lists and columnar files its row number, from 1. values: column name -> value.
    problem: an error message with file and line; "" if there is none.
    parts: of a sentence that was put together of rows with a word each, these; () of any other row.
    """

    line: int
    values: dict[str, Any]
    problem: str = ""
    parts: Sequence[WordRow] = ()


class Table(NamedTuple):
    """An open table.

    name: path for messages. unit: "line" or "row", which numbers rows in messages. rows: an iterator, for one reading.
    columns: names of all columns; None if each row has its own, as in JSON.
    header: True if the file has a header. doubled: names that the header gives to several columns; those of the later
    columns end in _2, _3, ...
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
        """Yields line number and values of every row. Raises UserError at one that cannot be read."""
        for row in self.checked():
            yield row.line, row.values

    def checked(self) -> Iterator[TableRow]:
        """Yields every row. Raises UserError at one that cannot be read."""
        for row in self.rows:
            if row.problem:
                raise UserError(row.problem)
            yield row


def open_table(
    path: str | os.PathLike[str],
    what: str = "table",
    *,
    content: str | None = None,
    header: bool | Callable[[list[str]], bool] = True,
    delimiter: str = "",
    quoted: bool | None = None,
    parse_line: Callable[[str], dict[str, Any] | None] | None = None,
) -> Table:
    """Opens a table.

    Args:
      what: for messages, the flag that names the file, or what it is.
      content: the file's text, if it has been read.
      header: True if the first row of a delimited file names its columns; or a function that decides by its cells.
      delimiter: stands between the cells of a delimited file; "": a tab, or in csv the one that fits.
      quoted: True if cells may be quoted; None: in csv they may, and elsewhere if the cells look so.
      parse_line: makes a row from a line of plain text, or None from one that is no row; by default plain text is a
        table with tabs.

    Raises:
      UserError: the file cannot be read.
    """
    if content is None and format_by_name(path) != "columnar" and not os.path.isfile(path):
        # A pipe can be read once, so its text is read before its format is looked at.
        content = read_text(path, what)
    name = str(path)
    format = format_of(path, content)
    if format == "columnar":
        return Table(name, "row", _columnar_rows(path))
    text = content
    if text is None:
        text = read_text(path, what)
    is_list = re.match(r"\s*\[\s*[{\]\[]", text) is not None  # a list of objects or pairs, or an empty one
    if format == "json" and is_list:
        return Table(name, "row", _list_rows(parse_json(text, name, list), name))
    if format == "json":
        _refuse_data_frame(text, name)
        return Table(name, "line", _json_rows(text, name))
    if format == "text" and parse_line is not None:
        _refuse_table(text, name)
        return Table(name, "line", _text_rows(text, parse_line))
    return _delimited(read_cells(text, name, delimiter, quoted), name, header)


def _columnar_rows(path: str | os.PathLike[str]) -> Iterator[TableRow]:
    for row_number, row in enumerate(read_columnar(path), start=1):
        yield TableRow(row_number, row)


def _text_rows(text: str, parse_line: Callable[[str], dict[str, Any] | None]) -> Iterator[TableRow]:
    """Yields a row of each line, but for blank lines at the end."""
    lines = text.rstrip("\r\n")  # a tab at the end of the last one stands before an empty text
    if not lines.strip():
        return
    for line_number, line in numbered_lines(lines):
        values = parse_line(line)
        if values is not None:
            yield TableRow(line_number, values)


def _list_rows(values: list[Any], name: str) -> Iterator[TableRow]:
    for row_number, value in enumerate(values, start=1):
        is_pair = isinstance(value, list) and len(value) == 2
        if is_pair and isinstance(value[0], str) and isinstance(value[1], dict):
            value = {"text": value[0]} | value[1]  # the format of spaCy's older training data
        if isinstance(value, dict):
            yield TableRow(row_number, value)
        else:
            yield TableRow(row_number, {}, f"{name}, row {row_number}: a JSON object is needed, got {shown(value)}")


def _json_rows(text: str, name: str) -> Iterator[TableRow]:
    for line_number, line in numbered_lines(text):
        if not line.strip():
            continue
        try:
            yield TableRow(line_number, parse_json(line, f"{name}, line {line_number}"))
        except UserError as error:
            if line.strip() == "{" and is_object(text):
                raise UserError(f"{name} is one JSON object over several lines: an object a line is needed") from None
            yield TableRow(line_number, {}, str(error))


def _refuse_data_frame(text: str, name: str) -> None:
    """Raises UserError for a data frame in one JSON object, which pandas' `to_json` writes by default."""
    if not text.lstrip().startswith("{") or "\n" in text.strip():
        return
    try:
        value = json.loads(text)
    except ValueError:
        return  # reading the rows will raise the error
    is_by_columns = all(isinstance(column, dict) and "0" in column for column in value.values())
    are_lists = len(value) > 1 and all(isinstance(column, list) and column for column in value.values())
    is_of_lists = are_lists and len({len(column) for column in value.values()}) == 1
    if {"words", "tokens"} & value.keys():
        is_of_lists = False  # the words of one sentence, and their tags
    is_by_rows = isinstance(value.get("0"), dict)
    is_split = {"columns", "data"} <= value.keys() or {"schema", "data"} <= value.keys()
    if value and (is_by_columns or is_by_rows or is_split or is_of_lists):
        raise UserError(
            f"{name} holds a whole data frame in one JSON object, not a row a line: "
            "pandas writes rows by frame.to_json(path, orient='records', lines=True)"
        )


def _refuse_table(text: str, name: str) -> None:
    """Raises UserError for plain text that is a table, since its first lines have equally many tabs, at least two."""
    lines = [line for line in text[:SAMPLE].split("\n")[:SAMPLE_ROWS] if line.strip()]
    tabs = {line.count("\t") for line in lines}
    if len(lines) > 1 and len(tabs) == 1 and min(tabs) > 1:
        raise UserError(f"{name} is a table by its tabs, not text: call it .tsv")


def _delimited(lines: Iterator[Cells], name: str, header: bool | Callable[[list[str]], bool]) -> Table:
    """Makes a table from lines of cells. Other arguments as in `open_table`."""
    first_line = next(lines, None)
    if first_line is None:
        return Table(name, "line", iter(()))
    _, first_cells = first_line
    has_header = header if isinstance(header, bool) else header(first_cells)
    if has_header:
        columns = _without_duplicates(first_cells)
        doubled = frozenset(column for column in first_cells if first_cells.count(column) > 1)
    else:
        columns = [str(index) for index in range(len(first_cells))]
        doubled = frozenset()
        lines = itertools.chain([first_line], lines)

    def rows() -> Iterator[TableRow]:
        for line_number, cells in lines:
            if len(cells) == len(columns):
                yield TableRow(line_number, dict(zip(columns, cells, strict=True)))
            elif len(cells) == 1 and not cells[0].strip():
                continue  # a line of blanks
            else:
                counts = f"{len(cells)} columns, but {len(columns)} are expected"
                yield TableRow(line_number, {}, f"{name}, line {line_number}: {counts}: {shown(cells[:4])}")

    return Table(name, "line", rows(), columns, has_header, doubled)


def _without_duplicates(names: Sequence[str]) -> list[str]:
    """Renames later columns of the same name to name_2, name_3, ..., but never to the name of another column."""
    unique_names: list[str] = []
    for name in names:
        unique_name = name
        count = 1
        while unique_name in unique_names or (count > 1 and unique_name in names):
            count += 1
            unique_name = f"{name}_{count}"
        unique_names.append(unique_name)
    return unique_names


# Columns.


def columns_named(columns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Lists the columns that have one of the names, in any case."""
    lower_names = [name.lower() for name in names]
    return [column for column in columns if column.strip().lower() in lower_names]


def column_called(columns: Collection[str], name: str) -> str | None:
    """Finds the column of a name, or else the only one whose name differs in case alone; None: there is none."""
    if name in columns:
        return name
    alike = columns_named(columns, [name])
    if len(alike) == 1:
        return alike[0]
    return None


def alternatives(column: Column) -> tuple[str | int, ...]:
    return column if isinstance(column, tuple) else (column,)


def names_of(column: Column) -> tuple[str, ...]:
    """The names that a column may have in JSON. There, indices are names, too."""
    return tuple(dict.fromkeys(map(str, alternatives(column))))  # without duplicates


def find_columns(table: Table, columns: Sequence[Column], optional: Sequence[Column] = ()) -> list[str] | None:
    """Finds columns in a delimited table: the names that its rows have for them.

    A column may have names and indices. If the header has one of the columns by a name, all are found by names, or else
    all by indices.

    Args:
      optional: further columns, which may be missing.

    Returns:
      The names; "" for an optional column that is missing. None if each row has its own names, as in JSON.

    Raises:
      UserError: a column is missing, or its name is doubled.
    """
    if table.columns is None:
        return None
    header = table.columns if table.header else []
    by_name = False
    for column in columns:
        for name in alternatives(column):
            if isinstance(name, str) and column_called(header, name) is not None:
                by_name = True
    names: list[str] = []
    missing = []
    for column in columns:
        found_name = _find_column(table, table.columns, column, by_name)
        if found_name is None:
            missing.append(column)
        else:
            names.append(found_name)
    if missing:
        others = [name for name in table.columns if name not in names]
        raise _missing(table, table.columns, missing, by_name, others)
    for column in optional:
        names.append(_find_column(table, table.columns, column, by_name) or "")
    return names


def _find_column(table: Table, columns: list[str], column: Column, by_name: bool) -> str | None:
    """Finds a column; None if it is missing. Raises UserError if its name is doubled."""
    names = [name for name in alternatives(column) if isinstance(name, str)]
    for name in names:
        if name in table.doubled:
            raise UserError(f"{table.name}: the column {name!r} is there twice: give the two different names")
        if table.header:
            column_of_name = column_called(columns, name)
            if column_of_name is not None:
                return column_of_name
    index = _index_of(column, by_name)
    if index is not None and -len(columns) <= index < len(columns):
        return columns[index]
    return None


def _index_of(column: Column, by_name: bool) -> int | None:
    """The index by which a column may be found; None: by its names alone.

    A column that has names does not fall back to its index if others were found by names.
    """
    indices = [index for index in alternatives(column) if isinstance(index, int)]
    has_names = len(indices) < len(alternatives(column))
    if not indices or (by_name and has_names):
        return None
    return indices[0]


def _missing(
    table: Table, columns: list[str], missing: Sequence[Column], by_name: bool, others: Sequence[str]
) -> UserError:
    """Makes the error about columns that are missing. others: columns that may have been meant."""
    index = _index_of(missing[0], by_name)
    if index is not None:
        return UserError(f"{table.name}, line 1: {len(columns)} columns, but column {index} is needed")
    wanted_columns = []
    for column in missing:
        names = [name for name in alternatives(column) if isinstance(name, str)]
        wanted_columns.append(" or ".join(map(repr, names)))
    wanted = " and no column ".join(wanted_columns)
    suggestion = ""
    if len(missing) == 1:
        suggestion = closest(names[0], others)
    # A header may begin with "#" alone, as the name of a column of row numbers.
    if columns[0].startswith(("# ", "//")) or (columns[0].startswith("#") and len(columns) == 1):
        return UserError(
            f"{table.name}, line 1: {shown(columns[0])} is a comment: the first line must name the columns"
        )
    if not table.header:
        return UserError(
            f"{table.name}: column {wanted} is named, but the file is said to have no header: give numbers"
        )
    end = " " if suggestion else ": "
    return UserError(
        f"{table.name} has no column {wanted}{suggestion}{end}its first line is {shown(columns)}. {ADVICE_ON_HEADER}"
    )
