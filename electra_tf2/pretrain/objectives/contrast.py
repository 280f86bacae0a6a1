"""Contrast: two views of a row are alike, those of different rows are not.

The loss compares all rows of a batch. Where the batch is split, each micro-batch or replica computes the loss of all
rows, but only its own vectors carry a gradient: these gradients add up to that of the whole loss. The vectors of other
micro-batches come from a first pass without gradients. (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size
under Memory Limited Setup", cache the loss's gradient with respect to the vectors; here the vectors are cached.)

Shapes: B rows at hand, W rows of the whole batch, L length, H hidden.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf2.model.coco_lm_heads import ContrastHead
from electra_tf2.model.layers import fold_in
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective, WholeBatch
from electra_tf2.training.micro_batches import mapped

_EPSILON = 1e-12  # added to squared norms


def holds_sequence(masked: MaskedBatch) -> tf.Tensor:
    """bool [B], false for rows of padding, which fill up the last batch of an evaluation."""
    return tf.reduce_any(tf.cast(masked.input_mask, tf.bool), -1)


def normalised(vectors: tf.Tensor) -> tf.Tensor:
    """float32 unit vectors [..., H]."""
    return tf.math.l2_normalize(tf.cast(vectors, tf.float32), -1, _EPSILON)


def without_padding(similarity: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """Similarities [R, S], so low in columns that are not `real`, bool [S], that no softmax chooses them."""
    return tf.where(real, similarity, similarity.dtype.min / 2)


class Contrast(Objective):
    """Base of losses that tell the second view of each row from those of other rows."""

    head: ContrastHead | None = None

    # What a subclass defines.

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors of both views."""
        raise NotImplementedError

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """float32 [W], losses of unit vectors [W, H].

        Rows that are not `real`, bool [W], are no negatives; their own losses are not used.
        """
        raise NotImplementedError

    def contrast_metrics(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        """Metrics of the whole batch; arguments as of `losses`."""
        raise NotImplementedError

    # What all have in common.

    def cls_vectors(self, first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors from the [CLS] states of two passes, [B, L, H] each."""
        first = first[:, 0]  # [B, H]
        second = second[:, 0]
        if self.head is not None:
            first = self.head(first)
            second = self.head(second)
        return normalised(first), normalised(second)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(holds_sequence(masked), tf.float32)

    def compared_values(self, forward: Forward) -> tf.Tensor:
        """float32 [B, 2, H]: the vectors of both views of every row."""
        return tf.stack(self.pair(forward), 1)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        first, second = self.pair(forward)
        real = holds_sequence(forward.masked)
        count = tf.reduce_sum(tf.cast(real, tf.float32))
        loss = self._loss(tf.stack([first, second], 1), real, forward.whole)
        metrics = {self.loss_name: (tf.stop_gradient(loss), count)}
        if forward.whole is None:
            metrics |= self.contrast_metrics(first, second, real)
        else:
            metrics |= self._share_of_metrics(forward.whole)
        return LossTerm(loss, metrics, {})

    def _loss(self, vectors: tf.Tensor, real: tf.Tensor, whole: WholeBatch | None) -> tf.Tensor:
        """Sums the losses of all rows; where the batch is split, the value is `whole.share` of that.

        Args:
          vectors: float32 [B, 2, H], of these rows.
        """
        if whole is None and self.config.scl_gather:
            whole = _gathered(self.loss_name, vectors, real)
        if whole is None:
            return self._summed_losses(vectors, real)
        # Vectors of other rows are cached and have no gradient. Those at hand, which have one, take their places.
        row_indices = whole.start + tf.range(tf.shape(vectors)[0])
        all_vectors = tf.tensor_scatter_nd_update(whole.compared[self.loss_name], row_indices[:, tf.newaxis], vectors)
        loss = self._summed_losses(all_vectors, whole.real)
        # The value is loss x share, the gradient that of the loss.
        return loss - tf.stop_gradient(loss) * (1.0 - whole.share)

    def _summed_losses(self, vectors: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        losses = self.losses(vectors[:, 0], vectors[:, 1], real)  # [W]
        return tf.reduce_sum(tf.where(real, losses, 0.0))

    def _share_of_metrics(self, whole: WholeBatch) -> Metrics:
        """Metrics of the whole batch, of which every micro-batch counts its share."""
        vectors = whole.compared[self.loss_name]  # [W, 2, H]
        metrics = self.contrast_metrics(vectors[:, 0], vectors[:, 1], whole.real)
        shares: Metrics = {}
        for name, (numerator, denominator) in metrics.items():
            shares[name] = (numerator * whole.share, denominator * whole.share)
        return shares


def whole_batch(
    objectives: Sequence[Objective],
    forward: Callable[[MaskedBatch, tf.Tensor], Forward],
    masked: MaskedBatch,
    seed: tf.Tensor,
    micro_batches: int,
) -> WholeBatch:
    """Computes what micro-batches need of one another (`Objective.compared_values`), without gradients.

    Args:
      forward: (rows, int32 [2] seed of the dropout) -> forward pass.
      seed: int32 [2], the one that `TrainingTask.summed_gradients` gets, so that the dropout is the same.
      micro_batches: their number.
    """

    def compared_values(rows: MaskedBatch, index: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = forward(rows, fold_in(seed, index))
        values = {}
        for objective in objectives:
            value = objective.compared_values(outputs)
            if value is not None:
                values[objective.loss_name] = value
        return values

    return WholeBatch(
        compared=mapped(compared_values, masked, micro_batches),
        real=holds_sequence(masked),
        start=tf.constant(0),
        share=1.0 / micro_batches,
    )


def _gathered(name: str, vectors: tf.Tensor, real: tf.Tensor) -> WholeBatch | None:
    """Gathers the vectors [B, 2, H] of all replicas; None if there is only one."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return None
    all_vectors = context.all_gather(tf.stop_gradient(vectors), axis=0)  # [W, 2, H]
    real_everywhere = context.all_gather(tf.cast(real, tf.int32), axis=0) > 0  # [W]
    replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
    return WholeBatch(
        compared={name: all_vectors},
        real=real_everywhere,
        start=replica * tf.shape(vectors)[0],
        share=1.0 / replicas,
    )
