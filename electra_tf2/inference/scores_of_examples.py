"""`Model.evaluate`: scores a fine-tuned model on examples in memory, or on a file."""

import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.corpus.encoding import warn_of_cut
from electra_tf2.files.tables import names_of
from electra_tf2.finetune.evaluation import loss_of_examples
from electra_tf2.finetune.tasks.qa import QATask
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import Split, Task
from electra_tf2.finetune.tasks.text_files import ADVICE_ON_COLUMNS
from electra_tf2.inference.argument_names import with_arguments
from electra_tf2.inference.example_rows import keys_of_columns, with_columns
from electra_tf2.inference.examples_in_memory import (
    Argument,
    ColumnNames,
    ExampleTable,
    table_of,
    with_places,
    write_table,
)
from electra_tf2.inference.labelling import open_rows
from electra_tf2.inference.predictor import Predictor, limit_of_texts, unknown_in
from electra_tf2.inference.scores_of_file import task_of_file
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import rewording

_ADVICE = "text_column and label_column name yours"
_EXAMPLES = Argument("evaluate", "examples", "labels")


def scores_of_examples(
    predictor: Predictor,
    examples: Any,
    labels: Iterable[Any] | None,
    name: str | None,
    text_columns: Sequence[str] = (),
    label_column: str | None = None,
) -> dict[str, float]:
    """Computes the scores of a task, and its loss. Arguments and errors as of `Model.evaluate`."""
    task_index = predictor.index_of(name, "evaluate")
    trained_task = predictor.tasks[task_index]
    names = _columns_in_training(trained_task)
    table = table_of(_EXAMPLES, examples, labels, names, predictor.config.kind_of(trained_task.name))
    if text_columns or label_column:
        table = _renamed(trained_task, table, names, text_columns, label_column)
    if isinstance(table, str):
        task, split = _labelled(trained_task, table)
    else:
        _check_count_of_texts(trained_task, table)
        with tempfile.TemporaryDirectory(prefix="electra_evaluated_") as folder:
            task, split = _labelled(trained_task, write_table(table, _EXAMPLES.examples, Path(folder)), folder)
    warn_of_cut(split.cut, *limit_of_texts(task, split))
    unknown = unknown_in(task, split, task.inputs(split))
    if unknown is not None:
        warnings.warn(unknown, stacklevel=3)
    evaluated = predictor.evaluated(task_index, split)
    scores = task.scores(split, evaluated.predictions)
    if evaluated.losses is not None:
        scores["loss"] = loss_of_examples(split, evaluated.losses)
    return scores


def _renamed(
    task: Task,
    table: str | ExampleTable,
    names: ColumnNames,
    text_columns: Sequence[str],
    label_column: str | None,
) -> ExampleTable:
    """A table whose columns of texts and labels have the names of the training data. Raises UserError: it lacks one.

    Args:
      names: these names.
      text_columns, label_column: what the columns are called; () and None: as in training.
    """
    if isinstance(table, str):
        rows = [row.values for row in open_rows(table, task).checked()]
    elif table.text_columns:
        raise UserError(
            "evaluate: examples is a list of texts, without columns: leave text_column and label_column out"
        )
    else:
        rows = table.rows
    columns: dict[str, str] = {}
    if text_columns:
        keys = keys_of_columns(task, text_columns, "evaluate: text_column")
        if isinstance(task, TaggingTask):
            keys = (names.words,)
        columns |= dict(zip(keys, text_columns, strict=True))
    if label_column:
        columns[names.tags if isinstance(task, TaggingTask) else names.label] = label_column
    renamed = []
    for index, row in enumerate(rows):
        renamed.append(with_columns(row, columns, f"evaluate: {_EXAMPLES.examples}[{index}]"))
    return ExampleTable(renamed, [])


def _columns_in_training(task: Task) -> ColumnNames:
    """The names that columns of texts and labels had when a task was trained."""
    names = ColumnNames()
    if isinstance(task, QATask):
        names = ColumnNames(("question", "context"), task.columns.answer or "answer")
    elif isinstance(task, TaggingTask):
        names = ColumnNames(words=task.columns.words or "words", tags=task.columns.tags or "tags")
    elif task.settings is not None and task.settings.label is not None:
        texts = [names_of(column)[0] for column in task.settings.texts]
        if len(texts) == 1:
            texts.append(names.texts[1])  # for pairs, which are refused
        names = ColumnNames(texts, names_of(task.settings.label)[0])
    return names


def _check_count_of_texts(task: Task, table: ExampleTable) -> None:
    """Raises UserError if examples without names of columns are pairs, and the task reads one text, or otherwise."""
    counts = {len(keys) for keys in task.text_keys}
    if table.text_columns and counts and len(table.text_columns) not in counts:
        needed = "pairs of texts" if counts == {2} else "single texts"
        given = "pairs" if counts == {1} else "single texts"
        raise UserError(f"evaluate: {task.name} reads {needed}, but examples are {given}")


def _labelled(trained_task: Task, path: str, folder: str = "") -> tuple[Task, Split]:
    """A task as it was trained, and a file as its labelled data.

    Args:
      folder: in which a file of examples in memory is; "": the file is the user's.

    Raises:
      UserError: the examples cannot be read, or have no labels.
    """
    task = task_of_file(trained_task, path)

    def reworded(message: str) -> str:
        message = message.replace(f"{task.name} dev", _EXAMPLES.examples).replace(ADVICE_ON_COLUMNS, _ADVICE)
        message = with_arguments(message)
        if folder:
            message = with_places(message, Path(folder))
        return message

    try:
        with rewording(reworded):
            split = task.load("dev")
    except UserError as error:
        raise UserError(f"evaluate: {reworded(str(error))}") from None
    if not split.labelled:
        names = _columns_in_training(trained_task)
        column = names.tags if isinstance(task, TaggingTask) else names.label
        raise UserError(f"evaluate: the examples have no labels, of which the column was {column!r} in training")
    return task, split
