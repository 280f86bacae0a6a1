"""Kernels of a transformer: what it does between two matrix products, each a few passes over memory, with its gradient.

TensorFlow runs element-wise operations one by one and keeps what their gradients need, and reading and writing memory
takes longer than the arithmetic. Here each formula of model.layers and model.encoder is one kernel. It computes in
float32, whatever the type of the activations (float64 for float64), and returns the type of its first argument. A bias
is added by the kernel behind the product, which costs nothing there.

In a gradient, `upstream` is the gradient of the kernel's result and `to_x` that of its argument x.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.dtypes import to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.sums import bias_gradient, column_sums, halved_sum, row_sums
from electra_tf2.model.kernels.switch import are_compiled_alone

LAYER_NORM_EPSILON = 1e-12
# Added to the scores of forbidden keys; the original's finite value, so that a row without any key stays finite.
MASKED_SCORE = -10000.0


@differentiable
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Adds a bias [n] to x [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return upstream, tf.cast(bias_gradient(upstream), bias.dtype)

    return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient


# Dropout.


def _mixed(x: tf.Tensor) -> tf.Tensor:
    """Finaliser of MurmurHash3: every bit of a uint32 depends on every bit."""
    x = _folded(x, 16) * tf.constant(0x85EBCA6B, tf.uint32)
    x = _folded(x, 13) * tf.constant(0xC2B2AE35, tf.uint32)
    return _folded(x, 16)


def _folded(x: tf.Tensor, bits: int) -> tf.Tensor:
    """x ^ (x >> bits)."""
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32)))


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
    odd_step = 2 * step + 1  # odd, so that 2^32 places lead to 2^32 different members
    member = start
    for place in places:
        member += place * odd_step
    return _mixed(member)


def places_in(shape: tf.Tensor) -> list[tf.Tensor]:
    """Makes uint32 terms, one an axis, whose sum counts 0, 1, 2, ... modulo 2^32 in the order of memory."""
    terms = []
    stride = tf.constant(1, tf.uint32)  # from one index of an axis to the next
    later_axes: list[int] = []  # sizes of 1, along which a term broadcasts
    for size in reversed(tf.unstack(shape)):
        term = tf.bitcast(tf.range(size), tf.uint32) * stride
        terms.append(tf.reshape(term, [-1, *later_axes]))
        stride *= tf.cast(size, tf.uint32)
        later_axes.append(1)
    terms.reverse()
    return terms


def are_kept(shape: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """Decides by a hash of int32 [2] `seed` and place what dropout of this rate keeps: bool of this shape."""
    # The bits are uniform in [0, 2^32), so below this threshold with a probability of the rate.
    threshold = tf.constant(round(rate * 2**32), tf.uint32)
    return random_bits(places_in(shape), seed) >= threshold


def dropped_out(x: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """Computes x / (1 - rate) or 0, for use inside of kernels; its gradient is the same function of the upstream."""
    if rate == 0.0:
        return x
    kept = are_kept(tf.shape(x), seed, rate)
    scaled = x * tf.constant(1.0 / (1.0 - rate), x.dtype)
    return tf.where(kept, scaled, tf.zeros([], x.dtype))


_dropped_out = compiled(dropped_out)


@differentiable
def dropout(x: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """Inverted dropout; int32 [2] seed."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        # The same hash again drops the same places, so that no mask is kept.
        return _dropped_out(upstream, seed, rate=rate), None

    return _dropped_out(x, seed, rate=rate), gradient


# gelu(x + b): g(x) = x Phi(x), g'(x) = Phi(x) + x phi(x), with the normal distribution's Phi and phi.


def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


