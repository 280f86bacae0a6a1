"""Kernels of attention on whole arrays: heads apart, then o = (m p) v with p = softmax(scale s + position bias).

m is the mask of the dropout. With do the gradient of o, that of p is d = m (do v^T), and that of the softmax's input is
p (d - sum(d p)). This sum equals sum(do o) (Dao et al. 2022, "FlashAttention", appendix B), which goes over the size of
a head, not over the keys.

Shapes: B batch, L length, A heads, D head size. `upstream` is the gradient of a kernel's result, `to_x` that of x.
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.dropout import are_kept, dropped_out
from electra_tf2.model.kernels.dtypes import to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.sums import bias_gradient, halved_sum, row_sums, with_bias_gradient
from electra_tf2.model.kernels.switch import are_compiled_alone

# Added to the scores of forbidden keys. The original's value, which is finite: a row without any key stays finite.
MASKED_SCORE = -10000.0

# Queries, keys and values: the columns of one product, and their bias.


@compiled
def heads_apart(product: tf.Tensor, bias: tf.Tensor, heads: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""
    biased = to_compute_dtype(to_float32(product) + to_float32(bias), product.dtype)
    rows, length, _ = tf.unstack(tf.shape(product))
    head_size = product.shape[-1] // (3 * heads)
    columns = tf.reshape(biased, [rows, length, 3, heads, head_size])
    queries, keys, values = tf.unstack(tf.transpose(columns, [2, 0, 3, 1, 4]))
    return queries, keys, values


@differentiable
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """Kernel of attention.split_heads."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Not compiled: in this direction TensorFlow's transposition takes a third of the time that XLA's does.
        joined = tf.transpose(tf.stack(upstreams), [1, 3, 0, 2, 4])  # [B, L, 3, A, D]
        to_product = tf.reshape(joined, tf.shape(product))
        return to_product, bias_gradient(to_product)

    return heads_apart(product, bias, heads=heads), gradient


