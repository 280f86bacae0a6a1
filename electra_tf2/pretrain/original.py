"""Behaviour of the original's code that differs from its paper; used with `compat: original` only."""

import tensorflow as tf


def averaged_updates(sequence: tf.Tensor, updates: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`masking.update_positions`, but a position that is drawn more than once gets the floor of the mean of the ids."""
    rows = tf.shape(sequence)[0]
    length = sequence.shape[1]
    flat = tf.reshape(positions + tf.range(rows)[:, tf.newaxis] * length, [-1])

    def sums(values: tf.Tensor) -> tf.Tensor:
        """int32 [B, L]: sums of the draws' values [B, N] by position."""
        return tf.reshape(tf.math.unsorted_segment_sum(tf.reshape(values, [-1]), flat, rows * length), [-1, length])

    draws = sums(tf.ones_like(updates)) * tf.cast(tf.range(length) > 0, tf.int32)
    means = tf.math.floordiv(sums(updates), tf.maximum(1, draws))
    result = tf.where(draws > 0, means, sequence)
    return tf.ensure_shape(result, sequence.shape), tf.ensure_shape(tf.minimum(draws, 1), sequence.shape)
