"""Reads files of tagged words in any layout."""

import collections
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.corpus.tokenization import Words, divided
from electra_tf2.files.cells import cell
from electra_tf2.files.content import plain_name
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import Table, open_table
from electra_tf2.finetune.tasks.marked_texts import marked_text
from electra_tf2.finetune.tasks.marked_texts import tagged as tagged_words
from electra_tf2.settings.columns import SENTENCE_OF_WORD, TAG, TAGS, WORD, WORDS
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import warn

_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")
_WORD = re.compile("[^ \t\n\v\f\r]+")
_COMMENT = re.compile(r"#\s*[\w.:-]+\s*=(\s|$)")  # CoNLL-U's "# text = ..."
_CONLL_U_COLUMNS = 10
_GERM_EVAL_COLUMNS = 4
_WORD_NUMBER = re.compile(r"\d+([-.]\d+)?")  # of CoNLL-U also "1-2", written as one word, and "1.1", not written at all


class Sentence(NamedTuple):
    """Words, their tags ([]: the file has none), and the line of the first word.

    text: the text of these words; None: the file has words alone.
    """

    words: list[str]
    tags: list[str]
    line: int
    text: Words | None = None


def split_words(text: str) -> Words:
    """Splits at ASCII's white space, as tf.strings.split does in a SavedModel."""
    return divided(text, _WORD)


def read_sentences(
    path: Path, tagged: bool = True, unended: bool = True, columns: tuple[str, ...] = (), labels: Sequence[str] = ()
) -> list[Sentence]:
    """Reads the sentences of a file: lines of a word and its tag, with blank lines between sentences; CoNLL-U; a table
    with lists of words and tags, as the library `datasets` writes them, or of texts with marked spans (marked_texts);
    or a table with a word in each row, its tag, and the number of its sentence.

    The word is the first column, or the second where words are numbered, as in GermEval's files; the tag is the last
    column, in CoNLL-U that of the part of speech. Tabs divide columns if every line has one, otherwise blanks do.

    Args:
      tagged: whether every word must have a tag; otherwise lines of a word alone are accepted.
      unended: keep a last sentence that no blank line follows; the original loses it.
      columns: names that a table's column of tags may have; (): the usual ones, of which the table must have just one.
      labels: names of tags that a table holds as numbers.

    Raises:
      UserError: names file and line.
    """
    if format_of(path) in ("json", "columnar"):
        sentences = list(_sentences_in_table(path, tagged, columns, labels))
    else:
        text = read_text(path, "task")
        table = _table_of_words(path, text, columns)
        if table is not None:
            sentences = list(_sentences_in_rows(table, columns))
        else:
            sentences = _sentences_in_text(text, str(path), tagged, unended)
    if not sentences:
        raise UserError(f"{path} holds no sentences")
    return sentences


def _sentences_in_text(text: str, name: str, tagged: bool, unended: bool) -> list[Sentence]:
    """Reads lines of a word and its tag. Arguments as `read_sentences`."""
    lines = _lines(text)
    if unended:
        lines.append("")  # ends the last sentence
    elif lines[-1] == "":
        # The empty text after the last line end is no blank line.
        lines.pop()
    return list(_sentences_in_lines(lines, name, tagged))


def sentences_by_look(text: str, name: str) -> list[Sentence]:
    """Reads the sentences of a text that looks like a file of tagged words: several lines with the same number of
    columns, at least two. Any other text gives []."""
    lines = _lines(text)
    layout = _layout(lines)
    widths = [len(_columns(line, layout.tabs)) for line in _word_lines(lines)]
    if len(widths) < 2 or set(widths) != {layout.width} or layout.width < 2:
        return []
    try:
        return list(_sentences_in_lines([*lines, ""], name, tagged=True))
    except UserError:  # a line that is no word with a tag
        return []


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in text.split("\n")]


