"""Outputs of a fine-tuned model's heads for rows of tokens, without labels: for files for other runtimes.

B batch, L length.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert.litert import Function
from electra_tf2.convert.network_file import INPUTS, Comparison
from electra_tf2.convert.self_check import check_inputs
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.finetune.prompting import PromptTask
from electra_tf2.finetune.qa.tasks import FORBIDDEN, QATask
from electra_tf2.finetune.spans import SpanTask
from electra_tf2.finetune.tagging.tasks import TaggingTask
from electra_tf2.finetune.text_heads import NUM_SPANS, span_label
from electra_tf2.inference.predictor import Predictor
from electra_tf2.inference.stored_model import StoredModel
from electra_tf2.model import kernels
from electra_tf2.util.errors import UserError


def compared(predictor: Predictor, model: StoredModel) -> Comparison:
    """The fixed sentences and what the heads say of them; all of them as often as there are candidates.

    Spans are the second token and the two after it.
    """
    encoded, longest = check_inputs(model), predictor.config.max_seq_length
    rows = Encoded(*(np.tile(value[:, :longest], [predictor.tasks[0].choices, 1]) for value in encoded))
    spans = NUM_SPANS if any(isinstance(task, SpanTask) for task in predictor.tasks) else 0
    marks = {span_label(number): np.zeros_like(rows.input_ids) for number in range(spans)}
    for number, mark in enumerate(marks.values()):
        mark[:, 1 + number : 2 + 2 * number] = 1
    found = predictions_of(predictor, rows, {name: tf.constant(mark) for name, mark in marks.items()})
    ours = possible(predictor, {name: value.numpy() for name, value in found.items()})
    return Comparison(rows, marks, ours, functools.partial(possible, predictor))


def for_litert(predictor: Predictor) -> tuple[Function, Sequence[tf.Variable], dict[str, Any]]:
    """As convert.litert.pretrained; outputs are predictions as `Task.answers` reads them, by "task.name"."""
    refuse_prompts(predictor)
    config = predictor.config

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predictions_of(predictor, Encoded(*(inputs[name] for name in INPUTS)), inputs)

    tasks = {task.name: {"kind": config.kind_of(task.name)} | task.state() for task in predictor.tasks}
    return outputs, predictor.model.trainable_variables, {"tasks": tasks, "max_length": config.max_seq_length}


def refuse_prompts(predictor: Predictor) -> None:
    """Raises UserError for tasks whose input is more than text."""
    for task in predictor.tasks:
        if isinstance(task, PromptTask):
            raise UserError(
                f"{task.name}: a prompted model reads demonstrations beside its text, which only --format electra keeps"
            )


def predictions_of(predictor: Predictor, rows: Encoded, marks: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """The tensors that `Task.answers` reads, by "task.name"; of tagging, those of every token.

    Args:
      rows: int32 [B, L] each, arrays or tensors. marks: the same of spans, where heads read them.
    """
    ids = tf.convert_to_tensor(rows.input_ids)
    count, length = tf.shape(ids)[0], tf.shape(ids)[1]
    found: dict[str, tf.Tensor] = {}
    for number, task in enumerate(predictor.tasks):
        batch = {name: tf.convert_to_tensor(value) for name, value in rows._asdict().items()}
        for name, label in task.labels.items():
            shape = [count, length] if label.per_token else [count] if label.size is None else [count, label.size]
            batch[f"{task.name}/{name}"] = marks[name] if name in marks else tf.zeros(shape, label.dtype)
        if isinstance(task, TaggingTask):
            batch[f"{task.name}/labeled_positions"] = tf.zeros_like(ids) + tf.range(length)
        with kernels.off():
            predictions = predictor.model.predict(batch, number).predictions
        found |= {f"{task.name}.{name}": value for name, value in predictions.items()}
    return found


def possible(predictor: Predictor, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Predictions, what is said of places that no answer may have all alike: float32 has few digits left for them, and
    their order means nothing."""
    found, least = dict(values), -FORBIDDEN / 2
    for scope in (f"{task.name}." for task in predictor.tasks if isinstance(task, QATask)):
        found |= {name: np.maximum(value, least) for name, value in values.items() if name.startswith(scope)}
        starts, ends = f"{scope}start_top_", f"{scope}end_top_"
        if f"{starts}log_probs" in found:
            is_start = found[f"{starts}log_probs"] > least
            is_end = (found[f"{ends}log_probs"] > least) & is_start[..., np.newaxis]
            nothing = {
                f"{ends}log_probs": (is_end, least),
                f"{starts}index": (is_start, 0),
                f"{ends}index": (is_end, 0),
            }
            for name in nothing.keys() & found.keys():  # numbers alone of some formats
                is_possible, otherwise = nothing[name]
                found[name] = np.where(is_possible, found[name], otherwise).astype(found[name].dtype)
    return found
