"""A step lowered on this machine's processor and compiled for an accelerator that is not there: whether it fits, what
it launches and moves, and how fast it could be.

The compilers come with the extra `accelerators`, and run in a process of their own (training.accelerators.compiler), by
the Python that ACCELERATORS_PYTHON names or by this one.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from electra_tf2.training.accelerators import compiler
from electra_tf2.training.accelerators.devices import Device
from electra_tf2.training.accelerators.program import Kernel, Program
from electra_tf2.util.errors import UserError

INSTALL = "pip install 'electra-tf2[accelerators]'"
ASSUMPTIONS = (
    "Steps/s are a roofline: matrix products at the peak of their precision or at the memory's bandwidth, whichever "
    "takes longer; every other kernel at the bandwidth, and on GPUs 2 us for each launch at least; operands and "
    "results of every kernel move from and to memory once. Nothing here was measured on a device."
)


class Compiled(NamedTuple):
    """A compiler's figures of a step on a device.

    Attributes:
      fits: into the device's memory.
      memory: bytes that the step takes: arguments, results that replace none, temporaries, code.
      seconds, host_bytes: of the compilation; seconds of a processor.
      arguments, temporaries: bytes of these alone.
      kernels: launches of a step.
      moved: bytes that they move.
      flops: of matrix products.
      steps_per_second: `ASSUMPTIONS`.
      all_kernels: each of them; empty where the compiler refused the step for its memory.
    """

    fits: bool
    memory: int
    seconds: float = 0.0
    host_bytes: int = 0
    arguments: int = 0
    temporaries: int = 0
    kernels: int = 0
    moved: int = 0
    flops: int = 0
    steps_per_second: float = 0.0
    all_kernels: tuple[Kernel, ...] = ()


@contextlib.contextmanager
def tables_without_values() -> Iterator[None]:
    """Variables of two axes and more get memory that nothing writes to, which the system therefore does not give them:
    a step is lowered by their shapes, and the values and moments of electra_large alone are 4.6 GB.

    Initial values are not computed where shape and type are known without.
    """

    def create(next_creator: Callable[..., tf.Variable], **given: Any) -> tf.Variable:
        shape, dtype, value = tf.TensorShape(given.get("shape")), given.get("dtype"), given["initial_value"]
        if not shape.is_fully_defined() or dtype is None:
            given["initial_value"] = value = tf.convert_to_tensor(value() if callable(value) else value, dtype)
            shape, dtype = value.shape, value.dtype
        if len(shape) >= 2:
            given["initial_value"] = tf.raw_ops.Empty(shape=shape.as_list(), dtype=dtype)
        return next_creator(**given)

    with tf.variable_creator_scope(create):
        yield


def lowered(step: Any, *arguments: Any) -> bytes:
    """The HloModuleProto of a compiled tf.function, as it is for any device.

    Args:
      step: made with jit_compile.
      arguments: tensors; their values do not matter.
    """
    module = hlo_pb2.HloModuleProto.FromString(step.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized"))
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "copy":  # of a layout, which StableHLO, the compilers' input, knows nothing of
                instruction.opcode = "reshape"
    return bytes(module.SerializeToString())


def compile_for(device: Device, program: bytes, precision: str) -> Compiled:
    """Compiles a lowered step.

    Args:
      precision: of the products, whose peak counts.

    Raises:
      UserError: the extra is not installed, or the compiler refuses the step for another reason than its size.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target, optimised = (Path(folder) / name for name in ("program", "target", "optimised"))
        source.write_bytes(program)
        target.write_text(device.target)
        answer = _answer(device, [str(path) for path in (source, target, optimised)])
        compiled = optimised.read_bytes() if optimised.exists() else b""
    if "error" in answer:
        needed = _refused_bytes(answer["error"], Program(program).argument_bytes)
        if needed is None:
            raise UserError(f"the compiler for {device.name} refuses the step: {answer['error'][:500]}")
        return Compiled(False, needed)
    memory = sum(answer[name] for name in ("arguments", "outputs", "temporaries", "code")) - answer["aliases"]
    kernels, flops = tuple(Program(compiled).kernels()), Program(program).product_flops()
    return Compiled(
        memory <= device.memory,
        memory,
        answer["seconds"],
        answer["host_bytes"],
        answer["arguments"],
        answer["temporaries"],
        sum(kernel.times for kernel in kernels),
        sum(kernel.times * kernel.bytes for kernel in kernels),
        flops,
        1 / roofline_seconds(device, kernels, flops, precision),
        kernels,
    )


def roofline_seconds(device: Device, kernels: tuple[Kernel, ...], flops: int, precision: str) -> float:
    """Least time of a step under `ASSUMPTIONS`."""
    products = sum(kernel.times * kernel.bytes for kernel in kernels if kernel.is_product) / device.bandwidth
    others = sum(
        kernel.times * max(kernel.bytes / device.bandwidth, device.launch_seconds)
        for kernel in kernels
        if not kernel.is_product
    )
    return max(products, flops / device.peaks.get(precision, device.peaks["float32"])) + others


def check_compiler(device: Device) -> None:
    """Raises UserError, with what to install, if there is no compiler for a device."""
    lacking = _answer(device, ["tpu" if device.is_tpu else "gpu"])["missing"]
    if lacking:
        raise UserError(f"compiling for {device.name} needs {lacking}, of the extra accelerators: {INSTALL}")


def _answer(device: Device, arguments: list[str]) -> dict[str, Any]:
    """The answer of training.accelerators.compiler."""
    python = os.environ.get("ACCELERATORS_PYTHON", sys.executable)
    # The compiler needs no device, and would keep others from one.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    try:
        done = subprocess.run(
            [python, compiler.__file__, *arguments], capture_output=True, text=True, env=environment, check=False
        )
    except OSError as error:
        raise UserError(f"ACCELERATORS_PYTHON: {python} cannot be run: {error.strerror}") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UserError(f"the compiler for {device.name} ended without an answer: {reason[0]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _refused_bytes(message: str, arguments: int) -> int | None:
    """Bytes that a step would need, of what a compiler says that refuses it for its size; None for other refusals."""
    found = re.search(r"HLO temporaries \(([\d.]+)([KMGT])\) exceeds", message)
    beside = arguments if found else 0
    found = found or re.search(r"[Uu]sed ([\d.]+)([KMGT]) of", message)
    if found is None:
        return None
    return beside + int(float(found[1]) * 1024 ** ("KMGT".index(found[2]) + 1))
