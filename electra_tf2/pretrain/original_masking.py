"""Behaviour of the original's code that differs from its paper; used with `compat: original` only."""

import tensorflow as tf


def averaged_updates(sequence: tf.Tensor, updates: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As `masking.update_positions`, but a position that was drawn more than once gets the mean of the ids, floored."""
    rows = tf.shape(sequence)[0]
    length = sequence.shape[1]
    # Rows are laid end to end: position p of row r is place r L + p.
    row_starts = tf.range(rows)[:, tf.newaxis] * length
    places = tf.reshape(positions + row_starts, [-1])  # [B N]

    def sums(values: tf.Tensor) -> tf.Tensor:
        """int32 [B, L]: sums by position of values [B, N] of the draws."""
        flat_values = tf.reshape(values, [-1])
        flat_sums = tf.math.unsorted_segment_sum(flat_values, places, rows * length)
        return tf.reshape(flat_sums, [-1, length])

    is_not_cls = tf.cast(tf.range(length) > 0, tf.int32)  # draws at position 0 do not count
    draws = sums(tf.ones_like(updates)) * is_not_cls  # [B, L], how often each position was drawn
    means = tf.math.floordiv(sums(updates), tf.maximum(1, draws))
    result = tf.where(draws > 0, means, sequence)
    updated = tf.minimum(draws, 1)
    return tf.ensure_shape(result, sequence.shape), tf.ensure_shape(updated, sequence.shape)
