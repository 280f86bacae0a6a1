"""Scores a trained task on a file that holds the right answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.mistakes import errors_of, shown_errors
from electra_tf2.finetune.results import aligned, figure_of
from electra_tf2.finetune.tasks import make_task
from electra_tf2.finetune.tasks.task import Features, Prediction, Split, Task
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.settings.kinds import kind_named
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import rewording, warn

Predict = Callable[[Split], list[Prediction]]


class Answered(NamedTuple):
    """The inputs that were made of a file, and their predictions."""

    split: Split
    predictions: list[Prediction]


def report_on_file(
    trained_task: Task,
    source: str,
    answered: Answered,
    predict: Predict,
    has_label_column: bool = False,
    text_columns: Sequence[str] = (),
) -> str:
    """Makes a report of scores and mistakes for a file with labels; "" for one without.

    The file is read as development data are, so that its columns and labels are those of the training data.

    Args:
      answered: predictions of the same file, which count if it has been read as the same inputs.
      predict: makes predictions of other inputs.
      has_label_column: whether the file is known to have the column of the task's labels. Then a warning says why they
        cannot be scored.
      text_columns: columns of the texts; (): those of the training data.
    """
    task = task_of_file(trained_task, source)
    task.name_columns(text_columns)
    try:
        with rewording(lambda message: message.replace(f"{task.name} dev", source)):
            split = task.load("dev")
    except UserError as error:  # it has no labels, or others than were learned
        if has_label_column:
            warn(f"the labels are not scored: {error}")
        return ""
    if not split.labelled:
        return ""
    predictions = _of_same_inputs(task, split, answered)
    if predictions is None:
        answers = trained_task.answers(answered.split, answered.predictions)
        scores = task.scores_of_answers(split, answered.split, answers)
        if scores is not None:
            return _table(task, split, scores)
        predictions = predict(split)
    errors = errors_of(task, split, task.answers(split, predictions))
    return _table(task, split, task.scores(split, predictions)) + shown_errors(task.name, errors)


def task_of_file(trained_task: Task, source: str) -> Task:
    """A task as it was trained, whose development data are a file."""
    path = str(Path(source).absolute())
    config = FinetuningConfig.from_dict(vars(trained_task.config) | {"debug_examples": 0})
    task = make_task(trained_task.name, config, trained_task.tokenizer, {"train": path, "dev": path})
    adopt_states([task], {task.name: trained_task.state()}, task.name)
    return task


def _table(task: Task, split: Split, scores: Mapping[str, float]) -> str:
    rows = [[task.name, f"{len(split.examples):,}"]]
    for metric, score in scores.items():
        rows.append([metric, figure_of(metric, score)])
    baseline = kind_named(task.config.kind_of(task.name)).baseline
    for metric, score in task.majority(split).items():
        rows.append([f"{metric} of {baseline}", figure_of(metric, score)])
    return aligned(rows, 1)


def _of_same_inputs(task: Task, split: Split, answered: Answered) -> list[Prediction] | None:
    """Takes the predictions of a split's examples from those of the same file; None: it was read otherwise.

    Rows without labels are answered, but not scored, so that the split may lack some of the file's examples. Both have
    them in the file's order.
    """
    answered_features = answered.split.by_example(answered.split.features)
    answered_predictions = answered.split.by_example(answered.predictions)
    remaining = zip(answered_features, answered_predictions, strict=True)
    predictions: list[Prediction] = []
    for features in split.by_example(split.features):
        found = _next_with(_inputs_of(task, features), task, remaining)
        if found is None:
            return None
        predictions += found
    return predictions


def _next_with(
    inputs: list[bytes], task: Task, remaining: Iterator[tuple[Sequence[Features], Sequence[Prediction]]]
) -> Sequence[Prediction] | None:
    """Takes examples from an iterator up to the first that has these inputs; None: no other has them."""
    for features, predictions in remaining:
        if _inputs_of(task, features) == inputs:
            return predictions
    return None


def _inputs_of(task: Task, features: Sequence[Features]) -> list[bytes]:
    """All that the network reads of an example: ids, segments, and marks of tokens, if the task has some."""
    marks = [name for name, label in task.labels.items() if label.is_input]
    contents = []
    for feature in features:
        contents += [feature.input_ids.tobytes(), feature.segment_ids.tobytes()]
        contents += [np.asarray(feature.labels[name]).tobytes() for name in marks]
    return contents
