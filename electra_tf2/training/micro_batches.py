"""Gradient accumulation: functions of a batch's rows, computed for one micro-batch after another.

A function is traced once and run in a loop, so programs and their memory do not grow with the number of micro-batches.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.barriers import unfolded_zeros
from electra_tf2.model.layers import shape_of

Tensors = Any  # a nested structure of tensors


def summed(function: Callable[[Tensors, tf.Tensor], Tensors], batch: Tensors, count: int) -> Tensors:
    """Sums a function over micro-batches.

    Args:
      function: (rows of a micro-batch, index of the micro-batch) -> tensors.
      batch: tensors whose first axis is that of the rows.
      count: number of micro-batches.
    """
    compute = _traced(function, batch, count)

    def zeros_like(value: tf.TensorSpec) -> tf.Tensor:
        return unfolded_zeros(value.shape, value.dtype)

    def is_left(index: tf.Tensor, total: Tensors) -> tf.Tensor:
        del total
        return index < count

    def add(index: tf.Tensor, total: Tensors) -> tuple[tf.Tensor, Tensors]:
        return index + 1, tf.nest.map_structure(tf.add, total, compute(index))

    nothing = tf.nest.map_structure(zeros_like, compute.structured_outputs)
    _, total = tf.while_loop(is_left, add, (tf.constant(0), nothing))
    return total


def mapped(
    function: Callable[[Tensors, tf.Tensor], dict[str, tf.Tensor]],
    batch: Tensors,
    count: int,
) -> dict[str, tf.Tensor]:
    """Computes values of all rows, one micro-batch after another, without gradient.

    Args:
      function: (rows of a micro-batch, index of the micro-batch) -> tensors whose first axis is that of the rows.
      batch, count: as of `summed`.
    """
    compute = _traced(function, batch, count)
    types = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), compute.structured_outputs)
    stacked = tf.map_fn(compute, tf.range(count), fn_output_signature=types, parallel_iterations=1)
    by_row = {}
    for name, value in stacked.items():
        value = tf.reshape(value, [-1, *value.shape[2:]])  # [micro-batches, rows of each, ...] -> [rows, ...]
        by_row[name] = tf.stop_gradient(value)
    return by_row


def _traced(function: Callable[[Tensors, tf.Tensor], Tensors], batch: Tensors, count: int) -> Any:
    """Traces the function once: int32 scalar index of a micro-batch -> `function` of its rows."""

    def split(field: tf.Tensor) -> tf.Tensor:
        rows = field.shape[0] // count
        return tf.reshape(field, [count, rows, *shape_of(field)[1:]])

    micro_batches = tf.nest.map_structure(split, batch)

    def compute(index: tf.Tensor) -> Tensors:
        rows = tf.nest.map_structure(lambda field: field[index], micro_batches)
        return function(rows, index)

    return tf.function(compute, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int32))
