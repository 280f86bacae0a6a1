"""Uniform draws that are the same numbers with and without XLA, and on every device."""

from collections.abc import Sequence

import tensorflow as tf

_MANTISSA = 0x7FFFFF  # the lowest 23 bits, those that TensorFlow's own kernels use; XLA's take the highest
_ONE = 0x3F800000  # the bits of 1.0


def uniform(shape: Sequence[int] | tf.Tensor, seed: tf.Tensor, lowest: float = 0.0) -> tf.Tensor:
    """Draws float32 [*shape] in [lowest, 1) as a function of int32 [2] `seed`.

    The numbers are those of tf.random.stateless_uniform outside of XLA, also inside, where that draws the same bits but
    makes other numbers of them.
    """
    bits = tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")
    from_one = tf.bitcast(tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(bits, _MANTISSA), _ONE), tf.float32)
    draws = from_one - 1.0
    return draws * (1.0 - lowest) + lowest if lowest else draws


def row_noise(draws: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """Float32 [B, *shape], uniform in (0, 1), as a function of two draws of each row, float32 [B, 2]: for draws too
    many to be kept."""
    seeds = tf.bitcast(draws, tf.int32)
    return tf.map_fn(lambda seed: uniform(shape, seed, 1e-30), seeds, fn_output_signature=tf.float32)
