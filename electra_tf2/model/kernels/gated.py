"""Kernels of gated linear units: gelu(a) c, where x + b is a beside c."""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.compilation import (
    bias_gradient,
    compiled,
    differentiable,
    to_compute_dtype,
    to_float32,
)
from electra_tf2.model.kernels.cpu import normal_cdf, normal_cdf_and_density


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
def gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """gelu(a) c of x + bias = [a, c]: [..., 2n] and [2n] -> [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = (_gradient_of_activated, _gradient_of_factor)
        to_x = tf.concat([part(upstream, x, bias) for part in parts], -1)
        return to_x, bias_gradient(to_x)

    return _gated_gelu(x, bias), gradient
