"""Kernels of feed-forward networks other than BERT's: a squared relu, gated linear units.

model.kernels.blocks has gelu, and says what a kernel is.
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.blocks import normal_cdf, normal_cdf_and_density
from electra_tf2.model.kernels.compilation import bias_gradient, differentiable, narrow, wide, xla

# relu(x + b)^2 (So et al. 2021, "Primer", section 4.1).


@xla
def _relu2(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return narrow(tf.square(tf.nn.relu(wide(x) + wide(bias))), x.dtype)


@xla
def _relu2_gradient(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return narrow(wide(upstream) * 2.0 * tf.nn.relu(wide(x) + wide(bias)), x.dtype)


@differentiable
def relu2(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """relu(x + bias)^2; x [..., n], bias [n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        to_x = _relu2_gradient(upstream, x, bias)
        return to_x, bias_gradient(to_x)

    return _relu2(x, bias), gradient


# Gated linear units: act(a) c, where x + b is a beside c; their gradient is act'(a) c beside act(a).


def _value_and_slope(act: str, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """act(x) and act'(x); unused ones are dropped by the compiler."""
    if act == "gelu":
        cdf, density = normal_cdf_and_density(x)
        return x * cdf, cdf + x * density
    if act in ("relu", "relu2"):
        positive = tf.nn.relu(x)
        return (tf.square(positive), 2.0 * positive) if act == "relu2" else (positive, tf.cast(x > 0.0, x.dtype))
    if act == "tanh":
        value = tf.tanh(x)
        return value, 1.0 - tf.square(value)
    return x, tf.ones_like(x)


@xla
def _gated(x: tf.Tensor, bias: tf.Tensor, act: str) -> tf.Tensor:
    first, second = tf.split(wide(x) + wide(bias), 2, -1)
    value = first * normal_cdf(first) if act == "gelu" else _value_and_slope(act, first)[0]
    return narrow(value * second, x.dtype)


# Two kernels, as XLA would store what one would compute for both.


@xla
def _gradient_of_activated(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor, act: str) -> tf.Tensor:
    first, second = tf.split(wide(x) + wide(bias), 2, -1)
    return narrow(wide(upstream) * _value_and_slope(act, first)[1] * second, x.dtype)


@xla
def _gradient_of_factor(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor, act: str) -> tf.Tensor:
    first = tf.split(wide(x) + wide(bias), 2, -1)[0]
    return narrow(wide(upstream) * _value_and_slope(act, first)[0], x.dtype)


@differentiable
def gated(x: tf.Tensor, bias: tf.Tensor, act: str) -> Any:
    """act(a) c of x + bias = [a, c]: [..., 2n] and [2n] -> [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = (_gradient_of_activated, _gradient_of_factor)
        to_x = tf.concat([part(upstream, x, bias, act=act) for part in parts], -1)
        return to_x, bias_gradient(to_x)

    return _gated(x, bias, act=act), gradient
