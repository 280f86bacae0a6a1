"""An encoder that keeps attention maps of some heads, which mispredicted tokens' attention is penalised by.

B batch, L length, A heads, D head size.
"""

from collections.abc import Collection
from typing import Any, NamedTuple, cast

import tensorflow as tf

from electra_tf2.model.attention import AttentionContext, SelfAttention
from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.kernels.cpu import MASKED_SCORE
from electra_tf2.model.layers import SeedStream

_untracked = tf.__internal__.tracking.no_automatic_dependency_tracking


class AttentionMap(NamedTuple):
    """Attention of one head of one layer; rows are queries. Queries at padding hold numbers without a meaning.

    scores: float32 [B, L, L], q k^T / sqrt(D), before position biases are added and forbidden keys are masked.
    probabilities: float32 [B, L, L], before dropout.
    """

    scores: tf.Tensor
    probabilities: tf.Tensor


class ObservedAttention(SelfAttention):
    """Attention that keeps maps of the heads in `observed_heads`.

    maps: head -> map, of the last call.
    """

    on_whole_arrays = True
    observed_heads: Collection[int] = ()

    def scores(self, q: tf.Tensor, k: tf.Tensor, context: AttentionContext) -> tf.Tensor:
        scores = super().scores(q, k, context)
        self._keep({head: self._map(scores, context, head) for head in self.observed_heads})
        return scores

    @_untracked
    def _keep(self, maps: dict[int, AttentionMap]) -> None:
        self.maps = maps

    def _map(self, scores: tf.Tensor, context: AttentionContext, head: int) -> AttentionMap:
        """Computes one head's map, as no probabilities are kept."""
        bias = context.position_bias[:, min(head, context.position_bias.shape[1] - 1)]
        scaled = tf.cast(scores[:, head], tf.float32) * self.head_size**-0.5
        return AttentionMap(scaled, tf.nn.softmax(scaled + bias + tf.where(context.allowed[:, 0], 0.0, MASKED_SCORE)))


class ObservedOutput(NamedTuple):
    """`EncoderOutput`, and attention maps: (layer, head) -> map."""

    sequence: tf.Tensor
    embeddings: tf.Tensor
    layers: tuple[tf.Tensor, ...]
    attention: dict[tuple[int, int], AttentionMap]


class ObservedEncoder(Encoder):
    """An encoder that returns attention maps, too.

    Args:
      observed: (layer, head) to keep, both from 0. With recompute "layers" their layers are not computed again.
      arguments, named: of `Encoder`.
    """

    attention_class = ObservedAttention

    def __init__(self, *arguments: Any, observed: Collection[tuple[int, int]], **named: Any) -> None:
        super().__init__(*arguments, **named)
        heads: dict[int, list[int]] = {}
        for layer, head in sorted(observed):
            heads.setdefault(layer, []).append(head)
        self._keep(heads, {})

    @_untracked
    def _keep(self, heads: dict[int, list[int]], maps: dict[tuple[int, int], AttentionMap]) -> None:
        self._heads, self.maps = heads, maps

    def encode(self, embedded: tf.Tensor, input_mask: tf.Tensor, seeds: SeedStream | None = None) -> EncoderOutput:
        self._keep(self._heads, {})
        output = super().encode(embedded, input_mask, seeds)
        return cast(EncoderOutput, ObservedOutput(*output, self.maps))  # it has all fields of one

    def run_layer(self, number: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        attention = self.transformer_layers[number].attention
        assert isinstance(attention, ObservedAttention)
        attention.observed_heads = tuple(self._heads.get(number, ()))
        if number not in self._heads:
            return super().run_layer(number, x, context, seeds)
        x = self.transformer_layers[number](x, context, seeds)
        self.maps.update({(number, head): attention.maps[head] for head in attention.observed_heads})
        return x
