"""Attention to a window of neighbours, as a mask on the scores. A heads, L length."""

import tensorflow as tf

from electra_tf2.model.kernels.positions import Direction, reaches
from electra_tf2.model.kernels.whole_attention import MASKED_SCORE
from electra_tf2.model.layers import shape_of


def within(by_distance: tf.Tensor, window: int, direction: Direction) -> tf.Tensor:
    """Adds a mask to biases by distance, for keys beyond the window or against the direction.

    Args:
      by_distance: float32 [1 or A, 2L - 1], from `attention.Positions.bias`.
      window: distance of the farthest key that is seen.
    """
    length = (shape_of(by_distance)[1] + 1) // 2
    distances = tf.range(1 - length, length)  # [2L - 1], key position - query position
    is_seen = tf.abs(distances) <= window
    if direction != "both":
        is_seen &= reaches(direction, tf.constant(0), distances)
    mask = tf.where(is_seen, tf.zeros([], by_distance.dtype), MASKED_SCORE)
    return by_distance + mask
