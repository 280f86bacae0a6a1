"""Attention to a window of neighbours, which costs what the window costs, however long the sequence is.

Queries go in blocks, T in a row, and a block's keys are its own and those of the r blocks on either side of it
(`positions.blocks_of`): attention is then that of shorter sequences, B n of them, of whose keys those that are too far
are masked. B rows, A heads, L length, D head size; n blocks of T queries and K = (2 r + 1) T keys.
"""

import tensorflow as tf

from electra_tf2.model.kernels.cpu import MASKED_SCORE
from electra_tf2.model.kernels.positions import Direction, reaches
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


def of_block(by_distance: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Cuts out the distances between a block's queries and keys: [A, 2L - 1] -> [A, T + K - 1]."""
    middle, farthest = (shape_of(by_distance)[1] - 1) // 2, (blocks.neighbours + 1) * blocks.size
    return by_distance[:, middle - farthest + 1 : middle + farthest]


def in_blocks(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B, L, ...] -> [B n, T, ...], zeros after the last token."""
    rows, length, *rest = shape_of(x)
    padding = [[0, 0], [0, blocks.number * blocks.size - length], *([0, 0] for _ in rest)]
    return tf.reshape(tf.pad(x, padding), [rows * blocks.number, blocks.size, *rest])


def by_sequence(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B n, A, T, ...] -> [B, n, A, T, ...]."""
    return tf.reshape(x, [-1, blocks.number, *shape_of(x)[1:]])


def with_neighbours(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B, n, A, T, ...] -> [B n, A, K, ...], zeros beyond the ends."""
    around = blocks.neighbours
    padded = tf.pad(x, [[0, 0], [around, around], *([0, 0] for _ in x.shape[2:])])
    joined = tf.concat([padded[:, first : first + blocks.number] for first in range(2 * around + 1)], 3)
    return tf.reshape(joined, [-1, *shape_of(joined)[2:]])


def allowed_keys(input_mask: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Marks real tokens among each block's keys: int32 [B, L] -> bool [B n, 1, 1, K]."""
    marks = tf.reshape(in_blocks(input_mask, blocks), [-1, blocks.number, 1, blocks.size])
    return tf.cast(with_neighbours(marks, blocks), tf.bool)[:, :, tf.newaxis]
