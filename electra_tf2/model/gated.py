"""Gated linear units: the first layer of feed-forward networks with gated_mlp."""

import tensorflow as tf

from electra_tf2.model.initializers import Initializer
from electra_tf2.model.kernels import activations
from electra_tf2.model.kernels.switch import with_kernel
from electra_tf2.model.layers import Dense, add_bias


@with_kernel(activations.gated_gelu)
def gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """gelu(a) c, where a and c are the halves of x + bias: [..., 2n] -> [..., n].

    Shazeer 2020, "GLU Variants Improve Transformer", equation 5.
    """
    activated, factor = tf.split(x + bias, 2, -1)
    return activated * 0.5 * (1.0 + tf.math.erf(activated * 0.5**0.5)) * factor


class GatedDense(Dense):
    """act(x W + b) (x V + c): a gated linear unit, whose kernels W and V are one variable (Shazeer 2020, equation 5).

    Args:
      output_size: width of each of the two products.
    """

    def __init__(
        self,
        scope: str,
        input_size: int,
        output_size: int,
        initializer: Initializer,
        seed: int,
        act: str,
        has_bias: bool,
    ) -> None:
        super().__init__(scope, input_size, 2 * output_size, initializer, seed, act, has_bias)
        self._is_gelu = act == "gelu"

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., input_size] -> [..., output_size], in the type of `x`."""
        return self.activated(self.product(x), self.bias_or_zeros)

    def activated(self, product: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        if bias is None:
            bias = self.bias_or_zeros
        if self._is_gelu:
            return gated_gelu(product, bias)
        activated, factor = tf.split(product, 2, -1)
        activated_bias, factor_bias = tf.split(bias, 2)
        return self._activation(activated, activated_bias) * add_bias(factor, factor_bias)
