"""Attention with keys of distances beside keys of tokens (Transformer-XL, Dai et al. 2019, section 3.3).

Shapes: B batch, L length, H hidden, A heads, D head size.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import AttentionContext, Positions, SelfAttention
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.layers import shape_of
from electra_tf2.model.position_schemes import sinusoid_frequencies


class RelativeAttention(SelfAttention):
    """Scores (q_i + u) k_j + (q_i + v) W R_(i-j). W is a kernel of the layer; u, v and R are those of `Distances`."""

    on_whole_arrays = True

    def __init__(self, scope: str, architecture: Architecture, *arguments: Any, **named: Any) -> None:
        super().__init__(scope, architecture, *arguments, **named)
        hidden = architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        self.relative_key = self.weight("self/relative_key/kernel", [hidden, hidden], initializer)

    def scores(self, q: tf.Tensor, k: tf.Tensor, context: AttentionContext) -> tf.Tensor:
        """Computes (q_i + u) k_j + (q_i + v) W R_(i-j), not yet scaled: [B, A, L, L]."""
        distances = context.positions
        assert isinstance(distances, Distances)
        u = tf.cast(distances.content_bias, q.dtype)[:, tf.newaxis]  # [A, 1, D]
        v = tf.cast(distances.distance_bias, q.dtype)[:, tf.newaxis]  # [A, 1, D]
        sinusoids = tf.cast(distances.sinusoids(context.length), q.dtype)  # R: [2L - 1, H]
        distance_keys = matmul(sinusoids, tf.cast(self.relative_key, q.dtype))  # W R: [2L - 1, H]
        by_content = matmul(q + u, k, transpose_b=True)  # [B, A, L, L]
        by_distance = self._by_distance(q + v, distance_keys)  # [B, A, L, 2L - 1]
        return by_content + shifted(by_distance)

    def _by_distance(self, queries: tf.Tensor, distance_keys: tf.Tensor) -> tf.Tensor:
        """Multiplies queries [B, A, L, D] by the keys [2L - 1, A D] of all distances: [B, A, L, 2L - 1]."""
        rows, heads, length, width = shape_of(queries)
        keys = tf.reshape(distance_keys, [-1, heads, width])  # [2L - 1, A, D]
        keys = tf.transpose(keys, [1, 2, 0])  # [A, D, 2L - 1]
        # All rows of the batch have the same keys, so one product for each head, with the batch among its rows, is
        # faster than a product for each row and head.
        by_head = tf.transpose(queries, [1, 0, 2, 3])  # [A, B, L, D]
        flat = tf.reshape(by_head, [heads, -1, width])  # [A, B L, D]
        products = matmul(flat, keys)  # [A, B L, 2L - 1]
        products = tf.reshape(products, [heads, rows, length, 2 * length - 1])
        return tf.transpose(products, [1, 0, 2, 3])


class Distances(Positions):
    """Sinusoids R of distances, and two biases for each head, u and v, which all layers share."""

    attention_class = RelativeAttention

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        a = architecture
        self._frequencies = np.array(sinusoid_frequencies(a.hidden_size), np.float32)
        shape = [a.num_attention_heads, a.head_size]
        initializer = truncated_normal(a.initializer_range)
        self.content_bias = self.weight("relative_content_bias", shape, initializer, decay=False)
        self.distance_bias = self.weight("relative_distance_bias", shape, initializer, decay=False)

    def sinusoids(self, length: int | tf.Tensor) -> tf.Tensor:
        """float32 [2L - 1, H] of query position - key position, from L - 1 down to 1 - L."""
        distances = tf.range(tf.cast(length - 1, tf.float32), tf.cast(-length, tf.float32), -1.0)
        angles = distances[:, tf.newaxis] * self._frequencies
        return tf.concat([tf.sin(angles), tf.cos(angles)], -1)


def shifted(scores: tf.Tensor) -> tf.Tensor:
    """Moves the entry of distance i - j, at place j - i + L - 1, to (i, j): [B, A, L, 2L - 1] -> [B, A, L, L].

    With L = 3 the rows of scores, and the part of each that is returned, are

        a b c d e    -> c d e
        f g h i k    -> g h i
        l m n o p    -> l m n

    The part of each row begins one place earlier than that of the row above it. No look-up is needed: all rows, one
    after another and each with a zero at its end, are cut into rows that are one place shorter.
    """
    rows, heads, length, _ = shape_of(scores)
    distances = 2 * length - 1
    padded = tf.pad(scores, [[0, 0], [0, 0], [0, 0], [0, 1]])
    flat = tf.reshape(padded, [rows, heads, 2 * length * length])  # a b c d e 0 f g h i k 0 l m n o p 0
    first = length - 1
    flat = flat[:, :, first : first + length * distances]  # c d e 0 f | g h i k 0 | l m n o p
    cut = tf.reshape(flat, [rows, heads, length, distances])
    return cut[..., :length]
