"""Base class of heads: layers on top of the encoder that make losses and predictions, one for each task.

The head of a kind of task stands in the kind's file. Several end with a `Classifier`. B batch, L length (differs
between batches), H hidden.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.model.heads import PredictionHead
from electra_tf2.model.initializers import glorot_uniform
from electra_tf2.model.layers import Dense, Layer, SeedStream, activation, dropout


class HeadInput(NamedTuple):
    """Input of a head.

    sequence: [B, L, H], the encoder's last layer, in the compute type.
    input_mask, segment_ids: int32 [B, L].
    labels: [B] or [B, L] by name, zeros if there are none.
    input_ids: int32 [B, L].
    """

    sequence: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    labels: dict[str, tf.Tensor]
    input_ids: tf.Tensor | None = None


class HeadOutput(NamedTuple):
    """Output of a head on a batch.

    losses: float32 [B], one per row; the rows of an example have equal parts of its loss. None: an evaluation has no
      loss.
    predictions: [B, ...] by name; empty in training.
    """

    losses: tf.Tensor | None
    predictions: dict[str, tf.Tensor]


class Head(Layer):
    """Base of heads; variables under "task_specific/<task>" as in the original."""

    # The loss to expect with random weights, in words for the user; "": it depends on the data.
    expected_loss = ""
    choices = 1  # rows of a batch that lie together and are compared, as the candidates of a question

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Computes losses and predictions. seeds: of the dropout; None: without dropout."""
        raise NotImplementedError

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """Computes float32 [B, ...], the logits of a head of this kind in other programs, if they have such heads."""
        raise NotImplementedError


class Classifier(Layer):
    """Maps states to logits by dropout and a dense layer, without a pooler (ELECTRA, section 3.1).

    Args:
      width: width of the states.
      config: `classifier` "tanh" or "gelu" puts dropout and a dense layer with that activation first (COCO-LM).
        `head_style` "modernbert" puts a head as in pre-training first.
      last: name of the last layer's variables.
      deep: whether `classifier` has an effect.
    """

    def __init__(
        self,
        scope: str,
        width: int,
        outputs: int,
        config: FinetuningConfig,
        seed: int,
        last: str = "dense",
        deep: bool = True,
    ) -> None:
        super().__init__(scope, seed)
        hidden_size = config.architecture.hidden_size
        self.dropout_rate = config.classifier_dropout
        self.prediction_head = None
        self.inner = None
        if config.architecture.head_style == "modernbert":
            self.prediction_head = PredictionHead(f"{scope}/head", config.architecture, seed, width)
            width = hidden_size
        elif deep and config.classifier != "linear":
            self.inner = Dense(f"{scope}/inner", width, hidden_size, glorot_uniform, seed)
            self.activation = activation(config.classifier)
            width = hidden_size
        self.last = Dense(f"{scope}/{last}", width, outputs, glorot_uniform, seed)

    def call(self, states: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """[B, width] or [B, L, width] -> float32 [B, outputs] or [B, L, outputs]."""
        if self.prediction_head is not None:
            states = self.prediction_head(states)
        states = dropout(states, self.dropout_rate, seeds)
        if self.inner is not None:
            states = dropout(self.activation(self.inner(states)), self.dropout_rate, seeds)
        return tf.cast(self.last(states), tf.float32)
