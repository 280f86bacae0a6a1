"""Kernel of gated linear units with gelu: gelu(a) c of x + bias = [a, c], its two halves.

With g the gradient of the result, a's is g c gelu'(a) and c's is g gelu(a).
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.cpu import normal_cdf, normal_cdf_and_density
from electra_tf2.model.kernels.dtypes import to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.sums import bias_gradient


def _halves(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """a and c."""
    activated, factor = tf.split(to_float32(x) + to_float32(bias), 2, -1)
    return activated, factor


@compiled
def _gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    activated, factor = _halves(x, bias)
    return to_compute_dtype(activated * normal_cdf(activated) * factor, x.dtype)


# The gradient is two kernels: of one that computed both halves XLA would store what they have in common.


@compiled
def _gradient_of_activated(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    activated, factor = _halves(x, bias)
    cdf, density = normal_cdf_and_density(activated)
    slope = cdf + activated * density
    return to_compute_dtype(to_float32(upstream) * slope * factor, x.dtype)


@compiled
def _gradient_of_factor(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    activated, _ = _halves(x, bias)
    cdf, _ = normal_cdf_and_density(activated)
    return to_compute_dtype(to_float32(upstream) * (activated * cdf), x.dtype)


@differentiable
def gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """[..., 2n] and [2n] -> [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        to_activated = _gradient_of_activated(upstream, x, bias)
        to_factor = _gradient_of_factor(upstream, x, bias)
        to_x = tf.concat([to_activated, to_factor], -1)
        return to_x, bias_gradient(to_x)

    return _gated_gelu(x, bias), gradient
