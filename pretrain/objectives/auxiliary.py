"""What auxiliary tasks have in common ("On Losses for Modern Language Models", Aroca-Ouellette & Rudzicz 2020).

An auxiliary task is an objective beside the main one, on the states of the network that is kept: its input is the
corrupted one for ELECTRA, the masked one for BERT. A task may change the sequences before they are masked (`arrange`),
which everything else then sees; what it changed is its label, in `MaskedBatch.labels`. pretrain.auxiliary_schedule says
at which steps it is trained, and changes sequences.
"""

import math

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.layers import Dense, Layer, LayerNorm, activation, truncated_normal
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective, ObjectiveOutput, weighted_mean


class PooledHead(Layer):
    """dense(H) + tanh on the [CLS] state, then C numbers, float32 [B, C]."""

    def __init__(self, scope: str, config: PretrainingConfig, outputs: int) -> None:
        super().__init__(scope, config.seed)
        sizes = config.architecture
        initializer = truncated_normal(sizes.initializer_range)
        self.dense = Dense(f"{scope}/dense", sizes.hidden_size, sizes.hidden_size, initializer, config.seed)
        self.outputs = Dense(f"{scope}/outputs", sizes.hidden_size, outputs, initializer, config.seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 [B, C]."""
        return tf.cast(self.outputs(tf.tanh(self.dense(states[:, 0]))), tf.float32)


class StateHead(Layer):
    """dense(H) + gelu + layer norm, then C numbers of every state.

    Args:
      input_size: of the states, the network's width if not given.
    """

    def __init__(self, scope: str, config: PretrainingConfig, outputs: int, input_size: int | None = None) -> None:
        super().__init__(scope, config.seed)
        sizes = config.architecture
        initializer = truncated_normal(sizes.initializer_range)
        width = sizes.hidden_size
        self.dense = Dense(f"{scope}/dense", input_size or width, width, initializer, config.seed)
        self.activation = activation("gelu")
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", width)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, config.seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, S] -> float32 [B, L, C]."""
        inner = self.layer_norm(self.activation(self.dense.product(states), self.dense.bias))
        return tf.cast(self.outputs(inner), tf.float32)


class Auxiliary(Objective):
    """A task of `aux_tasks`."""

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(f"auxiliary_{self.task}", config, built)
        self.loss_weight = config.aux_weight


class Classification(Auxiliary):
    """One of C classes for each label that `arrange` gave; negative labels do not count.

    Its metrics are its accuracy and the share of its most frequent class among C, against which to read it.
    """

    classes: int
    head: Layer

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(config, built)
        self.initial_loss = math.log(self.classes)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.labels[self.task] >= 0, tf.float32)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [..., C], of the labels' shape."""
        return self.head(forward.trained)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        labels = tf.maximum(forward.masked.labels[self.task], 0)
        logits, weights = self.logits(forward), self.token_weights(forward.masked)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        metrics: Metrics = {f"{self.task}_accuracy": weighted_mean(correct, weights)}
        return self.output(forward, losses, metrics)
