"""Attention to a window of neighbours, which costs what the window costs, however long the sequence is.

Queries go in blocks, T in a row, and a block's keys are its own and those of the r blocks on either side of it
(`positions.blocks_of`): attention is then that of shorter sequences, B n of them, of whose keys those that are too far
are masked. B rows, A heads, L length, D head size; n blocks of T queries and K = (2 r + 1) T keys.
"""

import tensorflow as tf

from electra_tf2.model.kernels.cpu import MASKED_SCORE
from electra_tf2.model.kernels.positions import Direction, between, reaches
from electra_tf2.model.layers import shape_of
from electra_tf2.model.positions import Blocks


def within(by_distance: tf.Tensor, window: int, direction: Direction) -> tf.Tensor:
    """Masks distances beyond the window, or against the direction: [A, 2L - 1] as of `attention.Positions.bias`."""
    length = (shape_of(by_distance)[1] + 1) // 2
    distances = tf.range(1 - length, length)
    near = tf.abs(distances) <= window
    if direction != "both":
        near &= reaches(direction, tf.constant(0), distances)
    return by_distance + tf.where(near, tf.zeros([], by_distance.dtype), MASKED_SCORE)


def bias(by_distance: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Spreads the distances between a block's queries and keys: [A, 2L - 1] -> [1, A, T, K]."""
    middle, farthest = (shape_of(by_distance)[1] - 1) // 2, (blocks.neighbours + 1) * blocks.size
    return between(by_distance[:, middle - farthest + 1 : middle + farthest], blocks.size)


def in_blocks(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B, A, L, D] -> [B, n, A, T, D], zeros after the last token."""
    rows, heads, length, width = shape_of(x)
    padded = tf.pad(x, [[0, 0], [0, 0], [0, blocks.number * blocks.size - length], [0, 0]])
    return tf.transpose(tf.reshape(padded, [rows, heads, blocks.number, blocks.size, width]), [0, 2, 1, 3, 4])


def with_neighbours(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B, n, A, T, D] -> [B n, A, K, D], zeros beyond the ends."""
    around = blocks.neighbours
    padded = tf.pad(x, [[0, 0], [around, around], [0, 0], [0, 0], [0, 0]])
    joined = tf.concat([padded[:, first : first + blocks.number] for first in range(2 * around + 1)], 3)
    return tf.reshape(joined, [-1, *shape_of(joined)[2:]])


def cut(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, blocks: Blocks) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Queries, keys and values [B, A, L, D] each -> queries [B n, A, T, D], keys and values [B n, A, K, D]."""
    q, k, v = (in_blocks(x, blocks) for x in (q, k, v))
    return tf.reshape(q, [-1, *shape_of(q)[2:]]), with_neighbours(k, blocks), with_neighbours(v, blocks)


def allowed_keys(input_mask: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Marks real tokens among each block's keys: int32 [B, L] -> bool [B n, 1, 1, K]."""
    marks = with_neighbours(in_blocks(input_mask[:, tf.newaxis, :, tf.newaxis], blocks), blocks)
    return tf.cast(tf.transpose(marks, [0, 1, 3, 2]), tf.bool)
