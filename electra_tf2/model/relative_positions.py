"""Layers of the position schemes t5, coco (learned biases of the scores) and rotary (rotated queries and keys).

`model.positions` lists the schemes. B batch, L length, H hidden, A heads, D head size.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import Positions, Rotation
from electra_tf2.model.initializers import Initializer, constant, truncated_normal, zeros
from electra_tf2.model.kernels import positions as position_kernels
from electra_tf2.model.kernels.compilation import with_kernel
from electra_tf2.model.positions import Bucketed, local_bias, sinusoid_frequencies


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
        a, scheme = architecture, architecture.positions
        assert isinstance(scheme, Bucketed)
        self._longest = longest = a.max_position_embeddings
        self._bucket_of = np.array(
            [
                scheme.bucket(distance, a.relative_position_buckets, a.relative_position_max_distance)
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

    def bias(self, length: int | tf.Tensor) -> tf.Tensor:
        buckets = tf.constant(self._bucket_of)[self._longest - length : self._longest + length - 1]
        return tf.transpose(tf.gather(self.table, buckets))


@with_kernel(position_kernels.rotated)
def rotated(x: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> tf.Tensor:
    """Rotates every pair (i, i + D/2) of queries or keys [B, A, L, D] by its angle (RoFormer, section 3.2.2).

    The paper pairs neighbouring columns; this is the same up to the order of the columns of a kernel.
    """
    first, second = tf.split(x, 2, -1)
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Rotations(Positions):
    """Angles position x frequency, by which pairs (i, i + D/2) of queries and keys are rotated.

    Layers that attend locally have a base of their own, local_rope_theta.
    """

    def _frequencies(self, is_local: bool) -> list[float]:
        a = self.architecture
        theta = (a.local_rope_theta or a.rope_theta) if is_local else a.rope_theta
        return sinusoid_frequencies(a.head_size, theta)

    def rotation(self, length: int | tf.Tensor, is_local: bool) -> Rotation:
        frequencies = np.array(self._frequencies(is_local), np.float32)
        angles = tf.range(tf.cast(length, tf.float32))[:, tf.newaxis] * tf.constant(frequencies)
        cosine, sine = tf.cos(angles), tf.sin(angles)
        return lambda x: rotated(x, cosine, sine)

    def qkv_initializer(self, is_local: bool) -> Initializer:
        """Returns an initializer by `local_rotation_biases` with relative_position_start local, else zeros."""
        a = self.architecture
        if not a.starts_locally:
            return zeros
        biases = (local_rotation_biases(self._frequencies(is_local), head) for head in range(a.num_attention_heads))
        queries, keys = zip(*biases, strict=True)
        return constant(np.concatenate([*queries, *keys, np.zeros(a.hidden_size)]).tolist())


_FITTED = 64  # distances, to either side, on which a local start is fitted
_RIDGE = 0.3


def local_rotation_biases(frequencies: Sequence[float], head: int) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of a head's query and key by which rotated products make scores like `local_bias`; float64.

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
    return biases_of_waves(cosines, sines)


def biases_of_waves(cosines: np.ndarray, sines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Biases [D] of query and key whose score is the sum of cosines [D/2] cos(t_f distance) + sines sin(t_f distance).

    Biases (r, 0) of pair f of the query and (r cos p, r sin p) of the key add r^2 cos(t_f distance + p) to the product.
    """
    size = np.sqrt(np.hypot(cosines, sines) * (2 * len(cosines)) ** 0.5)  # scores are divided by the root of D
    phase = -np.arctan2(sines, cosines)
    return np.append(size, np.zeros_like(size)), np.append(size * np.cos(phase), size * np.sin(phase))
