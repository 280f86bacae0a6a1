"""Relative positions in attention: learned or fixed biases of its scores, and turned queries and keys.

`model.positions` lists the schemes. The biases, added to the scaled scores, are a number per head and distance = key
position - query position, [A, 2L - 1] from 1 - L up to L - 1; `between` spreads them over pairs of positions. B batch,
L length, H hidden, A heads, D head size.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.kernels import blocks
from electra_tf2.model.kernels.compilation import with_kernel
from electra_tf2.model.layers import Layer, constant, shape_of, truncated_normal, zeros
from electra_tf2.model.positions import local_bias


class RelativePositionBias(Layer):
    """A learned bias for every head and bucket of distances: one table per network, shared by its layers.

    Args:
      architecture: names the rule that sorts distances into buckets; no sequence is longer than its
        max_position_embeddings.

    >>> sizes = make_architecture("small", {"hidden_size": 128, "relative_positions": "t5"}, 600, None)
    >>> RelativePositionBias("encoder", sizes)(7).shape  # of 2 heads
    TensorShape([2, 13])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        a, bucket = architecture, architecture.positions.bucket
        assert bucket is not None
        self._longest = longest = a.max_position_embeddings
        self._bucket_of = np.array(
            [
                bucket(distance, a.relative_position_buckets, a.relative_position_max_distance)
                for distance in range(1 - longest, longest)
            ],
            np.int32,
        )
        shape = [a.relative_position_buckets, a.num_attention_heads]
        initializer = truncated_normal(a.initializer_range)
        if a.starts_locally:
            far_to_near = sorted(range(1 - longest, longest), key=abs, reverse=True)
            nearest = {int(self._bucket_of[distance + longest - 1]): distance for distance in far_to_near}
            initializer = constant(
                [[local_bias(nearest.get(row, 0), head) for head in range(shape[1])] for row in range(shape[0])]
            )
        self.table = self.weight("relative_attention", shape, initializer)

    def call(self, length: int | tf.Tensor) -> tf.Tensor:
        """float32 [A, 2L - 1] for sequences of this length."""
        buckets = tf.constant(self._bucket_of)[self._longest - length : self._longest + length - 1]
        return tf.transpose(tf.gather(self.table, buckets))


def sloped_bias(slopes: np.ndarray, length: int | tf.Tensor) -> tf.Tensor:
    """float32 [A, 2L - 1]: minus slope x distance, in both directions alike (ALiBi, Press et al. 2022, section 3)."""
    length = tf.cast(length, tf.float32)
    return -tf.constant(slopes)[:, tf.newaxis] * tf.abs(tf.range(1.0 - length, length))


@with_kernel(blocks.between)
def between(by_distance: tf.Tensor, queries: int | tf.Tensor) -> tf.Tensor:
    """[A, n] of n distances in a row -> [1, A, T, n - T + 1]: those of T queries in a row to all keys.

    The first distance is that of the last query to the first key.
    """
    keys = shape_of(by_distance)[1] - queries + 1
    places = queries - 1 - tf.range(queries)[:, tf.newaxis] + tf.range(keys)
    return tf.gather(by_distance, places, axis=1)[tf.newaxis]


class RelativeTerms(NamedTuple):
    """Parts of Transformer-XL's scores that are the same in all layers.

    distances: float32 [2L - 1, H], sines and cosines of query position - key position, from L - 1 down to 1 - L.
    content_bias, distance_bias: float32 [A, D], added to the queries of the two terms (u and v).
    """

    distances: tf.Tensor
    content_bias: tf.Tensor
    distance_bias: tf.Tensor


class TransformerXLTerms(Layer):
    """Sinusoids of distances, and two biases for each head that all layers share (Dai et al. 2019, section 3.3)."""

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        a = architecture
        assert a.positions.distances is not None
        self._frequencies = np.array(a.positions.distances(a.hidden_size), np.float32)
        shape, initializer = [a.num_attention_heads, a.head_size], truncated_normal(a.initializer_range)
        self.content_bias = self.weight("relative_content_bias", shape, initializer, decay=False)
        self.distance_bias = self.weight("relative_distance_bias", shape, initializer, decay=False)

    def call(self, length: int | tf.Tensor) -> RelativeTerms:
        distances = tf.range(tf.cast(length - 1, tf.float32), tf.cast(-length, tf.float32), -1.0)
        angles = distances[:, tf.newaxis] * self._frequencies
        return RelativeTerms(tf.concat([tf.sin(angles), tf.cos(angles)], -1), self.content_bias, self.distance_bias)


