"""An encoder that keeps the attention maps of some heads, for the penalty on attention of mispredicted tokens.

Shapes: B batch, L length, A heads, D head size.
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
    """Attention of one head of one layer; rows are queries. Rows of padding mean nothing.

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
      observed: (layer, head) to keep, both from 0. With recompute "layers" these layers are not computed again.
      arguments, named: as of `Encoder`.

    Attributes:
      maps: (layer, head) -> map of the last call.
    """

    def __init__(self, *arguments: Any, observed: Collection[tuple[int, int]], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._observed = tuple(sorted(observed))
        self._begin_maps()
        for layer in self.transformer_layers:
            layer.attention.on_whole_arrays = True

    @_untracked
    def _begin_maps(self) -> None:
        """Forgets the maps of the call before. Untracked: they are tensors, which checkpoints cannot hold."""
        self.maps: dict[tuple[int, int], AttentionMap] = {}

    def encode(self, embedded: tf.Tensor, input_mask: tf.Tensor, seeds: SeedStream | None = None) -> EncoderOutput:
        self._begin_maps()
        output = super().encode(embedded, input_mask, seeds)
        return cast(EncoderOutput, ObservedOutput(*output, self.maps))  # it has all fields of an EncoderOutput

    def run_layer(self, index: int, x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None) -> tf.Tensor:
        heads = [head for layer, head in self._observed if layer == index]
        if not heads:
            return super().run_layer(index, x, context, seeds)
        layer = self.transformer_layers[index]
        attention = layer.attention
        computed_scores = attention.scores

        def kept_scores(q: tf.Tensor, k: tf.Tensor, context: AttentionContext) -> tf.Tensor:
            scores = computed_scores(q, k, context)
            for head in heads:
                self.maps[index, head] = attention_map(scores, head, attention, context)
            return scores

        # Replaced while this layer runs, not in a subclass: any class of attention can be observed, as that of
        # Transformer-XL's positions, and layers with shared attention are told apart.
        attention.scores = kept_scores  # type: ignore[method-assign]
        try:
            return layer(x, context, seeds)
        finally:
            del attention.scores


def attention_map(scores: tf.Tensor, head: int, attention: SelfAttention, context: AttentionContext) -> AttentionMap:
    """Computes the map of one head from the scores of all, [B, A, L, L]. Attention itself keeps no probabilities."""
    biases = context.position_bias
    bias = biases[:, min(head, biases.shape[1] - 1)]  # all heads may share one
    scaled = tf.cast(scores[:, head], tf.float32) * attention.head_size**-0.5  # [B, L, L]
    mask = tf.where(context.allowed[:, 0], 0.0, MASKED_SCORE)
    return AttentionMap(scaled, tf.nn.softmax(scaled + bias + mask))
