"""Reads tables with a sentence in each row: lists of words and of tags, or a text with marked spans."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf2.files.cells import cell, is_null
from electra_tf2.files.tables import Table, TableRow, columns_named
from electra_tf2.finetune.tasks.conll import Sentence
from electra_tf2.finetune.tasks.marked_texts import (
    MarkedText,
    marked_text,
    refuse_other_spans,
    says_annotated,
    text_of,
    words_and_tags,
)
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.finetune.tasks.word_rows import is_like_list
from electra_tf2.settings.columns import WORD, WORDS
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, warn


def sentences_of_whole_rows(
    table: Table, rows: Sequence[TableRow], tagged: bool, columns: TaggedColumns
) -> Iterator[Sentence]:
    """Reads the sentences of rows. What is left out is warned of.

    Args:
      tagged: whether every word must have a tag.

    Raises:
      UserError: a row without words, or with other tags than words; names file and line.
    """
    remarks = _Remarks(table.name)
    marked_rows = [_marked(row.values, columns, table.where(row.line)) for row in rows]
    file_has_marks = any(marked is not None for marked in marked_rows)
    for row, marked in zip(rows, marked_rows, strict=True):
        where = table.where(row.line)
        if marked is None and file_has_marks:
            marked = _without_marks(row.values, columns)
            if tagged and marked is not None:
                refuse_other_spans(row.values, where, columns.tags)
        if marked is None:
            sentence = _sentence_of_lists(row.values, where, tagged, columns, remarks)
        else:
            sentence = _sentence_of_marks(marked, where, tagged, remarks)
        if sentence is not None:
            yield sentence
    remarks.tell()


class _Remarks:
    """Collects places of a table's rows and spans that are left out, or not learned as they are, by reason."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.empty: list[str] = []
        self.untagged: list[str] = []
        self.spans: list[str] = []
        self.cut_spans: list[str] = []
        self.num_not_annotated = 0

    def tell(self) -> None:
        """Warns of them."""
        if self.empty:
            warn(f"{counted(len(self.empty), 'text')} left out, without a word; the first: {self.empty[0]}")
        if self.untagged:
            texts = counted(len(self.untagged), "text")
            warn(f"{texts} left out, whose words have no tags; the first: {self.untagged[0]}")
        if self.spans:
            spans = counted(len(self.spans), "span")
            warn(f"{spans} left out, without text, or inside or across others; the first: {self.spans[0]}")
        if self.cut_spans:
            spans = counted(len(self.cut_spans), "span")
            first = self.cut_spans[0]
            warn(
                f"{spans} with an end inside a word, as in are|n't, or because places are shifted: {first}. In "
                "training that part of the word is a word of its own. Of new texts whole words are answered, so that "
                "such a span counts as missed in scores"
            )
        if self.num_not_annotated:
            texts = counted(self.num_not_annotated, "text")
            warn(
                f"{self.name}: {texts} left out that nobody annotated, or that somebody rejected. A text without spans "
                "has an empty list of them"
            )


# Texts with marked spans.


def _marked(row: Mapping[str, Any], columns: TaggedColumns, where: str) -> MarkedText | None:
    if _lists_in(row, columns) is not None:
        return None
    return marked_text(row, where, columns.tags, columns.words)


def _without_marks(row: Mapping[str, Any], columns: TaggedColumns) -> MarkedText | None:
    """Takes the text of a row that has no field of spans; None: it has no text, but a list of words."""
    if _lists_in(row, columns) is not None:
        return None
    text = text_of(row, name=columns.words)
    if text is None:
        return None
    return MarkedText(text, [], is_annotated=says_annotated(row))


def _sentence_of_marks(marked: MarkedText, where: str, tagged: bool, remarks: _Remarks) -> Sentence | None:
    """Splits a marked text into words with tags; None: it is left out."""
    if not marked.is_annotated and tagged:
        remarks.num_not_annotated += 1
        return None
    tagged_text = words_and_tags(marked)
    remarks.spans += [where] * tagged_text.left_out
    for cut, whole in tagged_text.cut_words:
        remarks.cut_spans.append(f"{where}: {shown(cut)} in {shown(whole)}")
    words = list(tagged_text.text.words)
    if not words:
        remarks.empty.append(where)
        return None
    tags = tagged_text.tags if marked.is_annotated else []
    return Sentence(words, tags, where, tagged_text.text, tagged_text.divided)


