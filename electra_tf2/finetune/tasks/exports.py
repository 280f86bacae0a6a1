"""A task's part of files for other runtimes: what heads predict leaves as it is, and `Task.answers` reads it.

Of a SavedModel tasks also say what its strings are (`Signature`). The writers know no kinds of tasks. B batch, L
length.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:  # a task needs no tensorflow_text
    from electra_tf2.corpus.graph_tokenizer import GraphTokenizer

SAMPLES = (("A first text.", "And a second one, Müller's: 42!"), ("Short.", "Of it."))  # of the self-check


class Signature(NamedTuple):
    """A function of a SavedModel.

    inputs: their types by name; the first axis is the batch's. function: tensors by these names -> answers by name.
    example: an example of a Split -> its inputs, without the batch's axis.
    """

    inputs: dict[str, tf.TensorSpec]
    function: Callable[..., dict[str, tf.Tensor]]
    example: Callable[[Any], Mapping[str, Any]] = dict


def strings(*names: str) -> dict[str, tf.TensorSpec]:
    """Inputs string [B]."""
    return {name: tf.TensorSpec([None], tf.string, name=name) for name in names}


class Predict(Protocol):
    """The head's predictions."""

    def __call__(self, inputs: dict[str, tf.Tensor], **labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """int32 [B, L] input_ids, input_mask, segment_ids, and the labels that are not those of `Exports.no_labels`."""


class Exports:
    """Part of a task (tasks.task.Task)."""

    name: str
    config: FinetuningConfig
    labels: Any
    state: Callable[[], dict[str, Any]]
    parse: Callable[[Sequence[dict[str, Any]], str], Any]
    row_of: Callable[[Any], dict[str, Any]]
    answers: Callable[[Any, Sequence[Any]], list[dict[str, Any]]]
    num_texts = 1  # of an example
    further_inputs: tuple[str, ...] = ()  # labels that tell a trained head something, too: int32 [B, L]
    prompts = False  # whether its head is the pre-trained language model's, as config.prompt asks for

    def facts(self) -> dict[str, Any]:
        """Describes the task in an exported file."""
        return {"kind": self.config.kind_of(self.name)} | self.state()

    def no_labels(self, input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Labels for a head that predicts: zeros, by name, for input_ids int32 [B, L]."""
        rows, length = tf.unstack(tf.shape(input_ids))
        found = {}
        for name, label in self.labels.items():
            further = [length] if label.per_token else [label.size] if label.size else []
            found[name] = tf.zeros([rows, *further], label.dtype)
        return found

    def samples(self, texts: Sequence[tuple[str, str]]) -> Any:
        """A Split on which exported files are held against `answers`, with an example of each two texts.

        Raises:
          EmptyText: there is no answer to one.
        """
        rows = [self.row_of(pair if self.num_texts == 2 else pair[0]) for pair in texts]
        return self.parse(rows, "samples")

    def of_batch(self, outputs: dict[str, np.ndarray], batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The head's predictions on a batch (finetune.batching) from what an exported file says of its rows."""
        del batch
        return outputs

    def signature(self, tokenizer: "GraphTokenizer", predict: Predict) -> Signature:
        """The function of a SavedModel, strings in and answers out. Raises UserError: a kind of task that has none."""
        raise UserError(f"{self.name}: there is no signature for a task of this kind: try --format onnx")

    def served_numbers(self, split: Any, predictions: Sequence[Any]) -> list[dict[str, Any]]:
        """Answers that `signature` must give for each example, by the names that both have; its check."""
        return self.answers(split, predictions)
