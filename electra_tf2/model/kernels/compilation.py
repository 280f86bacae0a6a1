"""The way kernels are compiled, differentiated and switched off, and the arithmetic that they share.

A formula of the model (model.layers, model.encoder) names its kernel with `with_kernel`. XLA compiles each kernel by
itself, between TensorFlow's own matrix products, which are faster on CPUs; on GPUs and TPUs the whole step is one
program (`one_program`) that the kernels are part of. A kernel's gradient is written out, so that little is kept for it
and nothing computed twice.
"""

import contextlib
import contextvars
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import record

from electra_tf2.util import machine

Parts = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]

# How kernels run. "kernels": each is compiled by itself; "program": they are parts of one program; "formulas": they are
# off. None: neither `off` nor `one_program` was entered in this thread.
_mode: contextvars.ContextVar[str | None] = contextvars.ContextVar("mode", default=None)
# How many times `off` is entered at the moment, in all threads.
_times_off = 0
_times_off_lock = threading.Lock()

_numbers = itertools.count()  # of gradients in graphs


@contextlib.contextmanager
def _within(mode: str) -> Iterator[None]:
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Switches kernels off: within, formulas are traced as ordinary operations, with TensorFlow's gradients.

    For graphs whose shapes change from call to call (XLA compiles each anew) or that other programs load (SavedModel).
    The switch is the process's, not the thread's, since MirroredStrategy traces each replica in a thread of its own,
    which starts without the context of the thread that called `run`.
    """
    global _times_off
    with _times_off_lock:
        _times_off += 1
    try:
        with _within("formulas"):
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
    return _current_mode() != "formulas"


def are_compiled_alone() -> bool:
    """Tells whether each kernel is compiled by itself, between operations of TensorFlow's own."""
    return _current_mode() == "kernels"


def are_one_program() -> bool:
    """Tells whether kernels are parts of one program of the whole step."""
    return _current_mode() == "program"


