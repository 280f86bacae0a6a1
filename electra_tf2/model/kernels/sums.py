"""Sums over some axes of an array, in forms of which XLA makes fast code.

On processors XLA sums a row number by number, and it stores an array before it sums the array's columns. The functions
here put the sum, or most of it, into the pass over memory that computes the array. `part_sums` and `with_bias_gradient`
are for programs of whole steps.
"""

import tensorflow as tf

from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.dtypes import to_float32
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.switch import are_compiled_alone


def row_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the last axis: [..., n] -> [..., 1].

    On processors as a product with a vector of ones: XLA makes it part of the pass that computes `x`.
    """
    if not are_compiled_alone():
        return tf.reduce_sum(x, -1, keepdims=True)
    shape = tf.shape(x)
    ones = tf.ones([shape[-1]], x.dtype)
    sums = tf.linalg.matvec(tf.reshape(x, [-1, shape[-1]]), ones)
    return tf.reshape(sums, tf.concat([shape[:-1], [1]], 0))


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums all axes but the last: [..., n] -> [n]."""
    # `halved_sum` shortens the first axis. Where all sizes are known, all axes but the last become the first.
    if x.shape.is_fully_defined():
        x = tf.reshape(x, [-1, x.shape[-1]])
    return tf.reduce_sum(halved_sum(x), list(range(x.shape.rank - 1)))


def halved_sum(x: tf.Tensor) -> tf.Tensor:
    """Shortens the first axis without changing its sum: [n, ...] -> [n / 64 or more, ...].

    On processors XLA makes the addition of halves part of the pass that computes `x`; before a reduction it would store
    `x`.
    """
    if not are_compiled_alone():
        return x
    for _ in range(6):  # 2^6 = 64
        size = x.shape[0]
        if size is None or size % 2:
            break
        x = x[: size // 2] + x[size // 2 :]
    return x


def bias_gradient(upstream: tf.Tensor) -> tf.Tensor:
    """Sums all axes but the last, [..., n] -> [n], outside of a kernel: as a product, which adds in float32.

    TensorFlow's own gradient of a bias, BiasAddGrad, adds in the type of its argument: sums of 4,096 bfloat16 are then
    off by a tenth. Here only the result is rounded.
    """
    rows = tf.reshape(upstream, [-1, upstream.shape[-1]])
    if not are_compiled_alone():
        return tf.reduce_sum(to_float32(rows), 0)
    count = rows.shape[0] or tf.shape(rows)[0]
    ones = tf.ones([1, count], rows.dtype)
    return to_float32(tf.squeeze(matmul(ones, rows), 0))


def part_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the axes between the first and the last, [n, ..., m] -> [n, m], in the pass that computes `x`.

    The rest of a sum over all axes but the last is left to `joined.sums_at_once`, for many weights together.
    """
    if x.shape.rank == 2:  # no axis lies between: [n, m] -> [1, m]
        return tf.reduce_sum(x, 0, keepdims=True)
    return tf.reduce_sum(x, list(range(1, x.shape.rank - 1)))


def with_bias_gradient(to_x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A gradient [..., n], and its sum over all axes but the last, [n], most of which the same pass computes."""
    partial_sums = part_sums(to_float32(to_x))
    to_x, partial_sums = materialize(to_x, partial_sums)
    return to_x, tf.reduce_sum(partial_sums, 0)
