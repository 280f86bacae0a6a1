"""The transformer encoder: embeddings of size E, a projection to H, post-norm or pre-norm layers.

Main network, generator and both towers of a two-tower generator are the same class; they differ in `Architecture`,
scope, embedding block (own or shared) and attention direction. B batch, L length, E embedding, H hidden, A heads, D
head size.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.fused_attention import attend_to_lengths, can_fuse, keys_of_lengths
from electra_tf2.model.gated import GatedDense
from electra_tf2.model.kernels import blocks, within_program
from electra_tf2.model.kernels.blocks import MASKED_SCORE, Direction, reaches
from electra_tf2.model.kernels.compilation import are_one_program, attention_is_fused, keeping_little, with_kernel
from electra_tf2.model.kernels.tiles import Bias, Tiling, queries_of_tile, tiled_attention
from electra_tf2.model.keys import Keys
from electra_tf2.model.layers import (
    Dense,
    LayerNorm,
    SeedStream,
    SizedLayer,
    dropout,
    dropped_out,
    glorot_uniform,
    norm_of_sum,
    residual_sum,
    shape_of,
    sum_and_norm,
    truncated_normal,
)
from electra_tf2.model.local_attention import in_blocks, keys_of_blocks, windows, within
from electra_tf2.model.positions import blocks_of
from electra_tf2.model.recomputation import recomputed
from electra_tf2.model.relative_positions import (
    RelativePositionBias,
    TransformerXLTerms,
    between,
    relative_scores,
    rotated,
    rotation,
    sloped_bias,
    start_of_turns,
)

LONG = 2048  # length from which attention is in tiles: memory counts for more than their time (benchmarks/RESULTS.md)
LONG_IN_PROGRAM = 512  # the same where the whole step is one program, for GPUs and TPUs, which have less memory


@with_kernel(blocks.split_heads, within_program.split_heads)
def split_heads(product: tf.Tensor, bias: tf.Tensor, heads: int) -> list[tf.Tensor]:
    """[B, L, 3 A D] and [3 A D] -> queries, keys and values, [B, A, L, D] each."""
    rows, length = shape_of(product)[:2]
    return tf.unstack(tf.transpose(tf.reshape(product + bias, [rows, length, 3, heads, -1]), [2, 0, 3, 1, 4]))


@with_kernel(blocks.attention, within_program.attention)
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
      scores: [B, A, L, L], q k^T; scale: 1 / sqrt(D).
      values: [B, A, L, D].
      allowed: bool, broadcastable to the scores.
      position_bias: float32 [1, 1 or A, 1 or L, 1 or L].
      seed: int32 [2]; rate: of the dropout of the probabilities.
    """
    biased = scale * scores + position_bias
    probabilities = tf.nn.softmax(tf.where(allowed, biased, biased + MASKED_SCORE))
    return tf.matmul(dropped_out(probabilities, seed, rate=rate), values)


