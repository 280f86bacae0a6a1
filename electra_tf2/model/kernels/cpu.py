"""Kernels of a transformer: what it does between two matrix products, each a few passes over memory, with its gradient.

TensorFlow runs element-wise operations one by one and keeps what their gradients need, and reading and writing memory
takes longer than the arithmetic. Here each formula of model.layers and model.encoder is one kernel. It computes in
float32, whatever the type of the activations (float64 for float64), and returns the type of its first argument. A bias
is added by the kernel behind the product, which costs nothing there.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.compilation import (
    are_compiled_alone,
    bias_gradient,
    column_sums,
    compiled,
    differentiable,
    halved_sum,
    matmul,
    row_sums,
    to_compute_dtype,
    to_float32,
)

LAYER_NORM_EPSILON = 1e-12
# Added to the scores of forbidden keys; the original's finite value, so that a row without any key stays finite.
MASKED_SCORE = -10000.0


@differentiable
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Adds a bias [n] to x [..., n]."""
    biased = tf.nn.bias_add(x, tf.cast(bias, x.dtype))
    return biased, lambda upstream: (upstream, tf.cast(bias_gradient(upstream), bias.dtype))


# Dropout.


def _mixed(x: tf.Tensor) -> tf.Tensor:
    """Finaliser of MurmurHash3: every bit of a uint32 depends on every bit."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))
        x *= tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(16, tf.uint32)))


def random_bits(places: Sequence[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Hashes seed and place to uint32, where the bits are used, so that they are neither drawn nor stored.

    The int32 [2] seed chooses start and odd step of a sequence, whose members are mixed (as SplitMix does). Unlike
    TensorFlow's generators it costs no memory and is part of the pass that uses it; dropout needs no better randomness
    (tests/model/test_kernels.py).

    Args:
      places: terms whose sum modulo 2^32 is the place, uint32 of shapes that broadcast. Each is multiplied by the step
        before they are summed: an array of all places would depend on shapes alone, and compilers evaluate such arrays
        on the host and carry them along as constants.
    """
    words = tf.bitcast(seed, tf.uint32)
    step = _mixed(words[1])
    start = _mixed(tf.bitwise.bitwise_xor(words[0], step))
    return _mixed(functools.reduce(tf.add, [place * (2 * step + 1) for place in places], start))


def places_in(shape: tf.Tensor) -> list[tf.Tensor]:
    """Makes uint32 terms, one an axis, whose sum counts 0, 1, 2, ... modulo 2^32 in the order of memory."""
    sizes = tf.unstack(shape)
    terms, stride = [], tf.constant(1, tf.uint32)
    for axis, size in reversed(list(enumerate(sizes))):
        term = tf.bitcast(tf.range(size), tf.uint32) * stride
        terms.append(tf.reshape(term, [-1] + [1] * (len(sizes) - 1 - axis)))
        stride *= tf.cast(size, tf.uint32)
    return terms[::-1]


