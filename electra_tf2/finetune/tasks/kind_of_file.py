"""Tells by a file's content for which kind of task it plainly is, for messages about one that is read as another."""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.files import table_files, tables
from electra_tf2.files.tables import columns_named
from electra_tf2.finetune.tasks.marked_texts import marked_text
from electra_tf2.settings.columns import (
    ANSWERS,
    CONTEXT,
    PART_OF_SPEECH,
    QUESTION,
    SENTENCE_OF_WORD,
    TAG,
    TAGS,
    WORD,
    WORDS,
)
from electra_tf2.util.errors import UserError

_LOOKED_AT = 100  # first lines, or rows, of a file
_SPAN_TAG = re.compile(r"O|[BIES]-\S+")
# What messages call a file of a kind, and as what a task of the kind reads it.
_FILES = {
    "qa": "a file of questions about documents",
    "tagging": "a file of tagged words",
    "classification": "a table of texts",
    "regression": "a table of texts",
}


def explained(error: UserError, paths: Iterable[Path], kind: str) -> UserError:
    """Adds to the error of a task's files for which kind of task one plainly is, if it is for another one.

    Args:
      kind: the task's, one of settings.kinds.KINDS.
    """
    if kind not in _FILES:
        return error
    for path in paths:
        other_kind = kind_of_file(path)
        if other_kind and other_kind != kind:
            looks = _FILES[other_kind]
            return UserError(f"{path} looks like {looks}: --task-type {other_kind}. As {_FILES[kind]}: {error}")
    return error


def kind_of_file(path: Path) -> str:
    """Tells the kind of task that a file is for, "qa" or "tagging"; "" for any other, and where it is not plain."""
    try:
        format = table_files.format_of(path)
        if format == "columnar":
            return _kind_of_rows(_first_rows(path))
        lines = list(itertools.islice(table_files.read_lines(path), _LOOKED_AT))
        text = "".join(lines)
        if '"qas"' in text and '"context"' in text:  # SQuAD's or MRQA's objects
            return "qa"
        if format != "json" and _are_tagged_words(lines):
            return "tagging"
        return _kind_of_rows(_first_rows(path))
    except UserError:
        return ""  # what cannot be read is of no kind


def _first_rows(path: Path) -> list[dict[str, Any]]:
    table = tables.open_table(path)
    return [row.values for row in itertools.islice(table.checked(), _LOOKED_AT)]


def _kind_of_rows(rows: Sequence[dict[str, Any]]) -> str:
    """Tells the kind of the rows of a table: all columns of questions, tagged words, or spans marked in texts."""
    if not rows:
        return ""
    first_row = rows[0]
    has_questions = columns_named(first_row, QUESTION) and columns_named(first_row, CONTEXT)
    answers = columns_named(first_row, ANSWERS)
    if has_questions and answers and not isinstance(first_row[answers[0]], bool):  # true and false are BoolQ's
        return "qa"
    if _are_rows_of_tags(first_row):
        return "tagging"
    for row in rows:
        marked = marked_text(row, "")
        if marked is not None and marked.spans:
            return "tagging"
    return ""


def _are_rows_of_tags(row: dict[str, Any]) -> bool:
    """Tells a row with a word, its tag and its sentence, or with lists of words and of their tags."""
    has_word = columns_named(row, WORD) and columns_named(row, SENTENCE_OF_WORD)
    if has_word and columns_named(row, (*TAG, *TAGS, *PART_OF_SPEECH)):
        return True
    words = columns_named(row, WORDS)
    tags = columns_named(row, TAGS)
    return bool(words and tags) and isinstance(row[words[0]], list) and isinstance(row[tags[0]], list)


def _are_tagged_words(lines: Sequence[str]) -> bool:
    """Tells a word and its tag on each line: tags of spans, or any, if blank lines stand between sentences."""
    of_words = [line.rstrip("\n") for line in lines if not line.startswith(("#", "-DOCSTART-"))]
    words = [line.split() for line in of_words if line.strip()]
    if not words:
        return False
    if all(len(columns) > 1 and _SPAN_TAG.fullmatch(columns[-1]) for columns in words):
        return True
    # The line after the last may be blank anywhere.
    has_sentences = any(not line.strip() for line in of_words[:-1])
    # Blanks or tabs divide as many columns on each line. Where tabs do, a cell with blanks is a text.
    widths = {len(columns) for columns in words}
    tabs = {line.count("\t") for line in of_words if line.strip()}
    divides = tabs in ({0}, {len(words[0]) - 1})
    return has_sentences and len(widths) == 1 and widths != {1} and divides
