"""A computation in parts, one after another, where the intermediate results of all would not fit into memory."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Result of one part: (tensors to be stacked, tensors to be added up).
Parts = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]


def in_sequence(part: Callable[[tf.Tensor], Parts], count: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Computes parts one after another, so that intermediate results of only one are in memory.

    Args:
      part: int32 scalar 0, ..., count - 1 -> tensors to be stacked and tensors to be added up, of static shapes.

    Returns:
      The stacked tensors, [count, ...] each, and the sums.
    """
    # The first part is computed before the loop: it tells which types and shapes the loop carries.
    first_stacked, first_summands = part(tf.constant(0))
    if count == 1:
        return [tensor[tf.newaxis] for tensor in first_stacked], list(first_summands)

    arrays = []
    for tensor in first_stacked:
        array = tf.TensorArray(tensor.dtype, count, element_shape=tensor.shape)
        arrays.append(array.write(0, tensor))

    def is_left(index: tf.Tensor, *_: Any) -> tf.Tensor:
        return index < count

    def step(
        index: tf.Tensor,
        arrays: list[tf.TensorArray],
        sums: list[tf.Tensor],
    ) -> tuple[tf.Tensor, list[tf.TensorArray], list[tf.Tensor]]:
        stacked, summands = part(index)
        written = [array.write(index, tensor) for array, tensor in zip(arrays, stacked, strict=True)]
        added = [total + summand for total, summand in zip(sums, summands, strict=True)]
        return index + 1, written, added

    # One iteration at a time, or TensorFlow would have several parts in memory.
    start = (tf.constant(1), arrays, list(first_summands))
    _, arrays, sums = tf.while_loop(is_left, step, start, parallel_iterations=1)
    return [array.stack() for array in arrays], list(sums)
