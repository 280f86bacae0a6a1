"""The building blocks of every network: dense layers, layer norm, dropout, activations.

Variables are float32 and have the original's names. Layers compute in the type of their input; formulas compute in
float32 inside. `with_kernel` names the compiled kernel that runs in a formula's place, unless `kernels.off()`.
"""

import zlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import Initializer, ones, zeros
from electra_tf2.model.kernels import activations, norms
from electra_tf2.model.kernels import dropout as dropout_kernels
from electra_tf2.model.kernels.dtypes import cast_weight, to_float32
from electra_tf2.model.kernels.feed_forward import product_in_program
from electra_tf2.model.kernels.norms import LAYER_NORM_EPSILON
from electra_tf2.model.kernels.products import matmul, matrix_product
from electra_tf2.model.kernels.switch import are_one_program, with_kernel

# Formulas: x [..., n]; bias, gamma, beta [n]; seed int32 [2].


@with_kernel(activations.add_bias, activations.add_bias_in_program)
def add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """x + bias."""
    return x + bias


@with_kernel(activations.gelu, activations.gelu_in_program)
def gelu(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """y Phi(y) with y = x + bias: gelu in its exact, erf form (Hendrycks and Gimpel 2016, equation 1)."""
    y = x + bias
    return y * 0.5 * (1.0 + tf.math.erf(y * 0.5**0.5))


@with_kernel(dropout_kernels.dropout)
def dropped_out(x: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """x / (1 - rate), or 0 with probability `rate`, decided by a hash of the seed and the place in the array."""
    if rate == 0.0:
        return x
    kept = dropout_kernels.are_kept(tf.shape(x), seed, rate)
    return tf.where(kept, x / (1.0 - rate), tf.zeros_like(x))


@with_kernel(norms.layer_norm, norms.layer_norm_in_program)
def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float = LAYER_NORM_EPSILON) -> tf.Tensor:
    """gamma (x - mean) / deviation + beta, over the last axis (Ba et al. 2016), epsilon 1e-12 as in the original."""
    mean = tf.reduce_mean(x, -1, keepdims=True)  # [..., 1]
    variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
    return (x - mean) * (gamma * tf.math.rsqrt(variance + epsilon)) + beta


@with_kernel(norms.norm_of_sum, norms.norm_of_sum_in_program)
def norm_of_sum(
    x: tf.Tensor,
    branch: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    seed: tf.Tensor,
    rate: float,
    epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
    """layer_norm(x + dropout(branch + bias)): end of a residual branch in post-norm layers.

    Vaswani et al. 2017, section 3.1.
    """
    total = x + dropped_out(branch + bias, seed, rate=rate)
    return layer_norm(total, gamma, beta, epsilon=epsilon)


@with_kernel(norms.residual_sum, norms.residual_sum_in_program)
def residual_sum(x: tf.Tensor, branch: tf.Tensor, bias: tf.Tensor, seed: tf.Tensor, rate: float) -> tf.Tensor:
    """x + dropout(branch + bias): end of a residual branch in pre-norm layers."""
    return x + dropped_out(branch + bias, seed, rate=rate)


def activation(name: str) -> Callable[..., tf.Tensor]:
    """Returns the activation that `hidden_act` names: (x [..., n], bias [n] or None) -> activation(x + bias)."""
    if name == "gelu":
        return _gelu_with_bias
    functions: dict[str, Callable[..., tf.Tensor]] = {"relu": tf.nn.relu, "tanh": tf.tanh, "linear": _identity}
    function = functions[name]

    def activated(x: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
        if bias is not None:
            x = add_bias(x, bias)
        return function(x)

    return activated


def _identity(x: tf.Tensor) -> tf.Tensor:
    return x


def _gelu_with_bias(x: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    if bias is None:
        bias = tf.zeros(x.shape[-1:], to_float32(x).dtype)
    return gelu(x, bias)


# Layers.


class Layer(tf_keras.layers.Layer):
    """A Keras layer whose variables live under a fixed scope such as "electra/encoder/layer_0/output".

    Args:
      scope: prefix of the variable names: the original program's variable scope.
      seed: initial values are a function of (seed, variable name).
    """

    def __init__(self, scope: str, seed: int = 0) -> None:
        super().__init__(name=scope.replace("/", "_") or None, dtype="float32", autocast=False)
        self.scope = scope
        self.seed = seed

    def weight(self, name: str, shape: list[int], initializer: Initializer, decay: bool = True) -> tf.Variable:
        """Makes a trainable float32 variable `scope/name`, initialised by `initializer(shape, seed)`.

        Args:
          decay: whether weight decay applies to the variable: true for kernels and tables, false for biases and layer
            norms.
        """
        full_name = name
        if self.scope:
            full_name = f"{self.scope}/{name}"
        name_hash = zlib.crc32(full_name.encode())
        seed = [self.seed & 0x7FFFFFFF, name_hash & 0x7FFFFFFF]  # int32, not negative

        def initial_value(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
            return tf.cast(initializer(shape, seed), dtype)

        variable = self.add_weight(name=full_name, shape=shape, initializer=initial_value, dtype="float32")
        variable.decays = decay
        return variable

    @staticmethod
    def decays(variable: tf.Variable) -> bool:
        """Tells whether weight decay applies to a variable that `weight` made."""
        return variable.decays


class Dense(Layer):
    """activation(x W + b) over the last axis, one matrix product for all leading axes.

    Args:
      initializer: initial values of the kernel W.
      act: name of the activation.
      bias_initializer: initial values of the bias b.
    """

    def __init__(
        self,
        scope: str,
        input_size: int,
        output_size: int,
        initializer: Initializer,
        seed: int = 0,
        act: str = "linear",
        has_bias: bool = True,
        bias_initializer: Initializer = zeros,
    ) -> None:
        super().__init__(scope, seed)
        self.output_size = output_size
        self._activation = activation(act)
        self.kernel = self.weight("kernel", [input_size, output_size], initializer)
        self.bias: tf.Variable = None
        if has_bias:
            self.bias = self.weight("bias", [output_size], bias_initializer, decay=False)

    @property
    def bias_or_zeros(self) -> tf.Tensor:
        """The bias, or zeros where the layer has none, for formulas that add it."""
        if self.bias is None:
            return tf.zeros([self.output_size])
        return self.bias

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., input_size] -> [..., output_size]."""
        return self.activated(self.product(x), self.bias)

    def activated(self, product: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
        """Computes activation(product + bias)."""
        return self._activation(product, bias)

    def product(self, x: tf.Tensor) -> tf.Tensor:
        """Computes x W, for a formula that adds the bias itself."""
        kernel = cast_weight(self.kernel, x.dtype)
        if are_one_program():
            return matrix_product(x, kernel, product_in_program)
        return matrix_product(x, kernel, matmul)


def shape_of(x: tf.Tensor) -> list[Any]:
    """The shape: integers where sizes are known when a graph is traced, else scalar tensors."""
    dynamic = tf.shape(x)
    sizes = []
    for axis, size in enumerate(x.shape):
        sizes.append(dynamic[axis] if size is None else size)
    return sizes


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Derives a new seed, int32 [2], from a seed and a number.

    alg is given because the default algorithm has other results within XLA than elsewhere if the seed is negative.
    """
    return tf.random.experimental.stateless_fold_in(seed, number, alg="philox")


class SeedStream:
    """A new stateless seed for each dropout of a forward pass.

    Args:
      seed: int32 [2], a function of (seed of the run, step, replica, micro-batch).
    """

    def __init__(self, seed: tf.Tensor) -> None:
        # `fold_in` hashes a seed to its first entry; the second is the number, 0. There `next` puts its count.
        self._seed = fold_in(seed, 0)
        self.count = 0

    def next(self) -> tf.Tensor:
        """Returns the next seed, int32 [2]."""
        self.count += 1
        return self._seed + tf.constant([0, self.count], self._seed.dtype)

    def skip_past(self, other: "SeedStream") -> None:
        """Skips the seeds that a copy of this stream returned."""
        self.count = max(self.count, other.count)


class LayerNorm(Layer):
    """Layer normalisation over the last axis.

    Args:
      size: of the last axis.
      architecture: decides whether there is a bias (norm_bias), and the epsilon (norm_eps); None: as in the original.
    """

    def __init__(self, scope: str, size: int, architecture: Architecture | None = None) -> None:
        super().__init__(scope)
        has_bias = True
        self.epsilon = LAYER_NORM_EPSILON
        if architecture is not None:
            has_bias = architecture.norm_bias
            self.epsilon = architecture.norm_eps
        self.beta: tf.Variable = None
        if has_bias:
            self.beta = self.weight("beta", [size], zeros, decay=False)
        self.gamma = self.weight("gamma", [size], ones, decay=False)

    @property
    def beta_or_zeros(self) -> tf.Tensor:
        """beta, or zeros where the layer has none, for formulas that add it."""
        if self.beta is None:
            return tf.zeros(self.gamma.shape)
        return self.beta

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return layer_norm(x, self.gamma, self.beta_or_zeros, epsilon=self.epsilon)


def seed_and_rate(seeds: SeedStream | None, rate: float) -> tuple[tf.Tensor, float]:
    """Seed and rate for a formula with dropout inside; where `seeds` is None the rate is 0 and any seed will do."""
    if seeds is None:
        return tf.zeros([2], tf.int32), 0.0
    return seeds.next(), rate


def dropout(x: tf.Tensor, rate: float, seeds: SeedStream | None) -> tf.Tensor:
    """Inverted dropout; returns `x` itself if `seeds` is None or the rate 0."""
    if seeds is None or rate == 0.0:
        return x
    return dropped_out(x, seeds.next(), rate=rate)
