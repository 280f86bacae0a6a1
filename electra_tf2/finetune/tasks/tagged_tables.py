"""Reads tables of tagged words: a word in each row, a sentence in each row, or a text with marked spans in each row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf2.files.cells import cell, is_no_label, is_null
from electra_tf2.files.tables import Table, TableRow, columns_named
from electra_tf2.finetune.tasks.conll import Sentence
from electra_tf2.finetune.tasks.marked_texts import MarkedText, marked_text, says_annotated, text_of, words_and_tags
from electra_tf2.settings.columns import DOCUMENT_OF_WORD, PART_OF_SPEECH, SENTENCE_OF_WORD, TAG, TAGS, TEXT, WORD
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, warn

Rows = Sequence[TableRow]


class TagColumn(NamedTuple):
    """Names that the column of tags may have.

    label_column: its name; "": it has none of its own.
    task: name of the task, by which it may be called.
    """

    label_column: str = ""
    task: str = ""

    def find(self, columns: Iterable[str], where: str, of_words: str | None) -> str | None:
        """Finds the column; None if there is none.

        Args:
          of_words: the column of the words, which a task may be called by, too.

        Raises:
          UserError: it may be one of several.
        """
        columns = [column for column in columns if column != of_words]
        if self.label_column:
            return _first(columns_named(columns, [self.label_column]))
        by_task: list[str] = []
        if self.task:
            by_task = [self.task, f"{self.task}_tag", f"{self.task}_tags"]
        for names in (by_task, (*TAG, *TAGS), PART_OF_SPEECH):
            named = columns_named(columns, names)
            if len(named) > 1:
                raise UserError(f"{where}: which tags are meant, {', '.join(named)}? Name them by label_column")
            if named:
                return named[0]
        return None


def _first(columns: Sequence[str]) -> str | None:
    return columns[0] if columns else None


def sentences_in_table(table: Table, tagged: bool, tag_column: TagColumn) -> Iterator[Sentence]:
    """Reads the sentences of a table.

    Args:
      tagged: whether every word must have a tag.

    Raises:
      UserError: names file and line.
    """
    rows = list(table.readable())
    word_name = _column_of_single_words(table, rows, tag_column)
    if word_name is not None:
        return _sentences_in_rows(table, rows, word_name, tagged, tag_column)
    return _sentences_in_whole_rows(table, rows, tagged, tag_column)


def sentences_of_rows_with_a_word(table: Table, tag_column: TagColumn) -> list[Sentence] | None:
    """Reads the sentences of a table with a word in each row, tagged or not; None: it has none. Raises UserError."""
    rows = list(table.readable())
    word_name = _column_of_single_words(table, rows, tag_column)
    if word_name is None:
        return None
    return list(_sentences_in_rows(table, rows, word_name, False, tag_column))


def _column_of_single_words(table: Table, rows: Rows, tag_column: TagColumn) -> str | None:
    """Finds the column of words in a table that has one in each row; None: it is another table.

    A csv or tsv may have a list of words as text, "['Ann', 'saw']".
    """
    if not rows:
        return None
    columns = rows[0].values
    is_delimited = table.columns is not None
    word_name = _first(columns_named(columns, WORD))
    text_name = _first(columns_named(columns, (TEXT,)))
    if word_name is None and text_name is not None and is_delimited:
        return text_name if _are_words(table.name, rows, text_name, tag_column) else None
    if word_name is None or not (is_delimited or columns_named(columns, SENTENCE_OF_WORD)):
        return None
    words = [row.values.get(word_name) for row in rows]
    if any(isinstance(word, list) or _looks_like_list(word) for word in words):
        return None
    return word_name


def _are_words(name: str, rows: Rows, text_name: str, tag_column: TagColumn) -> bool:
    """Tells whether a column of texts holds single words, and that of tags their tags, not spans in texts.

    A word's tag may be missing.
    """
    tag_name = tag_column.find(rows[0].values, name, text_name)
    if tag_name is None:
        return False
    for row in rows:
        tag = str(row.values[tag_name]).split()
        if len(str(row.values[text_name]).split()) > 1 or len(tag) > 1 or "".join(tag).startswith(("[", "{")):
            return False
    return True


def _looks_like_list(value: Any) -> bool:
    """True for a list as text. "[" and "[]" may be words."""
    return isinstance(value, str) and value.startswith("[") and value.endswith("]") and len(value) > 2


# A word in each row.


def _sentences_in_rows(
    table: Table, rows: Rows, word_name: str, tagged: bool, tag_column: TagColumn
) -> Iterator[Sentence]:
    """Reads the sentences of rows with a word each.

    A row whose sentence is not named goes on with that of the row before, as spreadsheets have it. Without a column of
    sentences, blank lines stand between them.
    """
    columns = list(rows[0].values)
    tag_name = tag_column.find(columns, table.name, word_name)
    if tag_name is None and tagged:
        raise UserError(
            f"{table.name}: a column {tag_column.label_column or 'tag'} is needed: it has {shown(', '.join(columns))}"
        )
    borders = _borders_by_number(rows, columns)
    if borders is None:
        borders = _borders_by_blank_lines(rows)
    if not borders:
        raise UserError(
            f"{table.name}: a column sentence_id is needed, which says what sentence a word is of, or blank lines "
            f"between sentences, or lists of all words of a sentence: it has {shown(', '.join(columns))}"
        )
    words: list[str] = []
    tags: list[str] = []
    rows_of_words: list[dict[str, Any]] = []
    where = ""
    for index, row in enumerate(rows):
        if index in borders and words:
            yield Sentence(words, tags, where, rows=rows_of_words)
            words = []
            tags = []
            rows_of_words = []
        word = str(row.values[word_name]).strip()
        tag = ""
        if tag_name is not None:
            tag = str(row.values[tag_name]).strip()
        if not word and not tag:
            continue  # a line of delimiters alone
        if not word or "\n" in word or (tagged and not tag):
            raise UserError(f"{table.where(row.line)}: a word and a tag are needed, got {word!r} and {tag!r}")
        if not words:
            where = table.where(row.line)
        words.append(word)
        rows_of_words.append(row.values)
        if tag:
            tags.append(tag)
    if words:
        yield Sentence(words, tags, where, rows=rows_of_words)


def _borders_by_number(rows: Rows, columns: Sequence[str]) -> set[int] | None:
    """Finds the indices of the rows with which the number of the sentence, or the document, changes.

    None: there is no column of numbers. A row without a number goes on with the sentence before.
    """
    # The first name in the list counts: a column "sentence" may hold the text beside one of numbers.
    number_name = None
    for name in SENTENCE_OF_WORD:
        number_name = number_name or _first(columns_named(columns, [name]))
    if number_name is None:
        return None
    document_name = _first(columns_named(columns, DOCUMENT_OF_WORD))
    borders = {0}
    last_id: list[Any] = []
    for index, row in enumerate(rows):
        if is_no_label(row.values[number_name]):
            continue
        sentence_id = [row.values[number_name]]
        if document_name is not None:
            sentence_id.append(row.values[document_name])
        if sentence_id != last_id:
            borders.add(index)
        last_id = sentence_id
    return borders


def _borders_by_blank_lines(rows: Rows) -> set[int]:
    """Finds the indices of the rows that follow a blank line, or are one of delimiters alone."""
    borders = set()
    last_line = rows[0].line
    for index, row in enumerate(rows):
        is_blank = not any(str(value).strip() for value in row.values.values())
        if is_blank or row.line > last_line + 1:
            borders.add(index)
        last_line = row.line
    return borders


# A sentence in each row.


def _sentences_in_whole_rows(table: Table, rows: Rows, tagged: bool, tag_column: TagColumn) -> Iterator[Sentence]:
    """Reads the sentences of rows with lists of words and tags, or with texts in which spans are marked."""
    spans_left_out: list[str] = []  # where
    texts_left_out = 0
    untagged: list[str] = []  # where
    empty: list[str] = []  # where
    cut_words: list[str] = []  # where, and the text of a span
    marked_rows = [_marked(row.values, tag_column.label_column, table.where(row.line)) for row in rows]
    file_has_marks = any(marked is not None for marked in marked_rows)
    for table_row, marked in zip(rows, marked_rows, strict=True):
        row = table_row.values
        where = table.where(table_row.line)
        if marked is None and file_has_marks and _words_column(row) is None:
            text = text_of(row)
            if text is not None:
                marked = MarkedText(text, [], is_annotated=says_annotated(row))
        word_name = _words_column(row) or _first(columns_named(row, WORD))
        if marked is None and word_name is not None and is_null(row[word_name]):
            empty.append(where)
        elif marked is None:
            words = _words_of_row(row, where)
            tags = _tags_of_row(row, words, tagged, tag_column, where)
            if tags is None:
                untagged.append(where)
            elif words:
                yield Sentence(words, tags, where)
            else:
                empty.append(where)
        elif not marked.is_annotated and tagged:
            texts_left_out += 1
        else:
            tagged_text = words_and_tags(marked)
            spans_left_out += [where] * tagged_text.left_out
            cut_words += [f"{where}: {shown(cut)} in {shown(whole)}" for cut, whole in tagged_text.cut_words]
            if tagged_text.text.words:
                tags = tagged_text.tags if marked.is_annotated else []
                yield Sentence(list(tagged_text.text.words), tags, where, tagged_text.text, tagged_text.divided)
            else:
                empty.append(where)
    if empty:
        warn(f"{counted(len(empty), 'text')} left out, without a word; the first: {empty[0]}")
    if untagged:
        warn(f"{counted(len(untagged), 'text')} left out, whose words have no tags; the first: {untagged[0]}")
    if spans_left_out:
        spans = counted(len(spans_left_out), "span")
        warn(f"{spans} left out, without text, or inside or across others; the first: {spans_left_out[0]}")
    if cut_words:
        spans = counted(len(cut_words), "span")
        warn(
            f"{spans} with an end inside a word, as in are|n't, or because places are shifted: {cut_words[0]}. That "
            "part of the word is learned as a word of its own; of new texts, whole words are answered"
        )
    if texts_left_out:
        texts = counted(texts_left_out, "text")
        warn(
            f"{table.name}: {texts} left out that nobody annotated, or that somebody rejected. A text without spans "
            "has an empty list of them"
        )


def _marked(row: Mapping[str, Any], label_column: str, where: str) -> MarkedText | None:
    if _words_column(row) is not None:
        return None
    return marked_text(row, where, label_column)


def _words_column(row: Mapping[str, Any]) -> str | None:
    """Finds the column with a list of words, which may be written as text. (Prodigy's `tokens` are objects.)"""
    for column in columns_named(row, WORD):
        words = row[column]
        if _looks_like_list(words) or (isinstance(words, list) and words and not isinstance(words[0], dict)):
            return column
    return None


def _words_of_row(row: dict[str, Any], where: str) -> list[str]:
    """Takes the words of a row. Numbers among them become text.

    Raises:
      UserError: there is no list of words.
    """
    column = _words_column(row) or _first(columns_named(row, WORD))
    words = None
    if column is not None:
        words = cell(row, column, "list", where)
    if not isinstance(words, list):
        raise UserError(
            f'{where}: a list of words is needed, called words or tokens, or a text with spans, as [[0, 4, "PER"]] in '
            f"entities; it has {shown(', '.join(row))}"
        )
    for word in words:
        if not isinstance(word, (str, int, float)) or isinstance(word, bool):
            raise UserError(f"{where}: a word must be text, got {shown(word)}")
    return [str(word) for word in words]


def _tags_of_row(
    row: dict[str, Any], words: Sequence[str], tagged: bool, tag_column: TagColumn, where: str
) -> list[str] | None:
    """Takes the tags of a row's words; [] if it has none.

    None: they are needed, but the cell is empty.
    """
    column = tag_column.find(row, where, _words_column(row) or _first(columns_named(row, WORD)))
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
