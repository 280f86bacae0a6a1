"""A computation in parts, one after the other, so that only one part's intermediate results are in memory.

The vocabulary's gradient goes through it in chunks of tokens, attention over long sequences in tiles.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

Parts = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]


def in_turn(part: Callable[[tf.Tensor], Parts], count: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Calls `part` with int32 scalars 0, ..., count - 1; its tensors have static shapes.

    Args:
      part: index -> (what is to be stacked, what is to be added up).

    Returns:
      The stacked tensors, [count, ...] each, and the sums.
    """
    stacked, sums = part(tf.constant(0))
    if count == 1:
        return [tensor[tf.newaxis] for tensor in stacked], list(sums)
    arrays = [tf.TensorArray(t.dtype, count, element_shape=t.shape).write(0, t) for t in stacked]

    def step(
        index: tf.Tensor, arrays: list[tf.TensorArray], sums: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.TensorArray], list[tf.Tensor]]:
        stacked, found = part(index)
        written = [array.write(index, tensor) for array, tensor in zip(arrays, stacked, strict=True)]
        return index + 1, written, [total + one for total, one in zip(sums, found, strict=True)]

    start = (tf.constant(1), arrays, list(sums))
    _, arrays, sums = tf.while_loop(lambda index, *_: index < count, step, start, parallel_iterations=1)
    return [array.stack() for array in arrays], list(sums)
