"""Gated linear units, which feed-forward networks of gated_mlp open with."""

from collections.abc import Callable

import tensorflow as tf

from electra_tf2.model.kernels import feed_forward
from electra_tf2.model.kernels.compilation import with_kernel
from electra_tf2.model.layers import Dense, activation


@with_kernel(feed_forward.gated)
def gated(x: tf.Tensor, bias: tf.Tensor, act: str) -> tf.Tensor:
    """act(a) c of x + bias = [a, c], its two halves (Shazeer 2020, "GLU Variants Improve Transformer", equation 5)."""
    first, second = tf.split(x + bias, 2, -1)
    return activation(act)(first) * second


class GatedDense(Dense):
    """act(x W + b) (x V + c): a gated linear unit, both products as one.

    Args:
      output_size: of each product.
    """

    def __init__(
        self,
        scope: str,
        input_size: int,
        output_size: int,
        initializer: Callable[..., tf.Tensor],
        seed: int,
        act: str,
        has_bias: bool,
    ) -> None:
        super().__init__(scope, input_size, 2 * output_size, initializer, seed, has_bias=has_bias)
        self._act = act

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., input_size] -> [..., output_size], in the type of `x`."""
        return self.activated(self.product(x), self.bias_or_zeros)

    def activated(self, product: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        return gated(product, tf.zeros([self.output_size]) if bias is None else bias, act=self._act)