class SelfAttention(SizedLayer):
    """Multi-head self-attention with one fused query-key-value product (Vaswani et al. 2017, section 3.2).

    on_whole_arrays: whether `scores` needs all queries and keys at once, so that attention cannot be in tiles or
      blocks.
    """

    on_whole_arrays = False

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0, theta: float | None = None) -> None:
        super().__init__(scope, architecture, seed)
        hidden = architecture.hidden_size
        initializer, has_bias = truncated_normal(architecture.initializer_range), architecture.attention_bias
        self.num_heads = architecture.num_attention_heads
        self.head_size = architecture.head_size
        self.probs_dropout_rate = architecture.attention_probs_dropout_prob
        start, kernel = start_of_turns(architecture, theta), (hidden, 3 * hidden, initializer, seed)
        self.qkv = Dense(f"{scope}/self/qkv", *kernel, has_bias=has_bias, bias_initializer=start)
        to_residual = truncated_normal(architecture.residual_initializer_range)
        self.output_dense = Dense(f"{scope}/output/dense", hidden, hidden, to_residual, seed, has_bias=has_bias)
        self.query_norm = self.key_norm = None
        if architecture.qk_norm:
            self.query_norm = LayerNorm(f"{scope}/self/query_norm", self.head_size, architecture)
            self.key_norm = LayerNorm(f"{scope}/self/key_norm", self.head_size, architecture)
        self.relative_key = None
        if architecture.positions.distances is not None:
            self.relative_key = self.weight("self/relative_key/kernel", [hidden, hidden], initializer)

    def call(self, x: tf.Tensor, keys: Keys, seeds: SeedStream | None) -> tf.Tensor:
        """[B, L, H] -> [B, L, H] without the last bias."""
        length, blocks = shape_of(x)[1], keys.blocks
        product = self.qkv.product(x)
        product = product if blocks is None else in_blocks(product, blocks)
        split = split_heads if keys.lengths is None else within_program.split_states
        q, k, v = split(product, self.qkv.added, heads=self.num_heads)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        rate, seed = (0.0, (0, 0)) if seeds is None else (self.probs_dropout_rate, seeds.next())
        if blocks is not None:
            q, k, v = windows(q, k, v, keys.rotation, blocks)
        elif keys.rotation is not None:
            q, k = rotated(q, *keys.rotation), rotated(k, *keys.rotation)
        if keys.lengths is not None:
            scale, hidden = self.head_size**-0.5, self.num_heads * self.head_size
            fused = attend_to_lengths((q, k, v), keys, seeds, self, scale, rate)
            return self.output_dense.product(tf.reshape(fused, [-1, length, hidden]))
        output = self.attend(q, k, v, keys, seed, rate)
        return self.output_dense.product(output if blocks is None else output[:, :length])

    def attend(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, context: Keys, seed: tf.Tensor, rate: float
    ) -> tf.Tensor:
        """softmax(scale q k^T + bias) v with dropout of the probabilities: [B, A, L, D] each -> [B, L, H].

        In blocks of queries, q is [B n, A, T, D], k and v [B n, A, K, D], and L of the result n T.

        Args:
          seed: int32 [2]; rate: of the dropout.
        """
        sequences, scale = (context.allowed, context.position_bias, seed), self.head_size**-0.5
        if context.tiling is not None:
            output = tiled_attention((q, k, v), *sequences, context.tiling, scale=scale, rate=rate)
        else:
            scores = self.scores(q, k, context)
            output = tf.transpose(attention(scores, v, *sequences, scale=scale, rate=rate), [0, 2, 1, 3])
        length = shape_of(output)[1] * (1 if context.blocks is None else context.blocks.number)
        return tf.reshape(output, [-1, length, self.num_heads * self.head_size])

    def scores(self, q: tf.Tensor, k: tf.Tensor, context: Keys) -> tf.Tensor:
        """Computes q k^T, and what a position scheme adds to the product, on whole arrays: [B, A, L, L]."""
        if context.terms is not None:
            return relative_scores(q, k, self.relative_key, context.terms)
        return tf.matmul(q, k, transpose_b=True)


class EncoderOutput(NamedTuple):
    """Results of an encoder, in its compute type.

    sequence: [B, L, H], the last layer, normalised where layers are pre-norm. embeddings: [B, L, H], the first one's
    input. layers: every layer's output [B, L, H].
    """

    sequence: tf.Tensor
    embeddings: tf.Tensor
    layers: tuple[tf.Tensor, ...]
    attention: Mapping[tuple[int, int], Any] = types.MappingProxyType({})


