"""Kernels as parts of one program of the whole step, as GPUs and TPUs run it: the same formulas, other passes.

There XLA decides what is one pass, from the formulas of many kernels at once. Left alone it keeps sums in float32, goes
over rows once for each result, and ends each of hundreds of sums over tokens with a launch of its own. `materialize`
tells it which arrays to keep, in the type of the activations; a norm's gradient is one pass for the sums of its rows
and one for all else; a pass that computes a gradient also sums it over the tokens of a sequence, and what is left to
sum is summed for all weights at once (joined.sums_at_once).
Shapes: x [..., n]; bias, gamma, beta [n]; int32 [2] seed. `cpu` says more of each.
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels import cpu
from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.dtypes import cast_weight, rounded, to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.products import matrix_product
from electra_tf2.model.kernels.sums import part_sums


@differentiable
def product(x: tf.Tensor, kernel: tf.Tensor) -> Any:
    """[T, n] times [n, m]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # First the kernel's: left to XLA, all kernels' come last, and what they are made of is kept until then.
        to_kernel = tf.matmul(x, upstream, transpose_a=True)
        upstream, to_kernel = materialize(upstream, to_kernel)
        to_x = tf.matmul(upstream, kernel, transpose_b=True)
        return to_x, to_kernel

    return tf.matmul(x, kernel), gradient


