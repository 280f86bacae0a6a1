"""Sequence contrast: a corrupted sequence and a crop of the original are alike, others are not (COCO-LM, section 3.2).

Cosine similarity of the [CLS] states, softmax over the 2B - 2 other views and the partner, both directions.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.heads import ContrastHead
from electra_tf2.pretrain.cropping import CroppedBatch, crop
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective, ObjectiveOutput, WholeBatch

_EPSILON = 1e-12  # of the squared norm


def normalised(views: tf.Tensor) -> tf.Tensor:
    """float32 unit vectors."""
    return tf.math.l2_normalize(tf.cast(views, tf.float32), -1, _EPSILON)


def contrastive_losses(
    first: tf.Tensor, second: tf.Tensor, temperature: float, real: tf.Tensor | None = None
) -> tf.Tensor:
    """Per sequence the mean of both directions' cross-entropies (COCO-LM, equation 3).

    Args:
      first, second: float32 [B, H] unit vectors; row i of one belongs to row i of the other.
      real: bool [B], false where a row only fills up a batch of an evaluation: no negative; its loss means nothing.

    Returns:
      float32 [B]; zeros for B = 1, which has no negatives.
    """
    rows = tf.shape(first)[0]
    views = tf.concat([first, second], 0)
    similarity = tf.matmul(views, views, transpose_b=True) / temperature
    never = similarity.dtype.min / 2
    similarity = tf.linalg.set_diag(similarity, tf.fill([2 * rows], never))
    if real is not None:
        similarity = tf.where(tf.concat([real, real], 0), similarity, never)
    partner = tf.concat([tf.range(rows, 2 * rows), tf.range(rows)], 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(partner, similarity)
    return 0.5 * (losses[:rows] + losses[rows:])


class SequenceContrast(Objective):
    """L_SCL over the sequences of a replica, or of all replicas with scl_gather, in however many parts they come.

    Every part (micro-batch or replica) computes the loss of all rows from everyone's views, of which only its own carry
    a gradient: the sum of the parts' gradients is that of the whole loss. Views of other micro-batches come from a
    first pass (gradient caching, Gao et al. 2021; what is cached here are the views, not the loss's gradient by them).
    """

    loss_name = "scl_loss"
    shown: Sequence[str] = ("positive_cosine", "negative_cosine")

    def __init__(self, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__("sequence_contrast", config, built)
        self.loss_weight = config.scl_weight
        self.initial_loss = math.log(max(1, 2 * config.train_batch_size - 1))
        self.head = None
        if config.scl_head == "mlp_ln":
            self.head = ContrastHead("contrast_predictions", config.architecture, config.seed)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.holds_sequence, tf.float32)

    def views(self, masked: MaskedBatch) -> Sequence[CroppedBatch]:
        return [crop(self.config, masked)]

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors of the corrupted sequences and of the crops."""
        return self.vectors(forward.states, forward.views[self.loss_name][0].sequence)

    def vectors(self, *sequences: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors, of the [CLS] states of two passes [B, L, H]."""
        states = [sequence[:, 0] for sequence in sequences]
        if self.head is not None:
            states = [self.head(state) for state in states]
        return normalised(states[0]), normalised(states[1])

    def shared(self, forward: Forward) -> tf.Tensor:
        """float32 [B, 2, H]: both views of every row."""
        return tf.stack(self.pair(forward), 1)

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        first, second = self.pair(forward)
        real, whole = forward.masked.holds_sequence, forward.whole
        numerator = self._gathered_loss(first, second, real, whole)
        count = tf.reduce_sum(tf.cast(real, tf.float32))
        metrics = {self.loss_name: (tf.stop_gradient(numerator), count)}
        if whole is None:
            metrics |= self.metrics_of(first, second, real)
        else:
            views = whole.shared[self.loss_name]
            of_all = self.metrics_of(views[:, 0], views[:, 1], whole.real)
            metrics |= {name: (total * whole.share, count * whole.share) for name, (total, count) in of_all.items()}
        return ObjectiveOutput(numerator, metrics, {})

    def metrics_of(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        return view_metrics(first, second, real)

    def _gathered_loss(
        self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor, whole: WholeBatch | None = None
    ) -> tf.Tensor:
        """These rows' share of the loss over everyone's sequences: its gradient by their views, part of its value.

        Where the rows are a whole replica's, everyone's views are gathered here, if other replicas count.
        """
        views = tf.stack([first, second], 1)
        if whole is None and self.config.scl_gather:
            whole = _gathered(self.loss_name, views, real)
        if whole is None:
            return self._loss(views, real)
        places = (whole.start + tf.range(tf.shape(views)[0]))[:, tf.newaxis]
        loss = self._loss(tf.tensor_scatter_nd_update(whole.shared[self.loss_name], places, views), whole.real)
        return loss - tf.stop_gradient(loss) * (1.0 - whole.share)

    def _loss(self, views: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        losses = contrastive_losses(views[:, 0], views[:, 1], self.config.scl_temperature, real)
        return tf.reduce_sum(tf.where(real, losses, 0.0))


def _gathered(name: str, views: tf.Tensor, real: tf.Tensor) -> WholeBatch | None:
    """The views [B, 2, H] of all replicas; None if there is one only."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return None
    shared = {name: context.all_gather(tf.stop_gradient(views), axis=0)}
    everyone_real = context.all_gather(tf.cast(real, tf.int32), axis=0) > 0
    start = tf.cast(context.replica_id_in_sync_group, tf.int32) * tf.shape(views)[0]
    return WholeBatch(shared, everyone_real, start, 1.0 / context.num_replicas_in_sync)


def view_metrics(first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
    """Mean cosine of partners and of others (COCO-LM, Figure 7), retrieval, alignment and uniformity (Wang & Isola)."""
    similarity = tf.stop_gradient(tf.matmul(first, second, transpose_b=True))
    rows = tf.shape(first)[0]
    weights = tf.cast(real, tf.float32)
    count = tf.reduce_sum(weights)
    partners = tf.linalg.diag_part(similarity) * weights
    pairs = count * (count - 1.0)
    nearest = tf.argmax(tf.where(real, similarity, -2.0), -1, tf.int32)
    found = tf.cast(tf.equal(nearest, tf.range(rows)), tf.float32) * weights
    others = (1.0 - tf.eye(rows)) * weights * weights[:, tf.newaxis]
    return {
        "positive_cosine": (tf.reduce_sum(partners), count),
        "negative_cosine": (tf.reduce_sum(similarity * others), pairs),
        "retrieval_at_1": (tf.reduce_sum(found), count),
        "alignment": (2.0 * count - 2.0 * tf.reduce_sum(partners), count),
        # E exp(-2 |f - f'|^2), whose logarithm is the uniformity
        "uniformity_kernel": (tf.reduce_sum(tf.exp(-2.0 * (2.0 - 2.0 * similarity)) * others), pairs),
    }
