"""Auxiliary tasks (On Losses, section 3.2): base class, head and batch, and the tasks on tokens, TF and TF-IDF.

Shapes: B rows, L length, H hidden, C outputs of a head.
"""

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

HIGHEST = 10.0  # to which term frequencies are scaled


@dataclasses.dataclass(frozen=True)
class TaskBatch(MaskedBatch):
    """A masked batch whose text was rearranged by tasks before it was masked.

    labels: task -> int32 [B], how it rearranged each row; -1 in rows that it does not ask about.
    """

    labels: dict[str, tf.Tensor]


def task_labels(masked: MaskedBatch, task: str) -> tf.Tensor:
    """int32 [B], the labels of a task that rearranges the text."""
    assert isinstance(masked, TaskBatch)
    return masked.labels[task]


class Auxiliary(Objective):
    """Base of the auxiliary tasks.

    Class attributes:
      task: name in aux_tasks.
    """

    config: Config
    task: str
    weight = "aux_weight"


class TaskHead(Layer):
    """Two dense layers: on [CLS] states, [B, L, H] -> [B, C], or on all states, [B, L, H] -> [B, L, C].

    On [CLS] states the first has a tanh; on all states gelu and layer norm.

    Args:
      outputs: C.
      reads_cls: true reads [CLS] states, false all states.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, 600, None)
    >>> TaskHead("head", sizes, 3, reads_cls=True)(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 3])
    """

    def __init__(self, scope: str, architecture: Architecture, outputs: int, seed: int, reads_cls: bool) -> None:
        super().__init__(scope, seed)
        width = architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        activation = "tanh" if reads_cls else "gelu"
        self.dense = Dense(f"{scope}/dense", width, width, initializer, seed, activation)
        self.layer_norm = None
        if not reads_cls:
            self.layer_norm = LayerNorm(f"{scope}/LayerNorm", width)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        if self.layer_norm is None:
            pooled = self.dense(states[:, 0])
            return tf.cast(self.outputs(pooled), tf.float32)
        inner = self.layer_norm(self.dense(states))
        return tf.cast(self.outputs(inner), tf.float32)


class TermFrequency(Auxiliary):
    """Term frequency (TF): how often a token occurs in its document. Squared error at every token that is not special.

    It asks about the original tokens, though some states are those of replacements. The document is the record, so
    nothing has to be stored in it. As in the paper, values are scaled to [0, 10] between the lowest and the highest of
    the document; the authors' code scales by sentence, cuts values to integers and counts padding.
    """

    task = "tf"
    loss_name = "tf_loss"
    initial_loss = 10.0  # a guess: it lies between 0 and 100, depending on the text

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.head = TaskHead(f"{self.task}_predictions", config.architecture, 1, config.seed, reads_cls=False)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return masked.candidates

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 [B, L]: values of the tokens before they are scaled."""
        return frequencies(masked.input_ids, masked.candidates)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        masked = forward.masked
        targets = scaled(self.values(masked), masked.candidates)  # [B, L]
        predictions = self.head(forward.states)[..., 0]  # [B, L]
        losses = tf.math.squared_difference(predictions, targets)
        return self.output(forward, losses, {f"{self.task}_mean": weighted_mean(targets, masked.candidates)})


class TermFrequencyInverse(TermFrequency):
    """TF-IDF: term frequency times log(documents / documents that hold the token).

    `electra build-table document_frequency` counts the documents.
    """

    task = "tf_idf"
    loss_name = "tf_idf_loss"

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self._inverse = inverse_frequencies(config.document_frequency_file, config.vocab_file)

    def values(self, masked: MaskedBatch) -> tf.Tensor:
        return super().values(masked) * tf.gather(tf.constant(self._inverse), masked.input_ids)


def frequencies(ids: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """float32 [B, L]: for each token, how many candidates of the row have the same id."""
    same = tf.cast(ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :], tf.float32)  # [B, L, L]
    return tf.reduce_sum(same * candidates[:, tf.newaxis], -1)


def scaled(values: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Scales values [B, L] to [0, 10] between the lowest and the highest of a row's candidates; 0 if all are equal."""
    inside = candidates > 0
    lowest = tf.reduce_min(tf.where(inside, values, values.dtype.max), -1, keepdims=True)  # [B, 1]
    highest = tf.reduce_max(tf.where(inside, values, values.dtype.min), -1, keepdims=True)  # [B, 1]
    span = highest - lowest
    divisor = tf.where(span > 0, span, 1.0)  # never 0, not even where the quotient is unused
    return tf.where(inside & (span > 0), HIGHEST * (values - lowest) / divisor, 0.0)
