"""The file that `predict` writes: the rows that were read, each beside its answer, as JSON lines or as a table.

Tagged words can be written in CoNLL's layout, too.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from electra_tf2.files.cells import is_null
from electra_tf2.files.tables import WordRow
from electra_tf2.finetune.tasks.conll import tagged_lines
from electra_tf2.finetune.tasks.files import json_lines
from electra_tf2.finetune.tasks.word_rows import is_like_list

# Rows as they were read, and their answers.
Labelled = Sequence[tuple[dict[str, Any], dict[str, Any]]]

# Parts of an answer that tables leave out: JSON too long for a cell that people read.
_ONLY_IN_LINES = {"nbest"}


def labelled(rows: Labelled, row_format: str, csv_delimiter: str = ",") -> str:
    """Makes the text of a file of rows and their answers, in one of the formats of `files.writing.row_format`."""
    if row_format == "csv":
        return labelled_table(rows, csv_delimiter)
    if row_format == "tsv":
        return labelled_table(rows, "\t")
    if row_format == "json":
        records = _side_by_side(_without_repeats(rows))
        return json.dumps(records, ensure_ascii=False, default=str, indent=1) + "\n"
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
        begins_blank = all(is_null(value) or value == "" for value in rows[0].values.values())
        if labelled_rows and not are_numbered and not begins_blank:
            labelled_rows.append(({}, {}))
        for row, of_row in zip(rows, tags_of_rows(rows, answer), strict=True):
            labelled_rows.append((row.values, of_row))
    return labelled_rows


def tags_of_rows(rows: Sequence[WordRow], answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Divides the answer of a sentence among its rows: the tag and its probability; {} for a row without a word."""
    tags = zip(answer["tags"], answer["probabilities"], strict=True)
    of_rows: list[dict[str, Any]] = []
    for row in rows:
        if row.has_word:
            tag, probability = next(tags)
            of_rows.append({"tag": tag, "probability": probability})
        else:
            of_rows.append({})
    return of_rows


def _tagged_words(rows: Labelled) -> str:
    """Makes lines of a word and its predicted tag. Rows without a text are left out."""
    sentences = []
    for _, answer in rows:
        if "tags" in answer:
            sentences.append((answer["words"], answer["tags"]))
    return tagged_lines(sentences)


def labelled_lines(rows: Labelled) -> str:
    """Makes JSON lines of rows and their answers. A column with a name of the answers' is called "given_<name>"."""
    return json_lines(_side_by_side(_without_repeats(rows)))


def labelled_table(rows: Labelled, delimiter: str) -> str:
    """Makes a table, with a header, of the same.

    An object's values have columns of their own: `probabilities` becomes probability_<label>. A list's values stand in
    one cell, with blanks between them, or as JSON if they are no words or numbers. `nbest` stands in JSON lines alone.
    """
    rows_of_cells = []
    for row, answer in _without_repeats(rows):
        kept = {name: value for name, value in answer.items() if name not in _ONLY_IN_LINES}
        rows_of_cells.append((_cells(row), _cells(kept)))
    records = _side_by_side(rows_of_cells)
    columns: dict[str, None] = {}  # in the order in which they first appear
    for record in records:
        columns |= dict.fromkeys(record)
    lines = [_line(columns, delimiter)]
    for record in records:
        lines.append(_line([record.get(column, "") for column in columns], delimiter))
    return "".join(lines)


def _line(cells: Iterable[Any], delimiter: str) -> str:
    text = io.StringIO(newline="")
    # Python's default line end, by which cells that hold a part of it are quoted.
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _without_repeats(rows: Labelled) -> Labelled:
    """The rows, and their answers without the parts that repeat what was read: `id`, and `words`.

    `words` of a row may be something else than the words that were read.
    """
    result = []
    for row, answer in rows:
        words = row.get("words")
        repeats = {"id"} & row.keys()
        if isinstance(words, list) or is_like_list(words) or words == _cell(answer.get("words")):
            repeats.add("words")
        result.append((row, {name: value for name, value in answer.items() if name not in repeats}))
    return result


def _side_by_side(rows: Labelled) -> list[dict[str, Any]]:
    """Joins each row with its answer. Nothing that was read is lost, however often a file is labelled."""
    new_names = _new_names(rows)
    records = []
    for row, answer in rows:
        kept = {new_names.get(name, name): value for name, value in row.items()}
        records.append(kept | answer)
    return records


def _new_names(rows: Labelled) -> dict[str, str]:
    """Makes new names of the columns that have a name of the answers'."""
    columns: dict[str, None] = {}
    answer_names: set[str] = set()
    for row, answer in rows:
        columns |= dict.fromkeys(row)
        answer_names |= answer.keys()
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
    """Makes the cells of a row: texts and numbers.

    The values of an object have a cell each, or stand in one, as JSON, where other columns have these names.
    """
    cells: dict[str, Any] = {}
    for name, value in row.items():
        inner = {}
        if isinstance(value, dict):
            prefix = "probability" if name == "probabilities" else name
            inner = {f"{prefix}_{key}": _cell(value_of_key) for key, value_of_key in value.items()}
        if inner and not inner.keys() & (row.keys() | cells.keys()):
            cells |= inner
        else:
            cells[name] = _cell(value)
    return cells


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, (int, float)) or _is_word(item) for item in value):
        return " ".join(map(str, value))
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^ \t\n\r]+", value) is not None
