"""Reads a file of tagged words in any layout.

lines       a word and its tag on each, a blank line between sentences; CoNLL-U   conll
rows        a word, its tag and the number of its sentence in each                tagged_tables
lists       of words and of tags in a row, as the library `datasets` writes them  tagged_tables
texts       with marked spans, as programs for annotation write them              marked_texts, by tagged_tables
"""

import re
from collections.abc import Sequence
from pathlib import Path

from electra_tf2.files.content import plain_name
from electra_tf2.files.delimited import numbered_lines
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import columns_named, open_table
from electra_tf2.finetune.tasks.conll import Sentence, sentences_in_text
from electra_tf2.finetune.tasks.tagged_tables import sentences_in_table
from electra_tf2.settings.columns import SENTENCE_OF_WORD, TAG, TAGS, WORD
from electra_tf2.util.errors import UserError


def read_sentences(
    path: Path, tagged: bool = True, unended: bool = True, columns: tuple[str, ...] = (), labels: Sequence[str] = ()
) -> list[Sentence]:
    """Reads the sentences of a file.

    Args:
      tagged: whether every word must have a tag; otherwise words alone are accepted.
      unended: keep a last sentence that no blank line follows; the original loses it.
      columns: names that a table's column of tags may have; (): the usual ones, of which the table must have just one.
      labels: names of tags that a table holds as numbers.

    Raises:
      UserError: names file and line.
    """
    if format_of(path) in ("json", "columnar"):
        sentences = list(sentences_in_table(open_table(path), tagged, columns, labels))
    else:
        text = read_text(path, "task")
        header = _header(path, text, columns)
        if not header:
            sentences = sentences_in_text(text, str(path), tagged, unended)
        elif _names_columns_of_lines(header, text):
            below = text.partition("\n")[2]
            # A blank line instead of the header keeps the numbers of lines.
            sentences = sentences_in_text("\n" + below, str(path), tagged, unended)
        else:
            sentences = list(sentences_in_table(open_table(path, content=text), tagged, columns, labels))
    if not sentences:
        raise UserError(f"{path} holds no sentences")
    return sentences


def _header(path: Path, text: str, tag_columns: tuple[str, ...]) -> list[str]:
    """Lists the names in the first line of a csv or tsv; [] if it does not name columns of words and of tags."""
    if not plain_name(path.name).endswith((".csv", ".tsv", ".tab")):
        return []
    _, first_line = next(numbered_lines(text))
    names = [name.strip(" \"'") for name in re.split(r"[,;|\t]", first_line)]
    others = columns_named(names, (*tag_columns, *TAG, *TAGS, *SENTENCE_OF_WORD))
    if not columns_named(names, WORD) or not others:
        return []
    return names


def _names_columns_of_lines(header: Sequence[str], text: str) -> bool:
    """Tells whether lines of a word and its tag, with blank lines between sentences, follow a header."""
    has_blank_lines = "\n\n" in text.strip().replace("\r", "")
    begins_with_word = bool(columns_named(header[:1], WORD))
    names_sentences = bool(columns_named(header, SENTENCE_OF_WORD))
    return has_blank_lines and begins_with_word and not names_sentences
