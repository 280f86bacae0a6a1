"""Makes a file of examples in memory, as `finetune` and `evaluate` take them: texts and labels, dicts, data frames."""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.files.writing import write_atomically
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted

TASK = "texts"  # name of the task for examples in memory
_ENOUGH_LABELS = 20  # from which on labels that are nearly all different are taken for texts
_NEARLY_ALL = 0.9  # share of different ones among them


class Argument(NamedTuple):
    """An argument that takes examples, as messages name it.

    call: the function that has it. examples: its name. labels: that of the argument with the labels of its texts.
    """

    call: str
    examples: str
    labels: str

    def __str__(self) -> str:
        return f"{self.call}: {self.examples}"


class ColumnNames(NamedTuple):
    """Names for the columns of a table that is made of texts and labels, or of lists of words and of tags.

    texts: of a text, and of the second one of a pair. num_texts: number of texts of an example; None: one or two.
    """

    texts: Sequence[str] = ("text", "second_text")
    label: str = "label"
    words: str = "words"
    tags: str = "tags"
    num_texts: int | None = None


class ExampleTable(NamedTuple):
    """Examples in memory: rows, column -> value, and the columns that hold texts; [] if the user names them."""

    rows: list[dict[str, Any]]
    text_columns: list[str]


def table_of(
    argument: Argument, examples: Any, labels: Iterable[Any] | None, names: ColumnNames, task_type: str
) -> str | ExampleTable:
    """The path of a file of examples, or a table of examples in memory.

    Args:
      names: of the columns for texts and labels that come without.
      task_type: the hparam; "" if it is not given.

    Raises:
      UserError: there are no examples; labels are missing, too many or not needed.
    """
    if isinstance(examples, (str, os.PathLike)):
        if not os.path.exists(examples):
            raise UserError(f"{argument}: there is no file {shown(os.fspath(examples))}; texts come as a list")
        if labels is not None:
            raise UserError(f"{argument} is a file, which has a column of labels: leave {argument.labels} out")
        return os.fspath(examples)
    if labels is not None:
        _check_order(argument, examples, labels)
    if labels is not None and _is_frame(examples) and len(examples.columns) == 1:
        examples = _values_of_frame(examples)
    examples = rows_in(examples)
    if isinstance(examples, Mapping) or not isinstance(examples, Iterable):
        raise UserError(
            f"{argument} is a list of texts, a data frame (of a dict: pandas.DataFrame(...)) or a path, not "
            f"{shown(examples)}"
        )
    if isinstance(examples, (set, frozenset)):
        raise UserError(f"{argument} is a set, which has no order: give a list")
    examples = list(examples)
    if not examples:
        raise UserError(f"{argument} holds no examples")
    if isinstance(examples[0], Mapping):
        if labels is not None:
            raise UserError(
                f"{argument} has columns, one of which holds the labels: leave {argument.labels} out, or give the "
                'column of the texts alone, of pairs frame[["a", "b"]].to_numpy()'
            )
        return ExampleTable(_plain_rows(argument, examples), [])
    if labels is None:
        raise UserError(f"{argument.call}: {argument.labels} are missing: give one for each text")
    labels = _checked_labels(argument, labels)
    if len(labels) != len(examples):
        raise UserError(
            f"{argument} has {counted(len(examples), 'text')}, but {argument.labels} has {len(labels):,}: "
            "each text needs one"
        )
    if not task_type:
        _refuse_texts_as_labels(argument, labels)
    if task_type == "tagging":
        return _table_of_words(argument, examples, labels, names)
    are_lists = isinstance(examples[0], list) and isinstance(json_value(labels[0]), list)
    if are_lists and task_type != "qa":  # which may have several answers to a pair
        raise UserError(
            f'{argument.call}: {argument.labels} are lists: task_type="tagging" learns a tag for each word, from lists '
            "of words"
        )
    return _table_of_texts(argument, examples, labels, names)


