"""Compiles with XLA: one kernel (`compiled`), or a whole step with the kernels in it (`one_program`)."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.switch import are_compiled_alone, are_on, running_as


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a kernel, or one pass of it, by itself, in the mode in which kernels are compiled alone.

    Positional arguments are tensors, keyword arguments Python values. The attribute `program` of the result is the
    tf.function.
    """
    program = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*tensors: Any, **static: Any) -> Any:
        if are_compiled_alone():
            return program(*tensors, **static)
        # Within a larger program, or with kernels off: whoever traces this decides how it is compiled.
        return function(*tensors, **static)

    call.program = program  # type: ignore[attr-defined]
    return call


def one_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function as a whole, its kernels as parts of it."""

    def traced(*tensors: Any) -> Any:
        mode = "program" if are_on() else "formulas"
        with running_as(mode):
            return function(*tensors)

    return tf.function(traced, jit_compile=True, autograph=False)


class MethodProgram:
    """A method that is compiled as `one_program`, once for each object.

    Like functions in classes it is a descriptor: reading `task.method` calls `__get__`, which returns the compiled
    function of that object, or the plain method.

    Args:
      wanted: object -> whether its method is compiled.
    """

    def __init__(self, method: Callable[..., Any], wanted: Callable[[Any], bool]) -> None:
        functools.update_wrapper(self, method)  # type: ignore[arg-type]
        self._method = method
        self._wanted = wanted

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        if instance is None:  # read from the class
            return self
        functions = instance.__dict__.setdefault("_functions", {})
        # The key is this descriptor, not the name of the method: a subclass that calls super() has two of one name.
        if self not in functions:
            function: Callable[..., Any] = functools.partial(self._method, instance)
            if self._wanted(instance):
                function = one_program(function)
            functions[self] = function
        return functions[self]
