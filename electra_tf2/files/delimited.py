"""Rows of cells from the text of a csv or tsv file: its delimiter, its quotes, and the cells of each row.

No two programs write such files alike. A csv has the delimiter by which its first rows are equally long, and cells that
may stand in quotes. Elsewhere the delimiter is a tab, and quotes are text (GLUE's own files) or not (pandas', those of
spreadsheets): what stands in the cells tells that. What no reading fits is refused with its line, never mended in
silence.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from electra_tf2.files.content import plain_name
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say, warn

Cells = tuple[int, list[str]]  # 1-based number of the first line of a row, and its cells

_LONGEST_CELL = 2**31 - 1  # csv's own limit, 131,072 characters, is less than a document
_DELIMITERS = (",", ";", "\t", "|")
SAMPLE = 100_000  # characters by which a file's delimiter is found
SAMPLE_ROWS = 20  # and rows
_EXCEL_DELIMITER = re.compile(r"sep=(.)\r?\n")  # a first line by which Excel is told the delimiter
_QUOTED_CELL = re.compile(r'"[^"]*(?:""[^"]*)*"')  # quotes in it are doubled
_BACKSLASHED_CELL = re.compile(r'"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"', re.DOTALL)  # or have a backslash before them


def rows_of_cells(text: str, name: str, delimiter: str = "", quoted: bool | None = None) -> Iterator[Cells]:
    """The rows of a delimited file, blank lines left out.

    Args:
      name: of the file.
      delimiter: between its cells; "": tabs, but in csv what is found there.
      quoted: whether cells may stand in quotes; None: in csv, and elsewhere where the cells say so.

    Raises:
      UserError: quotes that do not end, or that end before their cell does; names the line.
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


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(1-based number, line) of a text, whose lines end as those of Unix, Windows or, all of them, old Macs."""
    line_end = "\n"
    if "\n" not in text and "\r" in text:
        line_end = "\r"
    for number, line in enumerate(text.split(line_end), start=1):
        yield number, line.rstrip("\r")


def _plain_rows(text: str, delimiter: str) -> Iterator[Cells]:
    for number, line in numbered_lines(text):
        if line:
            yield number, line.split(delimiter)


# csv.


def _rows_of_csv(text: str, name: str, delimiter: str, quoted: bool) -> Iterator[Cells]:
    excel = _EXCEL_DELIMITER.match(text)
    if not delimiter and excel:
        delimiter = excel[1]
    elif not delimiter and quoted:
        delimiter = _delimiter_of(text)
    elif not delimiter:
        delimiter = ","  # to look for another one takes quotes that say where cells end
    if quoted:
        rows = _quoted_rows(text, delimiter, name, _has_blanks_behind_delimiters(text, delimiter))
    else:
        rows = _plain_rows(text, delimiter)
    if excel:
        return itertools.islice(rows, 1, None)
    return rows


def _looks_like_csv(text: str, name: str) -> bool:
    """Tells a csv file under a name that says nothing: no tab in its first line, but a delimiter of its first rows."""
    first_line = text.partition("\n")[0]
    if Path(plain_name(name)).suffix in (".tsv", ".tab") or "\t" in first_line:
        return False
    return _delimiter_of_rows(text) is not None


def _delimiter_of(text: str) -> str:
    """The delimiter of a csv file: that of its first rows, else that of which the first line has most."""
    return _delimiter_of_rows(text) or max(_DELIMITERS, key=text.partition("\n")[0].count)


def _delimiter_of_rows(text: str) -> str | None:
    """The first delimiter by which the first rows of a text have equally many cells, more than one; None without."""
    for delimiter in _DELIMITERS:
        try:
            reader = csv.reader(io.StringIO(text[:SAMPLE], newline=""), delimiter=delimiter)
            widths = {len(cells) for cells in itertools.islice(reader, SAMPLE_ROWS) if cells}
        except csv.Error:
            continue
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return None


def _has_blanks_behind_delimiters(text: str, delimiter: str) -> bool:
    """Tells whether cells have a blank before them, as people type tables: `text, label` or `a film, "good, or bad"`.

    To csv such a cell does not begin with a quote, so that its quotes would be text and its delimiters would divide it.
    """
    first_line = text.partition("\n")[0].split(delimiter)
    if len(first_line) > 1 and all(cell.startswith(" ") for cell in first_line[1:]):
        return True
    quoted_behind_blank = rf'{re.escape(delimiter)} +"[^"\n]*"({re.escape(delimiter)}|\r?\n|$)'
    return re.search(quoted_behind_blank, text) is not None


# Quotes.


def _quoted_rows(text: str, delimiter: str, name: str, skip_blanks: bool = False) -> Iterator[Cells]:
    """Rows whose quoted cells may hold delimiters and line ends. Raises UserError for what csv refuses.

    Args:
      skip_blanks: those before a cell are none of it.
    """
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
    reader = csv.reader(lines(), delimiter=delimiter, strict=True, skipinitialspace=skip_blanks)
    number = 1
    not_closed = "a cell in quotes does not end: double the quote"
    try:
        for cells in reader:
            # A quote that is never closed takes all that follows into its cell: the text ends while the row goes on.
            if ended:
                raise UserError(f"{name}, line {number}: {not_closed}")
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        if ended:
            raise UserError(f"{name}, line {number}: {not_closed}") from None
        if "expected after" in str(error):
            raise UserError(
                f"{name}, line {number}: a cell goes on behind the quote that closes it: double the quotes in cells, "
                'or "quoted": false in the task\'s description takes all quotes for text'
            ) from None
        raise UserError(f"{name}, line {number}: {error}") from None


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
        # Two texts with one quote each look like one cell. As cells, they make rows of unequal length.
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        widths = {len(row) for row in rows if row}
        widths_of_lines = {line.count(delimiter) for _, line in numbered_lines(text) if line}
        return len(widths) == 1 and len(widths_of_lines) > 1
    if all(line.startswith('"') and line.endswith('"') for line in text.splitlines()[:SAMPLE_ROWS]):
        return True  # every cell, those of the header and of labels as well
    return None
