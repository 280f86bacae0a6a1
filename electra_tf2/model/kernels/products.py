"""Matrix products of activations: `matmul` is tf.matmul with correctly rounded bfloat16."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.dtypes import to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.switch import are_on, are_one_program
from electra_tf2.util import machine


def matmul(x: tf.Tensor, y: tf.Tensor, transpose_a: bool = False, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies matrices as tf.matmul does, and rounds products of bfloat16 on every processor.

    On processors without units for bfloat16 TensorFlow computes the product in float32 and cuts off 16 bits. Results
    are then nearer to 0 by half a unit on average, and gradients shrink with every layer. Rounding takes no longer
    (benchmarks/RESULTS.md). Every product of activations goes through this function (tests/model/test_products.py).

    Args:
      x, y: their axes but the last two are equal.
    """
    # XLA rounds the products of its programs itself.
    would_be_cut = x.dtype == tf.bfloat16 and not are_one_program() and not _has_bfloat16_units()
    if not would_be_cut:
        return tf.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    if are_on():
        return _rounded_matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    # With kernels off the graph may be saved for other programs, which do not know our gradients.
    return _matmul_in_float32(x, y, transpose_a, transpose_b)


def _has_bfloat16_units() -> bool:
    """True if the device that computes the products, the processor or a GPU, multiplies bfloat16 itself."""
    return machine.this_processor().has_bfloat16 or bool(tf.config.list_physical_devices("GPU"))


@differentiable
def _rounded_matmul(x: tf.Tensor, y: tf.Tensor, transpose_a: bool, transpose_b: bool) -> Any:
    """Multiplies bfloat16 in float32 and rounds. TensorFlow's gradient would keep both factors in float32."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # For z = x y: dx = dz y^T and dy = x^T dz. Where a factor was transposed, so is its gradient.
        if transpose_a:
            to_x = _matmul_in_float32(y, upstream, transpose_b, True)
        else:
            to_x = _matmul_in_float32(upstream, y, False, not transpose_b)
        if transpose_b:
            to_y = _matmul_in_float32(upstream, x, True, transpose_a)
        else:
            to_y = _matmul_in_float32(x, upstream, not transpose_a, False)
        return to_x, to_y

    return _matmul_in_float32(x, y, transpose_a, transpose_b), gradient


def _matmul_in_float32(x: tf.Tensor, y: tf.Tensor, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
    """Multiplies in float32; tf.cast rounds to the nearest bfloat16."""
    wide = tf.matmul(to_float32(x), to_float32(y), transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(wide, tf.bfloat16)


def matrix_product(x: tf.Tensor, kernel: tf.Tensor, times: Callable[..., tf.Tensor] = matmul) -> tf.Tensor:
    """[..., n] times [n, m], one product for all leading axes.

    Args:
      times: (matrix, matrix) -> their product.
    """
    flat = times(tf.reshape(x, [-1, x.shape[-1]]), kernel)
    sizes = []
    for axis, size in enumerate(x.shape[:-1]):
        if size is None:  # known when the graph runs
            size = tf.shape(x)[axis]
        sizes.append(size)
    return tf.reshape(flat, [*sizes, kernel.shape[1]])
