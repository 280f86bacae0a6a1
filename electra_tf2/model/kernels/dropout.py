"""Dropout, whose random bits are a hash of seed and place, computed in the pass that uses them.

So no mask is drawn, stored or read: the gradient computes the same hash again. Dropout needs no better randomness than
such a hash has (tests/model/test_kernels.py).
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.gradients import differentiable


def _mixed(x: tf.Tensor) -> tf.Tensor:
    """Finaliser of MurmurHash3: every bit of the result depends on every bit of x, uint32."""
    x = _folded(x, 16) * tf.constant(0x85EBCA6B, tf.uint32)
    x = _folded(x, 13) * tf.constant(0xC2B2AE35, tf.uint32)
    return _folded(x, 16)


def _folded(x: tf.Tensor, bits: int) -> tf.Tensor:
    """x ^ (x >> bits)."""
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32)))


def random_bits(places: Sequence[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Hashes seed and place to uint32.

    As in SplitMix, the seed, int32 [2], chooses the start and the step of an arithmetic sequence modulo 2^32, whose
    members are mixed.

    Args:
      places: terms whose sum modulo 2^32 is the place, uint32 of shapes that broadcast. Each is multiplied by the step
        before they are summed: their sum would be an array that depends on shapes alone, which compilers evaluate on
        the host and carry along as a constant.
    """
    words = tf.bitcast(seed, tf.uint32)
    step = _mixed(words[1])
    start = _mixed(tf.bitwise.bitwise_xor(words[0], step))
    odd_step = 2 * step + 1  # an odd step leads 2^32 places to 2^32 different members
    member = start
    for place in places:
        member += place * odd_step
    return _mixed(member)


def places_in(shape: tf.Tensor) -> list[tf.Tensor]:
    """Makes uint32 terms, one for each axis, whose sum counts 0, 1, 2, ... modulo 2^32 in the order of memory."""
    terms = []
    stride = tf.constant(1, tf.uint32)  # from one index of an axis to the next
    later_axes: list[int] = []  # sizes of 1, along which a term broadcasts
    for size in reversed(tf.unstack(shape)):
        term = tf.bitcast(tf.range(size), tf.uint32) * stride
        terms.append(tf.reshape(term, [-1, *later_axes]))
        stride *= tf.cast(size, tf.uint32)
        later_axes.append(1)
    terms.reverse()
    return terms


def are_kept(shape: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """bool of this shape: what dropout of this rate and seed, int32 [2], keeps."""
    # The bits are uniform in [0, 2^32), so below this threshold with a probability of the rate.
    threshold = tf.constant(round(rate * 2**32), tf.uint32)
    return random_bits(places_in(shape), seed) >= threshold


def dropped_out(x: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """x / (1 - rate) where x is kept, else 0; for use inside of kernels. Its gradient is itself, of the upstream."""
    if rate == 0.0:
        return x
    kept = are_kept(tf.shape(x), seed, rate)
    scaled = x * tf.constant(1.0 / (1.0 - rate), x.dtype)
    return tf.where(kept, scaled, tf.zeros([], x.dtype))


_dropped_out = compiled(dropped_out)


@differentiable
def dropout(x: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """Kernel of layers.dropped_out."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return _dropped_out(upstream, seed, rate=rate), None

    return _dropped_out(x, seed, rate=rate), gradient
