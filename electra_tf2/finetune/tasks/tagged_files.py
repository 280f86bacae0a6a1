"""Reads a file of tagged words in any layout.

lines       a word and its tag on each, a blank line between sentences; CoNLL-U   conll
rows        a word and its tag in each, and the number of its sentence            word_rows
lists       of words and of tags in a row, as the library `datasets` writes them  sentence_rows
texts       with marked spans, as programs for annotation write them              sentence_rows, marked_texts
"""

import re
from collections.abc import Sequence
from pathlib import Path

from electra_tf2.files.content import plain_name
from electra_tf2.files.delimited import numbered_lines
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import Table, TableRow, columns_named, open_table
from electra_tf2.finetune.tasks.conll import Sentence, sentences_in_text
from electra_tf2.finetune.tasks.sentence_rows import sentences_of_whole_rows
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.finetune.tasks.word_rows import column_of_words, sentences_of_word_rows
from electra_tf2.settings.columns import MARKED_SPANS, PART_OF_SPEECH, SENTENCE_OF_WORD, TAG, TAGS
from electra_tf2.util.errors import UserError, shown


def read_sentences(
    path: Path, tagged: bool = True, columns: TaggedColumns | None = None, as_original: bool = False
) -> list[Sentence]:
    """Reads the sentences of a file.

    Args:
      tagged: whether every word must have a tag; otherwise words alone are accepted.
      columns: names of its columns; None: the usual ones.
      as_original: as in `conll.sentences_in_text`.

    Raises:
      UserError: names file and line.
    """
    columns = columns or TaggedColumns()
    if format_of(path) in ("json", "columnar"):
        sentences = _sentences_in_table(open_table(path), tagged, columns)
    else:
        text = read_text(path, "task")
        if has_header(path, text, columns):
            sentences = _sentences_in_table(open_table(path, content=text), tagged, columns)
        elif columns.tags and not columns.tags.isdecimal():
            raise UserError(
                f"{path}: label_column {columns.tags!r} is no name of a column of words' tags, as its lines have no "
                "header: give the column's number, counted from 0; without label_column the last one has the tags"
            )
        else:
            number = int(columns.tags) if columns.tags else None
            sentences = sentences_in_text(text, str(path), tagged, number, as_original)
    if not sentences:
        raise UserError(f"{path} holds no sentences")
    return sentences


def _sentences_in_table(table: Table, tagged: bool, columns: TaggedColumns) -> list[Sentence]:
    rows = list(table.checked())
    sentences = _sentences_of_word_rows(table, rows, tagged, columns)
    if sentences is not None:
        return sentences
    return list(sentences_of_whole_rows(table, rows, tagged, columns))


def _sentences_of_word_rows(
    table: Table, rows: Sequence[TableRow], tagged: bool, columns: TaggedColumns
) -> list[Sentence] | None:
    """Reads the sentences of a table with a word in each row; None: it is another table."""
    word_name = column_of_words(table, rows, columns)
    if word_name is None:
        return None
    return sentences_of_word_rows(table, rows, word_name, tagged, columns)


def sentences_of_a_word_a_row(path: Path, text: str, columns: TaggedColumns) -> list[Sentence] | None:
    """Reads a csv or tsv with a word in each row, whose tags may be missing; None: it is another file.

    Args:
      text: the file's content.

    Raises:
      UserError: names file and line.
    """
    if not plain_name(path.name).endswith((".csv", ".tsv", ".tab")):
        return None
    names = _columns_of_header(_first_line(text))
    if columns.word_in(names) is None and columns.text_in(names) is None:
        return None
    table = open_table(path, content=text)
    return _sentences_of_word_rows(table, list(table.checked()), False, columns)


def _first_line(text: str) -> str:
    """The first line that is not one by which Excel knows the delimiter."""
    for _, line in numbered_lines(text):
        if re.fullmatch("sep=.", line) is None:
            return line
    return ""


def _columns_of_header(line: str) -> list[str]:
    return [column.strip(" \"'") for column in re.split(r"[,;|\t]", line)]


def has_header(path: Path, text: str, columns: TaggedColumns) -> bool:
    """Tells whether a csv or tsv names columns of words and of their tags or sentences, or of texts and marked spans.

    Raises:
      UserError: a csv has other columns. (Without a header, a tsv has lines of words and tags.)
    """
    name = plain_name(path.name)
    if not name.endswith((".csv", ".tsv", ".tab")):
        return False
    first_line = _first_line(text)
    names = _columns_of_header(first_line)
    named_by_user = tuple(filter(None, (columns.tags, columns.sentence)))
    beside_words = (*named_by_user, *TAG, *TAGS, *PART_OF_SPEECH, *SENTENCE_OF_WORD)
    if columns.word_in(names) is not None and columns_named(names, beside_words):
        return True
    beside_texts = (*named_by_user, *TAG, *MARKED_SPANS)
    if columns.text_in(names) is not None and columns_named(names, beside_texts):
        return name.endswith(".csv") or "[" in text
    if name.endswith(".csv") and len(names) > 1 and "\t" not in first_line:
        raise UserError(
            f"{path}: columns of words and of their tags are needed, called word, tag and sentence_id: its first line "
            f"is {shown(first_line)}. --text-column WORD,SENTENCE and --label-column TAG name yours; if that line is "
            "no header, add one"
        )
    return False
