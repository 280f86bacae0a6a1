"""Attention to a window of neighbours, which costs what the window costs, however long the sequence is.

Queries go in blocks, T in a row, and a block's keys are its own and those of the r blocks on either side of it
(`model.positions.blocks_of`): attention is then that of shorter sequences, B n of them, of whose keys those that are
too far are masked. Shapes: B rows, A heads, L length, D head size; n blocks of T queries and K = (2 r + 1) T keys.
"""

import tensorflow as tf

from electra_tf2.model.kernels.blocks import MASKED_SCORE, Direction, reaches
from electra_tf2.model.layers import shape_of
from electra_tf2.model.positions import Blocks
from electra_tf2.model.relative_positions import Rotation, between, rotated


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
    padding = [[0, 0], [0, blocks.number * blocks.size - length], *([0, 0] for _ in rest)]
    return tf.reshape(tf.pad(x, padding), [rows * blocks.number, blocks.size, *rest])


def windows(
    q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, rotation: Rotation | None, blocks: Blocks
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Queries, turned, and the turned keys and the values that each block sees.

    Args:
      q, k, v: [B n, A, T, D] each.
      rotation: angles at all positions, or None.

    Returns:
      [B n, A, T, D], and [B n, A, K, D] twice.
    """
    q, k, v = (tf.reshape(x, [-1, blocks.number, *shape_of(x)[1:]]) for x in (q, k, v))
    if rotation is not None:
        turn = [in_blocks(part[tf.newaxis], blocks)[:, tf.newaxis] for part in rotation]  # [n, 1, T, D/2]
        q, k = rotated(q, *turn), rotated(k, *turn)
    return tf.reshape(q, [-1, *shape_of(q)[2:]]), _with_neighbours(k, blocks), _with_neighbours(v, blocks)


def _with_neighbours(x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """[B, n, A, T, ...] -> [B n, A, K, ...], zeros beyond the ends."""
    around = blocks.neighbours
    padded = tf.pad(x, [[0, 0], [around, around], *([0, 0] for _ in x.shape[2:])])
    windows = tf.concat([padded[:, first : first + blocks.number] for first in range(2 * around + 1)], 3)
    return tf.reshape(windows, [-1, *shape_of(windows)[2:]])


def keys_of_blocks(input_mask: tf.Tensor, by_distance: tf.Tensor, blocks: Blocks) -> tuple[tf.Tensor, tf.Tensor]:
    """Real tokens among each block's keys, bool [B n, 1, 1, K], and the bias of its pairs, [1, A, T, K].

    Args:
      input_mask: int32 [B, L].
      by_distance: [A, 2L - 1], masked beyond the window (`within`).
    """
    marks = tf.reshape(in_blocks(input_mask, blocks), [-1, blocks.number, 1, blocks.size])
    allowed = tf.cast(_with_neighbours(marks, blocks), tf.bool)[:, :, tf.newaxis]
    middle, farthest = (shape_of(by_distance)[1] - 1) // 2, (blocks.neighbours + 1) * blocks.size
    return allowed, between(by_distance[:, middle - farthest + 1 : middle + farthest], blocks.size)
