"""Casts between the types of weights, of activations, and of the arithmetic inside of kernels.

Weights are float32. Activations have the run's precision, perhaps bfloat16. Kernels compute in float32 (`to_float32`)
and return the type of their argument (`to_compute_dtype`).
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.barriers import shared_one
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.switch import are_compiled_alone, are_one_program


def to_float32(x: tf.Tensor) -> tf.Tensor:
    """Casts to the type in which kernels compute: float32, or float64 for float64."""
    if x.dtype == tf.float64:
        return x
    return tf.cast(x, tf.float32)


def to_compute_dtype(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts the result of a kernel to the type of activations.

    bfloat16 is rounded by arithmetic of integers: on processors LLVM makes much faster code of it than of XLA's
    conversion (an exponential with dropout: 12 in place of 31 ms, benchmarks/RESULTS.md).
    """
    if are_compiled_alone():
        return rounded(x, dtype)
    return tf.cast(x, dtype)


def rounded(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Rounds to the nearest bfloat16, ties to even; NaN and infinities stay. Other types are cast.

    In programs, too, it hides the cast from XLA, which else would compute further with the float32 before the cast.
    """
    if dtype != tf.bfloat16:
        return tf.cast(x, dtype)
    # bfloat16 is the upper half of float32. Adding 0x7FFF, just under half a unit, carries into that half where the
    # rest is more than half a unit. At exactly half the last bit is added, too: odd numbers go up to even ones.
    bits = tf.bitcast(x, tf.uint32)
    half_width = tf.constant(16, tf.uint32)
    last_bit = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, half_width), tf.constant(1, tf.uint32))
    upper_half = tf.bitwise.right_shift(bits + (tf.constant(0x7FFF, tf.uint32) + last_bit), half_width)
    return tf.bitcast(tf.cast(upper_half, tf.uint16), dtype)


def cast_weight(weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts a weight to the type of activations; within one program XLA casts all weights of a shape together."""
    if not are_one_program() or weight.dtype != tf.float32 or dtype not in (tf.bfloat16, tf.float16):
        return tf.cast(weight, dtype)
    # XLA joins operations on equal shapes that share an array. That is the purpose of the factor 1, which changes no
    # number, and which the written gradient leaves out.
    one = shared_one()

    @differentiable
    def cast(weight: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor]:
            return (to_float32(upstream),)

        return tf.cast(weight * one, dtype), gradient

    return cast(weight)
