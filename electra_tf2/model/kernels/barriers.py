"""Barriers in programs of whole steps: tensors past which neither XLA nor TensorFlow may optimise.

XLA joins the operations of a program into passes as it sees fit. Often it saves a launch at the price of an array that
is stored in float32 or computed twice; `materialize` forbids that. And before XLA sees the program, TensorFlow computes
on the host, at full size, all that depends on constants alone; `shared_one` is a constant that it does not recognise.
Outside of such programs these functions return their arguments, or plain zeros.
"""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from electra_tf2.model.kernels.switch import are_one_program


def materialize(*tensors: tf.Tensor) -> list[tf.Tensor]:
    """Makes XLA store these tensors, each once and in its own type, before anything is computed from them."""
    if not are_one_program():
        return list(tensors)
    # They pass the barrier as matrices, because XLA may choose which axis of a tensor of more axes is last in memory.
    # For the gradient of the position embeddings, a sum over the batch, it would put the batch last, in all layers.
    matrices = []
    for tensor in tensors:
        matrix = tensor
        if tensor.shape.rank > 2 and tensor.shape[-1]:
            matrix = tf.reshape(tensor, [-1, tensor.shape[-1]])
        matrices.append(matrix)
    results = []
    for tensor, result in zip(tensors, gen_xla_ops.xla_optimization_barrier(matrices), strict=True):
        if result.shape.rank != tensor.shape.rank:
            result = tf.reshape(result, tf.shape(tensor))
        results.append(result)
    return results


def in_one_array(scalars: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the same scalars, two or more, read from one array.

    XLA joins operations on equal shapes that share an array, for example updates of weights that read their rates.
    """
    if not are_one_program():
        return list(scalars)
    (array,) = materialize(tf.stack(scalars))
    return tf.unstack(array)


def shared_one() -> tf.Tensor:
    """The float32 scalar 1, one tensor for each graph, which TensorFlow does not recognise as a constant.

    While it lowers a program TensorFlow evaluates constants on the host. A barrier has no implementation there, so all
    that depends on one is left to XLA.
    """
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, "shared_one"):
        # `in_one_array` wants two.
        first, _ = in_one_array([tf.constant(1.0)] * 2)
        graph.shared_one = first
    return graph.shared_one


def unfolded_zeros(shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
    """Zeros that TensorFlow does not compute on the host while it lowers a program: for all gradients they are GBs.

    Compilers call that constant folding.
    """
    zero = tf.constant(0.0)
    if are_one_program():
        zero = shared_one() - 1.0
    return tf.fill(shape, tf.cast(zero, dtype))
