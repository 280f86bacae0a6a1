"""Attention maps of single heads, which some objectives and analyses read."""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.blocks import MASKED_SCORE


class AttentionMap(NamedTuple):
    """Attention of one head of one layer; rows are queries. Queries at padding hold numbers without a meaning.

    scores: float32 [B, L, L], q k^T / sqrt(D), before position biases are added and forbidden keys are masked.
    probabilities: float32 [B, L, L], before dropout.
    """

    scores: tf.Tensor
    probabilities: tf.Tensor


def attention_map(
    scores: tf.Tensor, allowed: tf.Tensor, position_bias: tf.Tensor, scale: float, head: int
) -> AttentionMap:
    """Computes one head's map again, as no probabilities are kept; arguments are those of `model.encoder.attention`."""
    bias = position_bias[:, min(head, position_bias.shape[1] - 1)]
    scaled = tf.cast(scores[:, head], tf.float32) * scale
    return AttentionMap(scaled, tf.nn.softmax(scaled + bias + tf.where(allowed[:, 0], 0.0, MASKED_SCORE)))