def relative_scores(q: tf.Tensor, k: tf.Tensor, relative_key: tf.Tensor, terms: RelativeTerms) -> tf.Tensor:
    """(q_i + u) k_j + (q_i + v) W R_(i-j) (Transformer-XL, Dai et al. 2019, section 3.3): [B, A, L, L].

    Args:
      q, k: queries and keys [B, A, L, D].
      relative_key: W, float32 [H, H].
    """
    r = tf.matmul(tf.cast(terms.distances, q.dtype), tf.cast(relative_key, q.dtype))
    r = tf.reshape(r, [-1, q.shape[1], q.shape[3]])
    u, v = (tf.cast(bias, q.dtype)[:, tf.newaxis] for bias in (terms.content_bias, terms.distance_bias))
    # The distances are the same in all rows, so the batch is part of the product's rows, not broadcast.
    return tf.matmul(q + u, k, transpose_b=True) + shifted(tf.einsum("baid,rad->bair", q + v, r))


def shifted(scores: tf.Tensor) -> tf.Tensor:
    """Moves the entry of distance i - j, at place j - i + L - 1, to (i, j): [B, A, L, 2L - 1] -> [B, A, L, L].

    Row i begins one place earlier than row i - 1. A column more than there are distances, and all rows one after the
    other, and every row begins one place too early for the next one: cutting them into rows of 2L - 1 aligns them.
    """
    rows, heads, length, _ = shape_of(scores)
    flat = tf.reshape(tf.pad(scores, [[0, 0], [0, 0], [0, 0], [0, 1]]), [rows, heads, 2 * length * length])
    flat = flat[:, :, length - 1 : length - 1 + length * (2 * length - 1)]
    return tf.reshape(flat, [rows, heads, length, 2 * length - 1])[..., :length]


class Rotation(NamedTuple):
    """float32 [L, D/2] each: cosine and sine of the angles at every position."""

    cosine: tf.Tensor
    sine: tf.Tensor


def rotation(frequencies: Sequence[float] | np.ndarray, length: int | tf.Tensor) -> Rotation:
    """Angles position x frequency of a sequence of this length."""
    angles = tf.range(tf.cast(length, tf.float32))[:, tf.newaxis] * tf.constant(frequencies)
    return Rotation(tf.cos(angles), tf.sin(angles))


_FITTED = 64  # distances, to either side, on which a local start is fitted
_RIDGE = 0.3


def local_turns(frequencies: Sequence[float], head: int) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of a head's query and key by which `rotated` makes scores like `local_bias`; float64.

    Such scores can be any sum of waves. Amplitudes and phases are a ridge regression of `local_bias`, in which
    distances count by the attention that they are to have: a low score may be wrong as long as it is low.
    """
    distances = np.arange(1 - _FITTED, _FITTED)
    wanted = np.array([local_bias(int(distance), head) for distance in distances])
    angles = np.outer(distances, frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles), np.ones([len(distances), 1])], axis=1)
    counts = np.exp(wanted / 2) + 0.05
    small = _RIDGE * np.eye(waves.shape[1])
    small[-1] = 0.0  # a constant changes no attention
    rows = np.concatenate([waves * counts[:, np.newaxis], small])
    fitted, *_ = np.linalg.lstsq(rows, np.append(wanted * counts, np.zeros(len(small))), rcond=None)
    cosines, sines, _ = np.split(fitted, [len(frequencies), 2 * len(frequencies)])
    return turning_biases(cosines, sines)


def turning_biases(cosines: np.ndarray, sines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of query and key whose score is the sum of cosines [D/2] cos(t_f distance) + sines sin(t_f distance).

    Biases (r, 0) of pair f of the query and (r cos p, r sin p) of the key add r^2 cos(t_f distance + p) to the product.
    """
    size = np.sqrt(np.hypot(cosines, sines) * (2 * len(cosines)) ** 0.5)  # scores are divided by the root of D
    phase = -np.arctan2(sines, cosines)
    return np.append(size, np.zeros_like(size)), np.append(size * np.cos(phase), size * np.sin(phase))


def start_of_turns(architecture: Architecture, theta: float | None = None) -> Callable[..., tf.Tensor]:
    """Initializer of the bias [3 A D] of queries, keys and values: `local_turns` where rotary starts locally, else 0.

    Args:
      theta: base of the angles; None: the architecture's.
    """
    a = architecture
    if a.positions.frequencies is None or not a.starts_locally:
        return zeros
    frequencies = a.positions.frequencies(a.head_size, a.rope_theta if theta is None else theta)
    queries, keys = zip(*(local_turns(frequencies, head) for head in range(a.num_attention_heads)), strict=True)
    return constant(np.concatenate([*queries, *keys, np.zeros(a.hidden_size)]).tolist())


@with_kernel(blocks.rotated)
def rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> tf.Tensor:
    """Turns every pair (i, i + D/2) of queries or keys [B, A, L, D] by its angle (RoFormer, section 3.2.2).

    The paper pairs neighbouring columns; this is the same up to the order of the columns of a kernel.
    """
    first, second = tf.split(x, 2, -1)
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], -1)
