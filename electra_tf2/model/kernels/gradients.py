"""Gradients of kernels, written out by hand: little is kept for them, and nothing is computed twice.

`differentiable` does what tf.custom_gradient does, whose gradients in graphs are never freed: each is registered in a
table of the process, with every graph that was ever traced, tens of MB each. Here the graph itself holds the gradients
of its kernels, and TensorFlow's table refers to them weakly, so that both go when the graph goes.
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

    The gradient is a function, as tf.custom_gradient wants it: gradients of the outputs -> gradients of the arguments.
    Keyword arguments are Python values, which have no gradients.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **static: Any) -> Any:
        tensors = [tf.convert_to_tensor(argument) for argument in arguments]
        if tf.executing_eagerly():  # no graph, so none that would be kept
            return tf.custom_gradient(lambda *tensors: function(*tensors, **static))(*tensors)
        graph = tf.compat.v1.get_default_graph()
        name = f"GradientOfBlock{next(_numbers)}"
        # Stop recording: a tape would otherwise differentiate the kernel's internals too.
        with record.stop_recording():
            value, gradient = function(*tensors, **static)
            outputs = tf.nest.flatten(value)

            def gradients_of_all(*upstreams: tf.Tensor) -> list[tf.Tensor | None]:
                """Gradients of what `identity_n` below reads: None for the outputs, then those of the arguments."""
                to_arguments = gradient(*upstreams[: len(outputs)])
                return [None] * len(outputs) + tf.nest.flatten(to_arguments)

            # The only strong reference: the gradient lives as long as its graph.
            if not hasattr(graph, "gradients_of_blocks"):
                graph.gradients_of_blocks = []
            graph.gradients_of_blocks.append(gradients_of_all)
            weak = weakref.proxy(gradients_of_all)
            # The outputs pass through an identity whose gradient is ours. Gradients of whole graphs (of a function that
            # a tape saw being called, and of SavedModels) look the operation up in TensorFlow's table by this name.
            tf.RegisterGradient(name)(lambda operation, *upstreams: weak(*upstreams))
            with graph.gradient_override_map({"IdentityN": name}):
                named = tf.identity_n([*outputs, *tensors])
        # A tape that is recording now does not look into the graph: it is told.
        record.record_operation(name, named, [*outputs, *tensors], gradients_of_all)
        return tf.nest.pack_sequence_as(value, named[: len(outputs)])

    return call
