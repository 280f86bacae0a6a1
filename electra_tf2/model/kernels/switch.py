"""The switch between a formula and its kernel.

A formula of the model stands in model.layers, model.attention and others as in its paper. `with_kernel` names its
kernel: a function with the same result, computed faster, which runs in its place. There are three modes:

- "kernels", the default: each kernel is compiled by itself, between TensorFlow's own matrix products, which are faster
  than XLA's on processors.
- "program": XLA compiles the whole step as one program (compilation.one_program), with the kernels as parts of it. This
  is for GPUs and TPUs.
- "formulas": kernels are `off`, and the formulas themselves run.
"""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# The mode that this thread has entered; None: it has entered none.
_mode: contextvars.ContextVar[str | None] = contextvars.ContextVar("mode", default=None)
# How many contexts of `off` are open at the moment, in all threads.
_times_off = 0
_times_off_lock = threading.Lock()


@contextlib.contextmanager
def running_as(mode: str) -> Iterator[None]:
    """Sets the mode of this thread within the context."""
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Switches kernels off within the context: formulas are traced as ordinary operations, with TensorFlow's gradients.

    For graphs whose shapes change from call to call, since XLA compiles for each shape anew, and for graphs that other
    programs load (SavedModel).
    """
    # Counted for all threads: MirroredStrategy traces each replica in a thread of its own, which does not inherit the
    # mode of the thread that called `run`.
    global _times_off
    with _times_off_lock:
        _times_off += 1
    try:
        with running_as("formulas"):
            yield
    finally:
        with _times_off_lock:
            _times_off -= 1


def _current_mode() -> str:
    mode = _mode.get()
    if mode is not None:
        return mode
    if _times_off:
        return "formulas"
    return "kernels"


def are_on() -> bool:
    """True if kernels run in place of formulas, in either mode."""
    return _current_mode() != "formulas"


def are_compiled_alone() -> bool:
    """True if each kernel is compiled by itself, between TensorFlow's own operations."""
    return _current_mode() == "kernels"


def are_one_program() -> bool:
    """True if kernels are parts of one program of the whole step."""
    return _current_mode() == "program"


def with_kernel(
    kernel: Callable[..., Any], within_program: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a formula: its calls run `kernel`, a function of the same arguments, unless kernels are off.

    Both compute in float32, or in float64 if the first argument is float64, and return the first argument's type.
    Positional arguments are tensors, keyword arguments Python values.

    Args:
      kernel: computes the same as the formula, faster.
      within_program: runs in the kernel's place in programs of whole steps; None: the kernel runs there, too.
    """

    def decorate(formula: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(formula)
        def call(*tensors: Any, **static: Any) -> Any:
            if within_program is not None and are_one_program():
                return within_program(*tensors, **static)
            if are_on():
                return kernel(*tensors, **static)
            # Kernels cast inside. A formula is written as in its paper, without casts, so they are made here.
            dtype = tensors[0].dtype
            inner_dtype = tf.float32
            if dtype == tf.float64:
                inner_dtype = tf.float64
            arguments = []
            for tensor in tensors:
                if tf.is_tensor(tensor) and tensor.dtype.is_floating:
                    tensor = tf.cast(tensor, inner_dtype)
                arguments.append(tensor)
            results = formula(*arguments, **static)
            return tf.nest.map_structure(lambda result: tf.cast(result, dtype), results)

        return call

    return decorate
