"""Uniform draws that are the same numbers with and without XLA, and on every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    import tensorflow

_MANTISSA = 0x7FFFFF  # the lowest 23 bits, those that TensorFlow's own kernels use; XLA's take the highest
_ONE = 0x3F800000  # the bits of 1.0


def uniform(
    shape: Sequence[int] | tensorflow.Tensor, seed: tensorflow.Tensor, lowest: float = 0.0
) -> tensorflow.Tensor:
    """Draws float32 [*shape] in [lowest, 1) as a function of int32 [2] `seed`.

    The numbers are those of tf.random.stateless_uniform outside of XLA, also inside, where that draws the same bits but
    makes other numbers of them.
    """
    bits = tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")
    from_one = tf.bitcast(tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(bits, _MANTISSA), _ONE), tf.float32)
    draws = from_one - 1.0
    return draws * (1.0 - lowest) + lowest if lowest else draws
