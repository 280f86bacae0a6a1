"""Contrast of two views of every row, over all rows of a batch, in however many parts the batch comes.

Every part (micro-batch or replica) computes the loss of all rows from everyone's views, of which only its own carry a
gradient: the sum of the parts' gradients is that of the whole loss. Views of other micro-batches come from a first pass
(gradient caching, Gao et al. 2021; what is cached here are the views, not the loss's gradient by them).
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from electra_tf2.model.layers import fold_in
from electra_tf2.model.other_heads import ContrastHead
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.objective import Forward, LossTerm, Metrics, Objective
from electra_tf2.training.micro_batches import WholeBatch, mapped

_EPSILON = 1e-12  # of the squared norm


def holds_sequence(masked: MaskedBatch) -> tf.Tensor:
    """bool [B], false where a row only fills up a batch of an evaluation."""
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
        """float32 [B] of unit vectors [B, H]; rows that are not `real`, bool [B], mean nothing and are no negatives."""
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
        real, whole = holds_sequence(forward.masked), forward.whole
        numerator = self._gathered_loss(first, second, real, whole)
        count = tf.reduce_sum(tf.cast(real, tf.float32))
        metrics = {self.loss_name: (tf.stop_gradient(numerator), count)}
        if whole is None:
            metrics |= self.metrics_of(first, second, real)
        else:
            views = whole.shared[self.loss_name]
            of_all = self.metrics_of(views[:, 0], views[:, 1], whole.real)
            metrics |= {name: (total * whole.share, count * whole.share) for name, (total, count) in of_all.items()}
        return LossTerm(numerator, metrics, {})

    def _gathered_loss(
        self, first: tf.Tensor, second: tf.Tensor, real: tf.Tensor, whole: WholeBatch | None = None
    ) -> tf.Tensor:
        """These rows' share of the loss over all rows: `share` of its value, and its gradient by their own views.

        With scl_gather all rows are those of all replicas, whose views are gathered here.
        """
        views = tf.stack([first, second], 1)
        if whole is None and self.config.scl_gather:
            whole = _gathered(self.loss_name, views, real)
        if whole is None:
            return self._loss(views, real)
        row_numbers = (whole.start + tf.range(tf.shape(views)[0]))[:, tf.newaxis]
        loss = self._loss(tf.tensor_scatter_nd_update(whole.shared[self.loss_name], row_numbers, views), whole.real)
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
    """Values that micro-batches need of one another (`Objective.shared`), from a pass without gradients.

    Args:
      forward: (rows, int32 [2] seed of the dropout) -> the pass that losses read.
      seed: int32 [2], that of `TrainingTask.summed_gradients`, so that the dropout is the same.
      parts: number of micro-batches.
    """

    def shared(rows: MaskedBatch, number: tf.Tensor) -> dict[str, tf.Tensor]:
        passed = forward(rows, fold_in(seed, number))
        values = {objective.loss_name: objective.shared(passed) for objective in objectives}
        return {name: value for name, value in values.items() if value is not None}

    return WholeBatch(mapped(shared, masked, parts), holds_sequence(masked), tf.constant(0), 1.0 / parts)


def _gathered(name: str, views: tf.Tensor, real: tf.Tensor) -> WholeBatch | None:
    """The views [B, 2, H] of all replicas; None if there is one only."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return None
    shared = {name: context.all_gather(tf.stop_gradient(views), axis=0)}
    real_everywhere = context.all_gather(tf.cast(real, tf.int32), axis=0) > 0
    start = tf.cast(context.replica_id_in_sync_group, tf.int32) * tf.shape(views)[0]
    return WholeBatch(shared, real_everywhere, start, 1.0 / context.num_replicas_in_sync)
