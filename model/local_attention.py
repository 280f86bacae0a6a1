"""Attention to a window of neighbours, which costs what the window costs, however long the sequence is.

Queries go in blocks, T in a row, and a block's keys are its own and those of the r blocks on either side of it
(`model.positions.blocks_of`): attention is then that of shorter sequences, B n of them, of whose keys those that are
too far are masked. Shapes: B rows, A heads, L length, D head size; n blocks of T queries and K = (2 r + 1) T keys.
"""

import tensorflow as tf

from electra_tf2.model.kernels.blocks import MASKED_SCORE, Direction, between, reaches
from electra_tf2.model.layers import shape_of
from electra_tf2.model.positions import Blocks


def within(by_distance: tf.Tensor, reach: int, direction: Direction) -> tf.Tensor:
    """Masks distances beyond `reach`, or against the direction: [A, 2L - 1] as in model.relative_positions."""
    length = (shape_of(by_distance)[1] + 1) // 2
    distances = tf.range(1 - length, length)
    near = tf.abs(distances) <= reach
    if direction != "both":
        near &= reaches(direction, tf.constant(0), distances)
    return by_distance + tf.where(near, tf.zeros([], by_distance.dtype), MASKED_SCORE)


def in_blocks(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B, L, ...] -> [B n, T, ...], zeros after the last token."""
    rows, length, *rest = shape_of(x)
    padding = [[0, 0], [0, blocks.count * blocks.size - length], *([0, 0] for _ in rest)]
    return tf.reshape(tf.pad(x, padding), [rows * blocks.count, blocks.size, *rest])


def by_block(rotation: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Cosines or sines [L, D/2] of all positions -> [n, 1, T, D/2]."""
    return in_blocks(rotation[tf.newaxis], blocks)[:, tf.newaxis]


def apart(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B n, A, T, ...] -> [B, n, A, T, ...]."""
    _, *rest = shape_of(x)
    return tf.reshape(x, [-1, blocks.count, *rest])


def with_neighbours(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Keys, values or marks of each block's window: [B, n, A, T, ...] -> [B n, A, K, ...]."""
    around = blocks.neighbours
    padded = tf.pad(x, [[0, 0], [around, around], *([0, 0] for _ in x.shape[2:])])
    windows = tf.concat([padded[:, first : first + blocks.count] for first in range(2 * around + 1)], 3)
    return tf.reshape(windows, [-1, *shape_of(windows)[2:]])


def allowed_in_blocks(input_mask: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Real tokens among each block's keys: int32 [B, L] -> bool [B n, 1, 1, K]."""
    marks = tf.reshape(in_blocks(input_mask, blocks), [-1, blocks.count, 1, blocks.size])
    return tf.cast(with_neighbours(marks, blocks), tf.bool)[:, :, tf.newaxis]


def bias_in_blocks(by_distance: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """Bias of a block's queries and keys: [A, 2L - 1] -> [1, A, T, K]."""
    middle = (shape_of(by_distance)[1] - 1) // 2
    farthest = (blocks.neighbours + 1) * blocks.size
    return between(by_distance[:, middle - farthest + 1 : middle + farthest], blocks.size)