def normal_cdf_and_density(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Phi and phi.

    In float32 both come of one exponential, which takes most of the time: Phi is exp(-x^2 / 2) times a polynomial of
    t = 1 / (1 + p |x|), to 8e-8 (Abramowitz and Stegun 1964, 7.1.26).
    """
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
    y = (x - mean) * (inverse * to_float32(gamma)) + to_float32(beta)
    return y, mean, inverse


def _normalised_gradient(upstream: tf.Tensor, x: tf.Tensor, norm: _Norm) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of x, gamma and beta."""
    to_y = to_float32(upstream)
    n = (x - norm.mean) * norm.inverse
    to_n = to_y * to_float32(norm.gamma)
    to_x = norm.inverse * (to_n - _mean(to_n) - n * _mean(to_n * n))
    return to_x, column_sums(to_y * n), column_sums(to_y)


@compiled
def _layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
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
    """Layer norm over the last axis; x [..., n], gamma, beta [n]."""
    y, mean, inverse = _layer_norm(x, gamma, beta, epsilon=epsilon)
    norm = _Norm(gamma, mean, inverse)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return _layer_norm_gradient(upstream, x, norm)

    return y, gradient


# The end of a residual branch, where its last layer left out its bias: s = x + dropout(branch + bias), by itself
# (pre-norm) and normalised (post-norm). x, branch [..., n]; bias [n]; int32 [2] seed. The sum is not kept: the
# gradient computes it again.


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
    y, mean, inverse = normalised(added(x, branch, bias, seed, rate), gamma, beta, epsilon)
    return to_compute_dtype(y, x.dtype), mean, inverse


@compiled
def _norm_of_sum_gradient(
    upstream: tf.Tensor, x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, norm: _Norm, seed: tf.Tensor, rate: float
) -> tuple[tf.Tensor, ...]:
    """Gradients of gamma, beta and x, and, if there is dropout, of the branch; without, the branch's is x's."""
    total = added(x, branch, bias, seed, rate)
    to_total, to_gamma, to_beta = _normalised_gradient(upstream, total, norm)
    to_x = to_compute_dtype(to_total, upstream.dtype)
    if not rate:
        return to_gamma, to_beta, to_x  # a result that is there twice would be written twice
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
    """layer_norm(s)."""
    y, mean, inverse = _norm_of_sum(x, branch, bias, gamma, beta, seed, rate=rate, epsilon=epsilon)
    norm = _Norm(gamma, mean, inverse)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        gradients = _norm_of_sum_gradient(upstream, x, branch, bias, norm, seed, rate=rate)
        to_gamma, to_beta, to_x = gradients[:3]
        to_branch = gradients[3] if rate else to_x
        return to_x, to_branch, bias_gradient(to_branch), to_gamma, to_beta, None

    return y, gradient


@compiled
def _residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(added(x, branch, bias, seed, rate), x.dtype)


@compiled
def _branch_gradient(upstream: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(dropped_out(to_float32(upstream), seed, rate), upstream.dtype)


@differentiable
def residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """s, in the type of x."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_branch = upstream
        if rate:
            to_branch = _branch_gradient(upstream, seed, rate=rate)
        return upstream, to_branch, bias_gradient(to_branch), None

    return _residual_sum(x, branch, bias, seed, rate=rate), gradient


# Queries, keys and values: one product's columns and their bias, each head's in a row.


@compiled
def heads_apart(product: tf.Tensor, bias: tf.Tensor, heads: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    biased = to_compute_dtype(to_float32(product) + to_float32(bias), product.dtype)
    rows, length, _ = tf.unstack(tf.shape(product))
    head_size = product.shape[-1] // (3 * heads)
    columns = tf.reshape(biased, [rows, length, 3, heads, head_size])
    queries, keys, values = tf.unstack(tf.transpose(columns, [2, 0, 3, 1, 4]))
    return queries, keys, values


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
    """The softmax's input: scale s + position bias, lowered where a key is forbidden."""
    biased = to_float32(scores) * scale + to_float32(position_bias)
    mask = tf.where(allowed, tf.zeros([], biased.dtype), MASKED_SCORE)
    return to_compute_dtype(biased + mask, scores.dtype)


def _softmax(biased: tf.Tensor) -> tf.Tensor:
    """softmax over the last axis; not compiled by itself.

    On CPUs TensorFlow's own (oneDNN's) keeps a row in the cache, where XLA's goes over memory for the maximum, the sum
    and the quotient.
    """
    if are_compiled_alone():
        return tf.nn.softmax(biased)
    return tf.cast(tf.nn.softmax(to_float32(biased)), biased.dtype)


@compiled
def _probabilities_after_dropout(probs: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return to_compute_dtype(dropped_out(to_float32(probs), seed, rate), probs.dtype)


@compiled
def _attention_gradient(
    to_dropped: tf.Tensor,
    probs: tf.Tensor,
    output: tf.Tensor,
    to_output: tf.Tensor,
    seed: tf.Tensor,
    scale: float,
    rate: float,
) -> tf.Tensor:
    """Gradient of the scores, from do v^T, p, o and do."""
    to_probs = dropped_out(to_float32(to_dropped), seed, rate)
    inner = row_sums(to_float32(to_output) * to_float32(output))  # sum(do o), which equals sum(d p)
    to_scores = scale * to_float32(probs) * (to_probs - inner)
    return to_compute_dtype(to_scores, probs.dtype)


@compiled
def position_bias_gradient(to_scores: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    # The bias was broadcast along these axes; along that of the batch always.
    broadcast = [axis for axis in range(4) if position_bias.shape[axis] == 1]
    total = tf.reduce_sum(halved_sum(to_float32(to_scores)), broadcast, keepdims=True)
    return tf.cast(total / scale, position_bias.dtype)


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
    biased = biased_scores(scores, allowed, position_bias, scale=scale)
    probs = _softmax(biased)
    dropped = probs
    if rate:
        dropped = _probabilities_after_dropout(probs, seed, rate=rate)
    output = matmul(dropped, values)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_dropped = matmul(upstream, values, transpose_b=True)
        to_scores = _attention_gradient(to_dropped, probs, output, upstream, seed, scale=scale, rate=rate)
        to_values = matmul(dropped, upstream, transpose_a=True)
        # Where the position bias is a constant, nobody asks for its gradient, and TensorFlow drops these operations.
        to_bias = position_bias_gradient(to_scores, position_bias, scale=scale)
        return to_scores, to_values, None, to_bias, None

    return output, gradient
