"""An encoder that keeps attention maps of some heads, which mispredicted tokens' attention is penalised by.

B batch, L length, A heads, D head size.
"""

from collections.abc import Collection
from typing import Any, NamedTuple, cast

import tensorflow as tf

from electra_tf2.model.attention import AttentionContext, SelfAttention
from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.kernels.whole_attention import MASKED_SCORE
from electra_tf2.model.layers import SeedStream

_untracked = tf.__internal__.tracking.no_automatic_dependency_tracking


class AttentionMap(NamedTuple):
    """Attention of one head of one layer; rows are queries. Queries at padding hold numbers without a meaning.

    scores: float32 [B, L, L], q k^T / sqrt(D), before position biases are added and forbidden keys are masked.
    probabilities: float32 [B, L, L], before dropout.
    """

    scores: tf.Tensor
    probabilities: tf.Tensor


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

    Attributes:
      maps: (layer, head) -> map, of the last call.
    """

    def __init__(self, *arguments: Any, observed: Collection[tuple[int, int]], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._observed = tuple(sorted(observed))
        self._begin_maps()
        for layer in self.transformer_layers:
            layer.attention.on_whole_arrays = True

    @_untracked
    def _begin_maps(self) -> None:
        """Forgets the maps of the call before. They are tensors, which no checkpoint holds."""
        self.maps: dict[tuple[int, int], AttentionMap] = {}

    def encode(self, embedded: tf.Tensor, input_mask: tf.Tensor, seeds: SeedStream | None = None) -> EncoderOutput:
        self._begin_maps()
        output = super().encode(embedded, input_mask, seeds)
        return cast(EncoderOutput, ObservedOutput(*output, self.maps))  # it has all fields of one

    def run_layer(self, number: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        heads = [head for layer, head in self._observed if layer == number]
        if not heads:
            return super().run_layer(number, x, context, seeds)
        layer = self.transformer_layers[number]
        attention = layer.attention
        computed_scores = attention.scores

        def kept_scores(q: tf.Tensor, k: tf.Tensor, context: AttentionContext) -> tf.Tensor:
            scores = computed_scores(q, k, context)
            for head in heads:
                self.maps[number, head] = map_of_head(scores, head, attention, context)
            return scores

        # Only while this layer runs: layers that share weights are one object under several numbers. Any class of
        # attention will do, as that of Transformer-XL's positions.
        attention.scores = kept_scores  # type: ignore[method-assign]
        try:
            return layer(x, context, seeds)
        finally:
            del attention.scores


def map_of_head(scores: tf.Tensor, head: int, attention: SelfAttention, context: AttentionContext) -> AttentionMap:
    """The map of one head, from scores of all, [B, A, L, L]: attention itself keeps no probabilities."""
    biases = context.position_bias
    bias = biases[:, min(head, biases.shape[1] - 1)]  # heads may share one
    scaled = tf.cast(scores[:, head], tf.float32) * attention.head_size**-0.5
    forbidden = tf.where(context.allowed[:, 0], 0.0, MASKED_SCORE)
    return AttentionMap(scaled, tf.nn.softmax(scaled + bias + forbidden))
