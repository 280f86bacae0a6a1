"""Makes a task's examples from rows, the JSON objects that `Task.example` reads: those of a file, or Python's texts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf2.files.cells import is_null
from electra_tf2.files.tables import Table, TableRow, column_called
from electra_tf2.finetune.tasks.conll import Sentence
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import EmptyText, Split, Task
from electra_tf2.finetune.tasks.word_rows import column_of_words, sentences_of_word_rows
from electra_tf2.inference.examples_in_memory import json_value
from electra_tf2.inference.labelled_file import tags_of_rows
from electra_tf2.util.errors import UserError, closest, shown

_NO_TEXT = {"error": "an empty text"}


class Examples(NamedTuple):
    """Examples of rows.

    split: examples and inputs of the rows with a text; None if no row has one. places: where each row stands, for
    messages. has_text: whether each row has a text.
    """

    split: Split | None
    places: list[str]
    has_text: list[bool]

    def answers_of_all_rows(self, answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Puts an error in the place of each row without a text.

        Args:
          answers: those of the rows with a text, in their order.
        """
        remaining = iter(answers)
        answers_of_all = []
        for has_text in self.has_text:
            if has_text:
                answers_of_all.append(next(remaining))
            else:
                answers_of_all.append(dict(_NO_TEXT))
        return answers_of_all

    @property
    def warning(self) -> str:
        """Says where the first row without a text stands, and how many there are; "" if all rows have one."""
        num_empty = self.has_text.count(False)
        if not num_empty:
            return ""
        first = self.places[self.has_text.index(False)]
        more = ""
        if num_empty > 1:
            more = f" (and of {num_empty - 1:,} more)"
        return f"{first}{more}: an empty text, so no answer"


def read_examples(task: Task, rows: Iterable[tuple[str, dict[str, Any]]]) -> Examples:
    """Makes examples of rows.

    Args:
      rows: where each row stands, for messages, and the row.

    Raises:
      UserError: a row cannot be read; names its place.
    """
    examples: list[Any] = []
    places: list[str] = []
    has_text: list[bool] = []
    for index, (place, row) in enumerate(rows):
        places.append(place)
        try:
            examples.append(task.example(standard_row(task, row, place), place, index))
            has_text.append(True)
        except EmptyText:
            has_text.append(False)
    split = None
    if examples:
        split = task.encode(examples, "new")
    return Examples(split, places, has_text)


def standard_row(task: Task, row: dict[str, Any], where: str) -> dict[str, Any]:
    """A row with the texts in columns that a user named under the names that the task reads, too.

    Raises:
      UserError: the row lacks such a column.
    """
    texts = {}
    for name, wanted in task.named_texts.items():
        column = column_called(row, wanted)
        if column is None:
            hint = closest(wanted, row) or ";"
            raise UserError(f"{where}: no column {wanted!r}{hint} it has {shown(', '.join(row))}")
        texts[name] = row[column]
    return row | texts


def is_row_of_frame(task: Task, value: Any) -> bool:
    """Tells whether a value is a row of a data frame of pandas, with the columns that the task reads."""
    if not hasattr(value, "to_dict") or not hasattr(value, "index") or hasattr(value, "columns"):
        return False
    return not task.text_names.isdisjoint(value.index)


def sentences_of_rows(task: TaggingTask, rows: Sequence[Any]) -> list[Sentence] | None:
    """Reads the sentences of dicts with a word each; None: the rows are others.

    Raises:
      UserError: nothing says where a sentence ends.
    """
    values = []
    for row in rows:
        if is_row_of_frame(task, row):
            row = row.to_dict()
        if not isinstance(row, Mapping):
            return None
        values.append(json_value(row))
    table_rows = [TableRow(index, row) for index, row in enumerate(values)]
    table = Table("texts", "row", iter(()), columns=list(values[0]))
    word_name = column_of_words(table, table_rows, task.columns)
    if word_name is None:
        return None
    return sentences_of_word_rows(table, table_rows, word_name, False, task.columns)


