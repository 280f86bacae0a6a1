"""Kernels of positions in attention: directions, rotations, and biases by distance."""

from typing import Any, Literal

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled, differentiable, to_float32

Direction = Literal["both", "left_to_right", "right_to_left"]


def reaches(direction: Direction, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Tells whether attention of this direction, not "both", goes from queries to keys, given their positions: bool."""
    return keys <= queries if direction == "left_to_right" else keys >= queries


@compiled
def _rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(to_float32(x), 2, -1)
    turned = tf.concat([first * cosine - second * sine, second * cosine + first * sine], -1)
    return tf.cast(turned, x.dtype)


@differentiable
def rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> Any:
    """Rotates every pair (i, i + D/2) of [B, A, L, D] by its angle, [L, D/2]; the gradient rotates back."""
    return _rotated(x, cosine, sine), lambda upstream: (_rotated(upstream, cosine, -sine), None, None)


def between(by_distance: tf.Tensor, queries: int | tf.Tensor) -> tf.Tensor:
    """Spreads n distances in a row, [A, n], over T queries in a row and all keys: [1, A, T, n - T + 1].

    The first distance is that of the last query to the first key. Row i begins one place earlier than row i - 1: copies
    of the distances, each with a place more, are cut into rows without it.
    """
    heads, count = by_distance.shape[0], by_distance.shape[1] or tf.shape(by_distance)[1]
    copies = tf.tile(tf.pad(by_distance, [[0, 0], [0, 1]]), [1, queries])
    rows = copies[:, queries - 1 : queries - 1 + queries * count]
    return tf.reshape(rows, [1, heads, queries, count])[..., : count - queries + 1]
