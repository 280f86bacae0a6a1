"""Base class of heads: a layer on top of the encoder that makes losses and predictions of its states, one a task.

Each kind's head stands in the kind's own file. `Classifier` is what several of them end with. B batch, L length
(differs between batches), H hidden.
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
    labels: name -> [B] or [B, L]; zeros where there are none.
    input_ids: int32 [B, L], what the encoder read.
    """

    sequence: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    labels: dict[str, tf.Tensor]
    input_ids: tf.Tensor | None = None


class HeadOutput(NamedTuple):
    """Output of a head on a batch.

    losses: float32 [B], one per row; the rows of one example have equal parts of its loss. None where an evaluation has
      no loss.
    predictions: name -> [B, ...]; empty when training.
    """

    losses: tf.Tensor | None
    predictions: dict[str, tf.Tensor]


class Head(Layer):
    """Base of heads; variables under "task_specific/<task>" as in the original."""

    # The loss that a head with random weights should have, in words for the user; "" where it hangs on the data.
    expected_loss = ""
    choices = 1  # rows of a batch that lie together and are compared, as the candidates of a question

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """`seeds` of the dropout, None without it."""
        raise NotImplementedError

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, ...], what other programs' heads of the kind say; not every kind has such."""
        raise NotImplementedError


class Classifier(Layer):
    """States to logits: dropout and a dense layer, without a pooler (ELECTRA, section 3.1).

    Args:
      width: of the states.
      config: `classifier` "tanh" or "gelu" puts dropout and a dense layer with that activation before (COCO-LM). With
        head_style modernbert a head as in pre-training is before the dropout.
      last: name of the last layer's variables.
      deep: whether config.classifier counts.
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
