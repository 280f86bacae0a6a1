"""Quick thoughts: which second half belongs to which first half of a record? ("On Losses", QT; Logeswaran & Lee 2018)

The network that is kept reads both halves of every original sequence by themselves. As in the paper there is no
temperature, and the halves are told from those of other records in one direction only.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import ContrastHead
from electra_tf2.pretrain.cropping import CroppedBatch, halves
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective
from electra_tf2.pretrain.objectives.sequence_contrast import SequenceContrast


def following_losses(first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """float32 [B]: cross-entropy of the cosines of each first half with all second halves, unit vectors [B, H].

    Args:
      real: bool [B], false where a row only fills up a batch: nobody's second half; its loss means nothing.
    """
    similarity = tf.matmul(first, second, transpose_b=True)
    similarity = tf.where(real, similarity, similarity.dtype.min / 2)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(first)[0]), similarity)


class QuickThoughts(SequenceContrast):
    """The loss over the sequences of a replica, in however many micro-batches they come, as its base class's."""

    task, loss_name = "qt", "qt_loss"
    shown = ("qt_retrieval_at_1",)

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        Objective.__init__(self, "quick_thoughts", config, built)
        self.loss_weight = config.aux_weight
        self.initial_loss = math.log(config.train_batch_size)
        self.head = ContrastHead("quick_thoughts_predictions", config.architecture, config.seed)

    def views(self, masked: MaskedBatch) -> Sequence[CroppedBatch]:
        return halves(self.config, masked)

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        return self.vectors(*(encoded.sequence for encoded in forward.views[self.loss_name]))

    def metrics_of(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        similarity = tf.where(real, tf.matmul(first, second, transpose_b=True), -2.0)
        found = tf.equal(tf.argmax(similarity, -1, tf.int32), tf.range(tf.shape(first)[0]))
        weights = tf.cast(real, tf.float32)
        return {"qt_retrieval_at_1": (tf.reduce_sum(tf.cast(found, tf.float32) * weights), tf.reduce_sum(weights))}

    def _loss(self, views: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.where(real, following_losses(views[:, 0], views[:, 1], real), 0.0))
