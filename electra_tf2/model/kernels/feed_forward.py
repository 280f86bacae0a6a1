"""Dense layers in programs of whole steps: the order of their gradients, and activations that are not kept."""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.dtypes import cast_weight
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.products import matrix_product


@differentiable
def product_in_program(x: tf.Tensor, kernel: tf.Tensor) -> Any:
    """x kernel: [T, n] times [n, m], as tf.matmul."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # First the kernel's gradient. Left to XLA, the gradients of all kernels come last, and what they are made of is
        # kept until then.
        to_kernel = tf.matmul(x, upstream, transpose_a=True)
        upstream, to_kernel = materialize(upstream, to_kernel)
        to_x = tf.matmul(upstream, kernel, transpose_b=True)
        return to_x, to_kernel

    return tf.matmul(x, kernel), gradient


def recomputed_feed_forward(first: Any, last: Any, x: tf.Tensor) -> tf.Tensor:
    """last.product(first(x)); the activation between the two layers.Dense is not kept: the gradient computes it again.

    Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 5.
    """

    def activated_product(before: tf.Tensor, bias: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        activated = first.activated(before, bias)
        # Not `product_in_program`: here one pass computes the activation again, and its gradient, before the kernel's.
        return matrix_product(activated, kernel, tf.matmul)

    @differentiable
    def compute(*tensors: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            # Behind a barrier, so that XLA computes the activation again, instead of keeping it from the forward pass,
            # and not before the gradient of this layer has its turn.
            *barred, upstream = materialize(*tensors, upstream)
            with tf.GradientTape() as tape:
                tape.watch(barred)
                value = activated_product(*barred)
            return materialize(*tape.gradient(value, barred, upstream))

        return activated_product(*tensors), gradient

    return compute(first.product(x), first.bias_or_zeros, cast_weight(last.kernel, x.dtype))