class TransformerLayer(SizedLayer):
    """Attention and feed-forward, each a residual branch.

    norm_style "post" normalises after each sum: x = norm(x + branch(x)) (BERT). "pre" normalises what a branch reads:
    x = x + branch(norm(x)), and the encoder normalises its last layer (Xiong et al. 2020, "On Layer Normalization in
    the Transformer Architecture").

    >>> layer = TransformerLayer("layer", make_architecture("small", {"hidden_size": 64}, 600, None))
    >>> keys = Keys(allowed=tf.ones([2, 1, 1, 7], tf.bool), position_bias=tf.zeros([1, 1, 1, 1]))
    >>> layer(tf.zeros([2, 7, 64]), keys, None).shape
    TensorShape([2, 7, 64])

    Args:
      attention_of, ffn_of: layers whose attention or feed-forward network, with its norm, is used instead of an own
        one (ALBERT, Lan et al. 2020, section 3.1).
      has_norm: whether attention has a norm; without one it reads `x` as it is.
      theta: base of the angles by which rotary turns queries and keys; None: the architecture's.
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        attention_of: "TransformerLayer | None" = None,
        ffn_of: "TransformerLayer | None" = None,
        has_norm: bool = True,
        theta: float | None = None,
        attention_class: type[SelfAttention] = SelfAttention,
    ) -> None:
        super().__init__(scope, architecture, seed)
        hidden, inner = architecture.hidden_size, architecture.intermediate_size
        initializer = truncated_normal(architecture.initializer_range)
        self.dropout_rate = architecture.hidden_dropout_prob
        self._pre_norm = architecture.norm_style == "pre"
        self.attention_norm: LayerNorm | None
        if attention_of is not None:
            self.attention: SelfAttention = attention_of.attention
            self.attention_norm = attention_of.attention_norm if has_norm else None
        else:
            self.attention = attention_class(f"{scope}/attention", architecture, seed, theta)
            self.attention_norm = None
            if has_norm:
                self.attention_norm = LayerNorm(f"{scope}/attention/output/LayerNorm", hidden, architecture)
        if ffn_of is not None:
            self.intermediate: Dense = ffn_of.intermediate
            self.output_dense: Dense = ffn_of.output_dense
            self.output_norm: LayerNorm = ffn_of.output_norm
        else:
            kind, name = (GatedDense, "gated") if architecture.gated_mlp else (Dense, "dense")
            first = (f"{scope}/intermediate/{name}", hidden, inner, initializer, seed, architecture.hidden_act)
            self.intermediate = kind(*first, has_bias=architecture.mlp_bias)
            to_residual = truncated_normal(architecture.residual_initializer_range)
            last = (f"{scope}/output/dense", inner, hidden, to_residual, seed)
            self.output_dense = Dense(*last, has_bias=architecture.mlp_bias)
            self.output_norm = LayerNorm(f"{scope}/output/LayerNorm", hidden, architecture)

    def call(self, x: tf.Tensor, keys: Keys, seeds: SeedStream | None) -> tf.Tensor:
        """[B, L, H] -> [B, L, H]."""
        if self._pre_norm:
            normed = x if self.attention_norm is None else self.attention_norm(x)
            branch = self.attention(normed, keys, seeds)
            x, normed = self._end_branch(sum_and_norm, x, branch, self.attention.output_dense, self.output_norm, seeds)
            branch = within_program.feed_forward(self.intermediate, self.output_dense, normed)
            rate, seed = (0.0, (0, 0)) if seeds is None else (self.dropout_rate, seeds.next())
            return residual_sum(x, branch, self.output_dense.added, seed, rate=rate)
        branch = self.attention(x, keys, seeds)
        x = self._end_branch(norm_of_sum, x, branch, self.attention.output_dense, self.attention_norm, seeds)
        branch = within_program.feed_forward(self.intermediate, self.output_dense, x)
        return self._end_branch(norm_of_sum, x, branch, self.output_dense, self.output_norm, seeds)

    def _end_branch(
        self,
        formula: Callable[..., Any],
        x: tf.Tensor,
        branch: tf.Tensor,
        last: Dense,
        norm: LayerNorm | None,
        seeds: SeedStream | None,
    ) -> Any:
        """Adds a branch, whose last layer's bias is missing, and normalises the sum."""
        assert norm is not None
        rate, seed = (0.0, (0, 0)) if seeds is None else (self.dropout_rate, seeds.next())
        return formula(x, branch, last.added, norm.gamma, norm.added, seed, rate=rate, epsilon=norm.epsilon)


