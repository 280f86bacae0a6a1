"""Scores the answers to a file that holds the right ones, too."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.mistakes import errors_of, shown_errors
from electra_tf2.finetune.results import aligned, figure_of
from electra_tf2.finetune.tasks import make_task
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import Features, Prediction, Split, Task
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import rewording, warn

Predict = Callable[[Split], list[Prediction]]


class Answered(NamedTuple):
    """The inputs that were made of a file, and their predictions."""

    split: Split
    predictions: list[Prediction]


def report_on_file(
    trained_task: Task, source: str, answered: Answered, predict: Predict, has_label_column: bool = False
) -> str:
    """Makes a report of scores and mistakes for a file with labels; "" for one without.

    The file is read as development data are, so that its columns and labels are those of the training data.

    Args:
      answered: predictions of the same file, which count if it has been read as the same inputs.
      predict: makes predictions of other inputs.
      has_label_column: whether the file is known to have the column of the task's labels. Then a warning says why they
        cannot be scored.
    """
    path = str(Path(source).absolute())
    config = FinetuningConfig.from_dict(vars(trained_task.config) | {"debug_examples": 0})
    task = make_task(trained_task.name, config, trained_task.tokenizer, {"train": path, "dev": path})
    adopt_states([task], {task.name: trained_task.state()}, task.name)
    if isinstance(task, TaggingTask) and isinstance(trained_task, TaggingTask):
        task.columns = trained_task.columns  # which may be named for this file
    try:
        with rewording(lambda message: message.replace(f"{task.name} dev", source)):
            split = task.load("dev")
    except UserError as error:  # it has no labels, or others than were learned
        if has_label_column:
            warn(f"the labels are not scored: {error}")
        return ""
    if not split.labelled:
        return ""
    predictions = _of_same_inputs(split, answered)
    if predictions is None:
        answers = trained_task.answers(answered.split, answered.predictions)
        scores = task.scores_of_answers(split, answered.split, answers)
        if scores is not None:
            return _table(task, split, scores)
        predictions = predict(split)
    errors = errors_of(task, split, task.answers(split, predictions))
    return _table(task, split, task.scores(split, predictions)) + shown_errors(task.name, errors)


def _table(task: Task, split: Split, scores: Mapping[str, float]) -> str:
    rows = [[task.name, f"{len(split.examples):,}"]]
    for metric, score in scores.items():
        rows.append([metric, figure_of(metric, score)])
    return aligned(rows, 1)


def _of_same_inputs(split: Split, answered: Answered) -> list[Prediction] | None:
    """Takes the predictions of a split's inputs from those of a file, which may hold others; None: some are not there.

    Rows without labels are answered, but not scored.
    """
    by_input = {
        _content(feature): found for feature, found in zip(answered.split.features, answered.predictions, strict=True)
    }
    predictions = []
    for feature in split.features:
        if _content(feature) not in by_input:
            return None
        predictions.append(by_input[_content(feature)])
    return predictions


def _content(feature: Features) -> tuple[bytes, bytes]:
    return feature.input_ids.tobytes(), feature.segment_ids.tobytes()
