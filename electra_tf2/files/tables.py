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
import csv
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from electra_tf2.files.content import (
    DAMAGED,
    LOOK,
    is_json,
    is_markup,
    is_no_data,
    is_object,
    no_text,
    opened,
    opened_raw,
    plain_name,
)
from electra_tf2.files.reading import parse_json, read_text
from electra_tf2.util.errors import UserError, closest, reason, shown
from electra_tf2.util.progress import say

Format = Literal["delimited", "json", "columnar", "text"]
Column = str | int | tuple[str | int, ...]  # name, 0-based number, or several of them, the first that is there
_Cells = tuple[int, list[str]]  # 1-based number of the first line of a row, and its cells
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
_LONGEST_CELL = 2**31 - 1
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE, _SAMPLE_ROWS = 100_000, 20  # characters and rows by which a csv file's delimiter is found
_QUOTED_CELL = re.compile(r'"[^"]*(?:""[^"]*)*"')  # quotes in it are doubled
_BACKSLASHED_CELL = re.compile(r'"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"', re.DOTALL)  # or have a backslash before them
_BATCH = 1000  # rows of columnar files that are Python objects at a time


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
            return named or "text"  # who reads it says what is wrong
        if start.startswith((b"PAR1", b"ARROW1")):
            return "columnar"
        if found := no_text(start):
            raise UserError(f"{path} is not UTF-8 text: it holds {found}; unpack or convert it")
        content = start.decode("utf-8", "ignore")
    if is_json(content):
        return "json"
    if named is None and is_markup(content):
        raise UserError(f"{path} holds markup, not texts: extract its texts to JSON lines or a table")
    return named or "text"


# Folders.


def split_of_name(name: str) -> str:
    """The split that a file's name says, "" if it says none: train-00000-of-00001.parquet, imdb_test.csv."""
    words = re.findall(r"[a-z]+", name.lower())
    return next((split for split, names in _NAMES_OF_SPLITS.items() if {*names} & {*words}), "")


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
    return path.name.startswith("cache-") if listed is None else path.name not in listed


