"""Kernels of positions in attention: directions, rotations, and biases by distance.

Shapes: B batch, L length, A heads, D head size.
"""

from typing import Any, Literal

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.dtypes import to_float32
from electra_tf2.model.kernels.gradients import differentiable

Direction = Literal["both", "left_to_right", "right_to_left"]


def reaches(direction: Direction, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """bool: whether attention of this direction, which is not "both", goes from queries to keys, given positions."""
    if direction == "left_to_right":
        return keys <= queries
    return keys >= queries


@compiled
def _rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(to_float32(x), 2, -1)
    turned_first = first * cosine - second * sine
    turned_second = second * cosine + first * sine
    return tf.cast(tf.concat([turned_first, turned_second], -1), x.dtype)


@differentiable
def rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> Any:
    """Rotates every pair (i, i + D/2) of [B, A, L, D] by its angle, [L, D/2]; the gradient rotates back."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None, None]:
        return _rotated(upstream, cosine, -sine), None, None

    return _rotated(x, cosine, sine), gradient


def between(by_distance: tf.Tensor, queries: int | tf.Tensor) -> tf.Tensor:
    """Arranges values of n successive distances, [A, n], by query and key: [1, A, T, n - T + 1] for T queries.

    The first distance is that of the last query to the first key. With distances d e f g and 3 queries the result is

        f g
        e f
        d e

    Each row begins one distance earlier than the row above it. No look-up is needed: copies of the distances, one after
    another, are cut into rows that are one place shorter than a copy.
    """
    heads = by_distance.shape[0]
    count = by_distance.shape[1] or tf.shape(by_distance)[1]
    copies = tf.tile(tf.pad(by_distance, [[0, 0], [0, 1]]), [1, queries])  # d e f g 0 d e f g 0 d e f g 0
    first = queries - 1
    values = copies[:, first : first + queries * count]  # f g 0 d | e f g 0 | d e f g
    rows = tf.reshape(values, [1, heads, queries, count])
    return rows[..., : count - queries + 1]
