"""Layers of the position schemes t5, coco (learned biases of the scores) and rotary (rotated queries and keys).

`model.position_schemes` lists the schemes. B batch, L length, H hidden, A heads, D head size.
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
    """A learned bias for every head and bucket of distances: one table per network, shared by its layers.

    No sequence is longer than the network's max_position_embeddings.

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
        self._buckets = np.array(buckets, np.int32)  # of the distances, in their order
        initializer = truncated_normal(a.initializer_range)
        if a.starts_locally:
            initializer = self._local_start()
        shape = [a.relative_position_buckets, a.num_attention_heads]
        self.table = self.weight("relative_attention", shape, initializer)

    def _distances(self) -> range:
        """All distances of key position - query position, from the least up."""
        return range(1 - self._longest, self._longest)

    def _local_start(self) -> Initializer:
        """Makes the initializer of relative_position_start local: each bucket's bias is that of its nearest distance.

        A bucket that no distance falls into gets that of distance 0.
        """
        nearest: dict[int, int] = {}
        for distance, bucket in zip(self._distances(), self._buckets.tolist(), strict=True):
            if bucket not in nearest or abs(distance) <= abs(nearest[bucket]):
                nearest[bucket] = distance
        table = []
        for bucket in range(self.architecture.relative_position_buckets):
            distance = nearest.get(bucket, 0)
            table.append([local_bias(distance, head) for head in range(self.architecture.num_attention_heads)])
        return constant(table)

    def bias(self, length: int | tf.Tensor) -> tf.Tensor:
        # Distance 0 is at place `_longest - 1`; from there length - 1 distances to either side.
        first = self._longest - length
        buckets = tf.constant(self._buckets)[first : first + 2 * length - 1]
        return tf.transpose(tf.gather(self.table, buckets))


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
    """Angles position x frequency, by which pairs (i, i + D/2) of queries and keys are rotated.

    Layers that attend locally have a base of their own, local_rope_theta.
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
        angles = positions[:, tf.newaxis] * tf.constant(frequencies)
        cosine = tf.cos(angles)
        sine = tf.sin(angles)
        return lambda x: rotated(x, cosine, sine)

    def qkv_initializer(self, is_local: bool) -> Initializer:
        """Returns an initializer by `local_rotation_biases` with relative_position_start local, else zeros."""
        a = self.architecture
        if not a.starts_locally:
            return zeros
        frequencies = self._frequencies(is_local)
        of_queries = []
        of_keys = []
        for head in range(a.num_attention_heads):
            query, key = local_rotation_biases(frequencies, head)
            of_queries.append(query)
            of_keys.append(key)
        of_values = np.zeros(a.hidden_size)
        return constant(np.concatenate([*of_queries, *of_keys, of_values]).tolist())


_FITTED = 64  # distances, to either side, on which a local start is fitted
_RIDGE = 0.3  # the ridge regression's weight of small amplitudes


def local_rotation_biases(frequencies: Sequence[float], head: int) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of a head's query and key by which rotated products make scores like `local_bias`; float64.

    Such scores are sums of waves of these frequencies, whose amplitudes and phases are free. They are a ridge
    regression of `local_bias`, in which distances count by the attention that they are to have: a low score may be
    wrong as long as it is low.
    """
    distances = np.arange(1 - _FITTED, _FITTED)
    wanted = np.array([local_bias(int(distance), head) for distance in distances])
    angles = np.outer(distances, frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles), np.ones([len(distances), 1])], axis=1)
    counts = np.exp(wanted / 2) + 0.05
    # Least squares with a row more for each amplitude, which asks that it be small: that is ridge regression.
    small = _RIDGE * np.eye(waves.shape[1])
    small[-1] = 0.0  # of the constant, which may be anything, since softmax does not see it
    rows = np.concatenate([waves * counts[:, np.newaxis], small])
    targets = np.append(wanted * counts, np.zeros(len(small)))
    amplitudes, *_ = np.linalg.lstsq(rows, targets, rcond=None)
    cosines, sines, _ = np.split(amplitudes, [len(frequencies), 2 * len(frequencies)])
    return biases_of_waves(cosines, sines)


def biases_of_waves(cosines: np.ndarray, sines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of query and key whose score is the sum of cosines [D/2] cos(t_f distance) + sines sin(t_f distance).

    Biases (r, 0) of pair f of the query and (r cos p, r sin p) of the key add r^2 cos(t_f distance + p) to the product.
    """
    head_size = 2 * len(cosines)
    r = np.sqrt(np.hypot(cosines, sines) * head_size**0.5)  # scores are divided by the root of the head size
    p = -np.arctan2(sines, cosines)
    query = np.append(r, np.zeros_like(r))
    key = np.append(r * np.cos(p), r * np.sin(p))
    return query, key
