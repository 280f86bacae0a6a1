"""What a transformer does between two matrix products, each block a few passes over memory, with its gradient.

TensorFlow runs element-wise operations one by one and keeps what their gradients need, and reading and writing memory
takes longer than the arithmetic. Here XLA compiles each block, and its gradient is written out beside its formula, so
that it keeps little and computes nothing twice. Matrix products stay outside: TensorFlow's own are faster on CPUs. On
GPUs and TPUs the whole step is one program (`one_program`) and the blocks are part of it.

Blocks compute in float32, whatever the type of the activations (float64 for float64), and return the type of their
first argument. A bias is added by the block behind the product, which costs nothing there.
"""

import contextlib
import contextvars
import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import record

LAYER_NORM_EPSILON = 1e-12
# Added to the scores of forbidden keys; the original's finite value, so that a row without any key stays finite.
MASKED_SCORE = -10000.0

_compiled = contextvars.ContextVar("compiled", default=True)  # whether each block is compiled by itself
_plain = contextvars.ContextVar("plain", default=False)  # whether gradients are TensorFlow's
_numbers = itertools.count()  # of gradients in graphs


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Within, blocks are traced as ordinary operations.

    For graphs whose shapes change from call to call (XLA compiles each anew) or that other programs load (SavedModel).
    """
    compiled, plain = _compiled.set(False), _plain.set(True)
    try:
        yield
    finally:
        _compiled.reset(compiled)
        _plain.reset(plain)


def one_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function as a whole, its blocks as parts of it."""

    def traced(*tensors: Any) -> Any:
        compiled = _compiled.set(False)
        try:
            return function(*tensors)
        finally:
            _compiled.reset(compiled)

    return tf.function(traced, jit_compile=True, autograph=False)


def xla(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors; keyword arguments are Python values."""
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*tensors: Any, **static: Any) -> Any:
        return (compiled if _compiled.get() else function)(*tensors, **static)

    call.compiled = compiled  # type: ignore[attr-defined]
    return call


def differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` returns its value and its gradient, as for tf.custom_gradient; keyword arguments are Python values."""

    @functools.wraps(function)
    def call(*tensors: Any, **static: Any) -> Any:
        tensors = tuple(tf.convert_to_tensor(tensor) for tensor in tensors)
        if _plain.get():
            return function(*tensors, **static)[0]
        return with_gradient(lambda *tensors: function(*tensors, **static), *tensors)

    return call


def with_gradient(function: Callable[..., Any], *tensors: tf.Tensor) -> Any:
    """The value of `function`, which returns value and gradient.

    tf.custom_gradient, in a graph, registers each gradient for good, and with it every graph that was ever traced, tens
    of MB each. Here the graph itself holds the gradients of its blocks, to which TensorFlow's registry refers weakly.
    """
    if tf.executing_eagerly():
        return tf.custom_gradient(function)(*tensors)
    graph, name = tf.compat.v1.get_default_graph(), f"GradientOfBlock{next(_numbers)}"
    with record.stop_recording():
        value, gradient = function(*tensors)
        outputs = tf.nest.flatten(value)

        def of_all(*upstreams: tf.Tensor) -> list[tf.Tensor | None]:
            """Of the outputs under their first names, which nobody else has, and of the arguments."""
            return [None] * len(outputs) + tf.nest.flatten(gradient(*upstreams[: len(outputs)]))

        if not hasattr(graph, "gradients_of_blocks"):
            graph.gradients_of_blocks = []
        graph.gradients_of_blocks.append(of_all)
        held = weakref.proxy(of_all)
        # For gradients of whole graphs, as of a function that a tape has seen called, and for SavedModels.
        tf.RegisterGradient(name)(lambda operation, *upstreams: held(*upstreams))
        with graph.gradient_override_map({"IdentityN": name}):
            named = tf.identity_n([*outputs, *tensors])
    record.record_operation(name, named, [*outputs, *tensors], of_all)  # for tapes
    return tf.nest.pack_sequence_as(value, named[: len(outputs)])


def compiles_blocks() -> bool:
    """Whether blocks are compiled one by one, between operations of TensorFlow's own."""
    return _compiled.get()


def is_fused() -> bool:
    """Whether blocks are compiled at all, by themselves or in one program."""
    return not _plain.get()


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """One graph for all calls alike, for what is many operations; keyword arguments are Python values."""
    graphs = {whether: tf.function(function, autograph=False) for whether in (True, False)}

    @functools.wraps(function)
    def call(*tensors: Any, **static: Any) -> Any:
        return graphs[compiles_blocks()](*tensors, **static)

    return call


def wide(x: tf.Tensor) -> tf.Tensor:
    """In the type in which blocks compute."""
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def narrow(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """float32, or float64, in the type of activations.

    Rounds to the nearest bfloat16, ties to even, by integers: LLVM makes much faster code of them on CPUs than of XLA's
    conversion (an exponential with dropout: 12 in place of 31 ms, benchmarks/RESULTS.md). NaN and infinities stay.
    """
    if dtype != tf.bfloat16 or not _compiled.get():
        return tf.cast(x, dtype)
    bits, half = tf.bitcast(x, tf.uint32), tf.constant(16, tf.uint32)
    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, half), tf.constant(1, tf.uint32))
    rounded = tf.bitwise.right_shift(bits + (tf.constant(0x7FFF, tf.uint32) + odd), half)
    return tf.bitcast(tf.cast(rounded, tf.uint16), dtype)