def splits_of(folder: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """The files of tables in a folder, by the split that their names or folders say; {} for anything else.

    "" has those that say none. Files come first; without any, folders named by splits or "data" count.
    """
    path = Path(folder)
    if not os.path.isdir(path):
        return {}
    if listed := _listed(path):
        return {"": [path / name for name in listed]}
    inside = sorted(entry for entry in path.iterdir() if not is_no_data(entry.name))
    found: dict[str, list[Path]] = {}
    for file in inside:
        if file.is_file() and format_by_name(file) and file.name not in NOT_DATA and not is_left_over(file):
            found.setdefault(split_of_name(file.name), []).append(file)
    if found:
        return found
    for below in inside:
        if below.is_dir() and (split := split_of_name(below.name)):
            found.setdefault(split, []).extend(itertools.chain(*splits_of(below).values()))
    return {split: files for split, files in found.items() if files} or splits_of(path / "data")


def files_of(path: str | os.PathLike[str], split: str | None = None) -> list[Path]:
    """The files of a table: the path itself, or those of a folder.

    Args:
      split: which one is meant where a folder holds several.

    Raises:
      UserError: a folder without tables; one with several splits, none of which is the one that is meant.
    """
    if not os.path.isdir(path):
        return [Path(path)]
    found = splits_of(path)
    if not found:
        raise UserError(f"{path} is a folder without tables: give one of {', '.join(ENDINGS)}, or a folder of those")
    if len(found) == 1 and ("" in found or split is None):
        return next(iter(found.values()))
    if split in found:
        return found[split]
    listed = ", ".join(files[0].name for files in found.values())
    raise UserError(f"{path} holds tables of several splits ({listed}, ...): name the file of the one that is meant")


# Rows.


class Row(NamedTuple):
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
    rows: Iterator[Row]
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
    name, format = str(path), format_of(path, content)
    if format == "columnar":
        return Table(name, "row", (Row(number, row) for number, row in enumerate(read_columnar(path), start=1)))
    text = read_text(path, what) if content is None else content
    if format == "json" and re.match(r"\s*\[\s*[{\]]", text):
        return Table(name, "row", _list_rows(parse_json(text, name, list), name))
    if format == "json":
        return Table(name, "line", _json_rows(text, name))
    if format == "text" and of_line is not None:
        _refuse_table(text, name)
        return Table(name, "line", (Row(number, of_line(line)) for number, line in _lines(text) if line.strip()))
    return _delimited(_rows_of_cells(text, name, delimiter, quoted), name, header)


def _rows_of_cells(text: str, name: str, delimiter: str, quoted: bool | None) -> Iterator[_Cells]:
    """The rows of a delimited file; the arguments are those of `open_table`."""
    is_csv = Path(plain_name(name)).suffix == ".csv"
    if not delimiter:
        delimiter = "\t"
        if is_csv:
            delimiter = "," if quoted is False else _delimiter_of(text)
    if quoted is None and is_csv:
        quoted = True
    if quoted is None:
        quoted = _is_quoted(text, delimiter)
        if quoted:
            say(f'note: {name}: cells in quotes are read without them; "quoted": false keeps them as text')
        elif quoted is None:
            say(f'WARNING: {name}: quotes around its cells are taken for part of the texts: "quoted": true reads them')
    if quoted:
        return _quoted_rows(text, delimiter, name)
    return ((number, line.split(delimiter)) for number, line in _lines(text) if line)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(1-based number, line) of a text."""
    return ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1))


def _list_rows(values: list[Any], name: str) -> Iterator[Row]:
    for number, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            yield Row(number, {}, f"{name}, row {number}: a JSON object is needed, got {shown(value)}")


def _json_rows(text: str, name: str) -> Iterator[Row]:
    for number, line in _lines(text):
        if not line.strip():
            continue
        try:
            yield Row(number, parse_json(line, f"{name}, line {number}"))
        except UserError as error:
            if line.strip() == "{" and is_object(text):
                raise UserError(f"{name} is one JSON object over several lines: an object a line is needed") from None
            yield Row(number, {}, str(error))


def _refuse_table(text: str, name: str) -> None:
    """Raises UserError for lines of plain text that all have the same number of tabs, at least two."""
    lines = [line for line in text[:_SAMPLE].split("\n")[:_SAMPLE_ROWS] if line.strip()]
    tabs = {line.count("\t") for line in lines}
    if len(lines) > 1 and len(tabs) == 1 and min(tabs) > 1:
        raise UserError(f"{name} is a table by its tabs, not text: call it .tsv")


def _delimited(lines: Iterator[_Cells], name: str, header: bool | Callable[[list[str]], bool]) -> Table:
    """The table of numbered lines of cells."""
    first = next(lines, None)
    if first is None:
        return Table(name, "line", iter(()))
    named = header if isinstance(header, bool) else header(first[1])
    columns = _unlike(first[1]) if named else list(map(str, range(len(first[1]))))
    doubled = frozenset(column for column in first[1] if named and first[1].count(column) > 1)

    def rows() -> Iterator[Row]:
        for number, cells in lines if named else itertools.chain([first], lines):
            if len(cells) == len(columns):
                yield Row(number, dict(zip(columns, cells, strict=True)))
            else:
                counts = f"{len(cells)} columns, but {len(columns)} are expected"
                yield Row(number, {}, f"{name}, line {number}: {counts}: {shown(cells[:4])}")

    return Table(name, "line", rows(), columns, named, doubled)


def _unlike(names: Sequence[str]) -> list[str]:
    """The names of columns, made different."""
    found: list[str] = []
    for name in names:
        candidates = itertools.chain([name], (new for n in itertools.count(2) if (new := f"{name}_{n}") not in names))
        found.append(next(new for new in candidates if new not in found))
    return found


def _quoted_rows(text: str, delimiter: str, where: str) -> Iterator[_Cells]:
    """Rows of a text whose quoted cells may hold delimiters and line ends. Raises UserError for what csv refuses."""
    csv.field_size_limit(_LONGEST_CELL)
    if '\\"' in text and not _cells_in_quotes(text, delimiter, _QUOTED_CELL):
        escaped = _cells_in_quotes(text, delimiter, _BACKSLASHED_CELL)
        if escaped:  # as Spark, Hive and MySQL write quotes
            text = _BACKSLASHED_CELL.sub(_with_doubled_quotes, text)
    ended = False

    def lines() -> Iterator[str]:
        nonlocal ended
        yield from io.StringIO(text, newline="")
        ended = True

    # Strict, or a cell that goes on behind its closing quote would be mended in silence.
    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    number = 1
    not_closed = f"{where}, line {{}}: a cell in quotes does not end: double the quote"
    try:
        for cells in reader:
            if ended:  # while the row went on
                raise UserError(not_closed.format(number))
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        if ended:
            raise UserError(not_closed.format(number)) from None
        if "expected after" in str(error):
            raise UserError(
                f"{where}, line {number}: a cell goes on behind the quote that closes it: double the quotes in cells, "
                'or "quoted": false in the task\'s description takes all quotes for text'
            ) from None
        raise UserError(f"{where}, line {number}: {error}") from None


def _cells_in_quotes(text: str, delimiter: str, pattern: re.Pattern[str]) -> list[str]:
    """The quoted cells of a text, with their quotes; [] where a single quote stands in any other place than those."""
    cells = []
    end = 0
    for match in pattern.finditer(text):
        before = text[match.start() - 1] if match.start() else "\n"
        behind = text[match.end()] if match.end() < len(text) else "\n"
        if before not in ("\n", "\r", delimiter) or behind not in ("\n", "\r", delimiter):
            return []
        cells.append(match.group())
        end = match.end()
    if '"' in text[end:]:
        return []
    return cells


def _with_doubled_quotes(match: re.Match[str]) -> str:
    """A quoted cell whose quotes have backslashes before them, as csv spells it."""
    inside = re.sub(r'\\(["\\])', r"\1", match.group()[1:-1])
    return '"' + inside.replace('"', '""') + '"'


def _is_quoted(text: str, delimiter: str) -> bool | None:
    """Tells whether the cells of a table with tabs may stand in quotes, as pandas and spreadsheets write them.

    GLUE's own files have quotes that are text, and pandas quotes only the cells that need it: not the number of quoted
    cells tells, but what stands in them. None where either may be: all quoted cells could as well be texts in quotes.
    """
    if '"' not in text:
        return False
    cells = _cells_in_quotes(text, delimiter, _QUOTED_CELL)
    if not cells:
        return False
    if any('""' in cell[1:-1] for cell in cells):
        return True  # nobody doubles quotes in text
    if any("\n" in cell or delimiter in cell for cell in cells):
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        widths = {len(row) for row in rows if row}
        widths_of_lines = {line.count(delimiter) for _, line in _lines(text) if line}
        return len(widths) == 1 < len(widths_of_lines)  # else two texts with one quote each look like one cell
    if all(line.startswith('"') and line.endswith('"') for line in text.splitlines()[:_SAMPLE_ROWS]):
        return True  # every cell, those of the header and of labels as well
    return None


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
    by_name = any(name in header for column in columns for name in alternatives(column))
    found = [_place(table, table.columns, column, by_name) for column in columns]
    for column in optional:
        try:
            found.append(_place(table, table.columns, column, by_name))
        except UserError:
            found.append("")
    return found


def _place(table: Table, columns: list[str], column: Column, by_name: bool) -> str:
    names = [name for name in alternatives(column) if isinstance(name, str)]
    numbers = [number for number in alternatives(column) if isinstance(number, int)]
    name = next((name for name in names if table.header and name in columns), None)
    if name in table.doubled:
        raise UserError(f"{table.name}: the column {name!r} is there twice: give the two different names")
    if name is not None:
        return name
    if numbers and not (by_name and names):
        if not -len(columns) <= numbers[0] < len(columns):
            raise UserError(f"{table.name}, line 1: {len(columns)} columns, but column {numbers[0]} is needed")
        return columns[numbers[0]]
    listed = " or ".join(map(repr, names))
    if not table.header:
        raise UserError(f"{table.name}: column {listed} is named, but the file is said to have no header: give numbers")
    raise UserError(
        f"{table.name} has no column {listed}{closest(names[0], columns)}: its first line is {shown(columns)}. Rename "
        "the column, or name yours by --text-column or --label-column when training. If that line is no header, add "
        'one, or describe the task with the numbers of its columns and "header": false'
    )


# Columnar files.


def read_columnar(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a parquet or Arrow file; numbers of `datasets`' classes as their names, -1 as None.

    Args:
      columns: those that are read; None: all. One that is not there is missing in the rows.

    Raises:
      UserError: no pyarrow; a file that cannot be read.
    """
    try:
        import pyarrow as arrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: parquet and Arrow files need pyarrow: pip install pyarrow") from None
    try:
        with opened_raw(path) as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet or str(path).lower().endswith(".parquet"):
            with arrow.parquet.ParquetFile(path) as table:
                schema = table.schema_arrow
                kept = None if columns is None else [name for name in schema.names if name in columns]
                for batch in table.iter_batches(_BATCH, columns=kept):
                    yield from _named(batch.to_pylist(), schema)
            return
        with arrow.memory_map(str(path)) as source:
            is_stream = source.read(6) != b"ARROW1"  # `datasets` writes streams, others may write files
            source.seek(0)
            reader = arrow.ipc.open_stream(source) if is_stream else arrow.ipc.open_file(source)
            batches = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
            for batch in batches:
                kept = [name for name in reader.schema.names if columns is None or name in columns]
                for start in range(0, batch.num_rows, _BATCH):
                    yield from _named(batch.select(kept).slice(start, _BATCH).to_pylist(), reader.schema)
    except (arrow.ArrowException, OSError) as error:
        why = reason(error) if isinstance(error, OSError) and error.errno else error
        raise UserError(f"{path} cannot be read: {why}") from None


def _named(rows: list[dict[str, Any]], schema: Any) -> list[dict[str, Any]]:
    """The rows with the names of classes for their numbers, those in lists, too."""
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {}) if isinstance(described, dict) else {}
    for name, feature in features.items():
        names = _class_names(feature)
        for row in rows if names else ():
            if isinstance(row.get(name), list):
                row[name] = [_class_name(value, names) for value in row[name]]
            elif name in row:
                row[name] = _class_name(row[name], names)
    return rows


def _class_names(feature: Any) -> list[str]:
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return []
    return feature.get("names") or [] if feature.get("_type") == "ClassLabel" else _class_names(feature.get("feature"))


def _class_name(value: Any, names: list[str]) -> Any:
    if type(value) is not int:
        return value
    return names[value] if 0 <= value < len(names) else None
