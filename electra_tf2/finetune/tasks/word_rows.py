"""Reads tables with a word in each row, its tag beside it, and the number of its sentence."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf2.files.cells import is_no_label, is_null
from electra_tf2.files.tables import Table, TableRow, WordRow, columns_named
from electra_tf2.finetune.tasks.conll import Sentence
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.settings.columns import DOCUMENT_OF_WORD
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, warn

_SCATTERED = 0.5  # share of rows that begin a sentence, above which words of sentences seem to be scattered
_LINE_END = re.compile("\r\n|\r|\n")


def column_of_words(table: Table, rows: Sequence[TableRow], columns: TaggedColumns) -> str | None:
    """Finds the column of words in a table that has one in each row; None: it is another table.

    A csv or tsv may have a list of words as text, "['Ann', 'saw']".
    """
    if not rows:
        return None
    names = rows[0].values
    word_name = columns.word_in(names)
    if word_name is None:
        return _column_of_single_words(table, rows, columns)
    is_delimited = table.columns is not None
    has_numbers = columns.sentence_in(names) is not None
    if not is_delimited and not has_numbers:
        return None  # a JSON object holds a whole sentence
    if any(_is_list(row.values.get(word_name)) for row in rows):
        return None
    # A column of a usual name holds words. One that the user named holds them if another one numbers sentences.
    holds_words = not columns.words or (bool(columns.sentence) and has_numbers)
    if holds_words or _are_single_words(table, rows, word_name, columns):
        return word_name
    return None


def _column_of_single_words(table: Table, rows: Sequence[TableRow], columns: TaggedColumns) -> str | None:
    """Finds a column of texts, each of which is one word with a tag beside it; None: there is none."""
    names = rows[0].values
    text_name = columns.text_in(names)
    if text_name is None or table.columns is None:
        return None
    if columns.tags_in(names, table.name, text_name) is None:
        return None
    if _are_single_words(table, rows, text_name, columns):
        return text_name
    return None


def _are_single_words(table: Table, rows: Sequence[TableRow], word_name: str, columns: TaggedColumns) -> bool:
    """Tells whether a column that may hold texts has a word in each row, with a tag or a sentence's number beside it.

    A word's tag may be missing.
    """
    names = rows[0].values
    tag_name = columns.tags_in(names, table.name, word_name)
    if tag_name is None and columns.sentence_in(names) is None:
        return False
    for row in rows:
        word, tag = _word_and_tag(row, word_name, tag_name)
        is_text = len(word.split()) > 1
        is_list_of_spans = tag.startswith(("[", "{"))
        if is_text or is_list_of_spans or len(tag.split()) > 1:
            return False
    return True


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or is_like_list(value)


def is_like_list(value: Any) -> bool:
    """True for a list of words as text, "['Ann', 'saw']". In "[", "[]" and "[sic]" the brackets are signs."""
    if not isinstance(value, str) or not value.startswith("[") or not value.endswith("]"):
        return False
    return any(sign in value for sign in ("'", '"', ", "))


def sentences_of_word_rows(
    table: Table, rows: Sequence[TableRow], word_name: str, tagged: bool, columns: TaggedColumns
) -> list[Sentence]:
    """Reads the sentences of rows with a word each.

    A row whose sentence is not named goes on with that of the row before, as spreadsheets have it. Without a column of
    sentences, blank lines stand between them.

    Args:
      tagged: whether every word must have a tag. Sentences with a word or a tag alone are left out and counted.

    Raises:
      UserError: a column is missing.
    """
    names = list(rows[0].values)
    tag_name = columns.tags_in(names, table.name, word_name)
    if tag_name is None and tagged:
        raise UserError(f"{table.name}: a column {columns.tags or 'tag'} is needed: it has {shown(', '.join(names))}")
    borders = _borders_by_number(rows, columns)
    if borders is None:
        borders = _borders_by_blank_lines(rows)
    if not borders:
        raise UserError(
            f"{table.name}: a column sentence_id is needed, which says what sentence a word is of, or blank lines "
            f"between sentences, or lists of all words of a sentence: it has {shown(', '.join(names))}"
        )
    with_gaps: list[str] = []  # where a word or a tag is missing
    without_words: list[WordRow] = []  # rows that stand before the next sentence
    sentences: list[Sentence] = []
    for rows_of_sentence in _divided(rows, borders):
        sentence, gap = _sentence(table, rows_of_sentence, word_name, tag_name)
        if gap and tagged:
            with_gaps.append(gap)
        elif sentence.words:
            sentences.append(sentence._replace(rows=[*without_words, *sentence.rows]))
            without_words = []
        else:
            without_words += sentence.rows
    if sentences and without_words:
        sentences[-1] = sentences[-1]._replace(rows=[*sentences[-1].rows, *without_words])
    if with_gaps:
        left_out = counted(len(with_gaps), "sentence")
        warn(f"{left_out} left out, in which a word or its tag is missing; the first: {with_gaps[0]}")
    return sentences


def _divided(rows: Sequence[TableRow], borders: set[int]) -> Iterator[Sequence[TableRow]]:
    """Divides rows at the indices in `borders`."""
    for start, end in itertools.pairwise(sorted({0, *borders, len(rows)})):
        yield rows[start:end]


def _sentence(table: Table, rows: Sequence[TableRow], word_name: str, tag_name: str | None) -> tuple[Sentence, str]:
    """Makes the sentence of its rows.

    Returns:
      The sentence, without words if no row has one; where the first word without a tag, or tag without a word, stands,
      "" if there is none.

    Raises:
      UserError: a word with a line end, as a lone quote makes it.
    """
    words: list[str] = []
    tags: list[str] = []
    word_rows: list[WordRow] = []
    where = ""
    gap = ""
    for row in rows:
        word, tag = _word_and_tag(row, word_name, tag_name)
        if "\n" in word:
            raise UserError(f"{table.where(row.line)}: a word and a tag are needed, got {word!r} and {tag!r}")
        if not gap and bool(word) != bool(tag):
            gap = f"{table.where(row.line)}: {shown(word or tag)}"
        word_rows.append(WordRow(row.values, has_word=bool(word)))
        if not word:
            continue  # a blank row, or one of other columns
        if not words:
            where = table.where(row.line)
        words.append(word)
        if tag:
            tags.append(tag)
    return Sentence(words, tags, where, rows=word_rows), gap


def _word_and_tag(row: TableRow, word_name: str, tag_name: str | None) -> tuple[str, str]:
    word = _text(row.values.get(word_name))
    if tag_name is None:
        return word, ""
    return word, _text(row.values.get(tag_name))


def _text(value: Any) -> str:
    if is_null(value):
        return ""
    return str(value).strip()


def column_of_numbers(rows: Sequence[Mapping[str, Any]], columns: TaggedColumns) -> str | None:
    """Finds the column whose numbers tell sentences apart; None: there is none, or nobody filled it in."""
    name = columns.sentence_in(rows[0])
    if name is None or all(is_no_label(row.get(name)) for row in rows):
        return None
    return name


def _borders_by_number(rows: Sequence[TableRow], columns: TaggedColumns) -> set[int] | None:
    """Finds the indices of the rows with which the number of the sentence, or the document, changes.

    None: there are no numbers. A row without a number goes on with the sentence before.
    """
    number_name = column_of_numbers([row.values for row in rows], columns)
    if number_name is None:
        return None
    document_names = columns_named(rows[0].values, DOCUMENT_OF_WORD)[:1]
    borders = {0}
    last_id: list[Any] = []
    ids: set[str] = set()
    for index, row in enumerate(rows):
        if is_no_label(row.values.get(number_name)):
            continue
        sentence_id = [row.values.get(name) for name in (number_name, *document_names)]
        if sentence_id != last_id:
            borders.add(index)
        last_id = sentence_id
        ids.add(str(sentence_id))
    # Numbers may begin anew with each document. Then the sentences between have several words.
    if len(borders) > len(ids) and len(borders) > _SCATTERED * len(rows):
        warn(
            f"the words of {counted(len(ids), 'sentence')} do not stand together: a sentence ends where its number in "
            f"the column {number_name!r} changes, so that there are {len(borders):,}. Sort the rows by it, and within "
            "it as the words stand in the text"
        )
    return borders


def _borders_by_blank_lines(rows: Sequence[TableRow]) -> set[int]:
    """Finds the indices of the rows that follow a blank line, or are one of delimiters alone."""
    borders = set()
    next_line = rows[0].line
    for index, row in enumerate(rows):
        is_blank = not any(_text(value) for value in row.values.values())
        if is_blank or row.line > next_line:
            borders.add(index)
        line_ends_in_cells = sum(len(_LINE_END.findall(str(value))) for value in row.values.values())
        next_line = row.line + 1 + line_ends_in_cells
    return borders
