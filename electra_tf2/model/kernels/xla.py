"""Kernels as parts of one program of the whole step, as GPUs and TPUs run it: the same formulas, other passes.

There XLA decides what is one pass, from the formulas of many kernels at once. Left alone it keeps sums in float32, goes
over rows once for each result, and ends each of hundreds of sums over tokens with a launch of its own. `materialize`
tells it which arrays to keep, in the type of the activations; a norm's gradient is one pass for the sums of its rows
and one for all else; a pass that computes a gradient also sums it over the tokens of a sequence, and what is left to
sum is summed for all weights at once (compilation.sums_at_once).
Shapes: x [..., n]; bias, gamma, beta [n]; int32 [2] seed. `cpu` says more of each.
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels import cpu
from electra_tf2.model.kernels.compilation import (
    cast_weight,
    differentiable,
    materialize,
    matrix_product,
    part_sums,
    rounded,
    to_compute_dtype,
    to_float32,
)


@differentiable
def product(x: tf.Tensor, kernel: tf.Tensor) -> Any:
    """[T, n] times [n, m]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # First the kernel's: left to XLA, all kernels' come last, and what they are made of is kept until then.
        upstream, to_kernel = materialize(upstream, tf.matmul(x, upstream, transpose_a=True))
        return tf.matmul(upstream, kernel, transpose_b=True), to_kernel

    return tf.matmul(x, kernel), gradient


