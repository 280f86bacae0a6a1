"""Element-wise work in one pass over memory.

Between two matrix products a transformer does a dozen cheap operations on every number. TensorFlow runs them one by
one and keeps what their gradients need, and reading and writing memory takes longer than the arithmetic. `fused`
compiles such a block with XLA, so that it reads its inputs once and writes its output once, and its gradient recomputes
the block instead of remembering what happened inside. Matrix products stay outside: TensorFlow's own are faster on
CPUs. On GPUs and TPUs the whole step is compiled anyway, and the block becomes part of it.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_plain = False


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Within, blocks are traced as ordinary operations.

    For graphs whose shapes change from call to call (XLA compiles each anew) or that other programs load (SavedModel).
    """
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


def fused(block: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Compiles a function of tensors to one tensor.

    Args:
      block: element-wise operations and reductions. Its positional arguments are tensors, differentiated if they are
        floating-point; keyword arguments are Python values.
    """
    forward = tf.function(block, jit_compile=True, autograph=False)

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def backward(upstream: tf.Tensor, *tensors: tf.Tensor, **static: Any) -> list[tf.Tensor]:
        sources = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            output = block(*tensors, **static)
        return tape.gradient(output, sources, upstream)

    @functools.wraps(block)
    def call(*tensors: Any, **static: Any) -> tf.Tensor:
        if _plain:
            return block(*(tf.convert_to_tensor(tensor) for tensor in tensors), **static)

        @tf.custom_gradient
        def apply(*tensors: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> list[tf.Tensor | None]:
                found = iter(backward(upstream, *tensors, **static))
                return [next(found) if tensor.dtype.is_floating else None for tensor in tensors]

            return forward(*tensors, **static), gradient

        return apply(*(tf.convert_to_tensor(tensor) for tensor in tensors))

    return call


def _mixed(x: tf.Tensor) -> tf.Tensor:
    """The finaliser of MurmurHash3: every bit of a uint32 depends on every bit."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))
        x *= tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(16, tf.uint32)))


def random_bits(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """uint32 of this shape, a hash of (seed, place): computed where they are used instead of drawn and stored.

    The int32 [2] seed chooses start and odd step of a sequence, whose members are mixed (as SplitMix does). Unlike
    TensorFlow's generators it costs no memory and is part of the pass that uses it; dropout needs no better randomness
    (tests/model/test_fusion.py).
    """
    words = tf.bitcast(seed, tf.uint32)
    step = _mixed(words[1])
    start = _mixed(tf.bitwise.bitwise_xor(words[0], step))
    places = tf.bitcast(tf.range(tf.reduce_prod(shape)), tf.uint32)
    return tf.reshape(_mixed(start + places * (2 * step + 1)), shape)


def dropped_out(x: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """Inverted dropout, for use inside of blocks."""
    if rate == 0.0:
        return x
    keep = random_bits(tf.shape(x), seed) >= tf.constant(round(rate * 2**32), tf.uint32)
    return tf.where(keep, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))
