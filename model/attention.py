"""Self-attention of a layer: queries, keys and values, positions, what may be attended to.

The formulas of the blocks between the products are in model/fusion.py and, in tiles, in model/tiled_attention.py. B
batch, L length, H hidden, A heads, D head size.
"""

from collections.abc import Collection
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.fusion import MASKED_SCORE, attention, heads_apart
from electra_tf2.model.layers import Dense, SeedStream, SizedLayer, shape_of, truncated_normal
from electra_tf2.model.relative_positions import RelativeTerms, Rotation, rotated, shifted
from electra_tf2.model.tiled_attention import Tiling, tiled_attention


class AttentionMap(NamedTuple):
    """What one head of one layer attends to; rows are queries. Queries at padding hold numbers without a meaning.

    scores: float32 [B, L, L], q k^T / sqrt(d), before position biases are added and forbidden keys are masked.
    probabilities: float32 [B, L, L], before dropout.
    """

    scores: tf.Tensor
    probabilities: tf.Tensor


class Keys(NamedTuple):
    """What all layers know of the sequences.

    allowed: bool [B, 1, 1 or L, L], which keys a query may attend to.
    position_bias: float32 [1, 1 or A, 1 or L, 1 or L], added to the scaled scores.
    rotation: by which queries and keys are turned, or None.
    terms: of which Transformer-XL's scores are made, or None.
    tiling: of attention in tiles; `allowed` is [B, 1, 1, L] then, whatever the direction, and `position_bias`
      [1 or A, 2L - 1], by distance. None: attention on whole arrays.
    """

    allowed: tf.Tensor
    position_bias: tf.Tensor
    rotation: Rotation | None = None
    terms: RelativeTerms | None = None
    tiling: Tiling | None = None


class SelfAttention(SizedLayer):
    """Multi-head self-attention with one fused query-key-value product (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        hidden = architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        self.num_heads = architecture.num_attention_heads
        self.head_size = architecture.head_size
        self.probs_dropout_rate = architecture.attention_probs_dropout_prob
        self.qkv = Dense(f"{scope}/self/qkv", hidden, 3 * hidden, initializer, seed)
        to_residual = truncated_normal(architecture.residual_initializer_range)
        self.output_dense = Dense(f"{scope}/output/dense", hidden, hidden, to_residual, seed)
        self.relative_key = None
        if architecture.positions.distances is not None:
            self.relative_key = self.weight("self/relative_key/kernel", [hidden, hidden], initializer)

    def call(
        self, x: tf.Tensor, keys: Keys, seeds: SeedStream | None, heads: Collection[int] = ()
    ) -> tuple[tf.Tensor, dict[int, AttentionMap]]:
        """[B, L, H] -> [B, L, H] without the last bias, and the attention maps of some heads."""
        length, hidden = shape_of(x)[1:]
        q, k, v = heads_apart(self.qkv.product(x), self.qkv.bias, heads=self.num_heads)
        rate, seed = (0.0, (0, 0)) if seeds is None else (self.probs_dropout_rate, seeds.next())
        if keys.rotation is not None:
            q, k = rotated(q, *keys.rotation), rotated(k, *keys.rotation)
        read, scale, maps = (keys.allowed, keys.position_bias, seed), self.head_size**-0.5, {}
        if keys.tiling is not None:
            context = tiled_attention((q, k, v), *read, keys.tiling, scale=scale, rate=rate)
        else:
            scores = (
                tf.matmul(q, k, transpose_b=True) if keys.terms is None else self._relative_scores(q, k, keys.terms)
            )
            context = tf.transpose(attention(scores, v, *read, scale=scale, rate=rate), [0, 2, 1, 3])
            maps = {head: self._map(scores, keys, head) for head in heads}
        return self.output_dense.product(tf.reshape(context, [-1, length, hidden])), maps

    def _relative_scores(self, q: tf.Tensor, k: tf.Tensor, terms: RelativeTerms) -> tf.Tensor:
        """[B, A, L, L]: (q_i + u) k_j + (q_i + v) W R_(i-j) (Transformer-XL, Dai et al. 2019, section 3.3)."""
        r = tf.matmul(tf.cast(terms.distances, q.dtype), tf.cast(self.relative_key, q.dtype))
        r = tf.reshape(r, [-1, self.num_heads, self.head_size])
        u, v = (tf.cast(bias, q.dtype)[:, tf.newaxis] for bias in (terms.content_bias, terms.distance_bias))
        # The distances are the same in all rows, so the batch is part of the product's rows, not broadcast.
        return tf.matmul(q + u, k, transpose_b=True) + shifted(tf.einsum("baid,rad->bair", q + v, r))

    def _map(self, scores: tf.Tensor, keys: Keys, head: int) -> AttentionMap:
        """Of one head, computed again from the products [B, A, L, L], which the fused softmax does not keep."""
        bias = keys.position_bias[:, min(head, keys.position_bias.shape[1] - 1)]
        scaled = tf.cast(scores[:, head], tf.float32) * self.head_size**-0.5
        return AttentionMap(scaled, tf.nn.softmax(scaled + bias + tf.where(keys.allowed[:, 0], 0.0, MASKED_SCORE)))
