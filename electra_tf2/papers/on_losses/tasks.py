"""Parts that auxiliary tasks have in common: their class, their heads, text that is changed before it is masked."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Dense, Layer, LayerNorm
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Networks, Objective, weighted_mean


class TaskHead(Layer):
    """C numbers: [B, C] of [CLS] states, by dense(H) + tanh, or [B, L, C] of all, by dense(H), gelu and layer norm.

    Args:
      of_sequence: reads [CLS] states.
      input_size: of the states; the network's width if not given.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, 600, None)
    >>> TaskHead("head", sizes, 3, of_sequence=True)(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 3])
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        outputs: int,
        seed: int = 0,
        of_sequence: bool = False,
        input_size: int | None = None,
    ) -> None:
        super().__init__(scope, seed)
        width, initializer = architecture.hidden_size, truncated_normal(architecture.initializer_range)
        activation = "tanh" if of_sequence else "gelu"
        self.dense = Dense(f"{scope}/dense", input_size or width, width, initializer, seed, activation)
        self.layer_norm = None if of_sequence else LayerNorm(f"{scope}/LayerNorm", width)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        inner = self.dense(states[:, 0]) if self.layer_norm is None else self.layer_norm(self.dense(states))
        return tf.cast(self.outputs(inner), tf.float32)


class TaskBatch(NamedTuple):
    """A masked batch, and what tasks did to its sequences before; fields of `MaskedBatch` are its own, too.

    masked: the masked batch.
    labels: task -> int32 [B, ...] labels of `Classification.change_text`.
    task_ids: int32 [B], the task that the step is about, from 1 on; 0: none (use_task_ids).
    """

    masked: MaskedBatch
    labels: dict[str, tf.Tensor]
    task_ids: tf.Tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.masked, name)


class Auxiliary(Objective):
    """A task of `aux_tasks`.

    Class attributes:
      task: its name there. Metrics of a task that changes the text begin with it.
    """

    config: Config
    task: str
    weight = "aux_weight"

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        """Other sequences that the network shall read."""
        del masked
        return ()


class Changed(NamedTuple):
    """Sequences as a task changed them, before they are masked.

    batch: int32 [B, L] of each field of records.
    labels: int32, what was done; -1 where nothing is asked.
    unmaskable: bool [B, L], tokens that must not be masked; None: all may.
    """

    batch: Batch
    labels: tf.Tensor
    unmaskable: tf.Tensor | None = None


class Classification(Auxiliary):
    """A task that changes the text and asks what was done, one of C classes for each label that is not negative.

    Class attributes:
      head_name: of its head's variables.
      of_sequence: the head reads the [CLS] state; false: that of every token.
      states_together: number of states that the head reads as one.
    """

    classes: int
    head_name: str
    of_sequence = True
    states_together = 1

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss, sizes = math.log(self.classes), config.architecture
        scope, width = f"{self.head_name}_predictions", self.states_together * sizes.hidden_size
        self.head = TaskHead(scope, sizes, self.classes, config.seed, self.of_sequence, width)

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Changed:
        """Changes the sequences before they are masked, for everyone.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          candidates: float32 [B, L], 1 at tokens that are not special.
          draw: uniform draws for the rows of this task.
          active: bool scalar: whether it is trained at this step; if not, labels have the same shape and are -1.
        """
        raise NotImplementedError

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(labels_of(masked, self.task) >= 0, tf.float32)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [..., C], of the labels' shape."""
        return self.head(forward.states)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        labels = tf.maximum(labels_of(forward.masked, self.task), 0)
        logits, weights = self.logits(forward), self.token_weights(forward.masked)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        return self.output(forward, losses, {f"{self.task}_accuracy": weighted_mean(correct, weights)})


def labels_of(masked: MaskedBatch, task: str) -> tf.Tensor:
    """int32, the labels of a task that changed the text."""
    assert isinstance(masked, TaskBatch)
    return masked.labels[task]


def integers(draws: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """int32 in [0, number) of uniform draws in [0, 1)."""
    return tf.minimum(tf.cast(draws * tf.cast(number, tf.float32), tf.int32), number - 1)
