"""Gradients of kernels, written out by hand: little is kept for them, and nothing is computed twice.

`differentiable` does what tf.custom_gradient does, but frees gradients with their graph. tf.custom_gradient registers
each gradient in a table of the process, which keeps every graph that was ever traced, tens of MB each. Here the graph
holds the gradients of its kernels, and TensorFlow's table refers to them weakly.
"""

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

_numbers = itertools.count()  # names of gradients must differ within a process


def differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of tensors that returns (value, gradient): calls return the value, tapes use the gradient.

    As for tf.custom_gradient, the gradient is a function: gradients of the outputs -> gradients of the arguments.
    Keyword arguments are Python values, which have no gradients.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **static: Any) -> Any:
        tensors = [tf.convert_to_tensor(argument) for argument in arguments]
        if tf.executing_eagerly():  # without a graph there is none to keep
            return tf.custom_gradient(lambda *tensors: function(*tensors, **static))(*tensors)
        graph = tf.compat.v1.get_default_graph()
        name = f"GradientOfBlock{next(_numbers)}"
        # A tape shall not differentiate the operations inside of the kernel, too.
        with record.stop_recording():
            value, gradient = function(*tensors, **static)
            outputs = tf.nest.flatten(value)

            def gradients_of_all(*upstreams: tf.Tensor) -> list[tf.Tensor | None]:
                """Gradients of the inputs of `identity_n` below: None for outputs, then those of the arguments."""
                to_arguments = gradient(*upstreams[: len(outputs)])
                return [None] * len(outputs) + tf.nest.flatten(to_arguments)

            # The only strong reference to the gradient, which therefore lives as long as its graph.
            if not hasattr(graph, "gradients_of_blocks"):
                graph.gradients_of_blocks = []
            graph.gradients_of_blocks.append(gradients_of_all)
            weak = weakref.proxy(gradients_of_all)
            # The outputs pass through an identity whose gradient is ours. Whoever differentiates the graph (a tape that
            # saw a call of its function, or a SavedModel) finds the gradient in TensorFlow's table by this name.
            tf.RegisterGradient(name)(lambda operation, *upstreams: weak(*upstreams))
            with graph.gradient_override_map({"IdentityN": name}):
                named = tf.identity_n([*outputs, *tensors])
        # A tape that is recording now does not look into the graph, so it gets the gradient here.
        record.record_operation(name, named, [*outputs, *tensors], gradients_of_all)
        return tf.nest.pack_sequence_as(value, named[: len(outputs)])

    return call