def rows_in(examples: Any) -> Any:
    """Takes the rows of a data frame as dicts, and those of an array of two columns as pairs.

    Anything else stays as it is.

    Raises:
      UserError: a data frame has two columns of one name.
    """
    if _is_frame(examples):
        names = list(examples.columns)
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"the data frame has the column {name!r} twice: give the two different names")
        if hasattr(examples, "to_dicts"):  # polars
            return examples.to_dicts()
        return examples.to_dict("records")
    if hasattr(examples, "tolist") and getattr(examples, "shape", ())[1:] == (2,):
        return [tuple(row) for row in examples.tolist()]
    return examples


def _check_order(argument: Argument, examples: Any, labels: Any) -> None:
    """Raises UserError if two columns of pandas have the same rows in another order: they are taken by position."""
    if not hasattr(examples, "iloc") or not hasattr(labels, "iloc"):
        return
    if not examples.index.equals(labels.index) and sorted(map(str, examples.index)) == sorted(map(str, labels.index)):
        raise UserError(
            f"{argument} and {argument.labels} have the same index in another order. If they belong together by their "
            "positions, give labels.to_numpy(); if by the index, labels.loc[texts.index]"
        )


def column_names(names: int | str | Sequence[int | str] | None, row: Mapping[str, Any] | None = None) -> list[str]:
    """Lists the columns that an argument names: a list of them, or a number, a text, "a" or as in a flag "a,b".

    None names none.

    Args:
      row: of the examples, if it is known, by which a name with a comma is told from two names.
    """
    if names is None:
        return []
    if isinstance(names, int):
        return [str(names)]
    if not isinstance(names, str):
        return [str(name) for name in names]
    if row is not None and names in row:
        return [names]
    return [name.strip() for name in names.split(",")]


def _refuse_texts_as_labels(argument: Argument, labels: Sequence[Any]) -> None:
    """Raises UserError if nearly every label is another text: they may be the second texts of pairs."""
    texts = [label for label in labels if isinstance(label, str) and label]
    if len(texts) >= _ENOUGH_LABELS and len(set(texts)) > _NEARLY_ALL * len(texts):
        raise UserError(
            f"{argument.call}: {argument.labels} has {len(set(texts)):,} different texts for {len(texts):,} examples, "
            "so nothing can be learned of them. Pairs of texts are tuples, list(zip(a, b)), and labels come behind them"
        )


def _values_of_frame(frame: Any) -> list[Any]:
    """Lists the values of a data frame with one column."""
    values = []
    for row in rows_in(frame):
        values += row.values()
    return values


def _is_frame(value: Any) -> bool:
    """True for a data frame of pandas or polars."""
    return hasattr(value, "columns") and hasattr(value, "to_dict")


def _checked_labels(argument: Argument, labels: Any) -> list[Any]:
    """Makes a list of labels. Raises UserError: it is something else, such as one text or a data frame."""
    if _is_frame(labels) and len(labels.columns) == 1:
        return _values_of_frame(labels)
    is_list = isinstance(labels, Iterable) and not isinstance(labels, (str, bytes, Mapping, set, frozenset))
    if not is_list or _is_frame(labels):
        raise UserError(
            f"{argument.call}: {argument.labels} is a list of labels, or a column of a data frame, one for each text, "
            f"not {shown(labels)}"
        )
    if getattr(labels, "shape", ())[1:] == (1,):  # a column of an array
        labels = labels.reshape(-1)
    return list(labels)