def row_sums(x: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [..., 1].

    XLA sums a row on CPUs number by number, unless it is a product, which it makes part of the pass that computes `x`.
    """
    if not _compiled.get():
        return tf.reduce_sum(x, -1, keepdims=True)
    shape = tf.shape(x)
    sums = tf.linalg.matvec(tf.reshape(x, [-1, shape[-1]]), tf.ones([shape[-1]], x.dtype))
    return tf.reshape(sums, tf.concat([shape[:-1], [1]], 0))


def row_maxima(x: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [..., 1].

    XLA compares the numbers of a row on CPUs one by one; halves of rows, which may overlap, are compared in vectors.
    """
    width, halvings = x.shape[-1], 0  # of a width that is not known yet an eighth is left
    while _compiled.get() and (halvings < 3 if width is None else width > 16):
        half = ((tf.shape(x)[-1] if width is None else width) + 1) // 2
        x = tf.maximum(x[..., :half], x[..., -half:])
        width, halvings = x.shape[-1], halvings + 1
    return tf.reduce_max(x, -1, keepdims=True)


def folded(x: tf.Tensor) -> tf.Tensor:
    """[n, ...] -> [n / 64 or more, ...] with the same sum over the first axis.

    Adding up halves is part of the pass that computes `x`, where XLA would store it before a reduction on CPUs.
    """
    folds = 0
    while _compiled.get() and x.shape[0] is not None and x.shape[0] % 2 == 0 and folds < 6:
        half = x.shape[0] // 2
        x, folds = x[:half] + x[half:], folds + 1
    return x


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [n]."""
    if x.shape.is_fully_defined():  # else the first axis alone is folded, which is known
        x = tf.reshape(x, [-1, x.shape[-1]])
    return tf.reduce_sum(folded(x), list(range(x.shape.rank - 1)))


def bias_gradient(upstream: tf.Tensor) -> tf.Tensor:
    """[..., n] -> [n], outside of blocks: of what is stored anyway, as a product, whose kernel adds in float32.

    BiasAddGrad adds up in the type of its argument: sums of 4,096 bfloat16 are off by a tenth then.
    """
    rows = tf.reshape(upstream, [-1, upstream.shape[-1]])
    if not _compiled.get():
        return tf.reduce_sum(wide(rows), 0)
    count = rows.shape[0] or tf.shape(rows)[0]
    return wide(tf.squeeze(tf.matmul(tf.ones([1, count], rows.dtype), rows), 0))


@differentiable
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """x + bias; x [..., n], bias [n]."""
    biased = tf.nn.bias_add(x, tf.cast(bias, x.dtype))
    return biased, lambda upstream: (upstream, tf.cast(bias_gradient(upstream), bias.dtype))


# Dropout.


def _mixed(x: tf.Tensor) -> tf.Tensor:
    """The finaliser of MurmurHash3: every bit of a uint32 depends on every bit."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))
        x *= tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(16, tf.uint32)))


