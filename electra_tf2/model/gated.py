"""Gated linear units, which feed-forward networks of gated_mlp open with."""

from typing import Any

import tensorflow as tf

from electra_tf2.model.initializers import Initializer
from electra_tf2.model.kernels.compilation import (
    bias_gradient,
    compiled,
    differentiable,
    to_compute_dtype,
    to_float32,
    with_kernel,
)
from electra_tf2.model.kernels.cpu import normal_cdf, normal_cdf_and_density
from electra_tf2.model.layers import Dense, add_bias


@compiled
def _gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(to_float32(x) + to_float32(bias), 2, -1)
    return to_compute_dtype(first * normal_cdf(first) * second, x.dtype)


# Two kernels, as XLA would store what one would compute for both.


@compiled
def _gradient_of_activated(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(to_float32(x) + to_float32(bias), 2, -1)
    cdf, density = normal_cdf_and_density(first)
    return to_compute_dtype(to_float32(upstream) * (cdf + first * density) * second, x.dtype)


@compiled
def _gradient_of_factor(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    first = tf.split(to_float32(x) + to_float32(bias), 2, -1)[0]
    return to_compute_dtype(to_float32(upstream) * (first * normal_cdf_and_density(first)[0]), x.dtype)


@differentiable
def fused_gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """The kernel of `gated_gelu`: [..., 2n] and [2n] -> [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = (_gradient_of_activated, _gradient_of_factor)
        to_x = tf.concat([part(upstream, x, bias) for part in parts], -1)
        return to_x, bias_gradient(to_x)

    return _gated_gelu(x, bias), gradient


@with_kernel(fused_gated_gelu)
def gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """gelu(a) c of x + bias = [a, c], its two halves (Shazeer 2020, "GLU Variants Improve Transformer", equation 5)."""
    first, second = tf.split(x + bias, 2, -1)
    return first * 0.5 * (1.0 + tf.math.erf(first * 0.5**0.5)) * second


class GatedDense(Dense):
    """act(x W + b) (x V + c): a gated linear unit, both products as one (Shazeer 2020, "GLU Variants", equation 5).

    Args:
      output_size: of each product.
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
        bias = self.bias_or_zeros if bias is None else bias
        if self._is_gelu:
            return gated_gelu(product, bias)
        first, second = tf.split(product, 2, -1)
        of_first, of_second = tf.split(bias, 2)
        return self._activation(first, of_first) * add_bias(second, of_second)
