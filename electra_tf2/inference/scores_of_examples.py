"""`Model.evaluate`: scores a fine-tuned model on examples in memory, or on a file."""

import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.corpus.encoding import warn_of_cut
from electra_tf2.files.tables import ADVICE_ON_HEADER, names_of
from electra_tf2.finetune.evaluation import loss_of_examples
from electra_tf2.finetune.tasks.embedding import EmbeddingTask
from electra_tf2.finetune.tasks.qa import QATask
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import Split, Task
from electra_tf2.finetune.tasks.text_files import ADVICE_ON_COLUMNS
from electra_tf2.inference.argument_names import with_arguments
from electra_tf2.inference.examples_in_memory import (
    Argument,
    ColumnNames,
    ExampleTable,
    table_of,
    with_places,
    write_table,
)
from electra_tf2.inference.predictor import Predictor, limit_of_texts, unknown_in
from electra_tf2.inference.scores_of_file import task_of_file
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import rewording

_TEXTS = Argument("evaluate", "texts", "labels")


def scores_of_examples(
    predictor: Predictor,
    texts: Any,
    labels: Iterable[Any] | None,
    name: str | None,
    text_columns: Sequence[str] = (),
    label_column: str = "",
) -> dict[str, float]:
    """Computes the scores of a task, and its loss. Arguments and errors as of `Model.evaluate`."""
    task_index = predictor.index_of(name, "evaluate")
    trained_task = predictor.tasks[task_index]
    kind = predictor.config.kind_of(trained_task.name)
    table = table_of(_TEXTS, texts, labels, _columns_in_training(trained_task), kind)
    if isinstance(table, ExampleTable) and table.text_columns:
        if text_columns or label_column:
            raise UserError("evaluate: texts have no columns: leave text_column and label_column out")
        if not trained_task.text_keys:
            raise UserError(
                f"evaluate: task {trained_task.name} reads rows with columns: a data frame or a list of dicts"
            )
    with tempfile.TemporaryDirectory(prefix="electra_evaluated_") as folder:
        if isinstance(table, ExampleTable):
            path = write_table(table, _TEXTS.examples, Path(folder))
        else:
            path = table
        task = task_of_file(trained_task, path)
        split = _labelled(task, Path(folder), text_columns, label_column)
    warn_of_cut(split.cut, *limit_of_texts(task, split))
    rows = task.inputs(split)
    if isinstance(task, QATask):  # whose inputs are shown without most of the context
        questions = [example.question for example in split.examples]
        rows = [{"question": question.text, "context": question.paragraph.text} for question in questions]
    unknown = unknown_in(task, split, rows)
    if unknown is not None:
        warnings.warn(unknown, stacklevel=3)
    evaluated = predictor.evaluated(task_index, split)
    scores = task.scores(split, evaluated.predictions)
    if evaluated.losses is not None:
        scores["loss"] = loss_of_examples(split, evaluated.losses)
    return scores


def _columns_in_training(task: Task) -> ColumnNames:
    """The names for columns of lists of texts and labels: those of the training data."""
    if isinstance(task, QATask):
        question = task.columns.question or "question"
        context = task.columns.context or "context"
        return ColumnNames((question, context), task.columns.answer or "answer", num_texts=2)
    if isinstance(task, TaggingTask):
        return ColumnNames(words=task.columns.words or "words", tags=task.columns.tags or "tags")
    if isinstance(task, EmbeddingTask):
        return ColumnNames(("text1", "text2"), "score", num_texts=2)
    if task.settings is None or task.settings.label is None:
        return ColumnNames()
    texts = [names_of(column)[0] for column in task.settings.texts]
    return ColumnNames(texts, names_of(task.settings.label)[0], num_texts=len(texts))


def _labelled(task: Task, folder: Path, text_columns: Sequence[str], label_column: str) -> Split:
    """Reads the labelled data of a task.

    Args:
      folder: in which examples in memory were written.
      text_columns, label_column: what columns are called, if otherwise than in training.

    Raises:
      UserError: the examples cannot be read, or have no labels.
    """

    def reworded(message: str) -> str:
        message = message.replace(f"{task.name} dev", _TEXTS.examples)
        for advice in (ADVICE_ON_COLUMNS, ADVICE_ON_HEADER):
            message = message.replace(advice, "text_column and label_column name yours")
        message = message.replace("name yours when training:", "name yours:")
        return with_places(with_arguments(message), folder)

    try:
        with rewording(reworded):
            task.name_columns(text_columns, label_column)
            split = task.load("dev")
    except UserError as error:
        raise UserError(f"evaluate: {reworded(str(error))}") from None
    if not split.labelled:
        raise UserError("evaluate: there are no labels to compare the answers with: label_column names their column")
    return split
