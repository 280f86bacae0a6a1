"""Contrast of two views of every row with those of all other rows of a batch.

Where the batch is split, each micro-batch or replica computes the loss of all rows from all views, but only its own
views carry a gradient: these gradients add up to that of the whole loss. Views of other micro-batches come from a first
pass without gradients (gradient caching, Gao et al. 2021; the views are cached here, not the loss's gradient by them).
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf2.model.coco_lm_heads import ContrastHead
from electra_tf2.model.layers import fold_in
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective
from electra_tf2.training.micro_batches import WholeBatch, mapped

_EPSILON = 1e-12  # of the squared norm


def holds_sequence(masked: MaskedBatch) -> tf.Tensor:
    """bool [B], false for rows of padding, which fill up the last batch of an evaluation."""
    return tf.reduce_any(tf.cast(masked.input_mask, tf.bool), -1)


def normalised(views: tf.Tensor) -> tf.Tensor:
    """float32 unit vectors."""
    return tf.math.l2_normalize(tf.cast(views, tf.float32), -1, _EPSILON)


def without_padding(similarity: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """Similarities [R, S] with columns that are not `real`, bool [S], so low that no softmax chooses them."""
    return tf.where(real, similarity, similarity.dtype.min / 2)


class Contrast(Objective):
    """Base of losses that tell the second view of each row from others'."""

    head: ContrastHead | None = None

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(holds_sequence(masked), tf.float32)

    def losses(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """float32 [B], losses of unit vectors [B, H].

        Rows that are not `real`, bool [B], are no negatives; their own losses are not used.
        """
        raise NotImplementedError

    def metrics_of(self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor) -> Metrics:
        """Metrics of the whole batch; arguments as of `losses`."""
        raise NotImplementedError

    def pair(self, forward: Forward) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors of both views."""
        raise NotImplementedError

    def vectors(self, *sequences: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """float32 [B, H] unit vectors, of the [CLS] states of two passes [B, L, H]."""
        states = [sequence[:, 0] for sequence in sequences]
        if self.head is not None:
            states = [self.head(state) for state in states]
        return normalised(states[0]), normalised(states[1])

    def shared(self, forward: Forward) -> tf.Tensor:
        """float32 [B, 2, H]: both views of every row."""
        return tf.stack(self.pair(forward), 1)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        first, second = self.pair(forward)
        real = holds_sequence(forward.masked)
        count = tf.reduce_sum(tf.cast(real, tf.float32))
        numerator = self._gathered_loss(first, second, real, forward.whole)
        metrics = {self.loss_name: (tf.stop_gradient(numerator), count)}
        if forward.whole is None:
            metrics |= self.metrics_of(first, second, real)
        else:
            metrics |= self._share_of_metrics(forward.whole)
        return LossTerm(numerator, metrics, {})

    def _share_of_metrics(self, whole: WholeBatch) -> Metrics:
        """Metrics of the whole batch, of which every micro-batch counts its share."""
        views = whole.shared[self.loss_name]
        shares: Metrics = {}
        for name, (total, count) in self.metrics_of(views[:, 0], views[:, 1], whole.real).items():
            shares[name] = (total * whole.share, count * whole.share)
        return shares

    def _gathered_loss(
        self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor, whole: WholeBatch | None = None
    ) -> tf.Tensor:
        """Loss over all rows.

        Where the batch is split, every micro-batch or replica computes it, so its value counts `share` of it; its
        gradient flows only through this one's own views. With scl_gather the rows are those of all replicas.
        """
        views = tf.stack([first, second], 1)
        if whole is None and self.config.scl_gather:
            whole = _gathered(self.loss_name, views, real)
        if whole is None:
            return self._loss(views, real)
        # The cached views have no gradient: the own ones, which have, take their places.
        row_numbers = (whole.start + tf.range(tf.shape(views)[0]))[:, tf.newaxis]
        all_views = tf.tensor_scatter_nd_update(whole.shared[self.loss_name], row_numbers, views)
        loss = self._loss(all_views, whole.real)
        # The value is loss x share, the gradient that of the loss.
        return loss - tf.stop_gradient(loss) * (1.0 - whole.share)

    def _loss(self, views: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.where(real, self.losses(views[:, 0], views[:, 1], real), 0.0))


def whole_batch(
    objectives: Sequence[Objective],
    forward: Callable[[MaskedBatch, tf.Tensor], Forward],
    masked: MaskedBatch,
    seed: tf.Tensor,
    parts: int,
) -> WholeBatch:
    """Computes the values that micro-batches need of one another (`Objective.shared`), without gradients.

    Args:
      forward: (rows, int32 [2] seed of the dropout) -> the pass that losses read.
      seed: int32 [2], that of `TrainingTask.summed_gradients`, so that the dropout is the same.
      parts: number of micro-batches.
    """

    def shared(rows: MaskedBatch, number: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = forward(rows, fold_in(seed, number))
        values = {}
        for objective in objectives:
            value = objective.shared(outputs)
            if value is not None:
                values[objective.loss_name] = value
        return values

    return WholeBatch(mapped(shared, masked, parts), holds_sequence(masked), tf.constant(0), 1.0 / parts)


def _gathered(name: str, views: tf.Tensor, real: tf.Tensor) -> WholeBatch | None:
    """Gathers the views [B, 2, H] of all replicas; None if there is only one."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return None
    shared = {name: context.all_gather(tf.stop_gradient(views), axis=0)}
    real_everywhere = context.all_gather(tf.cast(real, tf.int32), axis=0) > 0
    start = tf.cast(context.replica_id_in_sync_group, tf.int32) * tf.shape(views)[0]
    return WholeBatch(shared, real_everywhere, start, 1.0 / context.num_replicas_in_sync)