def feed_forward(first: Any, last: Any, x: tf.Tensor) -> tf.Tensor:
    """Computes last.product(first(x)), of layers.Dense, and keeps no activation, which the gradient computes again.

    Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 5.
    """

    def activated_product(before: tf.Tensor, bias: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        activated = first.activated(before, bias)
        # Not `product`: here one pass computes the activation again and its gradient, and then comes the kernel's.
        return matrix_product(activated, kernel, tf.matmul)

    @differentiable
    def compute(*tensors: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            # The barrier makes XLA compute the activation again, which else it would keep from the forward pass, and
            # not before this layer's gradient has its turn.
            *barred, upstream = materialize(*tensors, upstream)
            with tf.GradientTape() as tape:
                tape.watch(barred)
                value = activated_product(*barred)
            return materialize(*tape.gradient(value, barred, upstream))

        return activated_product(*tensors), gradient

    return compute(first.product(x), first.bias_or_zeros, cast_weight(last.kernel, x.dtype))


def _with_bias_gradient(to_x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A gradient, and its sum over all axes but the last, which one pass computes."""
    partial_sums = part_sums(to_float32(to_x))
    to_x, partial_sums = materialize(to_x, partial_sums)
    return to_x, tf.reduce_sum(partial_sums, 0)


@differentiable
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """Adds a bias [n] to x [..., n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, to_bias = _with_bias_gradient(upstream)
        return upstream, tf.cast(to_bias, bias.dtype)

    return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient


@differentiable
def gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """gelu(x + bias)."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        biased = to_float32(x) + to_float32(bias)
        cdf, density = cpu.normal_cdf_and_density(biased)
        to_x = to_float32(upstream) * (cdf + biased * density)
        return _with_bias_gradient(rounded(to_x, x.dtype))

    biased = to_float32(x) + to_float32(bias)
    return to_compute_dtype(biased * cpu.normal_cdf(biased), x.dtype), gradient


# Norms. With d the gradient of n = (x - mean) / deviation, x's is (d - mean(d) - n mean(d n)) / deviation. All it needs
# of a row beside its mean are means of functions of the row, so that one pass computes them.


def _mean(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x * (1.0 / x.shape[-1]), -1, keepdims=True)


def _norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    y, _, _ = cpu.normalised(to_float32(x), gamma, beta, epsilon)
    (y,) = materialize(to_compute_dtype(y, x.dtype))
    return y


def _gradient_of_norm(
    upstream: tf.Tensor, x: tf.Tensor, mean: tf.Tensor, gamma: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradient of the norm's argument x, and the norm before gamma and beta; `mean` [..., 1] is of each row of x."""
    centred = to_float32(x) - mean
    to_n = to_float32(upstream) * to_float32(gamma)
    variance, mean_to_n, mean_product = materialize(
        _mean(tf.square(centred) + epsilon), _mean(to_n), _mean(to_n * centred)
    )
    # The condition never holds. XLA makes a launch of its own of a root of each row, unless it seems to depend on all
    # numbers of the row.
    inverse = tf.math.rsqrt(tf.where(tf.math.is_nan(centred), centred, variance))
    n = centred * inverse
    to_x = inverse * (to_n - mean_to_n - n * (inverse * mean_product))
    # Rounded by integers: further gradients then come of what is stored, not of the same computed again.
    return rounded(to_x, x.dtype), n


@differentiable
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = cpu.LAYER_NORM_EPSILON) -> Any:
    """Layer norm over the last axis."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        (mean,) = materialize(_mean(to_float32(x)))
        to_x, n = _gradient_of_norm(upstream, x, mean, gamma, epsilon)
        to_y = to_float32(upstream)
        to_x, to_gamma, to_beta = materialize(to_x, part_sums(to_y * n), part_sums(to_y))
        return to_x, tf.reduce_sum(to_gamma, 0), tf.reduce_sum(to_beta, 0)

    return _norm(x, gamma, beta, epsilon), gradient


# The end of a residual branch, s = x + dropout(branch + bias), rounded to the type of x.


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
    """layer_norm(s)."""
    total = rounded(cpu.added(x, branch, bias, seed, rate), x.dtype)
    total, mean = materialize(total, _mean(to_float32(total)))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_total, n = _gradient_of_norm(upstream, total, mean, gamma, epsilon)
        to_branch = _branch_gradient(to_total, seed, rate)
        to_y = to_float32(upstream)
        to_total, to_branch, to_bias, to_gamma, to_beta = materialize(
            to_total, to_branch, part_sums(to_float32(to_branch)), part_sums(to_y * n), part_sums(to_y)
        )
        to_bias = tf.reduce_sum(to_bias, 0)
        to_gamma = tf.reduce_sum(to_gamma, 0)
        to_beta = tf.reduce_sum(to_beta, 0)
        return to_total, to_branch, to_bias, to_gamma, to_beta, None

    return _norm(total, gamma, beta, epsilon), gradient


@differentiable
def residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """s."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_branch, to_bias = _with_bias_gradient(_branch_gradient(upstream, seed, rate))
        return upstream, to_branch, to_bias, None

    (total,) = materialize(rounded(cpu.added(x, branch, bias, seed, rate), x.dtype))
    return total, gradient


def _branch_gradient(to_sum: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    if not rate:
        return to_sum
    return rounded(cpu.dropped_out(to_float32(to_sum), seed, rate), to_sum.dtype)


# Attention.


@differentiable
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = bias.shape[0] // 3
        rows, length, _ = tf.unstack(tf.shape(product))
        # Not stacked and then transposed: XLA would sum before it transposes, in another pass. Each of the three is
        # put among zeros at its columns, and the sum of these arrays is the gradient.
        joined = None
        for place, upstream in enumerate(upstreams):
            columns = tf.reshape(tf.transpose(upstream, [0, 2, 1, 3]), [rows, length, size])
            padded = tf.pad(columns, [[0, 0], [0, 0], [place * size, (2 - place) * size]])
            joined = padded if joined is None else joined + padded
        if product.shape[0] % 2 == 0:
            joined = tf.reshape(joined, [rows // 2, 2 * length, 3 * size])
        to_product, to_bias = _with_bias_gradient(joined)
        return tf.reshape(to_product, tf.shape(product)), to_bias

    return tuple(materialize(*cpu.heads_apart(product, bias, heads))), gradient


class _KeptPairs:
    """Dropout of pairs of positions, [B, A, L, L], decided once for a forward pass and its gradient.

    XLA's generator of softmax kernels knows no shifts, so it cannot hash as `cpu.are_kept` does. It reads what is kept
    from memory: an integer of each pair of positions that the heads share, a bit each.
    """

    def __init__(self, scores: tf.Tensor, seed: tf.Tensor, rate: float) -> None:
        self._rate = rate
        kept = cpu.are_kept(tf.shape(scores), seed, rate)
        heads = scores.shape[1]
        dtype = _integers_of(heads)
        self._bits = None
        if dtype is None:  # of more heads than an integer has bits: a bool each
            (self._stored,) = materialize(kept)
            return
        self._bits = tf.constant([1 << head for head in range(heads)], dtype, [heads, 1, 1])
        set_bits = tf.where(kept, self._bits, tf.zeros([], dtype))
        (self._stored,) = materialize(tf.reduce_sum(set_bits, 1, keepdims=True))

    def dropped_out(self, x: tf.Tensor) -> tf.Tensor:
        """Computes x / (1 - rate) or 0."""
        kept = self._stored
        if self._bits is not None:
            kept = tf.bitwise.bitwise_and(self._stored, self._bits) != 0
        scaled = x * tf.constant(1.0 / (1.0 - self._rate), x.dtype)
        return tf.where(kept, scaled, tf.zeros([], x.dtype))


def _integers_of(heads: int) -> tf.DType | None:
    """The smallest type of positive integers with a bit for each head."""
    for dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
        bits = 8 * dtype.size - 1  # without that of the sign
        if heads <= bits:
            return dtype
    return None


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
    kept_pairs = None
    if rate:
        kept_pairs = _KeptPairs(scores, seed, rate)

    def probabilities(scores: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(to_float32(cpu.biased_scores(scores, allowed, position_bias, scale=scale)))

    def dropped_out(x: tf.Tensor) -> tf.Tensor:
        if kept_pairs is None:
            return x
        return kept_pairs.dropped_out(x)

    (dropped,) = materialize(to_compute_dtype(dropped_out(probabilities(scores)), scores.dtype))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_probs = dropped_out(to_float32(tf.matmul(upstream, values, transpose_b=True)))
        (stored_scores,) = materialize(scores)  # else XLA would keep the forward pass's float32 probabilities
        probs = probabilities(stored_scores)
        # Sums over whole rows of pairs, which this pass reads anyway; those of the output and its gradient, as in
        # `cpu`, would have to be read as well.
        to_scores = probs * (to_probs - tf.reduce_sum(probs * to_probs, -1, keepdims=True))
        (to_scores,) = materialize(to_compute_dtype(scale * to_scores, scores.dtype))
        to_values = tf.matmul(dropped, upstream, transpose_a=True)
        to_bias = cpu.position_bias_gradient(to_scores, position_bias, scale=scale)
        return to_scores, to_values, None, to_bias, None

    return tf.matmul(dropped, values), gradient