def answers_of_word_rows(sentences: Sequence[Sentence], answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Makes an answer of each row with a word: its tag and probability. One without a word has an error.

    Args:
      answers: those of the sentences.
    """
    of_rows: list[dict[str, Any]] = []
    for sentence, answer in zip(sentences, answers, strict=True):
        for of_row in tags_of_rows(sentence.rows, answer):
            of_rows.append(of_row or dict(_NO_TEXT))
    return of_rows


def row_of(task: Task, text: Any, where: str, has_columns: bool = False) -> dict[str, Any]:
    """Makes a row from Python's text, tuple of texts, list of words or dict; None and NaN are an empty text.

    Values of numpy and pandas count as what they hold.

    Args:
      where: place of the text, for messages.
      has_columns: whether the user named columns, so that it must be a dict.

    Raises:
      UserError: it is anything else.
    """
    if is_row_of_frame(task, text):
        text = text.to_dict()
    value = json_value(text)
    if isinstance(value, dict):
        return value
    if has_columns:
        raise UserError(f"predict: {where} has no columns, being {shown(text)}: leave text_column out")
    if is_null(value) and task.text_keys:
        return dict.fromkeys(task.text_keys[0])
    became_text = isinstance(value, str) and not isinstance(text, str)  # a date, say
    if became_text or not isinstance(value, (str, list)):
        raise UserError(
            f"predict: {where} must be a text, a tuple of texts, a list of words or a dict, not {shown(text)}"
        )
    if isinstance(value, str):
        _refuse_half_a_pair(task, value)
        return _row_of_texts(task, [value], text)
    if task.list_key:
        return {task.list_key: value}
    if getattr(text, "ndim", 0):  # an array, or a column of a data frame
        raise UserError(f"predict: {where} is a whole column: pairs of the texts of two are list(zip(a, b))")
    return _row_of_texts(task, value, text)


def reads_pairs_only(task: Task) -> bool:
    """Tells whether all texts of a task come in pairs, such as two sentences, or a question and its context."""
    return {len(keys) for keys in task.text_keys} == {2}


def _refuse_half_a_pair(task: Task, text: str) -> None:
    """Raises UserError for a single text if the task reads pairs only.

    The user may have passed a pair as a list, which is a list of two texts.
    """
    if reads_pairs_only(task):
        first, second = task.text_keys[0]
        raise UserError(
            f"predict: {task.name} reads pairs ({first}, {second}), got the text {shown(text)} alone: "
            f'a pair is a tuple: ("{first}", "{second}"), or a list of them'
        )


def row_of_line(task: Task, line: str) -> dict[str, Any]:
    """Makes a row from a line of plain text, with tabs between its texts. A blank line holds empty texts."""
    if not line.strip() and task.text_keys:
        return dict.fromkeys(task.text_keys[0], "")
    texts = line.split("\t")
    if task.holds_tabs:
        most_texts = max(len(keys) for keys in task.text_keys)
        texts = line.split("\t", most_texts - 1)
    return _row_of_texts(task, texts, line, " a line, a tab between")


def _row_of_texts(task: Task, texts: Sequence[str], unsplit: Any, between: str = "") -> dict[str, Any]:
    """Makes a row from a task's texts. Raises UserError if the task reads another number of texts.

    Args:
      unsplit: the user's input, for messages. between: what separates texts in it, for messages.
    """
    for keys in task.text_keys:
        if len(keys) == len(texts):
            return dict(zip(keys, texts, strict=True))
    if not task.text_keys:
        raise UserError(f"predict: {task.name} cannot read plain text {shown(unsplit)}: give JSON objects or a table")
    choices = []
    for keys in task.text_keys:
        number = "one text" if len(keys) == 1 else "two texts"
        choices.append(f"{number}{between} ({', '.join(keys)})")
    raise UserError(f"predict: task {task.name} reads {' or '.join(choices)}; got {len(texts)}: {shown(unsplit)}")
