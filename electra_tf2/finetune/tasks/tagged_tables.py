"""Reads tables of tagged words: a word in each row, a sentence in each row, or a text with marked spans in each row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf2.files.cells import cell
from electra_tf2.files.tables import Table, columns_named
from electra_tf2.finetune.tasks.conll import Sentence
from electra_tf2.finetune.tasks.marked_texts import marked_text, words_and_tags
from electra_tf2.settings.columns import SENTENCE_OF_WORD, TAG, TAGS, WORD, WORDS
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import warn


def sentences_in_table(
    table: Table, tagged: bool, tag_columns: tuple[str, ...], labels: Sequence[str]
) -> Iterator[Sentence]:
    """Reads the sentences of a table. Other arguments as in `tagged_files.read_sentences`.

    Args:
      table: a delimited one has a column of words.

    Raises:
      UserError: names file and line.
    """
    rows = list(table.readable())
    if table.columns is not None and rows and not _holds_lists(rows[0][1]):
        return _sentences_in_rows(table, rows, tagged, tag_columns)
    return _sentences_in_lists(table, rows, tagged, tag_columns, labels)


def _holds_lists(row: Mapping[str, Any]) -> bool:
    """Tells whether the words in a row of a delimited table are a list of all words of a sentence."""
    word_columns = columns_named(row, WORD)
    return bool(word_columns) and str(row[word_columns[0]]).lstrip().startswith("[")


def _column_of_tags(columns: Iterable[str], wanted: tuple[str, ...], usual: Sequence[str], where: str) -> str | None:
    """Finds the only column of tags; None if there is none.

    Args:
      wanted: names that it may have; (): those that are usual.

    Raises:
      UserError: there are several.
    """
    columns_of_tags = columns_named(columns, wanted or usual)
    if len(columns_of_tags) > 1:
        raise UserError(f"{where}: which tags are meant, {', '.join(columns_of_tags)}? Name them by label_column")
    if not columns_of_tags:
        return None
    return columns_of_tags[0]


# A word in each row.


def _sentences_in_rows(
    table: Table, rows: Iterable[tuple[int, dict[str, Any]]], tagged: bool, tag_columns: tuple[str, ...]
) -> Iterator[Sentence]:
    """Reads the sentences of rows with a word each. A row whose sentence is not named goes on with that of the row
    before, as spreadsheets have it."""
    columns = table.columns or []
    word_column = columns_named(columns, WORD)[0]
    sentence_columns = columns_named(columns, SENTENCE_OF_WORD)
    if not sentence_columns:
        raise UserError(
            f"{table.name}: a column sentence_id is needed, which says what sentence a word is of (or lists of all "
            f"words of a sentence): it has {shown(', '.join(columns))}"
        )
    tag_column = _column_of_tags(columns, tag_columns, (*TAG, *TAGS), table.name)
    if tag_column is None and tagged:
        names = " or ".join(tag_columns) or "tag"
        raise UserError(f"{table.name}: a column {names} is needed: it has {shown(', '.join(columns))}")
    words: list[str] = []
    tags: list[str] = []
    where = ""
    current = ""
    for line, row in rows:
        named = str(row[sentence_columns[0]] or "").strip()
        if named and named != current:
            if words:
                yield Sentence(words, tags, where)
            words = []
            tags = []
            where = table.where(line)
            current = named
        word = row[word_column].strip()
        tag = ""
        if tag_column is not None:
            tag = row[tag_column].strip()
        if not word or (not tag and tagged):
            raise UserError(f"{table.where(line)}: a word and a tag are needed, got {word!r} and {tag!r}")
        words.append(word)
        if tag:
            tags.append(tag)
    if words:
        yield Sentence(words, tags, where)


# A sentence in each row.


def _sentences_in_lists(
    table: Table,
    rows: Iterable[tuple[int, dict[str, Any]]],
    tagged: bool,
    tag_columns: tuple[str, ...],
    labels: Sequence[str],
) -> Iterator[Sentence]:
    """Reads the sentences of rows with lists of words and tags, or with texts in which spans are marked."""
    spans_left_out = 0
    texts_left_out = 0
    cut_words: list[str] = []  # where, and the text of a span
    for line, row in rows:
        where = table.where(line)
        marked = None
        if not _has_words(row):
            marked = marked_text(row, where)
        if marked is None:
            words = _words_of_row(row, where)
            yield Sentence(words, _tags_of_row(row, words, tagged, tag_columns, labels, where), where)
        elif not marked.is_annotated and tagged:
            texts_left_out += 1
        else:
            tagged_text = words_and_tags(marked)
            spans_left_out += tagged_text.left_out
            cut_words += [f"{where}: {shown(cut)}" for cut in tagged_text.cut_words]
            if tagged_text.text.words:
                tags = tagged_text.tags if marked.is_annotated else []
                yield Sentence(list(tagged_text.text.words), tags, where, tagged_text.text)
    if spans_left_out:
        warn(f"{table.name}: {spans_left_out:,} spans are left out, which are empty or lie inside or across others")
    if cut_words:
        warn(f"{len(cut_words):,} spans begin or end inside a word, as if their places were shifted: {cut_words[0]}")
    if texts_left_out:
        warn(f"{table.name}: {texts_left_out:,} texts are left out, which nobody annotated, or which were rejected")


def _has_words(row: Mapping[str, Any]) -> bool:
    """Tells whether a row has a list of words. (Prodigy's `tokens` are objects.)"""
    for column in columns_named(row, WORDS):
        words = row[column]
        if isinstance(words, str) or (isinstance(words, list) and words and isinstance(words[0], str)):
            return True
    return False


def _words_of_row(row: dict[str, Any], where: str) -> list[str]:
    columns = columns_named(row, WORDS)
    words = None
    if columns:
        words = cell(row, columns[0], "list", where)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(
            f'{where}: a list of words is needed, called words or tokens, or a text with spans, as [[0, 4, "PER"]] in '
            f"entities; it has {shown(', '.join(row))}"
        )
    return words


def _tags_of_row(
    row: dict[str, Any],
    words: Sequence[str],
    tagged: bool,
    tag_columns: tuple[str, ...],
    labels: Sequence[str],
    where: str,
) -> list[str]:
    """Takes the tags of a row's words; [] if it has none and needs none."""
    column = _column_of_tags(row, tag_columns, TAGS, where)
    tags = None
    if column is not None:
        tags = cell(row, column, "list", where)
    if tags is None and not tagged:
        return []
    if not isinstance(tags, list) or (tags and len(tags) != len(words)):
        raise UserError(f"{where}: as many tags as words are needed, in a list; it has {shown(', '.join(row))}")
    return [_tag(tag, labels, where) for tag in tags]


def _tag(tag: Any, labels: Sequence[str], where: str) -> str:
    if type(tag) is int and 0 <= tag < len(labels):
        return labels[tag]
    if isinstance(tag, str) or (type(tag) is int and not labels):
        return str(tag)
    raise UserError(f"{where}: a tag must be a name, or the number of one of the task's labels, got {shown(tag)}")
