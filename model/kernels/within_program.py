"""Kernels as parts of one program of the whole step, as GPUs and TPUs run it: the same formulas, other passes.

There XLA decides what is one pass, from the formulas of many kernels at once. Left alone it keeps sums in float32, goes
over rows once for each result, and ends each of hundreds of sums over tokens with a launch of its own. Here `stored`
tells it which arrays to keep, in the type of the activations; a norm's gradient is one pass for the sums of its rows
and one for all else; a pass that computes a gradient also sums it over the tokens of a sequence, and what is left to
sum is summed for all weights at once (compilation.sums_at_once).
Shapes: x [..., n]; bias, gamma, beta [n]; int32 [2] seed. `blocks` says more of each.
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels import blocks
from electra_tf2.model.kernels.compilation import (
    differentiable,
    narrow,
    part_sums,
    rounded,
    stored,
    wide,
)


def _with_bias_gradient(to_x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A gradient, and its sum over all axes but the last, of one pass."""
    to_x, sums = stored(to_x, part_sums(wide(to_x)))
    return to_x, tf.reduce_sum(sums, 0)


@differentiable
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Adds a bias [n] to x [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return upstream, tf.cast(_with_bias_gradient(upstream)[1], bias.dtype)

    return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient


@differentiable
def gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """gelu(x + bias)."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        biased = wide(x) + wide(bias)
        cdf, density = blocks.normal_cdf_and_density(biased)
        return _with_bias_gradient(rounded(wide(upstream) * (cdf + biased * density), x.dtype))

    biased = wide(x) + wide(bias)
    return narrow(biased * blocks.normal_cdf(biased), x.dtype), gradient


# Norms. With d the gradient of n = (x - mean) / deviation, x's is (d - mean(d) - n mean(d n)) / deviation. All it needs
# of a row are the sums of x, x^2, d and d x, so that one pass computes them; the variance, a difference of means then,
# is off by 1e-7 (1 + mean^2 / variance) of itself.


def _norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    return stored(narrow(blocks.normalised(wide(x), gamma, beta, epsilon)[0], x.dtype))[0]


def _norm_gradient(
    upstream: tf.Tensor,
    x: tf.Tensor,
    gamma: tf.Tensor,
    to_x: tf.Tensor | None,
    dropout: tuple[tf.Tensor, float] | None,
    epsilon: float,
) -> tuple[tf.Tensor, ...]:
    """Gradients of the norm's argument x, of the branch and the bias in it if there are any, of gamma and beta.

    Args:
      to_x: gradient of x by other ways, or None.
      dropout: seed and rate of that of the branch, or None without a branch.
    """
    wide_x, to_y = wide(x), wide(upstream)
    to_n = to_y * wide(gamma)
    sums = stored(*(tf.reduce_sum(one, -1, keepdims=True) for one in (wide_x, tf.square(wide_x), to_n, to_n * wide_x)))
    mean, mean_square, mean_to_n, mean_product = (one / tf.cast(x.shape[-1], one.dtype) for one in sums)
    variance = tf.maximum(mean_square - tf.square(mean), 0.0)
    inverse = tf.math.rsqrt(variance + epsilon)
    n = (wide_x - mean) * inverse
    to_sum = inverse * (to_n - mean_to_n - n * (inverse * (mean_product - mean * mean_to_n)))
    if to_x is not None:
        to_sum += wide(to_x)
    # Rounded by integers: the branch's gradient comes of what is stored, not of the same computed again.
    to_sum = rounded(to_sum, x.dtype)
    passed, to_vectors = [to_sum], [to_y * n, to_y]
    if dropout is not None:
        seed, rate = dropout
        to_branch = rounded(blocks.dropped_out(wide(to_sum), seed, rate), x.dtype) if rate else to_sum
        passed, to_vectors = [to_sum, to_branch], [wide(to_branch), *to_vectors]
    found = stored(*passed, *(part_sums(one) for one in to_vectors))
    return *found[: len(passed)], *(tf.reduce_sum(sums, 0) for sums in found[len(passed) :])


@differentiable
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = blocks.LAYER_NORM_EPSILON) -> Any:
    """Layer norm over the last axis."""
    return _norm(x, gamma, beta, epsilon), lambda upstream: _norm_gradient(upstream, x, gamma, None, None, epsilon)


def _sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return stored(rounded(blocks.sum_of(x, branch, bias, seed, rate), x.dtype))[0]


@differentiable
def norm_of_sum(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float = blocks.LAYER_NORM_EPSILON,
) -> Any:
    """layer_norm(s) of s = x + dropout(branch + bias), which is rounded to the type of x."""
    total = _sum(x, branch, bias, seed, rate)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        return *_norm_gradient(upstream, total, gamma, None, (seed, rate), epsilon), None

    return _norm(total, gamma, beta, epsilon), gradient


@differentiable
def sum_and_norm(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float = blocks.LAYER_NORM_EPSILON,
) -> Any:
    """s, and layer_norm(s)."""
    total = _sum(x, branch, bias, seed, rate)

    def gradient(to_total: tf.Tensor, to_norm: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        return *_norm_gradient(to_norm, total, gamma, to_total, (seed, rate), epsilon), None

    return (total, _norm(total, gamma, beta, epsilon)), gradient


# Attention.


@differentiable
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        stacked = tf.stack(upstreams)
        sums = tf.transpose(tf.reduce_sum(wide(stacked), 3), [1, 0, 2, 3])  # [B, 3, A, D]
        to_bias = tf.reduce_sum(tf.reshape(sums, [-1, bias.shape[0]]), 0)
        return tf.reshape(tf.transpose(stacked, [1, 3, 0, 2, 4]), tf.shape(product)), to_bias

    return tuple(stored(*blocks.heads_apart(product, bias, heads))), gradient


@differentiable
def attention(
    scores: tf.Tensor,
    values: tf.Tensor,
    allowed: tf.Tensor,
    position_bias: tf.Tensor,
    seed: tf.Tensor,
    scale: float,
    rate: float,
) -> Any:
    """softmax(scale scores + position bias) values; of the pairs, products and probabilities after dropout are kept."""

    def probabilities(scores: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(wide(blocks.biased_scores(scores, allowed, position_bias, scale=scale)))

    dropped = stored(narrow(blocks.dropped_out(probabilities(scores), seed, rate), scores.dtype))[0]
    output = tf.matmul(dropped, values)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_dropped = tf.matmul(upstream, values, transpose_b=True)
        (again,) = stored(scores)  # else float32 probabilities would be kept
        inner = tf.reduce_sum(wide(output) * wide(upstream), -1, keepdims=True)
        to_scores = probabilities(again) * (blocks.dropped_out(wide(to_dropped), seed, rate) - inner)
        to_scores = stored(narrow(scale * to_scores, scores.dtype))[0]
        to_bias = blocks.position_bias_gradient(to_scores, position_bias, scale=scale)
        return to_scores, tf.matmul(dropped, upstream, transpose_a=True), None, to_bias, None

    return output, gradient
