"""Many small operations of a program joined into few large ones, because each costs a launch on a GPU.

A step ends with operations on every weight: the gradients of biases and layer norms are sums, rows are added to the
gradients of tables, and there is the global norm. `sums_at_once` and `scattered` look at the operations that made a
gradient, in the graph traced so far, and return a tensor of the same values that fewer operations compute. In programs
of whole steps only; elsewhere TensorFlow's own operations stay.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.switch import are_one_program


def sums_at_once(tensors: Sequence[Any], most: int = 64) -> list[Any]:
    """Replaces sums [m] of arrays [n, m] by one sum of the arrays side by side, for up to `most` of them together.

    Other tensors are returned as they are. The order stays.
    """
    if not are_one_program():
        return list(tensors)
    # Arrays with equally many rows can stand side by side.
    indices_by_rows: dict[int, list[int]] = {}
    for index, tensor in enumerate(tensors):
        if _is_sum_of_rows(tensor):
            rows = tensor.op.inputs[0].shape[0]
            indices_by_rows.setdefault(rows, []).append(index)
    results = list(tensors)
    for indices in indices_by_rows.values():
        for start in range(0, len(indices), most):
            group = indices[start : start + most]
            arrays = [tensors[index].op.inputs[0] for index in group]
            sizes = [tensors[index].shape[0] for index in group]
            sums = tf.split(tf.reduce_sum(tf.concat(arrays, 1), 0), sizes)
            for index, row_sum in zip(group, sums, strict=True):
                results[index] = row_sum
    return results


def _is_sum_of_rows(tensor: Any) -> bool:
    """True if a tensor of a graph is the sum over the first axis of a matrix of known sizes."""
    if not tf.is_tensor(tensor) or tensor.op.type != "Sum" or tensor.shape.rank != 1:
        return False
    summed, axis = tensor.op.inputs
    return summed.shape.rank == 2 and summed.shape.is_fully_defined() and tf.get_static_value(axis) == 0


def scattered(tensor: Any) -> Any:
    """Replaces (array + rows scattered into zeros) by rows scattered into the array.

    That sum is the gradient of a table that is both multiplied and looked up. Other tensors are returned as they are.
    """
    if not are_one_program() or not tf.is_tensor(tensor):
        return tensor
    if tensor.op.type != "AddN" or len(tensor.op.inputs) != 2:
        return tensor
    # The gradient of a look-up scatters rows into zeros by an UnsortedSegmentSum, which may be either summand.
    table, rows = tensor.op.inputs
    if rows.op.type != "UnsortedSegmentSum":
        table, rows = rows, table
    if rows.op.type != "UnsortedSegmentSum" or rows.op.inputs[1].shape.rank != 1:
        return tensor
    values, places, _ = rows.op.inputs
    return tf.tensor_scatter_nd_add(table, places[:, tf.newaxis], values)


def global_norm(tensors: Sequence[tf.Tensor], most: int = 64) -> tf.Tensor:
    """Root of the sum of all squares; within one program up to `most` tensors are summed as one array."""
    if not are_one_program():
        return tf.linalg.global_norm(tensors)
    flat = [tf.reshape(tensor, [-1]) for tensor in tensors]
    sums = []
    for start in range(0, len(flat), most):
        joined = tf.concat(flat[start : start + most], 0)
        sums.append(tf.reduce_sum(tf.square(joined)))
    return tf.sqrt(tf.add_n(sums))
