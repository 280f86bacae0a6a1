"""Sequence contrast: a corrupted sequence and a crop of the original are alike, others are not (COCO-LM, section 3.2).

Cosine similarity of the [CLS] states, softmax over the 2B - 2 other views and the partner, both directions.
"""

import math

import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model.heads import ContrastHead
from pretrain.masking import MaskedBatch
from pretrain.objectives.base import Forward, Metrics, Objective, ObjectiveOutput

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
    """L_SCL over the sequences of a replica (or micro-batch), or of all replicas with scl_gather."""

    loss_name = "scl_loss"

    def __init__(self, config: PretrainingConfig) -> None:
        super().__init__("sequence_contrast", config.seed)
        self.config = config
        self.loss_weight = config.scl_weight
        self.initial_loss = math.log(max(1, 2 * config.train_batch_size - 1))
        self.head = None
        if config.scl_head == "mlp_ln":
            self.head = ContrastHead("contrast_predictions", config.architecture, config.seed)

    def normalizer(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(_real(masked), tf.float32))

    def views(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors of the corrupted sequences and of the crops."""
        assert forward.states is not None and forward.crop_states is not None
        states = [forward.states[:, 0], forward.crop_states[:, 0]]
        if self.head is not None:
            states = [self.head(state) for state in states]
        return normalised(states[0]), normalised(states[1])

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        del training
        first, second = self.views(forward)
        real = _real(forward.masked)
        numerator = (
            self._gathered_loss(first, second, real) if self.config.scl_gather else self._loss(first, second, real)
        )
        count = tf.reduce_sum(tf.cast(real, tf.float32))
        metrics = {"scl_loss": (tf.stop_gradient(numerator), count)}
        return ObjectiveOutput(numerator, metrics | view_metrics(first, second, real), {})

    def _loss(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        losses = contrastive_losses(first, second, self.config.scl_temperature, real)
        return tf.reduce_sum(tf.where(real, losses, 0.0))

    def _gathered_loss(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """This replica's share of the loss over the sequences of all replicas.

        Every replica computes the whole loss; only its own vectors carry a gradient, so that the sum of the replicas'
        gradients is that of the whole loss. The value is divided by the replicas, so that their sum is it as well.
        """
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        if replicas == 1:
            return self._loss(first, second, real)
        rows = first.shape[0]
        own = tf.cast(context.replica_id_in_sync_group, tf.int32) * rows
        everyone = context.all_gather(tf.stop_gradient(tf.stack([first, second], 1)), axis=0)
        indices = (own + tf.range(rows))[:, tf.newaxis]
        everyone = tf.tensor_scatter_nd_update(everyone, indices, tf.stack([first, second], 1))
        everyone_real = context.all_gather(tf.cast(real, tf.int32), axis=0) > 0
        whole = self._loss(everyone[:, 0], everyone[:, 1], everyone_real)
        return whole - tf.stop_gradient(whole) * (1.0 - 1.0 / replicas)


def _real(masked: MaskedBatch) -> tf.Tensor:
    """bool [B]: rows that hold a sequence."""
    return tf.reduce_any(tf.cast(masked.input_mask, tf.bool), -1)


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
