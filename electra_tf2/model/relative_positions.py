"""Layers of the position schemes t5 and coco (learned biases of the scores) and rotary (rotated queries and keys).

`model.position_schemes` lists the schemes.

Shapes: B batch, L length, H hidden, A heads, D head size.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import Positions, Rotation
from electra_tf2.model.initializers import Initializer, constant, truncated_normal, zeros
from electra_tf2.model.kernels import positions as position_kernels
from electra_tf2.model.kernels.switch import with_kernel
from electra_tf2.model.position_schemes import Bucketed, local_bias, sinusoid_frequencies


class LearnedBias(Positions):
    """A learned bias for every head and bucket of distances: one table, shared by all layers of a network.

    Sequences are at most max_position_embeddings long.

    >>> sizes = make_architecture("small", {"hidden_size": 128, "relative_positions": "t5"}, 600, None)
    >>> LearnedBias("encoder", sizes).bias(7).shape  # of 2 heads
    TensorShape([2, 13])
    """

    bias_kind = "learned"

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        a = architecture
        scheme = a.positions
        assert isinstance(scheme, Bucketed)
        self._longest = a.max_position_embeddings
        buckets = []
        for distance in self._distances():
            buckets.append(scheme.bucket(distance, a.relative_position_buckets, a.relative_position_max_distance))
        self._buckets = np.array(buckets, np.int32)  # by distance, in the order of `_distances`
        initializer = truncated_normal(a.initializer_range)
        if a.starts_locally:
            initializer = self._local_start()
        shape = [a.relative_position_buckets, a.num_attention_heads]
        self.table = self.weight("relative_attention", shape, initializer)

    def _distances(self) -> range:
        """All distances, key position - query position, from the least up."""
        return range(1 - self._longest, self._longest)

    def _local_start(self) -> Initializer:
        """Makes the initializer for relative_position_start local.

        Each bucket gets the bias of the shortest distance in it; a bucket without distances that of distance 0.
        """
        nearest: dict[int, int] = {}  # bucket -> shortest distance in it
        for distance, bucket in zip(self._distances(), self._buckets.tolist(), strict=True):
            if bucket not in nearest or abs(distance) <= abs(nearest[bucket]):
                nearest[bucket] = distance
        table = []
        for bucket in range(self.architecture.relative_position_buckets):
            distance = nearest.get(bucket, 0)
            table.append([local_bias(distance, head) for head in range(self.architecture.num_attention_heads)])
        return constant(table)

    def bias(self, length: int | tf.Tensor) -> tf.Tensor:
        # Distance 0 is at index `_longest - 1`; the slice reaches length - 1 distances to either side.
        first = self._longest - length
        buckets = tf.constant(self._buckets)[first : first + 2 * length - 1]  # [2L - 1]
        return tf.transpose(tf.gather(self.table, buckets))  # [A, 2L - 1]


@with_kernel(position_kernels.rotated)
def rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> tf.Tensor:
    """Rotates every pair (i, i + D/2) of queries or keys [B, A, L, D] by its angle (RoFormer, section 3.2.2).

    The paper pairs neighbouring columns; this is the same up to the order of the columns of a kernel.
    """
    first, second = tf.split(x, 2, -1)
    turned_first = first * cosine - second * sine
    turned_second = second * cosine + first * sine
    return tf.concat([turned_first, turned_second], -1)


class Rotations(Positions):
    """Rotates pairs (i, i + D/2) of queries and keys by angles position x frequency (RoFormer, section 3.2.2).

    Local layers may have another base of the frequencies, local_rope_theta.
    """

    def _frequencies(self, is_local: bool) -> list[float]:
        a = self.architecture
        theta = a.rope_theta
        if is_local and a.local_rope_theta:
            theta = a.local_rope_theta
        return sinusoid_frequencies(a.head_size, theta)

    def rotation(self, length: int | tf.Tensor, is_local: bool) -> Rotation:
        frequencies = np.array(self._frequencies(is_local), np.float32)
        positions = tf.range(tf.cast(length, tf.float32))
        angles = positions[:, tf.newaxis] * tf.constant(frequencies)  # [L, D/2]
        cosine = tf.cos(angles)
        sine = tf.sin(angles)
        return lambda x: rotated(x, cosine, sine)

    def qkv_initializer(self, is_local: bool) -> Initializer:
        """Returns zeros, or with relative_position_start local an initializer made of `local_rotation_biases`."""
        a = self.architecture
        if not a.starts_locally:
            return zeros
        frequencies = self._frequencies(is_local)
        query_biases = []
        key_biases = []
        for head in range(a.num_attention_heads):
            query, key = local_rotation_biases(frequencies, head)
            query_biases.append(query)
            key_biases.append(key)
        value_bias = np.zeros(a.hidden_size)
        return constant(np.concatenate([*query_biases, *key_biases, value_bias]).tolist())


_FITTED = 64  # distances, to either side, to which a local start is fitted
_RIDGE = 0.3  # weight of the penalty on amplitudes


def local_rotation_biases(frequencies: Sequence[float], head: int) -> tuple[np.ndarray, np.ndarray]:
    """float64 biases [D] of a head's query and key, for which rotated products are scores like `local_bias`.

    Such scores are sums of waves with these frequencies and free amplitudes and phases, fitted to `local_bias` by ridge
    regression. Distances count by the attention that they are to get: a low score may be wrong as long as it is low.
    """
    distances = np.arange(1 - _FITTED, _FITTED)
    wanted = np.array([local_bias(int(distance), head) for distance in distances])
    angles = np.outer(distances, frequencies)  # [distances, D/2]
    constant_column = np.ones([len(distances), 1])
    waves = np.concatenate([np.cos(angles), np.sin(angles), constant_column], axis=1)  # [distances, D + 1]
    counts = np.exp(wanted / 2) + 0.05
    # Ridge regression as least squares: one more row for each amplitude asks that it be small.
    penalties = _RIDGE * np.eye(waves.shape[1])
    penalties[-1] = 0.0  # the constant may be anything, since softmax does not see it
    rows = np.concatenate([waves * counts[:, np.newaxis], penalties])
    targets = np.append(wanted * counts, np.zeros(len(penalties)))
    amplitudes, *_ = np.linalg.lstsq(rows, targets, rcond=None)
    cosines, sines, _ = np.split(amplitudes, [len(frequencies), 2 * len(frequencies)])
    return wave_biases(cosines, sines)


def wave_biases(cosines: np.ndarray, sines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of query and key whose score is the sum over f of cosines[f] cos(t_f x) + sines[f] sin(t_f x).

    x is the distance and t_f a frequency. Biases (r, 0) of pair f of the query and (r cos p, r sin p) of the key add
    r^2 cos(t_f x + p) to the product.
    """
    head_size = 2 * len(cosines)
    r = np.sqrt(np.hypot(cosines, sines) * head_size**0.5)  # scores will be divided by the root of the head size
    p = -np.arctan2(sines, cosines)
    query = np.append(r, np.zeros_like(r))
    key = np.append(r * np.cos(p), r * np.sin(p))
    return query, key
