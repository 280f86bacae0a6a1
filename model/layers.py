"""The few building blocks every network here is made of: dense, layer norm, dropout, activations.

Variables are float32 under the original's names; each layer computes in the type of its input, so mixed precision is
decided once, where a network casts its embeddings. Statistics and anything that ends in a loss are float32.
"""

import zlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from model.fusion import dropped_out, fused

LAYER_NORM_EPSILON = 1e-12
# Added to the scores of forbidden keys; the original's finite value, so that a row without any key stays finite.
MASKED_SCORE = -10000.0
_NO_SEED = (0, 0)


class Layer(tf_keras.layers.Layer):
    """A Keras layer whose variables live under a fixed scope such as "electra/encoder/layer_0/output".

    Args:
      scope: prefix of the variable names, the original program's variable scope.
      seed: makes the initial values a function of (seed, variable name).
    """

    def __init__(self, scope: str, seed: int = 0) -> None:
        super().__init__(name=scope.replace("/", "_") or None, dtype="float32", autocast=False)
        self.scope = scope
        self.seed = seed

    def weight(
        self, name: str, shape: list[int], initializer: Callable[..., tf.Tensor], decay: bool = True
    ) -> tf.Variable:
        """A trainable float32 variable `scope/name`, initialised by `initializer(shape, seed)`.

        Args:
          decay: whether weight decay applies to it: to kernels and tables, not to biases and layer norms.
        """
        full_name = f"{self.scope}/{name}" if self.scope else name
        seed = [self.seed & 0x7FFFFFFF, zlib.crc32(full_name.encode()) & 0x7FFFFFFF]

        def initial_value(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
            return tf.cast(initializer(shape, seed), dtype)

        variable = self.add_weight(name=full_name, shape=shape, initializer=initial_value, dtype="float32")
        variable.decays = decay
        return variable

    @staticmethod
    def decays(variable: tf.Variable) -> bool:
        """Whether weight decay applies to a variable that `weight` made."""
        return variable.decays


def truncated_normal(stddev: float) -> Callable[..., tf.Tensor]:
    return lambda shape, seed: tf.random.stateless_truncated_normal(shape, seed, stddev=stddev)


def glorot_uniform(shape: list[int], seed: list[int]) -> tf.Tensor:
    """TF1's default for dense kernels; the original uses it for three layers (docs/differences.md)."""
    limit = (6.0 / (shape[0] + shape[1])) ** 0.5
    return tf.random.stateless_uniform(shape, seed, -limit, limit)


def zeros(shape: list[int], seed: list[int]) -> tf.Tensor:
    del seed
    return tf.zeros(shape)


def constant(values: list[list[float]]) -> Callable[..., tf.Tensor]:
    return lambda shape, seed: tf.reshape(tf.constant(values), shape)


def ones(shape: list[int], seed: list[int]) -> tf.Tensor:
    del seed
    return tf.ones(shape)


def activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """The function behind `hidden_act`; "gelu" is the exact, erf form."""
    functions = {
        "gelu": _gelu,
        "relu": tf.nn.relu,
        "tanh": tf.tanh,
        "linear": tf.identity,
    }
    if name not in functions:
        raise ValueError(f"hidden_act is {name!r}; choose one of {sorted(functions)}.")
    return functions[name]


class Dense(Layer):
    """y = x W + b over the last axis, one matrix product for all leading axes.

    Args:
      input_size, output_size: the kernel's shape.
      initializer: of the kernel; the bias starts at zero.
    """

    def __init__(
        self, scope: str, input_size: int, output_size: int, initializer: Callable[..., tf.Tensor], seed: int = 0
    ) -> None:
        super().__init__(scope, seed)
        self.output_size = output_size
        self.kernel = self.weight("kernel", [input_size, output_size], initializer)
        self.bias = self.weight("bias", [output_size], zeros, decay=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., input_size] -> [..., output_size], in the type of `x`."""
        flat = tf.reshape(x, [-1, x.shape[-1]])
        y = tf.nn.bias_add(tf.matmul(flat, tf.cast(self.kernel, x.dtype)), tf.cast(self.bias, x.dtype))
        return tf.reshape(y, [*shape_of(x)[:-1], self.output_size])


def shape_of(x: tf.Tensor) -> list[Any]:
    """The shape: integers where it is known when tracing, scalar tensors elsewhere."""
    dynamic = tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(x.shape)]


class SeedStream:
    """Distinct stateless seeds, one per call site of a traced step: the hash of `seed` with the site's number.

    Args:
      seed: int32 [2], a function of (seed, step, replica, micro-batch).
    """

    def __init__(self, seed: tf.Tensor) -> None:
        # Folding in hashes what was there and appends the number as it is, so only the hash may be added to.
        self._seed = tf.random.experimental.stateless_fold_in(seed, 0)
        self._count = 0

    def next(self) -> tf.Tensor:
        self._count += 1
        return self._seed + tf.constant([0, self._count], self._seed.dtype)


class LayerNorm(Layer):
    """Layer normalisation over the last axis, epsilon 1e-12 as in the original, statistics in float32."""

    def __init__(self, scope: str, size: int) -> None:
        super().__init__(scope)
        self.beta = self.weight("beta", [size], zeros, decay=False)
        self.gamma = self.weight("gamma", [size], ones, decay=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return _normalised(x, self.gamma, self.beta)

    def of_sum(self, x: tf.Tensor, y: tf.Tensor, rate: float, seeds: SeedStream | None) -> tf.Tensor:
        """The norm of x + dropout(y), the end of a residual branch."""
        rate, seed = (0.0, _NO_SEED) if seeds is None else (rate, seeds.next())
        return _normalised_sum(x, y, self.gamma, self.beta, seed, rate=rate)


def _normalise(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + LAYER_NORM_EPSILON)
    return centred * (inverse * gamma) + beta


@fused
def _normalised(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    return tf.cast(_normalise(tf.cast(x, tf.float32), gamma, beta), x.dtype)


@fused
def _normalised_sum(
    x: tf.Tensor, y: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, seed: tf.Tensor, rate: float
) -> tf.Tensor:
    total = tf.cast(x, tf.float32) + dropped_out(tf.cast(y, tf.float32), seed, rate)
    return tf.cast(_normalise(total, gamma, beta), x.dtype)


@fused
def attention_probabilities(
    scores: tf.Tensor, allowed: tf.Tensor, position_bias: tf.Tensor, seed: tf.Tensor, scale: float, rate: float
) -> tf.Tensor:
    """Softmax over the keys, then dropout.

    Args:
      scores: [B, A, L, L] products of queries and keys, to be multiplied by `scale`.
      allowed: bool, broadcastable to [B, A, L, L].
      position_bias: float32, broadcastable to [B, A, L, L].
      seed: int32 [2]; rate: of the dropout.
    """
    scores32 = tf.cast(scores, tf.float32) * scale + position_bias
    scores32 += tf.where(allowed, 0.0, MASKED_SCORE)
    return tf.cast(dropped_out(tf.nn.softmax(scores32), seed, rate), scores.dtype)


@fused
def _gelu(x: tf.Tensor) -> tf.Tensor:
    x32 = tf.cast(x, tf.float32)
    return tf.cast(0.5 * x32 * (1.0 + tf.math.erf(x32 * 0.5**0.5)), x.dtype)


@fused
def _dropout(x: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    return dropped_out(x, seed, rate)


def dropout(x: tf.Tensor, rate: float, seeds: SeedStream | None) -> tf.Tensor:
    """Inverted dropout; `seeds` None or rate 0 returns `x` itself."""
    if seeds is None or rate == 0.0:
        return x
    return _dropout(x, seeds.next(), rate=rate)
