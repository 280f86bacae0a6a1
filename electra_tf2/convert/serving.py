"""Signatures of a fine-tuned model's SavedModel: strings in; labels, values, tags, answers or vectors out.

Each task says its own (`Task.signature`); here they are collected, and what was written is held against `predict`.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert.head_outputs import refuse_prompts
from electra_tf2.convert.saved_model import GraphTokenizer, Signature
from electra_tf2.convert.self_check import largest
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.inference.predictor import Predictor
from electra_tf2.util.reading import no_pattern

_TEXTS = (("A first text.", "And a second one, Müller's: 42!"), ("Short.", "Of it."))  # of the self-check


def task_signatures(predictor: Predictor, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """A signature for each task, by its name; the first is the default. Raises UserError: a task whose input is no
    plain text."""
    refuse_prompts(predictor)
    return {
        task.name: task.signature(tokenizer, functools.partial(_predict, predictor.model, number, task))
        for number, task in enumerate(predictor.tasks)
    }


def _predict(
    model: FinetuningModel, number: int, task: Task, inputs: dict[str, tf.Tensor], labels: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """The head's predictions; labels are only there because heads ask for them."""
    return model.predict(inputs | {f"{task.name}/{name}": value for name, value in labels.items()}, number).predictions


def difference_from_strings(predictor: Predictor, folder: str | Path) -> float:
    """The largest difference between a SavedModel's numbers and those of `predict`, on fixed texts."""
    with no_pattern(folder) as readable:
        loaded = tf.saved_model.load(readable)
    differences: list[float] = []
    for number, task in enumerate(predictor.tasks):
        signature = loaded.signatures[task.name]
        names = sorted(signature.structured_input_signature[1], key=("text", "question", "text_pair", "context").index)
        columns = [tf.constant([row[place] for row in _TEXTS]) for place in range(len(names))]
        found = {key: value.numpy() for key, value in signature(**dict(zip(names, columns, strict=True))).items()}
        split = task.parse([task.row_of(row if len(names) == 2 else row[0]) for row in _TEXTS], "texts")
        for row, ours in enumerate(task.served_numbers(split, predictor.predictions(number, split))):
            differences += [_difference(found[name][row], value) for name, value in ours.items()]
    return largest(differences)


def _difference(found: Any, ours: Any) -> float:
    """Largest difference of a number or a row of numbers, which may be padded."""
    theirs, expected = np.atleast_1d(found), np.atleast_1d(ours)
    return largest(np.abs(theirs[: len(expected)] - expected))
