"""Behaviour of the original's code that differs from its paper; used with `compat: original` only."""

import tensorflow as tf


def averaged_updates(sequence: tf.Tensor, updates: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`masking.update_positions`, but a position that is drawn more than once gets the floor of the mean of the ids."""
    rows = tf.shape(sequence)[0]
    length = sequence.shape[1]
    # The place of every draw in all rows, laid end to end.
    row_starts = tf.range(rows)[:, tf.newaxis] * length
    places = tf.reshape(positions + row_starts, [-1])

    def sums(values: tf.Tensor) -> tf.Tensor:
        """int32 [B, L]: sums of the draws' values [B, N] by position."""
        flat = tf.reshape(values, [-1])
        return tf.reshape(tf.math.unsorted_segment_sum(flat, places, rows * length), [-1, length])

    is_no_cls = tf.cast(tf.range(length) > 0, tf.int32)
    draws = sums(tf.ones_like(updates)) * is_no_cls
    means = tf.math.floordiv(sums(updates), tf.maximum(1, draws))
    result = tf.where(draws > 0, means, sequence)
    updated = tf.minimum(draws, 1)
    return tf.ensure_shape(result, sequence.shape), tf.ensure_shape(updated, sequence.shape)