def with_kernel(
    kernel: Callable[..., Any], within_program: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a formula of tensors that `kernel` computes as well, which runs in its place unless kernels are off.

    Either computes in float32, or in float64 if the first argument is float64, and returns the first argument's type.
    Keyword arguments are Python values.

    Args:
      within_program: takes the kernel's place in programs of whole steps.
    """

    def decorate(formula: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(formula)
        def call(*tensors: Any, **static: Any) -> Any:
            if within_program is not None and are_one_program():
                return within_program(*tensors, **static)
            if are_on():
                return kernel(*tensors, **static)
            dtype = tensors[0].dtype
            exact = tf.float64 if dtype == tf.float64 else tf.float32
            cast = []
            for tensor in tensors:
                is_float = tf.is_tensor(tensor) and tensor.dtype.is_floating
                cast.append(tf.cast(tensor, exact) if is_float else tensor)
            results = formula(*cast, **static)
            return tf.nest.map_structure(lambda result: tf.cast(result, dtype), results)

        return call

    return decorate


def one_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function as a whole, its kernels as parts of it."""

    def traced(*tensors: Any) -> Any:
        with _within("program" if are_on() else "formulas"):
            return function(*tensors)

    return tf.function(traced, jit_compile=True, autograph=False)


class MethodProgram:
    """Descriptor of a method that is one program of each object for which `wanted` is true."""

    def __init__(self, method: Callable[..., Any], wanted: Callable[[Any], bool]) -> None:
        functools.update_wrapper(self, method)  # type: ignore[arg-type]
        self._method = method
        self._wanted = wanted

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        functions = owner.__dict__.setdefault("_functions", {})
        # The key is this descriptor, not the method's name, which a subclass that calls super() has twice.
        if self not in functions:
            function = functools.partial(self._method, owner)
            functions[self] = one_program(function) if self._wanted(owner) else function
        return functions[self]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors; keyword arguments are Python values."""
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*tensors: Any, **static: Any) -> Any:
        if are_compiled_alone():
            return compiled(*tensors, **static)
        return function(*tensors, **static)

    call.compiled = compiled  # type: ignore[attr-defined]
    return call


def differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the gradient from a function that returns its value and its gradient, as for tf.custom_gradient.

    Keyword arguments are Python values. tf.custom_gradient, in a graph, registers each gradient for good, and with it
    every graph that was ever traced, tens of MB each. Here the graph itself holds its kernels' gradients, to which
    TensorFlow's registry refers weakly.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **static: Any) -> Any:
        tensors = [tf.convert_to_tensor(argument) for argument in arguments]
        if tf.executing_eagerly():
            return tf.custom_gradient(lambda *tensors: function(*tensors, **static))(*tensors)
        graph = tf.compat.v1.get_default_graph()
        name = f"GradientOfBlock{next(_numbers)}"
        # What a tape saw of the inside it would differentiate as well.
        with record.stop_recording():
            value, gradient = function(*tensors, **static)
            outputs = tf.nest.flatten(value)

            def gradients_of_all(*upstreams: tf.Tensor) -> list[tf.Tensor | None]:
                """Gradients of what `identity_n` below reads: none of the outputs, and those of the arguments."""
                to_arguments = gradient(*upstreams[: len(outputs)])
                return [None] * len(outputs) + tf.nest.flatten(to_arguments)

            if not hasattr(graph, "gradients_of_blocks"):
                graph.gradients_of_blocks = []
            graph.gradients_of_blocks.append(gradients_of_all)
            weak = weakref.proxy(gradients_of_all)
            # The outputs pass an operation whose gradient is ours, once for gradients of whole graphs (as of a function
            # that a tape has seen called, and for SavedModels) and once, below, for tapes.
            tf.RegisterGradient(name)(lambda operation, *upstreams: weak(*upstreams))
            with graph.gradient_override_map({"IdentityN": name}):
                named = tf.identity_n([*outputs, *tensors])
        record.record_operation(name, named, [*outputs, *tensors], gradients_of_all)
        return tf.nest.pack_sequence_as(value, named[: len(outputs)])

    return call


def in_sequence(part: Callable[[tf.Tensor], Parts], count: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Computes parts one after the other, so that intermediate results of only one are in memory.

    Args:
      part: int32 scalar 0, ..., count - 1 -> (tensors to be stacked, tensors to be added up), of static shapes.

    Returns:
      The stacked tensors, [count, ...] each, and the sums.
    """
    first_stacked, first_summands = part(tf.constant(0))
    if count == 1:
        return [tensor[tf.newaxis] for tensor in first_stacked], list(first_summands)

    arrays = []
    for tensor in first_stacked:
        array = tf.TensorArray(tensor.dtype, count, element_shape=tensor.shape)
        arrays.append(array.write(0, tensor))

    def is_left(index: tf.Tensor, *_: Any) -> tf.Tensor:
        return index < count

    def step(
        index: tf.Tensor, arrays: list[tf.TensorArray], sums: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.TensorArray], list[tf.Tensor]]:
        stacked, summands = part(index)
        written = [array.write(index, tensor) for array, tensor in zip(arrays, stacked, strict=True)]
        added = [total + summand for total, summand in zip(sums, summands, strict=True)]
        return index + 1, written, added

    start = (tf.constant(1), arrays, list(first_summands))
    _, arrays, sums = tf.while_loop(is_left, step, start, parallel_iterations=1)
    return [array.stack() for array in arrays], list(sums)


# Programs of whole steps. XLA joins their operations as it sees fit: often an array is stored in float32, or computed
# twice, to spare a launch.


def materialize(*tensors: tf.Tensor) -> list[tf.Tensor]:
    """Bars XLA, within one program, from computing on past these tensors: each is in memory once, in its own type.

    They pass as matrices: of more axes XLA could put any last in memory, and for the sum over the batch that is the
    gradient of the embeddings of positions it would do so with the batch, for all layers.
    """
    if not are_one_program():
        return list(tensors)
    matrices = []
    for tensor in tensors:
        has_more_axes = tensor.shape.rank > 2 and tensor.shape[-1]
        matrices.append(tf.reshape(tensor, [-1, tensor.shape[-1]]) if has_more_axes else tensor)
    passed = gen_xla_ops.xla_optimization_barrier(matrices)
    results = []
    for tensor, result in zip(tensors, passed, strict=True):
        was_reshaped = result.shape.rank != tensor.shape.rank
        results.append(tf.reshape(result, tf.shape(tensor)) if was_reshaped else result)
    return results