# Lists of words and of their tags.


def words_or_text(row: dict[str, Any], columns: TaggedColumns, where: str) -> list[str] | str | None:
    """Takes the words or the text of a row that is to be answered; "" if it is null; None: it has neither.

    Raises:
      UserError: something that is no text among the words.
    """
    column = _lists_in(row, columns)
    if column is not None:
        return _words(row, column, where)
    text = text_of(row, name=columns.words)
    if text is not None:
        return text
    names = [columns.words] if columns.words else WORDS
    if any(is_null(row[name]) or row[name] == [] for name in columns_named(row, names)):
        return ""
    return None


def _sentence_of_lists(
    row: dict[str, Any], where: str, tagged: bool, columns: TaggedColumns, remarks: _Remarks
) -> Sentence | None:
    """Takes the words and tags of a row; None: it is left out."""
    column = _column_of_words(row, columns)
    if column is not None and is_null(row[column]):
        remarks.empty.append(where)
        return None
    words = _words(row, column, where, columns.words)
    tags = _tags(row, words, tagged, columns, where)
    if tags is None:
        remarks.untagged.append(where)
        return None
    if not words:
        remarks.empty.append(where)
        return None
    return Sentence(words, tags, where)


def _lists_in(row: Mapping[str, Any], columns: TaggedColumns) -> str | None:
    """Finds the column with a list of words, which may be written as text. (Prodigy's `tokens` are objects.)"""
    names = [columns.words] if columns.words else WORD
    for column in columns_named(row, names):
        words = row[column]
        if is_like_list(words) or (isinstance(words, list) and words and not isinstance(words[0], dict)):
            return column
    return None


def _column_of_words(row: Mapping[str, Any], columns: TaggedColumns) -> str | None:
    return _lists_in(row, columns) or columns.word_in(row)


def _words(row: dict[str, Any], column: str | None, where: str, named: str = "") -> list[str]:
    """Takes the words of a row. Numbers among them become text.

    Args:
      named: the name that the user gave for the column, for messages.

    Raises:
      UserError: there is no list of words.
    """
    words = None
    if column is not None:
        words = cell(row, column, "list", where)
    if isinstance(words, str):
        raise UserError(
            f"{where}: {column} is the text {shown(words)}, but must be a list of words, {shown(words.split())}. A "
            "column of a data frame becomes one by .str.split()"
        )
    if not isinstance(words, list):
        raise UserError(
            f"{where}: a list of words is needed, called {named or 'words or tokens'}, or a text with spans, as "
            f'[[0, 4, "PER"]] in entities; it has {shown(", ".join(row))}'
        )
    for word in words:
        if not isinstance(word, (str, int, float)) or isinstance(word, bool):
            raise UserError(f"{where}: a word must be text, got {shown(word)}")
    return [str(word) for word in words]


def _tags(
    row: dict[str, Any], words: Sequence[str], tagged: bool, columns: TaggedColumns, where: str
) -> list[str] | None:
    """Takes the tags of a row's words; [] if it has none.

    None: they are needed, but the cell is empty.
    """
    column = columns.tags_in(row, where, _column_of_words(row, columns))
    tags = None
    if column is not None:
        tags = cell(row, column, "list", where)
        if tags is None and tagged:
            return None
    if not tags and not tagged:
        return []
    if not isinstance(tags, list) or len(tags) != len(words):
        raise UserError(f"{where}: as many tags as words are needed, in a list; it has {shown(', '.join(row))}")
    return [_tag(tag, where) for tag in tags]


def _tag(tag: Any, where: str) -> str:
    """Gives a tag as text. Of a number the task's `labels` may be the name."""
    is_number = type(tag) is int and tag >= 0
    if isinstance(tag, str) or is_number:
        return str(tag)
    raise UserError(f"{where}: a tag must be a name, or the number of one of the task's labels, got {shown(tag)}")
