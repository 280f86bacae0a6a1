"""The file that `predict` writes: the rows that were read, each beside its answer, as JSON lines or as a table.

Tagged words can be written in CoNLL's layout, too.
"""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from electra_tf2.files.tables import WordRow
from electra_tf2.finetune.tasks.conll import tagged_lines
from electra_tf2.finetune.tasks.files import json_lines

# Rows as they were read, and their answers.
Labelled = Sequence[tuple[dict[str, Any], dict[str, Any]]]

# Parts of an answer that tables leave out: JSON too long for a cell that people read.
_ONLY_IN_LINES = {"nbest"}

# Parts of an answer that repeat what was read, which stays as it was.
_REPEATED = {"id", "words"}


def labelled(rows: Labelled, row_format: str, csv_delimiter: str = ",") -> str:
    """Makes the text of a file of rows and their answers, in one of the formats of `files.writing.row_format`."""
    if row_format == "csv":
        return labelled_table(rows, csv_delimiter)
    if row_format == "tsv":
        return labelled_table(rows, "\t")
    if row_format == "json":
        return json.dumps(_side_by_side(rows), ensure_ascii=False, default=str, indent=1) + "\n"
    if row_format == "conll":
        return _tagged_words(rows)
    return labelled_lines(rows)


def rows_of_words(
    sentences: Sequence[Sequence[WordRow]], answers: Sequence[dict[str, Any]], are_numbered: bool
) -> Labelled:
    """Puts a tag and its probability beside each row with a word. Rows without one stay as they are.

    Args:
      sentences: the rows of each. answers: the `tags` and `probabilities` of each.
      are_numbered: whether a column tells the sentences apart; otherwise a blank row stands between them.
    """
    labelled_rows: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for rows, answer in zip(sentences, answers, strict=True):
        if labelled_rows and not are_numbered and rows[0].has_word:
            labelled_rows.append(({}, {}))
        tags = zip(answer["tags"], answer["probabilities"], strict=True)
        for row in rows:
            of_word = {}
            if row.has_word:
                tag, probability = next(tags)
                of_word = {"tag": tag, "probability": probability}
            labelled_rows.append((row.values, of_word))
    return labelled_rows


def _tagged_words(rows: Labelled) -> str:
    """Makes lines of a word and its predicted tag. Rows without a text are left out."""
    sentences = []
    for _, answer in rows:
        if "tags" in answer:
            sentences.append((answer["words"], answer["tags"]))
    return tagged_lines(sentences)


def labelled_lines(rows: Labelled) -> str:
    """JSON lines of rows and their answers. A column that has a name of the answers' is called "given_<name>"."""
    return json_lines(_side_by_side(rows))


def labelled_table(rows: Labelled, delimiter: str) -> str:
    """The same as a table with a header.

    An object's values have columns of their own: `probabilities` becomes probability_<label>. A list's values stand in
    one cell, with blanks between them, or as JSON if they are no words or numbers. `nbest` stands in JSON lines alone.
    """
    rows_of_cells = []
    for row, answer in rows:
        kept = {name: value for name, value in answer.items() if name not in _ONLY_IN_LINES}
        rows_of_cells.append((_cells(row), _cells(kept)))
    records = _side_by_side(rows_of_cells)
    columns: dict[str, None] = {}  # in the order in which they first appear
    for record in records:
        columns |= dict.fromkeys(record)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _side_by_side(rows: Labelled) -> list[dict[str, Any]]:
    """Each row with its answer. Nothing that was read is lost, however often a file is labelled."""
    new_names = _new_names(rows)
    records = []
    for row, answer in rows:
        kept = {new_names.get(name, name): value for name, value in row.items()}
        # Columns of the row first, and where both have one, as `id`, the row's value.
        records.append(kept | answer | kept)
    return records


def _new_names(rows: Labelled) -> dict[str, str]:
    """New names of the columns that have a name of the answers'."""
    columns: dict[str, None] = {}
    answer_names: set[str] = set()
    for row, answer in rows:
        columns |= dict.fromkeys(row)
        answer_names |= answer.keys() - _REPEATED
    taken = answer_names | columns.keys()
    new_names: dict[str, str] = {}
    for name in columns:
        if name in answer_names:
            new_name = f"given_{name}"
            while new_name in taken:
                new_name = f"given_{new_name}"
            taken.add(new_name)
            new_names[name] = new_name
    return new_names


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a table: texts and numbers."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(value, dict):
            cells[name] = _cell(value)
            continue
        prefix = "probability" if name == "probabilities" else name
        for key, inner in value.items():
            cells[f"{prefix}_{key}"] = _cell(inner)
    return cells


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, (int, float)) or _is_word(item) for item in value):
        return " ".join(map(str, value))
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^ \t\n\r]+", value) is not None
