"""Answers of a fine-tuned model for rows of tokens, without labels: for files for other runtimes.

What an answer is, each task says (`Task.answer_outputs`). B batch, L length.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert.network_file import INPUTS, Exportable
from electra_tf2.convert.self_check import check_inputs
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.util.errors import UserError


def fine_tuned(predictor: Predictor, model: StoredModel) -> Exportable:
    """The answers of a fine-tuned model, by "task.name" (`answers_of`).

    They are compared on the fixed sentences, all of them as often as there are candidates; further inputs mark spans:
    the second token, and the two after it.

    Raises:
      UserError: the input of a task is more than text.
    """
    refuse_prompts(predictor)
    longest, encoded = predictor.config.max_seq_length, check_inputs(model)
    rows = Encoded(*(np.tile(value[:, :longest], [predictor.tasks[0].choices, 1]) for value in encoded))
    names = dict.fromkeys(name for task in predictor.tasks for name in task.further_inputs)
    marks = {name: np.zeros_like(rows.input_ids) for name in names}
    for number, mark in enumerate(marks.values()):
        mark[:, 1 + number : 2 + 2 * number] = 1

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return answers_of(predictor, Encoded(*(inputs[name] for name in INPUTS)), inputs)

    about = {"tasks": {task.name: task.facts() for task in predictor.tasks}, "max_length": longest}
    variables = predictor.model.trainable_variables
    return Exportable(outputs, variables, about, rows, marks, functools.partial(comparable, predictor))


def refuse_prompts(predictor: Predictor) -> None:
    """Raises UserError for tasks whose input is more than text."""
    for task in predictor.tasks:
        if task.prompts:
            raise UserError(
                f"{task.name}: a prompted model reads demonstrations beside its text, which only --format electra keeps"
            )


def answers_of(predictor: Predictor, rows: Encoded, further: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """The numbers of the answers, by "task.name"; of tagging, those of every token.

    Args:
      rows: int32 [B, L] each, arrays or tensors. further: the same of further inputs, where heads read them.
    """
    batch = {name: tf.convert_to_tensor(value) for name, value in rows._asdict().items()}
    found: dict[str, tf.Tensor] = {}
    for number, task in enumerate(predictor.tasks):
        labels = task.no_labels(batch["input_ids"]) | {name: further[name] for name in task.further_inputs}
        with kernels.off():
            output = predictor.model.predict(batch | {f"{task.name}/{n}": v for n, v in labels.items()}, number)
        found |= {f"{task.name}.{name}": value for name, value in task.answer_outputs(output.predictions).items()}
    return found


def comparable(predictor: Predictor, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of which all numbers mean something."""
    found: dict[str, np.ndarray] = {}
    for task in predictor.tasks:
        scope = f"{task.name}."
        own = {name.removeprefix(scope): value for name, value in values.items() if name.startswith(scope)}
        found |= {f"{scope}{name}": value for name, value in task.comparable(own).items()}
    return found
