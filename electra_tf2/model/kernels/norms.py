"""Kernels of layer norm and of the end of a residual branch, s = x + dropout(branch + bias).

y = n gamma + beta with n = (x - mean) / deviation. With d the gradient of n, that of x is

    (d - mean(d) - n mean(d n)) / deviation

Kept for the gradient are x, and mean and 1 / deviation of each row; the sum s is not kept, but computed again.

Shapes: x, branch [..., n]; bias, gamma, beta [n]; seed int32 [2]. `upstream` is the gradient of a kernel's result,
`to_x` that of its argument x.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.dropout import dropped_out
from electra_tf2.model.kernels.dtypes import rounded, to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.sums import bias_gradient, column_sums, part_sums, row_sums, with_bias_gradient

LAYER_NORM_EPSILON = 1e-12

# Layer norm.


def _mean(x: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [..., 1]."""
    return row_sums(x) / tf.cast(x.shape[-1], x.dtype)


class _Norm(NamedTuple):
    """Tensors that a norm's gradient needs beside x.

    gamma: [n].
    mean: float32 [..., 1], of each row.
    inverse: float32 [..., 1], 1 / deviation of each row.
    """

    gamma: tf.Tensor
    mean: tf.Tensor
    inverse: tf.Tensor


def normalised(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """y [..., n]; mean and 1 / deviation [..., 1] of each row. All float32."""
    mean = _mean(x)
    inverse = tf.math.rsqrt(_mean(tf.square(x - mean)) + epsilon)
    y = (x - mean) * (inverse * to_float32(gamma)) + to_float32(beta)
    return y, mean, inverse


def _normalised_gradient(upstream: tf.Tensor, x: tf.Tensor, norm: _Norm) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of x [..., n], gamma [n] and beta [n], float32."""
    to_y = to_float32(upstream)
    n = (x - norm.mean) * norm.inverse
    to_n = to_y * to_float32(norm.gamma)
    to_x = norm.inverse * (to_n - _mean(to_n) - n * _mean(to_n * n))
    to_gamma = column_sums(to_y * n)
    to_beta = column_sums(to_y)
    return to_x, to_gamma, to_beta


@compiled
def _layer_norm(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    y, mean, inverse = normalised(to_float32(x), gamma, beta, epsilon)
    return to_compute_dtype(y, x.dtype), mean, inverse


@compiled
def _layer_norm_gradient(upstream: tf.Tensor, x: tf.Tensor, norm: _Norm) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of x, gamma and beta."""
    to_x, to_gamma, to_beta = _normalised_gradient(upstream, to_float32(x), norm)
    return to_compute_dtype(to_x, upstream.dtype), to_gamma, to_beta


@differentiable
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = LAYER_NORM_EPSILON) -> Any:
    """Kernel of layers.layer_norm."""
    y, mean, inverse = _layer_norm(x, gamma, beta, epsilon=epsilon)
    norm = _Norm(gamma, mean, inverse)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return _layer_norm_gradient(upstream, x, norm)

    return y, gradient


# The norm of a sum: post-norm layers.