def feed_forward(first: Any, last: Any, x: tf.Tensor) -> tf.Tensor:
    """Computes last.product(first(x)), of layers.Dense, and keeps no activation, which the gradient computes again.

    Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 5.
    """

    def activated_product(before: tf.Tensor, bias: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        # Not `product`: here one pass computes the activation again and its gradient, and then comes the kernel's.
        return matrix_product(first.activated(before, bias), kernel, tf.matmul)

    @differentiable
    def compute(*tensors: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            *barred, upstream = materialize(*tensors, upstream)  # not what was computed before, and not before its turn
            with tf.GradientTape() as tape:
                tape.watch(barred)
                value = activated_product(*barred)
            return materialize(*tape.gradient(value, barred, upstream))

        return activated_product(*tensors), gradient

    return compute(first.product(x), first.bias_or_zeros, cast_weight(last.kernel, x.dtype))


def _with_bias_gradient(to_x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A gradient, and its sum over all axes but the last, of one pass."""
    to_x, sums = materialize(to_x, part_sums(to_float32(to_x)))
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
        biased = to_float32(x) + to_float32(bias)
        cdf, density = cpu.normal_cdf_and_density(biased)
        return _with_bias_gradient(rounded(to_float32(upstream) * (cdf + biased * density), x.dtype))

    biased = to_float32(x) + to_float32(bias)
    return to_compute_dtype(biased * cpu.normal_cdf(biased), x.dtype), gradient


# Norms. With d the gradient of n = (x - mean) / deviation, x's is (d - mean(d) - n mean(d n)) / deviation. All it needs
# of a row beside its mean are means of functions of the row, so that one pass computes them.


def _mean(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x * (1.0 / x.shape[-1]), -1, keepdims=True)


def _norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    return materialize(to_compute_dtype(cpu.normalised(to_float32(x), gamma, beta, epsilon)[0], x.dtype))[0]


def _norm_gradient(
    upstream: tf.Tensor,
    x: tf.Tensor,
    mean: tf.Tensor,
    gamma: tf.Tensor,
    dropout: tuple[tf.Tensor, float] | None,
    epsilon: float,
) -> tuple[tf.Tensor, ...]:
    """Gradients of the norm's argument x, of the branch and the bias in it if there are any, of gamma and beta.

    Args:
      mean: of each row of x, [..., 1].
      dropout: seed and rate of that of the branch, or None without a branch.
    """
    centred, to_y = to_float32(x) - mean, to_float32(upstream)
    to_n = to_y * to_float32(gamma)
    variance, mean_to_n, mean_product = materialize(
        _mean(tf.square(centred) + epsilon), _mean(to_n), _mean(to_n * centred)
    )
    # XLA makes a launch of its own of a root of each row, unless it seems to depend on all numbers of the row.
    inverse = tf.math.rsqrt(tf.where(tf.math.is_nan(centred), centred, variance))
    n = centred * inverse
    to_sum = inverse * (to_n - mean_to_n - n * (inverse * mean_product))
    # Rounded by integers: the branch's gradient comes of what is stored, not of the same computed again.
    to_sum = rounded(to_sum, x.dtype)
    passed, to_vectors = [to_sum], [to_y * n, to_y]
    if dropout is not None:
        seed, rate = dropout
        to_branch = rounded(cpu.dropped_out(to_float32(to_sum), seed, rate), x.dtype) if rate else to_sum
        passed, to_vectors = [to_sum, to_branch], [to_float32(to_branch), *to_vectors]
    stored = materialize(*passed, *(part_sums(vector) for vector in to_vectors))
    return *stored[: len(passed)], *(tf.reduce_sum(sums, 0) for sums in stored[len(passed) :])


@differentiable
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = cpu.LAYER_NORM_EPSILON) -> Any:
    """Layer norm over the last axis."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return _norm_gradient(upstream, x, materialize(_mean(to_float32(x)))[0], gamma, None, epsilon)

    return _norm(x, gamma, beta, epsilon), gradient


@differentiable
def norm_of_sum(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float = cpu.LAYER_NORM_EPSILON,
) -> Any:
    """layer_norm(s) of s = x + dropout(branch + bias), which is rounded to the type of x."""
    total = rounded(cpu.sum_of((x, branch, bias), seed, rate), x.dtype)
    total, mean = materialize(total, _mean(to_float32(total)))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        return *_norm_gradient(upstream, total, mean, gamma, (seed, rate), epsilon), None

    return _norm(total, gamma, beta, epsilon), gradient


@differentiable
def residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """s, rounded to the type of x."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_branch = rounded(cpu.dropped_out(to_float32(upstream), seed, rate), x.dtype) if rate else upstream
        return upstream, *_with_bias_gradient(to_branch), None

    return materialize(rounded(cpu.sum_of((x, branch, bias), seed, rate), x.dtype))[0], gradient


# Attention.


@differentiable
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Not stacked and then transposed: XLA would sum before it transposes, in another pass.
        size = bias.shape[0] // 3
        rows, length, _ = tf.unstack(tf.shape(product))
        columns = [tf.reshape(tf.transpose(upstream, [0, 2, 1, 3]), [rows, length, size]) for upstream in upstreams]
        padded = [tf.pad(x, [[0, 0], [0, 0], [place * size, (2 - place) * size]]) for place, x in enumerate(columns)]
        joined = padded[0] + padded[1] + padded[2]
        if product.shape[0] % 2 == 0:
            joined = tf.reshape(joined, [rows // 2, 2 * length, 3 * size])
        to_product, to_bias = _with_bias_gradient(joined)
        return tf.reshape(to_product, tf.shape(product)), to_bias

    return tuple(materialize(*cpu.heads_apart(product, bias, heads))), gradient


class _Pairs:
    """Passes over pairs of positions, [B, A, L, L]; arguments are those of `attention`."""

    def __init__(
        self,
        scores: tf.Tensor,
        allowed: tf.Tensor,
        position_bias: tf.Tensor,
        seed: tf.Tensor,
        scale: float,
        rate: float,
    ) -> None:
        self._scores, self._allowed, self._bias, self._scale, self._rate = scores, allowed, position_bias, scale, rate
        self._joined = self._bits = None
        if not rate:
            return
        kept = cpu.are_kept(tf.shape(scores), seed, rate)
        # XLA's generator of softmax kernels knows no shifts, so it cannot hash. It reads what dropout keeps as an
        # integer that the heads share, a bit each.
        heads = scores.shape[1]
        dtype = next((type for type in (tf.int8, tf.int16, tf.int32, tf.int64) if heads < 8 * type.size), None)
        if dtype is None:
            (self._joined,) = materialize(kept)
            return
        self._bits = tf.constant([1 << head for head in range(heads)], dtype, [heads, 1, 1])
        (self._joined,) = materialize(tf.reduce_sum(tf.where(kept, self._bits, tf.zeros([], dtype)), 1, keepdims=True))

    def _dropped_out(self, x: tf.Tensor) -> tf.Tensor:
        if self._joined is None:
            return x
        kept = self._joined if self._bits is None else tf.bitwise.bitwise_and(self._joined, self._bits) != 0
        return tf.where(kept, x * tf.constant(1.0 / (1.0 - self._rate), x.dtype), tf.zeros([], x.dtype))

    def _probabilities(self) -> tf.Tensor:
        return tf.nn.softmax(to_float32(cpu.biased_scores(self._scores, self._allowed, self._bias, scale=self._scale)))

    def dropped(self) -> tf.Tensor:
        """Probabilities after dropout."""
        return materialize(to_compute_dtype(self._dropped_out(self._probabilities()), self._scores.dtype))[0]

    def gradients(self, to_dropped: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Gradients of the scores and of the position bias."""
        to_probs = self._dropped_out(to_float32(to_dropped))
        (self._scores,) = materialize(self._scores)  # else float32 probabilities would be kept
        probs = self._probabilities()
        # Of whole rows, not of the output and its gradient, which need not be read then.
        to_scores = probs * (to_probs - tf.reduce_sum(probs * to_probs, -1, keepdims=True))
        (to_scores,) = materialize(to_compute_dtype(self._scale * to_scores, self._scores.dtype))
        return to_scores, cpu.position_bias_gradient(to_scores, self._bias, scale=self._scale)


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
    pairs = _Pairs(scores, allowed, position_bias, seed, scale, rate)
    dropped = pairs.dropped()

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_scores, to_bias = pairs.gradients(tf.matmul(upstream, values, transpose_b=True))
        return to_scores, tf.matmul(dropped, upstream, transpose_a=True), None, to_bias, None

    return tf.matmul(dropped, values), gradient