def in_one_array(scalars: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads scalars, two or more, from one array: XLA joins operations on equal shapes that share an array."""
    if not are_one_program():
        return list(scalars)
    (array,) = materialize(tf.stack(scalars))
    return tf.unstack(array)


def cast_weight(weight: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts a weight to the type of activations; within one program all weights of a shape together."""
    if not are_one_program() or weight.dtype != tf.float32 or dtype not in (tf.bfloat16, tf.float16):
        return tf.cast(weight, dtype)
    shared_one = _shared_one()

    @differentiable
    def cast(weight: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor]:
            return (to_float32(upstream),)

        return tf.cast(weight * shared_one, dtype), gradient

    return cast(weight)


def unfolded_zeros(shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
    """Zeros that TensorFlow does not compute on the host while it lowers a program: of all gradients they are GBs."""
    zero = tf.constant(0.0)
    if are_one_program():
        zero = _shared_one() - 1.0
    return tf.fill(shape, tf.cast(zero, dtype))


def _shared_one() -> tf.Tensor:
    """The float32 scalar 1 of a graph of one program.

    TensorFlow evaluates on the host, while it lowers a program, what depends on constants alone. With this barrier
    among that, which has no kernel for processors, it leaves all of it to XLA.
    """
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, "shared_one"):
        graph.shared_one = in_one_array([tf.constant(1.0)] * 2)[0]
    return graph.shared_one


def part_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the axes between the first and the last, [n, ..., m] -> [n, m], which the pass that computes `x` can do."""
    if x.shape.rank == 2:
        return tf.reduce_sum(x, 0, keepdims=True)
    return tf.reduce_sum(x, list(range(1, x.shape.rank - 1)))


def sums_at_once(tensors: Sequence[Any], most: int = 64) -> list[Any]:
    """Computes what are sums [m] of arrays [n, m] among the tensors of a graph side by side, `most` at a time."""
    if not are_one_program():
        return list(tensors)
    # Arrays can be joined where they have equally many rows.
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
    """Tells whether a tensor of a graph is the sum over the first axis of a matrix of known sizes."""
    if not tf.is_tensor(tensor) or tensor.op.type != "Sum" or tensor.shape.rank != 1:
        return False
    summed, axis = tensor.op.inputs
    return summed.shape.rank == 2 and summed.shape.is_fully_defined() and tf.get_static_value(axis) == 0


def scattered(tensor: Any) -> Any:
    """Replaces a sum of an array and of rows added to zeros, in a program, by rows added to the array.

    That is the gradient of a table that is both multiplied and looked up. Other tensors are returned as they are.
    """
    if not are_one_program() or not tf.is_tensor(tensor):
        return tensor
    if tensor.op.type != "AddN" or len(tensor.op.inputs) != 2:
        return tensor
    # TensorFlow adds the rows that a look-up read to zeros by this operation. It may be either summand.
    table, rows = tensor.op.inputs
    if rows.op.type != "UnsortedSegmentSum":
        table, rows = rows, table
    if rows.op.type != "UnsortedSegmentSum" or rows.op.inputs[1].shape.rank != 1:
        return tensor
    values, places, _ = rows.op.inputs
    return tf.tensor_scatter_nd_add(table, places[:, tf.newaxis], values)


def global_norm(tensors: Sequence[tf.Tensor], most: int = 64) -> tf.Tensor:
    """Takes the root of the sum of all squares; within one program, `most` tensors are summed at a time."""
    if not are_one_program():
        return tf.linalg.global_norm(tensors)
    flat = [tf.reshape(tensor, [-1]) for tensor in tensors]
    sums = []
    for start in range(0, len(flat), most):
        joined = tf.concat(flat[start : start + most], 0)
        sums.append(tf.reduce_sum(tf.square(joined)))
    return tf.sqrt(tf.add_n(sums))


# Types, products and sums.


def matmul(x: tf.Tensor, y: tf.Tensor, transpose_a: bool = False, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies matrices as tf.matmul does, and rounds products of bfloat16 on every processor.

    Where a processor has no units for bfloat16, TensorFlow computes the product in float32 and cuts off 16 bits: it is
    nearer to 0 by half a unit on average, and gradients shrink with every layer. The same product in float32, rounded,
    takes the same time there (benchmarks/RESULTS.md).

    Every product of activations goes through this function (tests/model/test_products.py).

    Args:
      x, y: of equal axes but the last two.
    """
    # XLA rounds the products of its programs itself.
    is_cut = x.dtype == tf.bfloat16 and not are_one_program() and not _has_bfloat16_units()
    if not is_cut:
        return tf.matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    if are_on():
        return _rounded_matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    # With kernels off the graph may be saved for other programs, which do not know gradients of our own.
    return _matmul_in_float32(x, y, transpose_a, transpose_b)


def _has_bfloat16_units() -> bool:
    """Tells whether what computes the products, the processor or a GPU, multiplies bfloat16 itself."""
    return machine.this_processor().has_bfloat16 or bool(tf.config.list_physical_devices("GPU"))


@differentiable
def _rounded_matmul(x: tf.Tensor, y: tf.Tensor, transpose_a: bool, transpose_b: bool) -> Any:
    """Multiplies bfloat16 in float32 and rounds. Its own gradient: TensorFlow's would keep both factors in float32."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Of z = x y: dx = dz y^T and dy = x^T dz; transposed as a whole where a factor was.
        if transpose_a:
            to_x = _matmul_in_float32(y, upstream, transpose_b, True)
        else:
            to_x = _matmul_in_float32(upstream, y, False, not transpose_b)
        if transpose_b:
            to_y = _matmul_in_float32(upstream, x, True, transpose_a)
        else:
            to_y = _matmul_in_float32(x, upstream, not transpose_a, False)
        return to_x, to_y

    return _matmul_in_float32(x, y, transpose_a, transpose_b), gradient


def _matmul_in_float32(x: tf.Tensor, y: tf.Tensor, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
    wide = tf.matmul(to_float32(x), to_float32(y), transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(wide, tf.bfloat16)


def matrix_product(x: tf.Tensor, kernel: tf.Tensor, times: Callable[..., tf.Tensor] = matmul) -> tf.Tensor:
    """[..., n] times [n, m], one product for all leading axes; `times` multiplies matrices."""
    flat = times(tf.reshape(x, [-1, x.shape[-1]]), kernel)
    sizes = []
    for axis, size in enumerate(x.shape[:-1]):
        is_known = size is not None
        sizes.append(size if is_known else tf.shape(x)[axis])
    return tf.reshape(flat, [*sizes, kernel.shape[1]])


def to_float32(x: tf.Tensor) -> tf.Tensor:
    """Casts to the type in which kernels compute: float64 stays, all else becomes float32."""
    if x.dtype == tf.float64:
        return x
    return tf.cast(x, tf.float32)


def to_compute_dtype(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts float32, or float64, to the type of activations.

    Rounds to the nearest bfloat16, ties to even, by integers: LLVM makes much faster code of them on CPUs than of XLA's
    conversion (an exponential with dropout: 12 in place of 31 ms, benchmarks/RESULTS.md). NaN and infinities stay.
    """
    if are_compiled_alone():
        return rounded(x, dtype)
    return tf.cast(x, dtype)


def rounded(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts as `to_compute_dtype` does, in programs too, where XLA would go on with the float32 before the cast."""
    if dtype != tf.bfloat16:
        return tf.cast(x, dtype)
    # bfloat16 is the upper half of float32. Adding just under half a unit of it carries into that half where the rest
    # is more than half; for a rest of exactly half the last bit is added too, so that odd numbers go up to even ones.
    bits = tf.bitcast(x, tf.uint32)
    half = tf.constant(16, tf.uint32)
    last_bit = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, half), tf.constant(1, tf.uint32))
    upper_half = tf.bitwise.right_shift(bits + (tf.constant(0x7FFF, tf.uint32) + last_bit), half)
    return tf.bitcast(tf.cast(upper_half, tf.uint16), dtype)


def row_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums the last axis: [..., n] -> [..., 1].

    XLA sums a row on CPUs number by number, unless it is a product, which it makes part of the pass that computes `x`.
    """
    if not are_compiled_alone():
        return tf.reduce_sum(x, -1, keepdims=True)
    shape = tf.shape(x)
    sums = tf.linalg.matvec(tf.reshape(x, [-1, shape[-1]]), tf.ones([shape[-1]], x.dtype))
    return tf.reshape(sums, tf.concat([shape[:-1], [1]], 0))


def halved_sum(x: tf.Tensor) -> tf.Tensor:
    """Shortens the first axis, [n, ...] -> [n / 64 or more, ...], and keeps its sum.

    Adding up halves is part of the pass that computes `x`, where XLA would store it before a reduction on CPUs.
    """
    if not are_compiled_alone():
        return x
    for _ in range(6):
        size = x.shape[0]
        if size is None or size % 2:
            break
        x = x[: size // 2] + x[size // 2 :]
    return x


def column_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums all axes but the last: [..., n] -> [n]."""
    if x.shape.is_fully_defined():  # else the first axis alone is halved, which is known
        x = tf.reshape(x, [-1, x.shape[-1]])
    return tf.reduce_sum(halved_sum(x), list(range(x.shape.rank - 1)))


def bias_gradient(upstream: tf.Tensor) -> tf.Tensor:
    """Sums all axes but the last, [..., n] -> [n], outside of a kernel: as a product, which adds in float32.

    BiasAddGrad adds up in the type of its argument: sums of 4,096 bfloat16 are off by a tenth then. The sum is rounded
    to that type once.
    """
    rows = tf.reshape(upstream, [-1, upstream.shape[-1]])
    if not are_compiled_alone():
        return tf.reduce_sum(to_float32(rows), 0)
    count = rows.shape[0] or tf.shape(rows)[0]
    ones = tf.ones([1, count], rows.dtype)
    return to_float32(tf.squeeze(matmul(ones, rows), 0))
