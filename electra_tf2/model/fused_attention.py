"""Attention of an encoder's layers by cuDNN's fused kernels: what they are given."""

import zlib

import tensorflow as tf

from electra_tf2.model.kernels.blocks import Direction
from electra_tf2.model.kernels.cudnn import fused_attention
from electra_tf2.model.keys import Keys
from electra_tf2.model.layers import SeedStream, SizedLayer
from electra_tf2.model.relative_positions import Rotation


def can_fuse(shape: tf.TensorShape, direction: Direction) -> bool:
    """Tells whether the kernels take sequences of a static shape [B, L] of even length that see all of each other."""
    return direction == "both" and shape.is_fully_defined() and shape[1] % 2 == 0


def keys_of_lengths(keys: Keys, input_mask: tf.Tensor, dtype: tf.DType) -> Keys:
    """Prepares keys of whole arrays for the kernels: their number, a bias in the type of states, angles [L, 1, D/2]."""
    lengths = tf.maximum(tf.reduce_sum(input_mask, 1), 1)
    bias = tf.cast(keys.position_bias, dtype)
    turn = None if keys.rotation is None else Rotation(*(angles[:, tf.newaxis] for angles in keys.rotation))
    return keys._replace(position_bias=bias, rotation=turn, lengths=lengths)


def attend_to_lengths(
    qkv: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    keys: Keys,
    seeds: SeedStream | None,
    layer: SizedLayer,
    scale: float,
    rate: float,
) -> tf.Tensor:
    """softmax(scale q k^T + position bias) v of states [B, L, A, D].

    The seed of its dropout is made of the layer's, its scope and the place in the step, the same on every replica.
    """
    place = 0 if seeds is None else (zlib.crc32(f"{layer.seed} {layer.scope}".encode()) + seeds.count) & 0x7FFFFFFF
    assert keys.lengths is not None
    bias = keys.position_bias
    if bias.shape.num_elements() != 1:  # the kernels want one of every head
        bias += tf.zeros([1, qkv[0].shape[2], 1, 1], bias.dtype)
    return fused_attention(*qkv, keys.lengths, bias, scale=scale, rate=rate, seed=place)
