"""The switch between a formula and its kernel.

A formula of the model stands in model.layers or model.encoder as in its paper. `with_kernel` names a kernel beside it:
a function with the same result, computed faster, which runs in its place. There are three modes:

- "kernels": on a processor each kernel is compiled by itself, between TensorFlow's own matrix products, which are
  faster there than XLA's. This is what holds if nobody says otherwise.
- "program": on GPUs and TPUs XLA compiles the whole step as one program (compilation.one_program), with the kernels as
  parts of it.
- "formulas": kernels are `off`, and the formulas themselves run.
"""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# None: no mode was entered in this thread.
_mode: contextvars.ContextVar[str | None] = contextvars.ContextVar("mode", default=None)
# How many times `off` is entered at the moment, in all threads.
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
    """Switches kernels off: within, formulas are traced as ordinary operations, with TensorFlow's gradients.

    For graphs whose shapes change from call to call (XLA compiles each anew) or that other programs load (SavedModel).
    """
    # All threads see it, not this one alone: MirroredStrategy traces each replica in a thread of its own, which starts
    # without the context of the thread that called `run`.
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
    """Tells whether kernels run at all, in either way."""
    return _current_mode() != "formulas"


def are_compiled_alone() -> bool:
    """Tells whether each kernel is compiled by itself, between operations of TensorFlow's own."""
    return _current_mode() == "kernels"


def are_one_program() -> bool:
    """Tells whether kernels are parts of one program of the whole step, which XLA compiles."""
    return _current_mode() == "program"


def with_kernel(
    kernel: Callable[..., Any], within_program: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a formula: calls of it run `kernel`, a function of the same arguments, unless kernels are off.

    Both compute in float32, or in float64 if the first argument is float64, and return the first argument's type.
    Positional arguments are tensors, keyword arguments Python values.

    Args:
      kernel: computes what the formula says, faster.
      within_program: takes the kernel's place in programs of whole steps; None: the kernel runs there, too.
    """

    def decorate(formula: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(formula)
        def call(*tensors: Any, **static: Any) -> Any:
            if within_program is not None and are_one_program():
                return within_program(*tensors, **static)
            if are_on():
                return kernel(*tensors, **static)
            # Kernels cast inside; a formula is written as in its paper, so its arguments are cast here.
            dtype = tensors[0].dtype
            exact = tf.float32
            if dtype == tf.float64:
                exact = tf.float64
            cast = []
            for tensor in tensors:
                if tf.is_tensor(tensor) and tensor.dtype.is_floating:
                    tensor = tf.cast(tensor, exact)
                cast.append(tensor)
            results = formula(*cast, **static)
            return tf.nest.map_structure(lambda result: tf.cast(result, dtype), results)

        return call

    return decorate