class _Layout(NamedTuple):
    """The columns of a file.

    Fields:
      tabs: whether columns are divided by tabs.
      width: the usual number of columns.
      word, tag: indices of the columns with the words and the tags.
      tags: the tags of lines that do not begin with "#".
    """

    tabs: bool
    width: int
    word: int = 0
    tag: int = -1
    tags: frozenset[str] = frozenset()

    @property
    def is_conll_u(self) -> bool:
        return self.width == _CONLL_U_COLUMNS and self.word > 0

    def is_comment(self, line: str, inside: bool) -> bool:
        """Tells a comment from a word that begins with "#", such as a hashtag.

        Args:
          inside: whether words of the same sentence stand before the line.
        """
        if not line.startswith("#"):
            return False
        lines_begin_with_numbers = self.word > 0
        if lines_begin_with_numbers or _COMMENT.match(line):
            return True
        columns = _columns(line, self.tabs)
        has_known_tag = len(columns) > 1 and columns[self.tag] in self.tags
        if len(columns) != self.width:
            # Rows may be of different lengths, but only a comment stands before a sentence.
            return not (inside and has_known_tag)
        # "# 12" in a file of two columns: the first of its sentence, "#" by itself, with a tag that no other word has.
        return len(columns) > 1 and columns[0] == "#" and not inside and not has_known_tag


def _columns(line: str, tabs: bool) -> list[str]:
    if tabs:
        return line.split("\t")
    return [column for column in _BLANKS.split(line) if column]


def _word_lines(lines: Sequence[str]) -> list[str]:
    """Picks the lines with words, except those that begin with "#": the layout tells whether these are comments."""
    return [line for line in lines if line.strip(" \t") and not line.startswith(("#", _DOCUMENT))]


def _layout(lines: Sequence[str]) -> _Layout:
    """Infers the layout of a file from its lines."""
    word_lines = _word_lines(lines)
    if not word_lines:
        return _Layout(tabs=False, width=0)
    tabs = all("\t" in line for line in word_lines)
    rows = [_columns(line, tabs) for line in word_lines]
    widths = collections.Counter(len(row) for row in rows)
    width = widths.most_common(1)[0][0]
    if not _is_numbered(rows, width):
        tags = frozenset(row[-1] for row in rows if len(row) > 1)
        return _Layout(tabs, width, tags=tags)
    if width == _CONLL_U_COLUMNS:
        return _Layout(tabs, width, word=1, tag=3)
    if width == _GERM_EVAL_COLUMNS and _has_two_levels(rows, width):
        # The tags of outer names stand before those of the names inside them. (CoNLL-2003's, where its words were
        # numbered, stand behind those of chunks.)
        return _Layout(tabs, width, word=1, tag=-2)
    return _Layout(tabs, width, word=1, tag=-1)


def _is_numbered(rows: Sequence[list[str]], width: int) -> bool:
    """Tells whether the first column holds the numbers of words."""
    if width < 3 or rows[0][0] not in ("1", "1-2"):
        return False
    return all(_WORD_NUMBER.fullmatch(row[0]) for row in rows)


def _has_two_levels(rows: Sequence[list[str]], width: int) -> bool:
    """Tells whether the last two columns hold tags of spans."""
    if any(len(row) != width for row in rows):
        return False
    return all(_may_be_span(row[-1]) and _may_be_span(row[-2]) for row in rows)


def _may_be_span(tag: str) -> bool:
    return tag == "O" or tag.startswith(("B-", "I-"))


def _sentences_in_lines(lines: Sequence[str], path: str, tagged: bool) -> Iterator[Sentence]:
    """Reads the sentences of lines. A blank line must follow each."""
    layout = _layout(lines)
    words: list[str] = []
    tags: list[str] = []
    first = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip(" \t"):
            if words:
                yield Sentence(words, tags, first)
            words = []
            tags = []
            continue
        columns = _columns(line, layout.tabs)
        if columns[0] == _DOCUMENT or layout.is_comment(line, inside=bool(words)):
            continue
        if layout.is_conll_u and not columns[0].isdecimal():
            # "1-2", whose words follow on lines of their own, or "1.1", which does not stand in the text.
            continue
        if len(columns) < 2 and tagged:
            raise UserError(f"{path}, line {number}: a word and a tag are needed, got {line.strip()!r}")
        if layout.word and len(columns) != layout.width:
            raise UserError(f"{path}, line {number}: {len(columns)} columns, but {layout.width} are expected")
        if not words:
            first = number
        words.append(columns[layout.word])
        if len(columns) > 1:
            tags.append(columns[layout.tag])