class Encoder(SizedLayer):
    """A BERT-style encoder: int32 [B, L] ids to float [B, L, H] states.

    >>> encoder = Encoder("electra", make_architecture("small", {"num_hidden_layers": 2, "hidden_size": 64}, 600, 32))
    >>> ids = tf.ones([2, 7], tf.int32)
    >>> encoder(ids, input_mask=tf.ones_like(ids), segment_ids=tf.zeros_like(ids)).sequence.shape
    TensorShape([2, 7, 64])

    Args:
      scope: "electra", "generator", "generator_ltr", ...
      architecture: sizes; `embedding_size` must be that of `embeddings` where given.
      embeddings: an embedding block to share (ELECTRA, section 3.2: weight sharing), or None for an own one.
      direction: which keys a position may see; "both" for everything but the towers of a two-tower generator.
      compute_dtype: type of activations and matrix products.
      recompute: "layers": keep nothing of a layer but its input (model.recomputation); "selective": keep no pairs of
        positions, nor outputs of activations (`keeping_little`).
    """

    attention_class: type[SelfAttention] = SelfAttention

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        embeddings: Embeddings | None = None,
        direction: Direction = "both",
        compute_dtype: str = "float32",
        seed: int = 0,
        recompute: str = "none",
    ) -> None:
        super().__init__(scope, architecture, seed)
        self.direction = direction
        self._recompute = recompute
        self.activation_dtype = tf.as_dtype(compute_dtype)
        self.embeddings = embeddings or Embeddings(f"{scope}/embeddings", architecture, seed)
        self.project = None
        if architecture.embedding_size != architecture.hidden_size:
            self.project = Dense(
                f"{scope}/embeddings_project",
                architecture.embedding_size,
                architecture.hidden_size,
                glorot_uniform,
                seed,
                has_bias=architecture.embedding_norm != "after",
            )
        self.embedding_norm = None
        if architecture.embedding_norm == "after":
            self.embedding_norm = LayerNorm(f"{scope}/embeddings_LayerNorm", architecture.hidden_size, architecture)
        positions = architecture.positions
        self._bias: Bias = "learned" if positions.bucket is not None else "none"
        self.relative_positions = None
        if positions.bucket is not None:
            self.relative_positions = RelativePositionBias(f"{scope}/encoder", architecture, seed)
        self.relative_terms = None
        if positions.distances is not None:
            self.relative_terms = TransformerXLTerms(f"{scope}/encoder", architecture, seed)
        self._slopes = None
        self._frequencies: dict[bool, np.ndarray] = {}
        if positions.slopes is not None:
            self._slopes = np.array(positions.slopes(architecture.num_attention_heads), np.float32)
            self._bias = "fixed" if self._bias == "none" else self._bias
        if positions.frequencies is not None:
            theta, head_size = architecture.rope_theta, architecture.head_size
            for is_local, base in ((False, theta), (True, architecture.local_rope_theta or theta)):
                self._frequencies[is_local] = np.array(positions.frequencies(head_size, base), np.float32)
        self.transformer_layers = self._make_layers()
        self._reaches = [architecture.reach(number) for number in range(architecture.num_hidden_layers)]
        self.final_norm = None
        if architecture.norm_style == "pre":
            self.final_norm = LayerNorm(f"{scope}/encoder/LayerNorm", architecture.hidden_size, architecture)

    def _make_layers(self) -> list[TransformerLayer]:
        """Makes layers from the uppermost down, as shared weights are those of the uppermost layer that uses them."""
        a = self.architecture
        made: dict[int, TransformerLayer] = {}
        shared = zip(a.shared_with("attention"), a.shared_with("ffn"), strict=True)
        for number, (attending, feeding) in reversed(list(enumerate(shared))):
            scope = f"{self.scope}/encoder/layer_{number}"
            own = (a.first_norm or number > 0, a.theta(number))
            made[number] = TransformerLayer(scope, a, self.seed, made.get(attending), made.get(feeding), *own, self.attention_class)
        return [made[number] for number in range(a.num_hidden_layers)]

    def call(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None = None
    ) -> EncoderOutput:
        """Encodes int32 [B, L] ids.

        Args:
          input_mask: int32 [B, L], 1 at real tokens.
          segment_ids: int32 [B, L].
          seeds: of the dropout; None switches it off.
        """
        return self.encode(self.embeddings(input_ids, segment_ids, seeds), input_mask, seeds)

    def encode(self, embedded: tf.Tensor, input_mask: tf.Tensor, seeds: SeedStream | None = None) -> EncoderOutput:
        """Encodes what `embeddings` made of a batch.

        Args:
          embedded: float32 [B, L, E], of `Embeddings.combine`.
          input_mask, seeds: as for `call`.
        """
        x = tf.cast(embedded, self.activation_dtype)
        if self.project is not None:
            x = self.project(x)
        if self.embedding_norm is not None:
            x = dropout(self.embedding_norm(x), self.architecture.hidden_dropout_prob, seeds)
        embeddings, outputs = x, []
        keys_of = {reach: self._keys(input_mask, reach) for reach in dict.fromkeys(self._reaches)}
        for number, reach in enumerate(self._reaches):
            x = self.run_layer(number, x, keys_of[reach], seeds)
            outputs.append(x)
        sequence = x if self.final_norm is None else self.final_norm(x)
        return EncoderOutput(sequence, embeddings, tuple(outputs))

    def run_layer(self, number: int, x: tf.Tensor, context: Keys, seeds: SeedStream | None) -> tf.Tensor:
        """Runs a layer, from 0: [B, L, H] -> [B, L, H]."""
        layer = self.transformer_layers[number]
        if self.recomputes(number):
            return recomputed(layer, x, context, seeds)
        with keeping_little(context.are_long):
            return layer(x, context, seeds)

    def recomputes(self, number: int) -> bool:
        """Tells whether nothing of a layer, from 0, is kept for its gradient but its input."""
        del number
        return self._recompute == "layers"

    def get_config(self) -> dict[str, Any]:
        """Embeddings that are shared are not part of it."""
        return super().get_config() | {"direction": self.direction, "compute_dtype": self.activation_dtype.name}

    def _keys(self, input_mask: tf.Tensor, reach: int | None) -> Keys:
        """Prepares what all layers of this reach need."""
        in_tiles = not self.attention_class.on_whole_arrays
        length, long = shape_of(input_mask)[1], LONG_IN_PROGRAM if are_one_program() else LONG
        allowed = tf.cast(tf.reshape(input_mask, [-1, 1, 1, length]), tf.bool)
        bias = tf.zeros([1, 2 * length - 1])
        if self.relative_positions is not None:
            bias += self.relative_positions(length)
        if self._slopes is not None:
            bias += sloped_bias(self._slopes, length)
        turn = rotation(self._frequencies[reach is not None], length) if self._frequencies else None
        kind = self._bias
        if reach is not None:
            kind, bias = ("fixed" if kind == "none" else kind), within(bias, reach, self.direction)
            blocks = blocks_of(length, reach) if in_tiles and isinstance(length, int) else None
            if blocks is not None:
                return Keys(*keys_of_blocks(input_mask, bias, blocks), turn, blocks=blocks)
        terms = None if self.relative_terms is None else self.relative_terms(length)
        fuses = attention_is_fused() and in_tiles and terms is None and can_fuse(input_mask.shape, self.direction)
        long = 0 if self._recompute == "selective" else long
        if in_tiles and terms is None and not fuses and isinstance(length, int) and length >= long:
            queries = queries_of_tile(input_mask.shape)
            if queries is not None:
                bias += 0.0 if reach is None else tf.zeros([self.architecture.num_attention_heads, 1])
                return Keys(allowed, bias, turn, tiling=Tiling(queries, self.direction, kind), are_long=True)
        if self.direction != "both":
            allowed &= reaches(self.direction, tf.range(length)[:, tf.newaxis], tf.range(length))
        bias = tf.zeros([1, 1, 1, 1]) if kind == "none" else between(bias, length)
        keys = Keys(allowed, bias, turn, terms, are_long=fuses and length >= long)
        return keys_of_lengths(keys, input_mask, self.activation_dtype) if fuses else keys