def added(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """s in float32, for use inside of kernels."""
    biased = to_float32(branch) + to_float32(bias)
    return to_float32(x) + dropped_out(biased, seed, rate)


@compiled
def _norm_of_sum(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    total = added(x, branch, bias, seed, rate)
    y, mean, inverse = normalised(total, gamma, beta, epsilon)
    return to_compute_dtype(y, x.dtype), mean, inverse


@compiled
def _norm_of_sum_gradient(
    upstream: tf.Tensor,
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    norm: _Norm,
    seed: tf.Tensor,
    rate: float,
) -> tuple[tf.Tensor, ...]:
    """Gradients of gamma, beta, x and, with dropout, of the branch. Without dropout the branch's is that of x."""
    total = added(x, branch, bias, seed, rate)
    to_total, to_gamma, to_beta = _normalised_gradient(upstream, total, norm)
    to_x = to_compute_dtype(to_total, upstream.dtype)
    if not rate:
        # XLA would write a result that is returned twice two times.
        return to_gamma, to_beta, to_x
    to_branch = to_compute_dtype(dropped_out(to_total, seed, rate), upstream.dtype)
    return to_gamma, to_beta, to_x, to_branch


@differentiable
def norm_of_sum(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float = LAYER_NORM_EPSILON,
) -> Any:
    """Kernel of layers.norm_of_sum: layer_norm(s)."""
    y, mean, inverse = _norm_of_sum(x, branch, bias, gamma, beta, seed, rate=rate, epsilon=epsilon)
    norm = _Norm(gamma, mean, inverse)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        gradients = _norm_of_sum_gradient(upstream, x, branch, bias, norm, seed, rate=rate)
        to_gamma, to_beta, to_x = gradients[:3]
        to_branch = gradients[3] if rate else to_x
        return to_x, to_branch, bias_gradient(to_branch), to_gamma, to_beta, None

    return y, gradient


# The sum alone: pre-norm layers.


@compiled
def _residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(added(x, branch, bias, seed, rate), x.dtype)


@compiled
def _branch_gradient(upstream: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(dropped_out(to_float32(upstream), seed, rate), upstream.dtype)


@differentiable
def residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """Kernel of layers.residual_sum: s."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_branch = upstream
        if rate:
            to_branch = _branch_gradient(upstream, seed, rate=rate)
        return upstream, to_branch, bias_gradient(to_branch), None

    return _residual_sum(x, branch, bias, seed, rate=rate), gradient


# The same in programs of whole steps. A norm's gradient is two passes there: one for the sums of its rows, one for all
# else. Beside its mean, everything that it needs of a row is a mean of a function of the row, so one pass computes all.


def _mean_in_program(x: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [..., 1]."""
    return tf.reduce_sum(x * (1.0 / x.shape[-1]), -1, keepdims=True)


def _norm_in_program(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    y, _, _ = normalised(to_float32(x), gamma, beta, epsilon)
    (y,) = materialize(to_compute_dtype(y, x.dtype))
    return y


def _norm_gradient_in_program(
    upstream: tf.Tensor,
    x: tf.Tensor,
    mean: tf.Tensor,
    gamma: tf.Tensor,
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradient of x, in the type of x, and n in float32; `mean` [..., 1] is that of each row of x."""
    centred = to_float32(x) - mean
    to_n = to_float32(upstream) * to_float32(gamma)
    variance, mean_to_n, mean_product = materialize(
        _mean_in_program(tf.square(centred) + epsilon),
        _mean_in_program(to_n),
        _mean_in_program(to_n * centred),
    )
    # The condition never holds. But XLA gives the root of each row a launch of its own, unless it seems to depend on
    # every number of the row.
    inverse = tf.math.rsqrt(tf.where(tf.math.is_nan(centred), centred, variance))
    n = centred * inverse
    to_x = inverse * (to_n - mean_to_n - n * (inverse * mean_product))
    # Rounded by integers: XLA then computes further gradients from the stored array, not from the float32 before it.
    return rounded(to_x, x.dtype), n


@differentiable
def layer_norm_in_program(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = LAYER_NORM_EPSILON) -> Any:
    """`layer_norm` in programs of whole steps."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        (mean,) = materialize(_mean_in_program(to_float32(x)))
        to_x, n = _norm_gradient_in_program(upstream, x, mean, gamma, epsilon)
        to_y = to_float32(upstream)
        to_x, to_gamma, to_beta = materialize(to_x, part_sums(to_y * n), part_sums(to_y))
        return to_x, tf.reduce_sum(to_gamma, 0), tf.reduce_sum(to_beta, 0)

    return _norm_in_program(x, gamma, beta, epsilon), gradient


@differentiable
def norm_of_sum_in_program(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float = LAYER_NORM_EPSILON,
) -> Any:
    """`norm_of_sum` in programs of whole steps; here s is kept, rounded to the type of x."""
    total = rounded(added(x, branch, bias, seed, rate), x.dtype)
    total, mean = materialize(total, _mean_in_program(to_float32(total)))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_total, n = _norm_gradient_in_program(upstream, total, mean, gamma, epsilon)
        to_branch = _branch_gradient_in_program(to_total, seed, rate)
        to_y = to_float32(upstream)
        to_total, to_branch, to_bias, to_gamma, to_beta = materialize(
            to_total,
            to_branch,
            part_sums(to_float32(to_branch)),
            part_sums(to_y * n),
            part_sums(to_y),
        )
        to_bias = tf.reduce_sum(to_bias, 0)
        to_gamma = tf.reduce_sum(to_gamma, 0)
        to_beta = tf.reduce_sum(to_beta, 0)
        return to_total, to_branch, to_bias, to_gamma, to_beta, None

    return _norm_in_program(total, gamma, beta, epsilon), gradient


@differentiable
def residual_sum_in_program(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """`residual_sum` in programs of whole steps."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_branch, to_bias = with_bias_gradient(_branch_gradient_in_program(upstream, seed, rate))
        return upstream, to_branch, to_bias, None

    (total,) = materialize(rounded(added(x, branch, bias, seed, rate), x.dtype))
    return total, gradient


def _branch_gradient_in_program(to_sum: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    if not rate:
        return to_sum
    return rounded(dropped_out(to_float32(to_sum), seed, rate), to_sum.dtype)
