"""Reads a file of tagged words in any layout.

lines       a word and its tag on each, a blank line between sentences; CoNLL-U   conll
rows        a word and its tag in each, and the number of its sentence            tagged_tables
lists       of words and of tags in a row, as the library `datasets` writes them  tagged_tables
texts       with marked spans, as programs for annotation write them              marked_texts, by tagged_tables
"""

import re
from pathlib import Path

from electra_tf2.files.content import plain_name
from electra_tf2.files.delimited import numbered_lines
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import columns_named, open_table
from electra_tf2.finetune.tasks.conll import Sentence, sentences_in_text
from electra_tf2.finetune.tasks.tagged_tables import TagColumn, sentences_in_table, sentences_of_rows_with_a_word
from electra_tf2.settings.columns import MARKED_SPANS, PART_OF_SPEECH, SENTENCE_OF_WORD, TAG, TAGS, TEXT, WORD
from electra_tf2.util.errors import UserError, shown


def read_sentences(
    path: Path, tagged: bool = True, unended: bool = True, label_column: str = "", task: str = ""
) -> list[Sentence]:
    """Reads the sentences of a file.

    Args:
      tagged: whether every word must have a tag; otherwise words alone are accepted.
      unended: keep a last sentence that no blank line follows; the original loses it.
      label_column: name of a table's column of tags; "": the one that is called by the task, or as is usual. Of lines
        without a header its number, from 0.
      task: name of the task.

    Raises:
      UserError: names file and line.
    """
    tag_column = TagColumn(label_column, task)
    if format_of(path) in ("json", "columnar"):
        sentences = list(sentences_in_table(open_table(path), tagged, tag_column))
    else:
        text = read_text(path, "task")
        if _has_header(path, text, label_column):
            sentences = list(sentences_in_table(open_table(path, content=text), tagged, tag_column))
        elif label_column and not label_column.isdecimal():
            raise UserError(
                f"{path}: label_column {label_column!r} is no name of a column of words' tags, as its lines have no "
                "header: give the column's number, counted from 0; without label_column the last one has the tags"
            )
        else:
            number = int(label_column) if label_column else None
            sentences = sentences_in_text(text, str(path), tagged, unended, number)
    if not sentences:
        raise UserError(f"{path} holds no sentences")
    return sentences


def sentences_of_word_rows(path: Path, text: str, label_column: str = "", task: str = "") -> list[Sentence] | None:
    """Reads a csv or tsv with a word in each row, whose tags may be missing; None: it is another file.

    Arguments and errors as of `read_sentences`. text: the file's content.
    """
    if not plain_name(path.name).endswith((".csv", ".tsv", ".tab")):
        return None
    _, first_line = next(numbered_lines(text), (0, ""))
    if not columns_named(_columns_of_header(first_line), (*WORD, TEXT)):
        return None
    table = open_table(path, content=text)
    return sentences_of_rows_with_a_word(table, TagColumn(label_column, task))


def _columns_of_header(line: str) -> list[str]:
    return [column.strip(" \"'") for column in re.split(r"[,;|\t]", line)]


def _has_header(path: Path, text: str, label_column: str) -> bool:
    """Tells whether a csv or tsv names columns of words and of their tags or sentences, or of texts and marked spans.

    Raises:
      UserError: a csv has other columns. (Without a header, a tsv has lines of words and tags.)
    """
    name = plain_name(path.name)
    if not name.endswith((".csv", ".tsv", ".tab")):
        return False
    _, first_line = next(numbered_lines(text))
    columns = _columns_of_header(first_line)
    of_words = (label_column, *TAG, *TAGS, *PART_OF_SPEECH, *SENTENCE_OF_WORD)
    if columns_named(columns, WORD) and columns_named(columns, of_words):
        return True
    if columns_named(columns, (TEXT,)) and columns_named(columns, (label_column, *TAG, *MARKED_SPANS)):
        return name.endswith(".csv") or "[" in text
    if name.endswith(".csv") and len(columns) > 1 and "\t" not in first_line:
        raise UserError(
            f"{path}: columns of words and of their tags are needed, called word, tag and sentence_id: its first line "
            f"is {shown(first_line)}. Without such names, put them into a first line"
        )
    return False
