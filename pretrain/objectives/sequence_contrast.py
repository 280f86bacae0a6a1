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


def contrastive_losses(first: tf.Tensor, second: tf.Tensor, temperature: float) -> tf.Tensor:
    """Per sequence the mean of both directions' cross-entropies (COCO-LM, equation 3).

    Args:
      first, second: float32 [B, H] unit vectors; row i of one belongs to row i of the other.

    Returns:
      float32 [B]; zeros for B = 1, which has no negatives.
    """
    rows = tf.shape(first)[0]
    views = tf.concat([first, second], 0)
    similarity = tf.matmul(views, views, transpose_b=True) / temperature
    similarity = tf.linalg.set_diag(similarity, tf.fill([2 * rows], similarity.dtype.min / 2))
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
        return tf.cast(tf.shape(masked.input_ids)[0], tf.float32)

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
        losses = contrastive_losses(first, second, self.config.scl_temperature)
        numerator, count = tf.reduce_sum(losses), tf.cast(tf.shape(first)[0], tf.float32)
        if self.config.scl_gather:
            numerator = self._gathered_loss(first, second)
        metrics = {"scl_loss": (tf.stop_gradient(numerator), count)}
        return ObjectiveOutput(numerator, metrics | view_metrics(first, second), {})

    def _gathered_loss(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """This replica's share of the loss over the sequences of all replicas.

        Every replica computes the whole loss; only its own vectors carry a gradient, so that the sum of the replicas'
        gradients is that of the whole loss. The value is divided by the replicas, so that their sum is it as well.
        """
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        if replicas == 1:
            return tf.reduce_sum(contrastive_losses(first, second, self.config.scl_temperature))
        rows = first.shape[0]
        own = tf.cast(context.replica_id_in_sync_group, tf.int32) * rows
        everyone = context.all_gather(tf.stop_gradient(tf.stack([first, second], 1)), axis=0)
        indices = (own + tf.range(rows))[:, tf.newaxis]
        everyone = tf.tensor_scatter_nd_update(everyone, indices, tf.stack([first, second], 1))
        whole = tf.reduce_sum(contrastive_losses(everyone[:, 0], everyone[:, 1], self.config.scl_temperature))
        return whole - tf.stop_gradient(whole) * (1.0 - 1.0 / replicas)


def view_metrics(first: tf.Tensor, second: tf.Tensor) -> Metrics:
    """Mean cosine of partners and of others (COCO-LM, Figure 7), retrieval, alignment and uniformity (Wang & Isola)."""
    similarity = tf.stop_gradient(tf.matmul(first, second, transpose_b=True))
    rows = tf.shape(first)[0]
    count = tf.cast(rows, tf.float32)
    partners = tf.linalg.diag_part(similarity)
    pairs = count * (count - 1.0)
    found = tf.cast(tf.equal(tf.argmax(similarity, -1, tf.int32), tf.range(rows)), tf.float32)
    others = 1.0 - tf.eye(rows)
    return {
        "positive_cosine": (tf.reduce_sum(partners), count),
        "negative_cosine": (tf.reduce_sum(similarity * others), pairs),
        "retrieval_at_1": (tf.reduce_sum(found), count),
        "alignment": (tf.reduce_sum(2.0 - 2.0 * partners), count),
        # E exp(-2 |f - f'|^2), whose logarithm is the uniformity
        "uniformity_kernel": (tf.reduce_sum(tf.exp(-2.0 * (2.0 - 2.0 * similarity)) * others), pairs),
    }