def _plain_rows(argument: Argument, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """Converts rows to JSON values. Raises UserError if one is no dict."""
    rows = []
    for index, row in enumerate(examples):
        if not isinstance(row, Mapping):
            raise UserError(f"{argument}[{index}] is {shown(row)}, but must be a dict as the first is")
        rows.append(json_value(row))
    return rows


def _table_of_texts(
    argument: Argument, examples: Sequence[Any], labels: Sequence[Any], names: ColumnNames
) -> ExampleTable:
    """Makes a table of texts, or of pairs if the first is one. Raises UserError if an example is of another kind."""
    are_pairs = isinstance(examples[0], (tuple, list))
    if names.num_texts is not None and are_pairs != (names.num_texts == 2):
        needed = "a pair of texts, a tuple" if names.num_texts == 2 else "a single text"
        raise UserError(f"{argument}[0] is {shown(examples[0])}, but the task reads {needed}")
    columns = list(names.texts)
    expected = "a pair of texts"
    if not are_pairs:
        columns = columns[:1]
        expected = "a text"
    if names.label in columns:
        raise UserError(f"{argument} is a list of texts, without columns: leave label_column out")
    rows = []
    for index, (example, label) in enumerate(zip(examples, labels, strict=True)):
        texts = [example]
        if are_pairs and isinstance(example, (tuple, list)):
            texts = list(example)
        texts = [_text(text) for text in texts]
        if len(texts) != len(columns) or not all(text is None or isinstance(text, str) for text in texts):
            raise UserError(f"{argument}[{index}] is {shown(example)}, but must be {expected}")
        row = dict(zip(columns, texts, strict=True))
        row[names.label] = json_value(label)
        rows.append(row)
    return ExampleTable(rows, columns)


def _text(value: Any) -> Any:
    """Takes a text, or None for a missing one. Anything else stays as it is, such as bytes or a date."""
    converted = json_value(value)
    if isinstance(converted, str) and not isinstance(value, str):
        return value
    return converted


def _table_of_words(
    argument: Argument, examples: Sequence[Any], labels: Sequence[Any], names: ColumnNames
) -> ExampleTable:
    """Makes a table of lists of words with tags. Raises UserError if an example is no such list."""
    rows = []
    for index, (words, tags) in enumerate(zip(examples, labels, strict=True)):
        words = json_value(words)
        tags = json_value(tags)
        if tags is None or tags == "":  # left out and counted where the table is read
            rows.append({names.words: words, names.tags: None})
            continue
        if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
            raise UserError(
                f"{argument}[{index}] is {shown(words)} with {shown(tags)}{_counts(words, tags)}, but must be a list "
                "of words with a list of as many tags"
            )
        rows.append({names.words: words, names.tags: tags})
    return ExampleTable(rows, [])


def _counts(words: Any, tags: Any) -> str:
    """Counts words and tags for a message; "" if they are no lists."""
    if isinstance(words, list) and isinstance(tags, list):
        return f" ({counted(len(words), 'word')}, {counted(len(tags), 'tag')})"
    return ""


def write_table(table: ExampleTable, split: str, folder: Path) -> str:
    """Writes a table as JSON lines into a folder, and returns its path.

    The path depends on the content, so that the data of an earlier training are not overwritten.
    """
    lines = [json.dumps(row) + "\n" for row in table.rows]
    content = "".join(lines)
    digest = hashlib.sha256(content.encode()).hexdigest()
    path = folder / "data" / f"{split}-{digest[:12]}" / f"{TASK}.jsonl"
    if not path.exists():
        write_atomically(path, content)
    return str(path)


def with_places(message: str, folder: Path) -> str:
    """A message with train[4] in the place of line 5 of the file that `write_table` made of the examples of `train`.

    Args:
      folder: in which the file is.
    """

    def place(match: re.Match) -> str:
        if match["line"] is None:
            return match["split"]
        return f"{match['split']}[{int(match['line']) - 1}]"

    folders = f"{re.escape(os.path.abspath(folder))}|{re.escape(str(folder))}"
    files = rf"({folders})/data/(?P<split>[a-z]+)-[0-9a-f]+/{TASK}\.jsonl"
    named = re.search(files, message)
    message = re.sub(rf"{files}(, line (?P<line>[0-9]+))?", place, message)
    if named is None:
        return message
    # Lines of the same file that are listed, "line 4: ...; line 9: ...".
    return re.sub(r"\bline ([0-9]+)(?=: )", lambda match: f"{named['split']}[{int(match[1]) - 1}]", message)


def json_value(value: Any) -> Any:
    """Converts a value of Python, numpy or pandas to a JSON value. A missing one (None, NaN, NaT, NA) becomes null."""
    if hasattr(value, "tolist"):  # an array or number of numpy's
        value = value.tolist()
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
