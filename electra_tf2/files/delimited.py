"""Splits the text of a csv or tsv file into rows of cells: finds out its delimiter and the meaning of its quotes.

Programs write such files differently. In a csv, cells may be quoted, and the delimiter is the one by which its first
rows are equally long. Elsewhere the delimiter is a tab. There, quotes may be text (in GLUE's own files) or not (in
files of pandas and spreadsheets), which follows from the cells. A file that cannot be read in any such way is refused
with the line, and never repaired silently.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from electra_tf2.files.content import plain_name
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say, warn

Cells = tuple[int, list[str]]  # line number, from 1, of a row's first line, and its cells

_LONGEST_CELL = 2**31 - 1  # the default limit of csv, 131,072 characters, is less than a document
_MANY_ROWS = 3  # lines in one cell that look like rows, from which on a quote seems to be missing
_DELIMITERS = (",", ";", "\t", "|")
# The part of a file from which its delimiter is guessed.
SAMPLE = 100_000  # characters
SAMPLE_ROWS = 20
_EXCEL_DELIMITER = re.compile(r"sep=(.)\r?\n")  # a first line that tells Excel the delimiter
_QUOTED_CELL = re.compile(r'"[^"]*(?:""[^"]*)*"')  # quotes within are doubled
_BACKSLASHED_CELL = re.compile(r'"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"', re.DOTALL)  # or follow a backslash


def read_cells(text: str, name: str, delimiter: str = "", quoted: bool | None = None) -> Iterator[Cells]:
    """Splits the text of a delimited file into rows. Blank lines are skipped.

    Args:
      name: the file's.
      delimiter: stands between cells; "": a tab, or in csv the one that fits.
      quoted: True if cells may be quoted; None: in csv they may, and elsewhere if the cells look so.

    Raises:
      UserError: a quoted cell does not end, or goes on after its closing quote; names the line.
    """
    if Path(plain_name(name)).suffix == ".csv" or (not delimiter and _looks_like_csv(text, name)):
        return _rows_of_csv(text, name, delimiter, quoted is not False)
    delimiter = delimiter or "\t"
    if quoted is None:
        quoted = _is_quoted(text, delimiter)
        if quoted:
            say(f'note: {name}: cells in quotes are read without them; "quoted": false keeps them as text')
        elif quoted is None:
            warn(f'{name}: quotes around its cells are taken for part of the texts: "quoted": true reads them')
    if quoted:
        return _quoted_rows(text, delimiter, name)
    return _plain_rows(text, delimiter)


def _csv_reader(lines: Iterable[str], delimiter: str, **options: Any) -> Any:
    """Makes a reader of csv for cells of any length: the limit is the process's, and others may set it."""
    csv.field_size_limit(_LONGEST_CELL)
    return csv.reader(lines, delimiter=delimiter, **options)


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text with their numbers from 1. Line ends are those of Unix, Windows or old Macs."""
    line_end = "\n"
    if "\n" not in text and "\r" in text:  # an old Mac's
        line_end = "\r"
    for line_number, line in enumerate(text.split(line_end), start=1):
        yield line_number, line.rstrip("\r")


def _plain_rows(text: str, delimiter: str) -> Iterator[Cells]:
    for line_number, line in numbered_lines(text):
        if line:
            yield line_number, line.split(delimiter)


# csv.


def _rows_of_csv(text: str, name: str, delimiter: str, quoted: bool) -> Iterator[Cells]:
    excel = _EXCEL_DELIMITER.match(text)
    if not delimiter:
        delimiter = csv_delimiter(text, quoted)
    if quoted:
        rows = _quoted_rows(text, delimiter, name, _has_blanks_after_delimiters(text, delimiter))
    else:
        rows = _plain_rows(text, delimiter)
    if excel:
        return itertools.islice(rows, 1, None)  # without the line that tells the delimiter
    return rows


def csv_delimiter(text: str, quoted: bool = True) -> str:
    """Finds what stands between the cells of a csv file: what its first line tells Excel, or what fits its rows."""
    excel = _EXCEL_DELIMITER.match(text)
    if excel:
        return excel[1]
    if not quoted:
        return ","  # without quotes that protect delimiters in texts, a guess is unreliable
    return _delimiter_of_rows(text) or max(_DELIMITERS, key=text.partition("\n")[0].count)


def _looks_like_csv(text: str, name: str) -> bool:
    """True for a csv file whose name does not tell: its first line has no tab, and its first rows have a delimiter."""
    first_line = text.partition("\n")[0]
    if Path(plain_name(name)).suffix in (".tsv", ".tab") or "\t" in first_line:
        return False
    return _delimiter_of_rows(text) is not None


def _delimiter_of_rows(text: str) -> str | None:
    """The first delimiter by which the first rows all have the same number of cells, more than one; None if none."""
    for delimiter in _DELIMITERS:
        try:
            reader = _csv_reader(io.StringIO(text[:SAMPLE], newline=""), delimiter=delimiter)
            rows = [cells for cells in itertools.islice(reader, SAMPLE_ROWS) if cells]
        except csv.Error:
            continue
        if len(text) > SAMPLE and 1 < len(rows) < SAMPLE_ROWS:
            rows.pop()  # the sample ends within it
        widths = {len(cells) for cells in rows}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return None


def _has_blanks_after_delimiters(text: str, delimiter: str) -> bool:
    """True if cells follow a blank, as people type tables: `text, label` or `a film, "good, or bad"`.

    csv does not recognise a quote after a blank. It would take such quotes for text, and split the cell at delimiters.
    """
    first_line = text.partition("\n")[0].split(delimiter)
    if len(first_line) > 1 and all(cell.startswith(" ") for cell in first_line[1:]):
        return True
    quoted_after_blank = rf'{re.escape(delimiter)} +"[^"\n]*"({re.escape(delimiter)}|\r?\n|$)'
    return re.search(quoted_after_blank, text) is not None


# Quotes.


def _quoted_rows(text: str, delimiter: str, name: str, skip_blanks: bool = False) -> Iterator[Cells]:
    """Splits rows whose quoted cells may hold delimiters and line ends. Raises UserError for what csv refuses.

    Args:
      skip_blanks: True: blanks before a cell do not belong to it.
    """
    if _has_backslashed_quotes(text, delimiter):
        text = _BACKSLASHED_CELL.sub(_with_doubled_quotes, text)
    is_at_end = False

    def lines() -> Iterator[str]:
        nonlocal is_at_end
        yield from io.StringIO(text, newline="")
        is_at_end = True

    # Without `strict`, csv would silently accept a cell that goes on after its closing quote.
    reader = _csv_reader(lines(), delimiter=delimiter, strict=True, skipinitialspace=skip_blanks)
    line_number = 1
    has_warned = False
    try:
        for cells in reader:
            goes_on = reader.line_num - line_number > _MANY_ROWS
            if goes_on and not has_warned and any(_holds_rows(cell, delimiter, len(cells)) for cell in cells):
                has_warned = True
                warn(
                    f"{name}, line {line_number}: a cell in quotes goes on to line {reader.line_num}, over lines that "
                    "look like rows: is a quote missing? Double the quotes in cells"
                )
            if cells:
                yield line_number, cells
            line_number = reader.line_num + 1
    except csv.Error as error:
        # csv asks for a line beyond the end only if a quoted cell is still open there.
        if is_at_end:
            raise UserError(f"{name}, line {line_number}: a cell in quotes does not end: double the quote") from None
        if "expected after" in str(error):
            raise UserError(
                f"{name}, line {line_number}: a cell goes on behind the quote that closes it: double the quotes in "
                'cells, or "quoted": false in the task\'s description takes all quotes for text'
            ) from None
        raise UserError(f"{name}, line {line_number}: {error}") from None


def _holds_rows(cell: str, delimiter: str, width: int) -> bool:
    """Tells whether a cell holds several lines that would all be rows of a table."""
    inner_lines = cell.split("\n")[1:-1]
    if len(inner_lines) < _MANY_ROWS or width < 2:
        return False
    return all(line.count(delimiter) == width - 1 for line in inner_lines)


def _has_backslashed_quotes(text: str, delimiter: str) -> bool:
    """True if quotes within cells follow a backslash, as Spark, Hive and MySQL write them, instead of being doubled."""
    if '\\"' not in text or _cells_in_quotes(text, delimiter, _QUOTED_CELL):
        return False
    return bool(_cells_in_quotes(text, delimiter, _BACKSLASHED_CELL))


def _cells_in_quotes(text: str, delimiter: str, pattern: re.Pattern[str]) -> list[str]:
    """Finds the quoted cells of a text, quotes included; [] if there is a quote anywhere else."""
    cells = []
    end = 0
    for match in pattern.finditer(text):
        before = text[match.start() - 1] if match.start() else "\n"
        after = text[match.end()] if match.end() < len(text) else "\n"
        if before not in ("\n", "\r", delimiter) or after not in ("\n", "\r", delimiter):
            return []
        cells.append(match.group())
        end = match.end()
    if '"' in text[end:]:
        return []
    return cells


def _with_doubled_quotes(match: re.Match[str]) -> str:
    """Rewrites a quoted cell: quotes within are doubled instead of following a backslash."""
    inside = re.sub(r'\\(["\\])', r"\1", match.group()[1:-1])
    return '"' + inside.replace('"', '""') + '"'


def _is_quoted(text: str, delimiter: str) -> bool | None:
    """True if cells of a table with tabs are quoted, as pandas and spreadsheets do; False if quotes are text.

    Files of GLUE have quotes that are text, and pandas quotes only the cells that need it. So the number of quoted
    cells does not decide, but what is in them.

    Returns:
      None if both are possible: every quoted cell may as well be a text in quotes.
    """
    if '"' not in text:
        return False
    cells = _cells_in_quotes(text, delimiter, _QUOTED_CELL)
    if not cells:
        return False
    if any('""' in cell[1:-1] for cell in cells):
        return True  # quotes in a text are not doubled
    if any("\n" in cell or delimiter in cell for cell in cells):
        # Either a cell that needs its quotes, or two texts with one quote each, and what stands between them. If it is
        # a cell, rows are equally long with quotes respected, and not without.
        rows = _csv_reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        widths = {len(row) for row in rows if row}
        delimiters_in_lines = {line.count(delimiter) for _, line in numbered_lines(text) if line}
        return len(widths) == 1 and len(delimiters_in_lines) > 1
    first_lines = [line for _, line in itertools.islice(numbered_lines(text), SAMPLE_ROWS) if line]
    if all(line.startswith('"') and line.endswith('"') for line in first_lines):
        return True  # every cell is quoted, those of the header and labels, too
    return None