def are_kept(shape: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """Decides by a hash of int32 [2] `seed` and place what dropout of this rate keeps: bool of this shape."""
    return random_bits(places_in(shape), seed) >= tf.constant(round(rate * 2**32), tf.uint32)


def dropped_out(x: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """Computes x / (1 - rate) or 0, for use inside of kernels; it is its own gradient."""
    if rate == 0.0:
        return x
    keep = are_kept(tf.shape(x), seed, rate)
    return tf.where(keep, x * tf.constant(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


_dropped_out = compiled(dropped_out)


@differentiable
def dropout(x: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """Inverted dropout; int32 [2] seed."""
    return _dropped_out(x, seed, rate=rate), lambda upstream: (_dropped_out(upstream, seed, rate=rate), None)


# gelu(x + b): g(x) = x Phi(x), g'(x) = Phi(x) + x phi(x), with the normal distribution's Phi and phi.


def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


def normal_cdf_and_density(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Phi and phi; in float32 Phi comes of phi's exponential, to 8e-8 (Abramowitz and Stegun 1964, 7.1.26)."""
    exponential = tf.exp(-0.5 * tf.square(x))
    density = exponential * (1.0 / math.sqrt(2.0 * math.pi))
    if x.dtype == tf.float64:
        return normal_cdf(x), density
    t = 1.0 / (1.0 + (0.3275911 * 0.5**0.5) * tf.abs(x))
    polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * exponential * polynomial  # Phi(-|x|)
    return tf.where(x < 0.0, tail, 1.0 - tail), density


@compiled
def _gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    biased = to_float32(x) + to_float32(bias)
    return to_compute_dtype(biased * normal_cdf(biased), x.dtype)


@compiled
def _gelu_gradient(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    biased = to_float32(x) + to_float32(bias)
    cdf, density = normal_cdf_and_density(biased)
    return to_compute_dtype(to_float32(upstream) * (cdf + biased * density), x.dtype)


@differentiable
def gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """gelu(x + bias), its exact, erf form; x [..., n], bias [n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        to_x = _gelu_gradient(upstream, x, bias)
        return to_x, bias_gradient(to_x)

    return _gelu(x, bias), gradient


# Layer norm: y = n gamma + beta, n = (x - mean) / deviation. With d the gradient of n, x's is
# (d - mean(d) - n mean(d n)) / deviation.


def _mean(x: tf.Tensor) -> tf.Tensor:
    return row_sums(x) / tf.cast(x.shape[-1], x.dtype)


class _Norm(NamedTuple):
    """Ingredients of a norm's gradient: float32 [n] gamma, and the mean and 1 / deviation [..., 1] of each row."""

    gamma: tf.Tensor
    mean: tf.Tensor
    inverse: tf.Tensor


def normalised(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Norm, mean and 1 / deviation [..., 1]."""
    mean = _mean(x)
    inverse = tf.math.rsqrt(_mean(tf.square(x - mean)) + epsilon)
    return (x - mean) * (inverse * to_float32(gamma)) + to_float32(beta), mean, inverse


def _normalised_gradient(upstream: tf.Tensor, x: tf.Tensor, norm: _Norm) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of x, gamma and beta."""
    upstream, n = to_float32(upstream), (x - norm.mean) * norm.inverse
    to_n = upstream * to_float32(norm.gamma)
    to_x = norm.inverse * (to_n - _mean(to_n) - n * _mean(to_n * n))
    return to_x, column_sums(upstream * n), column_sums(upstream)


def sum_of(terms: Sequence[tf.Tensor], seed: tf.Tensor | None, rate: float) -> tf.Tensor:
    """s = x + dropout(branch + bias) of (x, branch, bias), the end of a residual branch; x of (x,)."""
    x, *others = map(to_float32, terms)
    return x + dropped_out(others[0] + others[1], seed, rate) if others else x


@compiled
def _norm(
    terms: tuple[tf.Tensor, ...], gamma: tf.Tensor, beta: tf.Tensor, seed: tf.Tensor | None, rate: float, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    y, mean, inverse = normalised(sum_of(terms, seed, rate), gamma, beta, epsilon)
    return to_compute_dtype(y, terms[0].dtype), mean, inverse


@compiled
def _norm_gradient(
    upstream: tf.Tensor, terms: tuple[tf.Tensor, ...], norm: _Norm, seed: tf.Tensor | None, rate: float
) -> tuple[tf.Tensor, ...]:
    """Gradients of gamma, beta, x and, if there is dropout, of the branch; else it is x's."""
    to_sum, *to_scales = _normalised_gradient(upstream, sum_of(terms, seed, rate), norm)
    to_branch = [to_compute_dtype(dropped_out(to_sum, seed, rate), upstream.dtype)] if rate else []
    return *to_scales, to_compute_dtype(to_sum, upstream.dtype), *to_branch


@differentiable
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = LAYER_NORM_EPSILON) -> Any:
    """Layer norm over the last axis; x [..., n], gamma, beta [n]."""
    y, *statistics = _norm((x,), gamma, beta, None, rate=0.0, epsilon=epsilon)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        to_gamma, to_beta, to_x = _norm_gradient(upstream, (x,), _Norm(gamma, *statistics), None, rate=0.0)
        return to_x, to_gamma, to_beta

    return y, gradient


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
    """layer_norm(s); all are [..., n] and [n]; int32 [2] seed."""
    terms = (x, branch, bias)
    y, *statistics = _norm(terms, gamma, beta, seed, rate=rate, epsilon=epsilon)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        gradients = _norm_gradient(upstream, terms, _Norm(gamma, *statistics), seed, rate=rate)
        to_gamma, to_beta, to_x, to_branch = (*gradients, gradients[-1])[:4]
        return to_x, to_branch, bias_gradient(to_branch), to_gamma, to_beta, None

    return y, gradient


@compiled
def _residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(sum_of((x, branch, bias), seed, rate), x.dtype)


@compiled
def _to_branch(upstream: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(dropped_out(to_float32(upstream), seed, rate), upstream.dtype)


@differentiable
def residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """s, in the type of x."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_branch = _to_branch(upstream, seed, rate=rate) if rate else upstream
        return upstream, to_branch, bias_gradient(to_branch), None

    return _residual_sum(x, branch, bias, seed, rate=rate), gradient


# Queries, keys and values: one product's columns and their bias, each head's in a row.


@compiled
def heads_apart(product: tf.Tensor, bias: tf.Tensor, heads: int) -> tuple[tf.Tensor, ...]:
    biased = to_compute_dtype(to_float32(product) + to_float32(bias), product.dtype)
    rows, length = tf.unstack(tf.shape(product))[:2]
    parts = tf.reshape(biased, [rows, length, 3, heads, product.shape[-1] // (3 * heads)])
    return tuple(tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4])))


@differentiable
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Not compiled: TensorFlow's transposition takes a third of the time that XLA's does in this direction.
        joined = tf.transpose(tf.stack(upstreams), [1, 3, 0, 2, 4])
        to_product = tf.reshape(joined, tf.shape(product))
        return to_product, bias_gradient(to_product)

    return heads_apart(product, bias, heads=heads), gradient


# Attention: o = (m p) v with p = softmax(scale s + position bias), dropout as a mask m. With do the gradient of o, that
# of p is d = m (do v^T), and that of the softmax's input p (d - sum(d p)), whose sum is that of do o (Dao et al. 2022,
# "FlashAttention", appendix B): over a head's size, not over the keys.


@compiled
def biased_scores(scores: tf.Tensor, allowed: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    biased = to_float32(scores) * scale + to_float32(position_bias)
    return to_compute_dtype(biased + tf.where(allowed, tf.zeros([], biased.dtype), MASKED_SCORE), scores.dtype)


@compiled
def _probabilities_after_dropout(probs: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(dropped_out(to_float32(probs), seed, rate), probs.dtype)


@compiled
def _attention_gradient(
    to_dropped: tf.Tensor,
    probs: tf.Tensor,
    output: tuple[tf.Tensor, tf.Tensor],
    seed: tf.Tensor,
    scale: float,
    rate: float,
) -> tf.Tensor:
    """Gradient of the scores, from do v^T, p and (o, do)."""
    values, upstream = output
    inner = row_sums(to_float32(upstream) * to_float32(values))
    to_scores = scale * to_float32(probs) * (dropped_out(to_float32(to_dropped), seed, rate) - inner)
    return to_compute_dtype(to_scores, probs.dtype)


@compiled
def position_bias_gradient(to_scores: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    summed = [axis for axis in range(4) if position_bias.shape[axis] == 1]  # of rows, at least
    return tf.cast(tf.reduce_sum(halved_sum(to_float32(to_scores)), summed, keepdims=True) / scale, position_bias.dtype)


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
    """softmax(scale scores + position bias) values, with dropout of the probabilities; arguments as of the formula."""
    # The softmax is not compiled: on CPUs TensorFlow's own (oneDNN's) keeps a row in the cache, where XLA's goes over
    # memory for the maximum, the sum and the quotient. In one program it computes as kernels do, in float32.
    biased = biased_scores(scores, allowed, position_bias, scale=scale)
    probs = tf.nn.softmax(biased) if are_compiled_alone() else tf.cast(tf.nn.softmax(to_float32(biased)), scores.dtype)
    dropped = _probabilities_after_dropout(probs, seed, rate=rate) if rate else probs
    output = matmul(dropped, values)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_dropped = matmul(upstream, values, transpose_b=True)
        to_scores = _attention_gradient(to_dropped, probs, (output, upstream), seed, scale=scale, rate=rate)
        to_values = matmul(dropped, upstream, transpose_a=True)
        # A constant's gradient is not asked for, and TensorFlow drops what nobody asks for.
        return to_scores, to_values, None, position_bias_gradient(to_scores, position_bias, scale=scale), None

    return output, gradient