def _sentences_in_table(
    path: Path, tagged: bool, tag_columns: tuple[str, ...], labels: Sequence[str]
) -> Iterator[Sentence]:
    """Reads the sentences of a table with lists of words and tags."""
    table = open_table(path)
    left_out = 0
    for line, row in table.readable():
        where = table.where(line)
        has_words = any(row.get(name) for name in WORDS)
        marked = None if has_words else marked_text(row, where)
        if marked is not None:
            text, span_tags, spans_left_out = tagged_words(marked)
            left_out += spans_left_out
            if text.words:
                yield Sentence(list(text.words), span_tags, line, text)
            continue
        words = _words_of_row(row, where)
        tags = _tags_of_row(row, tag_columns or TAGS, where)
        if tags is None and not tagged:
            tags = []
        if not isinstance(tags, list) or (tags and len(tags) != len(words)):
            raise UserError(f"{where}: as many tags as words are needed, in a list; it has {shown(', '.join(row))}")
        yield Sentence(words, [_tag(tag, labels, where) for tag in tags], line)
    if left_out:
        warn(f"{path}: {left_out:,} spans are left out, which are empty or lie inside or across others")


def _table_of_words(path: Path, text: str, tag_columns: tuple[str, ...]) -> Table | None:
    """Opens a delimited table whose header names columns of words and of tags; None: it has lines of words and tags."""
    if not plain_name(path.name).endswith((".csv", ".tsv")):
        return None
    table = open_table(path, content=text)
    columns = table.columns or []
    has_tags = _column(columns, (*tag_columns, *TAG, *TAGS)) is not None
    if has_tags and _column(columns, WORD) is not None:
        return table
    return None


def _column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Finds the first of the columns that has one of the names, in any case."""
    lower_names = [name.lower() for name in names]
    for column in columns:
        if column.strip().lower() in lower_names:
            return column
    return None


def _sentences_in_rows(table: Table, tag_columns: tuple[str, ...]) -> Iterator[Sentence]:
    """The sentences of rows with a word each. A row whose sentence is not named goes on with that of the row before, as
    spreadsheets have it."""
    columns = table.columns or []
    word_column = _column(columns, WORD)
    tag_column = _column(columns, tag_columns or (*TAG, *TAGS))
    sentence_column = _column(columns, SENTENCE_OF_WORD)
    if sentence_column is None:
        raise UserError(
            f"{table.name}: a column sentence_id is needed, which says what sentence a word is of: it has "
            f"{shown(', '.join(columns))}"
        )
    if word_column is None or tag_column is None:
        raise UserError(f"{table.name}: columns of words and tags are needed: it has {shown(', '.join(columns))}")
    words: list[str] = []
    tags: list[str] = []
    first = 0
    current = ""
    for line, row in table.readable():
        named = str(row[sentence_column] or "").strip()
        if named and named != current:
            if words:
                yield Sentence(words, tags, first)
            words = []
            tags = []
            first = line
            current = named
        words.append(row[word_column])
        tags.append(row[tag_column].strip())
        if not tags[-1]:
            raise UserError(f"{table.where(line)}: a word and a tag are needed, got {words[-1]!r}")
    if words:
        yield Sentence(words, tags, first)


def _words_of_row(row: dict[str, Any], where: str) -> list[str]:
    names = [name for name in WORDS if name in row]
    words = cell(row, names[0], "list", where) if names else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(
            f'{where}: a list of words is needed, called words or tokens, or a text with spans, as [[0, 4, "PER"]] in '
            f"entities; it has {shown(', '.join(row))}"
        )
    return words


def _tags_of_row(row: dict[str, Any], names: Sequence[str], where: str) -> Any:
    """Takes the tags in the only column that has one of the names; None if there is no such column."""
    names_in_row = [name for name in names if name in row]
    if not names_in_row:
        return None
    if len(names_in_row) > 1:
        raise UserError(f"{where}: which tags are meant, {', '.join(names_in_row)}? Name them by label_column")
    return cell(row, names_in_row[0], "list", where)


def _tag(tag: Any, labels: Sequence[str], where: str) -> str:
    if type(tag) is int and 0 <= tag < len(labels):
        return labels[tag]
    if isinstance(tag, str) or (type(tag) is int and not labels):
        return str(tag)
    raise UserError(f"{where}: a tag must be a name, or the number of one of the task's labels, got {shown(tag)}")
