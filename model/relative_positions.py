"""Relative position buckets and their learned bias (T5, Raffel et al. 2020, section 2.1; COCO-LM, section 4).

One table [buckets, A] per network, shared by its layers, added to the scaled attention scores. The buckets are a
constant of the length, computed once in numpy.
"""

import numpy as np
import tensorflow as tf

from model.layers import Layer, truncated_normal


def t5_buckets(distance: np.ndarray, buckets: int, max_distance: int) -> np.ndarray:
    """Bucket of key position - query position, T5's rule: half the buckets per direction, exact below a quarter."""
    half, exact = buckets // 2, buckets // 4
    n = np.abs(distance)
    far = np.log(np.maximum(n, 1) / exact) / np.log(max_distance / exact) * (half - exact)
    bucket = np.where(n < exact, n, np.minimum(half - 1, exact + np.floor(far)))
    return (bucket + np.where(distance > 0, half, 0)).astype(np.int32)


def coco_buckets(distance: np.ndarray, buckets: int, max_distance: int) -> np.ndarray:
    """The rule of COCO-LM's code: symmetric about the middle, rounded up; the last bucket is never used."""
    half, exact = buckets // 2, buckets // 4
    n = np.abs(distance)
    far = np.log(np.maximum(n, 1) / exact) / np.log((max_distance - 1) / exact) * (half - 1 - exact)
    bucket = np.where(n < exact, n, np.minimum(half - 1, exact + np.ceil(far)))
    return (np.sign(distance) * bucket + half - 1).astype(np.int32)


_RULES = {"t5": t5_buckets, "coco": coco_buckets}


class RelativePositionBias(Layer):
    """The learned bias of a network's attention scores.

    Args:
      rule: "t5" or "coco".
      max_length: no sequence is longer.
    """

    def __init__(
        self,
        scope: str,
        rule: str,
        buckets: int,
        max_distance: int,
        num_heads: int,
        max_length: int,
        initializer_range: float,
        seed: int = 0,
    ) -> None:
        super().__init__(scope, seed)
        distances = np.arange(max_length)[np.newaxis, :] - np.arange(max_length)[:, np.newaxis]
        self._buckets = _RULES[rule](distances, buckets, max_distance)
        self.table = self.weight("relative_attention", [buckets, num_heads], truncated_normal(initializer_range))

    def call(self, length: int | tf.Tensor) -> tf.Tensor:
        """float32 [1, A, L, L] for sequences of this length."""
        buckets = tf.constant(self._buckets)[:length, :length]
        return tf.transpose(tf.gather(self.table, buckets), [2, 0, 1])[tf.newaxis]
