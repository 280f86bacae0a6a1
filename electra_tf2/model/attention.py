"""Self-attention: on whole arrays, or in tiles where sequences are long (model.kernels.tiles).

In local layers a token attends to a window of neighbours: all others are masked (model.local_attention).

Shapes: B batch, L length, H hidden, A heads, D head size.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import tensorflow as tf

from electra_tf2.model import local_attention
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import Initializer, truncated_normal, zeros
from electra_tf2.model.kernels import whole_attention
from electra_tf2.model.kernels.positions import Direction, between, reaches
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.switch import are_one_program, with_kernel
from electra_tf2.model.kernels.tiles import Bias, Tiling, queries_of_tile, tiled_attention
from electra_tf2.model.kernels.whole_attention import MASKED_SCORE
from electra_tf2.model.layers import Dense, Layer, SeedStream, dropped_out, seed_and_rate, shape_of

# Length from which attention is in tiles: they take more time and less memory (benchmarks/RESULTS.md).
LONG = 2048
# The same where the whole step is one program: for GPUs and TPUs, which have less memory.
LONG_IN_PROGRAM = 512

# Which sequences are attended to in tiles, if their length can be cut.
TiledSequences: TypeAlias = Literal["none", "long", "all"]

# Formulas.


@with_kernel(whole_attention.split_heads, whole_attention.split_heads_in_program)
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> list[tf.Tensor]:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""
    rows, length, _ = shape_of(product)
    head_size = product.shape[-1] // (3 * heads)
    columns = tf.reshape(product + bias, [rows, length, 3, heads, head_size])
    by_head = tf.transpose(columns, [2, 0, 3, 1, 4])  # [3, B, A, L, D]
    return tf.unstack(by_head)


@with_kernel(whole_attention.attention, whole_attention.attention_in_program)
def attention(
    scores: tf.Tensor,
    values: tf.Tensor,
    allowed: tf.Tensor,
    position_bias: tf.Tensor,
    seed: tf.Tensor,
    scale: float,
    rate: float,
) -> tf.Tensor:
    """softmax(q k^T / sqrt(D) + position bias) v (Vaswani et al. 2017, equation 1): [B, A, L, D].

    Args:
      scores: [B, A, L, L], q k^T.
      values: [B, A, L, D], v.
      allowed: bool, broadcastable to the scores: which keys a query may attend to.
      position_bias: float32 [1, 1 or A, 1 or L, 1 or L].
      seed: int32 [2], of the dropout.
      scale: 1 / sqrt(D).
      rate: dropout of the probabilities.
    """
    # The mask comes before the bias: TensorFlow's graph optimizer would fuse product, scale and bias in a row, into an
    # operation of oneDNN that takes ten times as long where the bias is [L, L].
    scaled = scale * scores
    masked = tf.where(allowed, scaled, scaled + MASKED_SCORE) + position_bias
    probabilities = tf.nn.softmax(masked)  # [B, A, L, L]
    return matmul(dropped_out(probabilities, seed, rate=rate), values)


# Layers.


# Rotates queries or keys [B, A, L, D] by their positions.
Rotation: TypeAlias = Callable[[tf.Tensor], tf.Tensor]


class AttentionContext(NamedTuple):
    """Mask and positions of a batch, the same in all layers with the same window.

    length: L.
    allowed: bool [B, 1, 1 or L, L], which keys a query may attend to; in tiles [B, 1, 1, L] whatever the direction.
    position_bias: float32 [1, 1 or A, 1 or L, 1 or L], added to the scaled scores; in tiles [1 or A, 2L - 1], by
      distance.
    positions: layer of the network's position scheme.
    rotation: rotates queries and keys; None if the scheme does not rotate them.
    tiling: how attention is cut into tiles; None on whole arrays.
    """

    length: int | tf.Tensor
    allowed: tf.Tensor
    position_bias: tf.Tensor
    positions: "Positions"
    rotation: Rotation | None = None
    tiling: Tiling | None = None


class SelfAttention(Layer):
    """Multi-head self-attention with one fused query-key-value product (Vaswani et al. 2017, section 3.2).

    Class attributes:
      on_whole_arrays: true if `scores` needs all queries and keys at once, so that attention is never in tiles.

    Args:
      qkv_initializer: initial bias of queries, keys and values.
    """

    on_whole_arrays = False

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        qkv_initializer: Initializer = zeros,
    ) -> None:
        super().__init__(scope, seed)
        hidden = architecture.hidden_size
        has_bias = architecture.attention_bias
        initializer = truncated_normal(architecture.initializer_range)
        residual_initializer = truncated_normal(architecture.residual_initializer_range)
        self.num_heads = architecture.num_attention_heads
        self.head_size = architecture.head_size
        self.probs_dropout_rate = architecture.attention_probs_dropout_prob
        self.qkv = Dense(
            f"{scope}/self/qkv", hidden, 3 * hidden, initializer, seed, has_bias=has_bias,
            bias_initializer=qkv_initializer,
        )  # fmt: skip
        self.output_dense = Dense(
            f"{scope}/output/dense", hidden, hidden, residual_initializer, seed, has_bias=has_bias
        )

    def call(self, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        """[B, L, H] -> [B, L, H] without the last bias, which the residual sum adds."""
        product = self.qkv.product(x)  # [B, L, 3H]
        q, k, v = split_heads(product, self.qkv.bias_or_zeros, heads=self.num_heads)  # [B, A, L, D] each
        if context.rotation is not None:
            q = context.rotation(q)
            k = context.rotation(k)
        seed, rate = seed_and_rate(seeds, self.probs_dropout_rate)
        attend = functools.partial(attention, scale=self.head_size**-0.5, rate=rate)
        if context.tiling is None:
            scores = self.scores(q, k, context)  # [B, A, L, L]
            attended = attend(scores, v, context.allowed, context.position_bias, seed)  # [B, A, L, D]
            attended = tf.transpose(attended, [0, 2, 1, 3])
        else:
            attended = tiled_attention(attend, (q, k, v), context.allowed, context.position_bias, seed, context.tiling)
        # [B, L, A, D] -> [B, L, H]: the heads beside one another.
        attended = tf.reshape(attended, [-1, context.length, self.num_heads * self.head_size])
        return self.output_dense.product(attended)

    def scores(self, q: tf.Tensor, k: tf.Tensor, context: AttentionContext) -> tf.Tensor:
        """Computes q k^T, not yet scaled, on whole arrays: [B, A, L, L]."""
        del context
        return matmul(q, k, transpose_b=True)


class Positions(Layer):
    """Adds a position scheme to attention, the same in all layers of a network. This base class adds nothing.

    `model.position_layers` names the subclass for each position scheme.

    Class attributes:
      bias_kind: whether `bias` is "none", "fixed" or "learned".
      attention_class: the attention of the encoder's layers.
    """

    bias_kind: Bias = "none"
    attention_class = SelfAttention

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        self.architecture = architecture

    def bias(self, length: int | tf.Tensor) -> tf.Tensor:
        """float32 [1 or A, 2L - 1], added to scaled scores, by distance (key - query position) from 1 - L to L - 1."""
        return tf.zeros([1, 2 * length - 1])

    def rotation(self, length: int | tf.Tensor, is_local: bool) -> Rotation | None:
        """Returns the rotation of queries and keys in local or in other layers; None if the scheme has none."""
        del length, is_local
        return None

    def qkv_initializer(self, is_local: bool) -> Initializer:
        """Returns the initializer of the bias [3 A D] of queries, keys and values, in local or in other layers."""
        del is_local
        return zeros


# Contexts of a batch.


def make_context(
    input_mask: tf.Tensor,
    positions: Positions,
    direction: Direction = "both",
    window: int | None = None,
    tiled: TiledSequences = "long",
) -> AttentionContext:
    """Prepares attention to the real tokens of a batch.

    Args:
      input_mask: int32 [B, L], 1 at real tokens.
      window: distance of the farthest token that a token sees; None: it sees all.
      tiled: which sequences are attended to in tiles.
    """
    length = shape_of(input_mask)[1]
    allowed = tf.cast(tf.reshape(input_mask, [-1, 1, 1, length]), tf.bool)
    rotation = positions.rotation(length, is_local=window is not None)
    bias_kind = positions.bias_kind
    by_distance = positions.bias(length)  # [1 or A, 2L - 1]
    if window is not None:
        by_distance = local_attention.within(by_distance, window, direction)
        if bias_kind == "none":
            bias_kind = "fixed"  # the mask of the window is a bias that is not learned

    tile_queries = _queries_of_tile(input_mask.shape, tiled)
    if tile_queries is None:  # on whole arrays
        if direction != "both":
            places = tf.range(length)
            allowed &= reaches(direction, places[:, tf.newaxis], places)  # [B, 1, L, L]
        if bias_kind == "none":
            position_bias = tf.zeros([1, 1, 1, 1])
        else:
            position_bias = between(by_distance, length)  # [1, 1 or A, L, L]
        return AttentionContext(length, allowed, position_bias, positions, rotation)

    if bias_kind != "none":
        # A tile cuts its distances out of a row for each head. Where all heads share one row, this sum copies it.
        by_distance += tf.zeros([positions.architecture.num_attention_heads, 1])  # [A, 2L - 1]
    tiling = Tiling(tile_queries, direction, bias_kind)
    return AttentionContext(length, allowed, by_distance, positions, rotation, tiling)


def _queries_of_tile(shape: tf.TensorShape, tiled: TiledSequences) -> int | None:
    """Chooses how many queries a tile of sequences [B, L] has; None: attention is on whole arrays."""
    length = shape[1]
    if length is None or tiled == "none":
        return None
    shortest = LONG
    if are_one_program():
        shortest = LONG_IN_PROGRAM
    if tiled == "long" and length < shortest:
        return None
    return queries_of_tile(shape)
