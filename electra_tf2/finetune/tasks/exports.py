"""A task's part of files for other runtimes: the numbers of its answers, and functions of strings for a SavedModel.

The exports know no kinds of tasks; a new kind says here what its answers are. B batch, L length.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.util.errors import UserError

# Inputs of a function by name, each a string [B], and the function.
Signature = tuple[tuple[str, ...], Callable[..., dict[str, tf.Tensor]]]
Predict = Callable[
    [dict[str, tf.Tensor], dict[str, tf.Tensor]], dict[str, tf.Tensor]
]  # (inputs, labels) -> predictions


class StringTokenizer(Protocol):
    """Strings to rows of ids, as tensors of a graph (the SavedModel's tokenizer)."""

    max_length: int  # tokens of a row, at most, special ones included
    special: Any

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """string [N] -> int32 [N, (pieces)], without special tokens."""

    def rows(self, texts: tf.Tensor, second: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """string [B] (twice for pairs) -> int32 [B, L] input_ids, input_mask, segment_ids."""

    def padded(self, parts: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Rows of parts with special tokens around them, as tensors of one length."""

    def tokens(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """string [B, L]; "" for padding."""


class Exports:
    """Part of a task (tasks.task.Task)."""

    name: str
    config: FinetuningConfig
    labels: Any
    state: Callable[[], dict[str, Any]]
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

    def answer_outputs(self, outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The numbers of the answers, by name, from the head's predictions on a batch: what exports give out."""
        return outputs

    def comparable(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`answer_outputs` of which all numbers mean something, to compare those of two runtimes."""
        return outputs

    def signature(self, tokenizer: StringTokenizer, predict: Predict) -> Signature:
        """The function of a SavedModel, strings in and answers out. Raises UserError: there is none for this task.

        Args:
          predict: (inputs, labels) -> the head's predictions.
        """
        raise UserError(f"{self.name}: there is no signature for a task of this kind: try --format onnx")

    def served_numbers(self, split: Any, predictions: Sequence[dict[str, np.ndarray]]) -> list[dict[str, Any]]:
        """The numbers among what `signature` says of each example, by name, from predictions: its check."""
        del split, predictions
        return []