def random_bits(places: Sequence[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """uint32, a hash of seed and place: computed where they are used instead of drawn and stored.

    The int32 [2] seed chooses start and odd step of a sequence, whose members are mixed (as SplitMix does). Unlike
    TensorFlow's generators it costs no memory and is part of the pass that uses it; dropout needs no better randomness
    (tests/model/test_fusion.py).

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
    """uint32 terms, one an axis, whose sum counts 0, 1, 2, ... modulo 2^32 in the order of memory."""
    sizes = tf.unstack(shape)
    terms, stride = [], tf.constant(1, tf.uint32)
    for axis, size in reversed(list(enumerate(sizes))):
        term = tf.bitcast(tf.range(size), tf.uint32) * stride
        terms.append(tf.reshape(term, [-1] + [1] * (len(sizes) - 1 - axis)))
        stride *= tf.cast(size, tf.uint32)
    return terms[::-1]


def dropped_out(x: tf.Tensor, seed: tf.Tensor, rate: float, places: Sequence[tf.Tensor] | None = None) -> tf.Tensor:
    """Inverted dropout, for use inside of blocks; it is its own gradient.

    Args:
      places: of a part of an array in the whole, as for `random_bits`; those in `x` if not given.
    """
    if rate == 0.0:
        return x
    places = places_in(tf.shape(x)) if places is None else places
    keep = random_bits(places, seed) >= tf.constant(round(rate * 2**32), tf.uint32)
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


_dropped_out = xla(dropped_out)


@differentiable
def dropout(x: tf.Tensor, seed: tf.Tensor, rate: float) -> Any:
    """x / (1 - rate) or 0, by a hash of int32 [2] `seed` and place."""
    return _dropped_out(x, seed, rate=rate), lambda upstream: (_dropped_out(upstream, seed, rate=rate), None)


# gelu(x + b), g(x) = x Phi(x), g'(x) = Phi(x) + x phi(x), of the normal distribution's Phi and phi.


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (1.0 + tf.math.erf(x * 0.5**0.5))


def _normal_cdf_and_density(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """In float32, Phi out of the exponential that phi takes anyway, to 8e-8 (Abramowitz and Stegun 1964, 7.1.26)."""
    exponential = tf.exp(-0.5 * tf.square(x))
    density = exponential * (1.0 / math.sqrt(2.0 * math.pi))
    if x.dtype == tf.float64:
        return _normal_cdf(x), density
    t = 1.0 / (1.0 + (0.3275911 * 0.5**0.5) * tf.abs(x))
    polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * exponential * polynomial  # Phi(-|x|)
    return tf.where(x < 0.0, tail, 1.0 - tail), density


@xla
def _gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    biased = wide(x) + wide(bias)
    return narrow(biased * _normal_cdf(biased), x.dtype)


@xla
def _gelu_gradient(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    biased = wide(x) + wide(bias)
    cdf, density = _normal_cdf_and_density(biased)
    return narrow(wide(upstream) * (cdf + biased * density), x.dtype)


@differentiable
def gelu(x: tf.Tensor, bias: tf.Tensor) -> Any:
    """The exact, erf form of gelu(x + bias); x [..., n], bias [n]."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        to_x = _gelu_gradient(upstream, x, bias)
        return to_x, bias_gradient(to_x)

    return _gelu(x, bias), gradient


# Layer norm: y = n gamma + beta, n = (x - mean) / deviation. With d the gradient of n, x's is
# (d - mean(d) - n mean(d n)) / deviation.


def _mean(x: tf.Tensor) -> tf.Tensor:
    return row_sums(x) / tf.cast(x.shape[-1], x.dtype)


class _Norm(NamedTuple):
    """Of what a norm's gradient is made: float32 [n] gamma, and the mean and 1 / deviation [..., 1] of each row."""

    gamma: tf.Tensor
    mean: tf.Tensor
    inverse: tf.Tensor


def _normalised(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The norm, the mean and 1 / deviation [..., 1]."""
    mean = _mean(x)
    inverse = tf.math.rsqrt(_mean(tf.square(x - mean)) + LAYER_NORM_EPSILON)
    return (x - mean) * (inverse * wide(gamma)) + wide(beta), mean, inverse


def _normalised_gradient(upstream: tf.Tensor, x: tf.Tensor, norm: _Norm) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Of x, gamma and beta."""
    upstream, n = wide(upstream), (x - norm.mean) * norm.inverse
    to_n = upstream * wide(norm.gamma)
    to_x = norm.inverse * (to_n - _mean(to_n) - n * _mean(to_n * n))
    return to_x, column_sums(upstream * n), column_sums(upstream)


@xla
def _layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    y, mean, inverse = _normalised(wide(x), gamma, beta)
    return narrow(y, x.dtype), mean, inverse


@xla
def _layer_norm_gradient(upstream: tf.Tensor, x: tf.Tensor, norm: _Norm) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    to_x, to_gamma, to_beta = _normalised_gradient(upstream, wide(x), norm)
    return narrow(to_x, x.dtype), to_gamma, to_beta


@differentiable
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
    """Over the last axis; x [..., n], gamma, beta [n]."""
    y, mean, inverse = _layer_norm(x, gamma, beta)
    return y, lambda upstream: _layer_norm_gradient(upstream, x, _Norm(gamma, mean, inverse))


# The end of a residual branch: s = x + dropout(branch + bias), and the layer norm of s.


def _sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return wide(x) + dropped_out(wide(branch) + wide(bias), seed, rate)


@xla
def _norm_of_sum(
    x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, seed: tf.Tensor, rate: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    y, mean, inverse = _normalised(_sum(x, branch, bias, seed, rate), gamma, beta)
    return narrow(y, x.dtype), mean, inverse


def _through_sum(
    to_sum: tf.Tensor, to_scales: list[tf.Tensor], dtype: tf.DType, seed: tf.Tensor, rate: float
) -> tuple[tf.Tensor, ...]:
    """The gradients of gamma, beta, x and, if there is dropout, of the branch; else it is x's."""
    to_branch = [narrow(dropped_out(to_sum, seed, rate), dtype)] if rate else []
    return *to_scales, narrow(to_sum, dtype), *to_branch


def _of_arguments(found: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor | None, ...]:
    """The same in the order of x, branch, bias, gamma, beta and seed."""
    to_gamma, to_beta, *to_terms = found
    return to_terms[0], to_terms[-1], bias_gradient(to_terms[-1]), to_gamma, to_beta, None


@xla
def _norm_of_sum_gradient(
    upstream: tf.Tensor, terms: tuple[tf.Tensor, tf.Tensor, tf.Tensor], norm: _Norm, seed: tf.Tensor, rate: float
) -> tuple[tf.Tensor, ...]:
    to_sum, *to_scales = _normalised_gradient(upstream, _sum(*terms, seed, rate), norm)
    return _through_sum(to_sum, to_scales, upstream.dtype, seed, rate)


@differentiable
def norm_of_sum(
    x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, seed: tf.Tensor, rate: float
) -> Any:
    """layer_norm(s), all of [..., n] and [n]; int32 [2] seed."""
    y, *statistics = _norm_of_sum(x, branch, bias, gamma, beta, seed, rate=rate)
    norm = _Norm(gamma, *statistics)
    return y, lambda upstream: _of_arguments(_norm_of_sum_gradient(upstream, (x, branch, bias), norm, seed, rate=rate))


@xla
def _sum_and_norm(
    x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, seed: tf.Tensor, rate: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    total = narrow(_sum(x, branch, bias, seed, rate), x.dtype)
    y, mean, inverse = _normalised(wide(total), gamma, beta)
    return total, narrow(y, x.dtype), mean, inverse


@xla
def _sum_and_norm_gradient(
    total: tf.Tensor, upstreams: tuple[tf.Tensor, tf.Tensor], norm: _Norm, seed: tf.Tensor, rate: float
) -> tuple[tf.Tensor, ...]:
    to_total, to_norm = upstreams
    to_sum, *to_scales = _normalised_gradient(to_norm, wide(total), norm)
    return _through_sum(to_sum + wide(to_total), to_scales, total.dtype, seed, rate)


@differentiable
def sum_and_norm(
    x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, seed: tf.Tensor, rate: float
) -> Any:
    """s, in the type of x, and layer_norm(s); all of [..., n] and [n]; int32 [2] seed."""
    total, y, *statistics = _sum_and_norm(x, branch, bias, gamma, beta, seed, rate=rate)
    norm = _Norm(gamma, *statistics)
    return (total, y), lambda *upstreams: _of_arguments(_sum_and_norm_gradient(total, upstreams, norm, seed, rate=rate))


# Queries, keys and values: one product's columns and their bias, each head's in a row.


@xla
def _heads_apart(product: tf.Tensor, bias: tf.Tensor, heads: int) -> tuple[tf.Tensor, ...]:
    biased = narrow(wide(product) + wide(bias), product.dtype)
    rows, length = tf.unstack(tf.shape(product))[:2]
    return tuple(tf.unstack(tf.transpose(tf.reshape(biased, [rows, length, 3, heads, -1]), [2, 0, 3, 1, 4])))


@differentiable
def heads_apart(product: tf.Tensor, bias: tf.Tensor, heads: int) -> Any:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""

    def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Not a block: TensorFlow's transposition takes a third of the time that XLA's does in this direction.
        joined = tf.transpose(tf.stack(upstreams), [1, 3, 0, 2, 4])
        to_product = tf.reshape(joined, tf.shape(product))
        return to_product, bias_gradient(to_product)

    return _heads_apart(product, bias, heads=heads), gradient


# Attention: o = (m p) v with p = softmax(scale s + position bias), dropout as a mask m. With do the gradient of o, that
# of p is d = m (do v^T), and that of the softmax's input p (d - sum(d p)), whose sum is that of do o (Dao et al. 2022,
# "FlashAttention", appendix B): over a head's size, not over the keys.


@xla
def _biased(scores: tf.Tensor, allowed: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    biased = wide(scores) * scale + wide(position_bias)
    return narrow(biased + tf.where(allowed, tf.zeros([], biased.dtype), MASKED_SCORE), scores.dtype)


@xla
def _probabilities_after_dropout(probs: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return narrow(dropped_out(wide(probs), seed, rate), probs.dtype)


@xla
def _attention_gradient(
    to_dropped: tf.Tensor,
    probs: tf.Tensor,
    output: tuple[tf.Tensor, tf.Tensor],
    seed: tf.Tensor,
    scale: float,
    rate: float,
) -> tf.Tensor:
    """Of the scores; of do v^T, p and (o, do)."""
    values, upstream = output
    inner = row_sums(wide(upstream) * wide(values))
    to_scores = scale * wide(probs) * (dropped_out(wide(to_dropped), seed, rate) - inner)
    return narrow(to_scores, probs.dtype)


@xla
def _position_bias_gradient(to_scores: tf.Tensor, position_bias: tf.Tensor, scale: float) -> tf.Tensor:
    summed = [axis for axis in range(4) if position_bias.shape[axis] == 1]  # of rows, at least
    return tf.cast(tf.reduce_sum(folded(wide(to_scores)), summed, keepdims=True) / scale, position_bias.dtype)


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
    """[B, A, L, D]: the values' mean, weighted by the softmax over the keys after dropout.

    Args:
      scores: [B, A, L, L] products of queries and keys, to be multiplied by `scale`.
      values: [B, A, L, D].
      allowed: bool, broadcastable to [B, A, L, L].
      position_bias: float32 [1, 1 or A, 1 or L, 1 or L].
      seed: int32 [2]; rate: of the dropout.
    """
    # The softmax is not part of a block: on CPUs TensorFlow's own (oneDNN's) keeps a row in the cache, where XLA's goes
    # over memory for the maximum, the sum and the quotient. In one program it computes as blocks do, in float32.
    biased = _biased(scores, allowed, position_bias, scale=scale)
    probs = tf.nn.softmax(biased) if _compiled.get() else tf.cast(tf.nn.softmax(wide(biased)), scores.dtype)
    dropped = _probabilities_after_dropout(probs, seed, rate=rate) if rate else probs
    output = tf.matmul(dropped, values)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        to_dropped = tf.matmul(upstream, values, transpose_b=True)
        to_scores = _attention_gradient(to_dropped, probs, (output, upstream), seed, scale=scale, rate=rate)
        to_values = tf.matmul(dropped, upstream, transpose_a=True)
        # A constant's gradient is not asked for, and TensorFlow drops what nobody asks for.
        return to_scores, to_values, None, _position_bias_gradient(to_scores, position_bias, scale=scale), None

    return output, gradient
