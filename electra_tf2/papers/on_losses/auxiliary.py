"""Auxiliary tasks (On Losses, section 3.2): their class, heads and batches, and those on tokens: TF and TF-IDF."""

import dataclasses

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Dense, Layer, LayerNorm
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.papers.on_losses.tables import inverse_frequencies
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Objective, weighted_mean

HIGHEST = 10.0  # of scaled term frequencies


@dataclasses.dataclass(frozen=True)
class TaskBatch(MaskedBatch):
    """A masked batch whose text was rearranged by tasks before it was masked.

    labels: task -> int32 [B], how it rearranged each row; -1 where the task asks nothing about the row.
    """

    labels: dict[str, tf.Tensor]


def labels_of(masked: MaskedBatch, task: str) -> tf.Tensor:
    """int32 [B], the labels of a task that rearranges the text."""
    assert isinstance(masked, TaskBatch)
    return masked.labels[task]


class Auxiliary(Objective):
    """A task of `aux_tasks`.

    Class attributes:
      task: its name there.
    """

    config: Config
    task: str
    weight = "aux_weight"


class TaskHead(Layer):
    """C numbers: [B, C] of [CLS] states, by dense(H) + tanh, or [B, L, C] of all, by dense(H), gelu and layer norm.

    Args:
      of_sequence: reads [CLS] states.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, 600, None)
    >>> TaskHead("head", sizes, 3, of_sequence=True)(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 3])
    """

    def __init__(self, scope: str, architecture: Architecture, outputs: int, seed: int, of_sequence: bool) -> None:
        super().__init__(scope, seed)
        width = architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        activation = "tanh" if of_sequence else "gelu"
        self.dense = Dense(f"{scope}/dense", width, width, initializer, seed, activation)
        self.layer_norm = None if of_sequence else LayerNorm(f"{scope}/LayerNorm", width)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        if self.layer_norm is None:
            pooled = self.dense(states[:, 0])
            return tf.cast(self.outputs(pooled), tf.float32)
        inner = self.layer_norm(self.dense(states))
        return tf.cast(self.outputs(inner), tf.float32)


class TermFrequency(Auxiliary):
    """Term frequency (TF): number of times that a token occurs in its document. Squared error at every token that is
    not special, of the original tokens; their states may be of others.

    The document is the record, so nothing has to be stored in it. As the paper says, values are scaled to [0, 10]
    between the lowest and the highest of the document; its code scales per sentence, cuts them to integers and counts
    padding.
    """

    task = "tf"
    loss_name = "tf_loss"
    initial_loss = 10.0  # a guess: between 0 and 100, as the text has it

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.head = TaskHead(f"{self.task}_predictions", config.architecture, 1, config.seed, of_sequence=False)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, L], before they are scaled."""
        return frequencies(masked.input_ids, masked.candidates)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        targets = scaled(self.values(masked), masked.candidates)
        predictions = self.head(forward.states)[..., 0]
        losses = tf.math.squared_difference(predictions, targets)
        return self.output(forward, losses, {f"{self.task}_mean": weighted_mean(targets, masked.candidates)})


class TermFrequencyInverse(TermFrequency):
    """The same, weighed by how rare a token is elsewhere (TF-IDF).

    The factor is log(documents / documents that hold the token), of `electra build-table document_frequency`.
    """

    task = "tf_idf"
    loss_name = "tf_idf_loss"

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self._inverse = inverse_frequencies(config.document_frequency_file, config.vocab_file)

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        return super().values(masked) * tf.gather(tf.constant(self._inverse), masked.input_ids)


def frequencies(ids: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """float32 [B, L]: how many of a row's candidates have the id of each token of it."""
    same = tf.cast(ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :], tf.float32)
    return tf.reduce_sum(same * candidates[:, tf.newaxis], -1)


def scaled(values: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Values [B, L] moved to [0, 10] between the lowest and the highest of a row's candidates; 0 if all are alike."""
    inside = candidates > 0
    lowest = tf.reduce_min(tf.where(inside, values, values.dtype.max), -1, keepdims=True)
    highest = tf.reduce_max(tf.where(inside, values, values.dtype.min), -1, keepdims=True)
    span = highest - lowest
    divisor = tf.where(span > 0, span, 1.0)  # never 0, also where the quotient is not taken
    return tf.where(inside & (span > 0), HIGHEST * (values - lowest) / divisor, 0.0)
