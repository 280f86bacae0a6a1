"""Kernels behind a dense layer's product: bias, gelu, gated gelu.

g(y) = y Phi(y) and g'(y) = Phi(y) + y phi(y), with Phi and phi the normal distribution's cumulative and density
function. A bias is added in the same pass, where it costs nothing.

Shapes: x [..., n], bias [n]. `upstream` is the gradient of a kernel's result, `to_x` that of its argument x.
"""

import math
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.dtypes import rounded, to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.sums import bias_gradient, with_bias_gradient

# A bias alone.


@differentiable
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Kernel of layers.add_bias."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return upstream, tf.cast(bias_gradient(upstream), bias.dtype)

    return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient


@differentiable
def add_bias_in_program(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """`add_bias` in programs of whole steps."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, to_bias = with_bias_gradient(upstream)
        return upstream, tf.cast(to_bias, bias.dtype)

    return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient


# The normal distribution.


def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    """Phi(x)."""
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


def normal_cdf_and_density(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Phi(x) and phi(x).

    In float32 both are made of one exponential, which takes most of the time: Phi is exp(-x^2 / 2) times a polynomial
    of t = 1 / (1 + p |x|), exact to 8e-8 (Abramowitz and Stegun 1964, 7.1.26).
    """
    exponential = tf.exp(-0.5 * tf.square(x))
    density = exponential * (1.0 / math.sqrt(2.0 * math.pi))
    if x.dtype == tf.float64:
        return normal_cdf(x), density
    t = 1.0 / (1.0 + (0.3275911 * 0.5**0.5) * tf.abs(x))
    polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * exponential * polynomial  # Phi(-|x|)
    return tf.where(x < 0.0, tail, 1.0 - tail), density


# gelu.


@compiled
def _gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    y = to_float32(x) + to_float32(bias)
    return to_compute_dtype(y * normal_cdf(y), x.dtype)


@compiled
def _gelu_gradient(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    y = to_float32(x) + to_float32(bias)
    cdf, density = normal_cdf_and_density(y)
    return to_compute_dtype(to_float32(upstream) * (cdf + y * density), x.dtype)


@differentiable
def gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Kernel of layers.gelu."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        to_x = _gelu_gradient(upstream, x, bias)
        return to_x, bias_gradient(to_x)

    return _gelu(x, bias), gradient


@differentiable
def gelu_in_program(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """`gelu` in programs of whole steps."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        y = to_float32(x) + to_float32(bias)
        cdf, density = normal_cdf_and_density(y)
        to_x = to_float32(upstream) * (cdf + y * density)
        return with_bias_gradient(rounded(to_x, x.dtype))

    y = to_float32(x) + to_float32(bias)
    return to_compute_dtype(y * normal_cdf(y), x.dtype), gradient


# Gated gelu: g(a) c with [a, c] = x + bias. Of the result's gradient u, a gets u c g'(a), and c gets u g(a).


def _halves(x: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """a and c, float32 [..., n] each, of x [..., 2n]."""
    a, c = tf.split(to_float32(x) + to_float32(bias), 2, -1)
    return a, c


@compiled
def _gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    a, c = _halves(x, bias)
    return to_compute_dtype(a * normal_cdf(a) * c, x.dtype)


# The gradient is two kernels. Of one that computed both halves XLA would store what they have in common.


@compiled
def _activated_gradient(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    a, c = _halves(x, bias)
    cdf, density = normal_cdf_and_density(a)
    slope = cdf + a * density
    return to_compute_dtype(to_float32(upstream) * slope * c, x.dtype)


@compiled
def _factor_gradient(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    a, _ = _halves(x, bias)
    cdf, _ = normal_cdf_and_density(a)
    return to_compute_dtype(to_float32(upstream) * (a * cdf), x.dtype)


@differentiable
def gated_gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Kernel of gated.gated_gelu: [..., 2n] and [2n] -> [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        to_a = _activated_gradient(upstream, x, bias)
        to_c = _factor_gradient(upstream, x, bias)
        to_x = tf.concat([to_a, to_c], -1)
        return to_x, bias_gradient(to_x)

    return _gated_gelu(x, bias), gradient
