"""Gradient accumulation: functions of a batch's rows, computed for one micro-batch after another.

A function is traced once and run in a loop, so programs and their memory do not grow with the number of micro-batches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.barriers import unfolded_zeros
from electra_tf2.model.layers import shape_of

Tensors = Any  # a nested structure of tensors


class WholeBatch(NamedTuple):
    """All W rows of a batch that is split into micro-batches or replicas, for losses that compare rows.

    shared: loss name -> float32 [W, ...], values of every row that the loss compares; without gradient.
    real: bool [W], false for rows of padding.
    start: int32 scalar, number of the first row of this micro-batch or replica.
    share: 1 / number of micro-batches or replicas: each computes the loss of all rows, and counts this share of it.
    """

    shared: dict[str, tf.Tensor]
    real: tf.Tensor
    start: tf.Tensor
    share: float


def summed(function: Callable[[Tensors, tf.Tensor], Tensors], batch: Tensors, count: int) -> Tensors:
    """Sums `function(rows, number of the micro-batch)` over `count` micro-batches; the first axis is that of rows."""
    compute = _traced(function, batch, count)

    def zeros_like(value: tf.TensorSpec) -> tf.Tensor:
        return unfolded_zeros(value.shape, value.dtype)

    def more(number: tf.Tensor, total: Tensors) -> tf.Tensor:
        del total
        return number < count

    def add(number: tf.Tensor, total: Tensors) -> tuple[tf.Tensor, Tensors]:
        return number + 1, tf.nest.map_structure(tf.add, total, compute(number))

    nothing = tf.nest.map_structure(zeros_like, compute.structured_outputs)
    _, total = tf.while_loop(more, add, (tf.constant(0), nothing))
    return total


def mapped(
    function: Callable[[Tensors, tf.Tensor], dict[str, tf.Tensor]], batch: Tensors, count: int
) -> dict[str, tf.Tensor]:
    """Computes tensors with a first axis of rows for all rows, micro-batch by micro-batch; no gradient."""
    compute = _traced(function, batch, count)
    types = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), compute.structured_outputs)
    values = tf.map_fn(compute, tf.range(count), fn_output_signature=types, parallel_iterations=1)
    rows = {}
    for name, value in values.items():
        # [micro-batches, rows of one, ...] -> [rows, ...]
        rows[name] = tf.stop_gradient(tf.reshape(value, [-1, *value.shape[2:]]))
    return rows


def _traced(function: Callable[[Tensors, tf.Tensor], Tensors], batch: Tensors, count: int) -> Any:
    """Traces the function from the number of a micro-batch to `function` of its rows."""

    def split(field: tf.Tensor) -> tf.Tensor:
        return tf.reshape(field, [count, field.shape[0] // count, *shape_of(field)[1:]])

    micro_batches = tf.nest.map_structure(split, batch)

    def compute(number: tf.Tensor) -> Tensors:
        rows = tf.nest.map_structure(lambda field: field[number], micro_batches)
        return function(rows, number)

    return tf.function(compute, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int32))