@differentiable
def split_heads_in_program(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """`split_heads` in programs of whole steps."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = bias.shape[0] // 3  # A D
        rows, length, _ = tf.unstack(tf.shape(product))
        # Not stacked and then transposed: XLA would sum before it transposes, in a pass of its own. Each of the three
        # is put at its columns among zeros, and the sum of these arrays is the gradient.
        joined = None
        for index, upstream in enumerate(upstreams):
            columns = tf.reshape(tf.transpose(upstream, [0, 2, 1, 3]), [rows, length, size])
            padded = tf.pad(columns, [[0, 0], [0, 0], [index * size, (2 - index) * size]])  # [B, L, 3 A D]
            joined = padded if joined is None else joined + padded
        if product.shape[0] % 2 == 0:
            # Half as many partial sums for the bias's gradient, each over two rows.
            joined = tf.reshape(joined, [rows // 2, 2 * length, 3 * size])
        to_product, to_bias = with_bias_gradient(joined)
        return tf.reshape(to_product, tf.shape(product)), to_bias

    return tuple(materialize(*heads_apart(product, bias, heads))), gradient


# Attention.


@compiled
def biased_scores(scores: tf.Tensor, allowed: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    """The softmax's input: scale s + position bias, lowered where a key is forbidden."""
    biased = to_float32(scores) * scale + to_float32(position_bias)
    mask = tf.where(allowed, tf.zeros([], biased.dtype), MASKED_SCORE)
    return to_compute_dtype(biased + mask, scores.dtype)


def _softmax(biased: tf.Tensor) -> tf.Tensor:
    """softmax over the last axis; not a kernel of its own.

    On processors TensorFlow's own (oneDNN's) keeps a row in the cache, where XLA's goes over memory for the maximum,
    for the sum and for the quotient.
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
    """Gradient of the scores, [B, A, L, L], from do v^T, p, o and do."""
    to_probs = dropped_out(to_float32(to_dropped), seed, rate)  # d
    inner = row_sums(to_float32(to_output) * to_float32(output))  # [B, A, L, 1], sum(do o) = sum(d p)
    to_scores = scale * to_float32(probs) * (to_probs - inner)
    return to_compute_dtype(to_scores, probs.dtype)


@compiled
def position_bias_gradient(to_scores: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    """Sums the gradient of the scores over the axes along which the bias was broadcast, always that of the batch."""
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
    """Kernel of attention.attention."""
    biased = biased_scores(scores, allowed, position_bias, scale=scale)
    probs = _softmax(biased)  # [B, A, L, L]
    dropped = probs
    if rate:
        dropped = _probabilities_after_dropout(probs, seed, rate=rate)
    output = matmul(dropped, values)  # [B, A, L, D]

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_dropped = matmul(upstream, values, transpose_b=True)  # [B, A, L, L]
        to_scores = _attention_gradient(to_dropped, probs, output, upstream, seed, scale=scale, rate=rate)
        to_values = matmul(dropped, upstream, transpose_a=True)
        # Where the position bias is a constant nobody asks for its gradient, and TensorFlow drops these operations.
        to_bias = position_bias_gradient(to_scores, position_bias, scale=scale)
        return to_scores, to_values, None, to_bias, None

    return output, gradient


# Attention in programs of whole steps: of the arrays [B, A, L, L] only the scores and the probabilities after dropout
# are kept.


class _KeptPairs:
    """Dropout of pairs of positions, [B, A, L, L], decided once for a forward pass and its gradient.

    XLA's generator of softmax kernels knows no shifts, so it cannot hash as `are_kept` does. It reads the decisions
    from memory: one integer for each pair of positions, with a bit for each head.
    """

    def __init__(self, scores: tf.Tensor, seed: tf.Tensor, rate: float) -> None:
        self._rate = rate
        kept = are_kept(tf.shape(scores), seed, rate)
        heads = scores.shape[1]
        dtype = _integer_type(heads)
        self._bits = None
        if dtype is None:  # more heads than any integer has bits: a bool for each
            (self._stored,) = materialize(kept)
            return
        self._bits = tf.constant([1 << head for head in range(heads)], dtype, [heads, 1, 1])
        set_bits = tf.where(kept, self._bits, tf.zeros([], dtype))
        (self._stored,) = materialize(tf.reduce_sum(set_bits, 1, keepdims=True))  # [B, 1, L, L]

    def dropped_out(self, x: tf.Tensor) -> tf.Tensor:
        """x / (1 - rate) where x is kept, else 0."""
        kept = self._stored
        if self._bits is not None:
            kept = tf.bitwise.bitwise_and(self._stored, self._bits) != 0
        scaled = x * tf.constant(1.0 / (1.0 - self._rate), x.dtype)
        return tf.where(kept, scaled, tf.zeros([], x.dtype))


def _integer_type(heads: int) -> tf.DType | None:
    """The smallest type of integers with a bit for each head, apart from the sign; None if there is none."""
    for dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
        bits = 8 * dtype.size - 1
        if heads <= bits:
            return dtype
    return None


@differentiable
def attention_in_program(
    scores: tf.Tensor,
    values: tf.Tensor,
    allowed: tf.Tensor,
    position_bias: tf.Tensor,
    seed: tf.Tensor,
    scale: float,
    rate: float,
) -> Any:
    """`attention` in programs of whole steps."""
    kept_pairs = None
    if rate:
        kept_pairs = _KeptPairs(scores, seed, rate)

    def probabilities(scores: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(to_float32(biased_scores(scores, allowed, position_bias, scale=scale)))

    def dropped_out_pairs(x: tf.Tensor) -> tf.Tensor:
        if kept_pairs is None:
            return x
        return kept_pairs.dropped_out(x)

    (dropped,) = materialize(to_compute_dtype(dropped_out_pairs(probabilities(scores)), scores.dtype))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_probs = dropped_out_pairs(to_float32(tf.matmul(upstream, values, transpose_b=True)))  # d
        # Behind a barrier, or XLA would keep the forward pass's float32 probabilities instead of computing them again.
        (stored_scores,) = materialize(scores)
        probs = probabilities(stored_scores)
        # sum(d p) here, since this pass reads whole rows of pairs anyway; for sum(do o) it would have to read both.
        to_scores = probs * (to_probs - tf.reduce_sum(probs * to_probs, -1, keepdims=True))
        (to_scores,) = materialize(to_compute_dtype(scale * to_scores, scores.dtype))
        to_values = tf.matmul(dropped, upstream, transpose_a=True)
        to_bias = position_bias_gradient(to_scores, position_bias, scale=scale)
        return to_scores, to_values, None, to_bias, None

    return tf.matmul(dropped, values), gradient
