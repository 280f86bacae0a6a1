"""A pre-training step as an XLA program, lowered on this machine's processor and compiled for an accelerator that is
not there.

The compilers come with the extra `accelerators`, and run in a process of their own (benchmarks/compiled_compiler.py),
by the Python that ACCELERATORS_PYTHON names or by this one.
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
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from benchmarks import compiled_compiler
from benchmarks.compiled_devices import Device
from benchmarks.compiled_program import Program
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.records import FIELDS
from electra_tf2.pretrain.masking import Batch
from electra_tf2.pretrain.pretraining_task import PretrainingTask, make_task
from electra_tf2.util.errors import UserError, how_to_install

INSTALL = how_to_install("accelerators")


@contextlib.contextmanager
def tables_without_values() -> Iterator[None]:
    """Gives variables of two axes and more memory that nothing writes to, so that the system never provides it.

    A step is lowered by the shapes of its variables alone, and the values and moments of electra_large are 4.6 GB.
    Initial values are not computed where shape and type are known without them.
    """

    def create(next_creator: Callable[..., tf.Variable], **given: Any) -> tf.Variable:
        shape = tf.TensorShape(given.get("shape"))
        dtype = given.get("dtype")
        if not shape.is_fully_defined() or dtype is None:
            value = given["initial_value"]
            if callable(value):
                value = value()
            value = tf.convert_to_tensor(value, dtype)
            given["initial_value"] = value
            shape = value.shape
            dtype = value.dtype
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


def task_to_lower(config: PretrainingConfig) -> PretrainingTask:
    """The task of a configuration on one device, compiled with XLA. Its weights have no values."""
    with tables_without_values():
        return make_task(config, tf.distribute.get_strategy(), jit_compile=True)


def empty_batch(config: PretrainingConfig, rows: int) -> Batch:
    """int32 [rows, max_seq_length] of ones for every field of a record."""
    return {name: tf.ones([rows, config.max_seq_length], tf.int32) for name in FIELDS}


def training_program(config: PretrainingConfig, task: PretrainingTask | None = None) -> bytes:
    """HloModuleProto of a training step."""
    task = task or task_to_lower(config)
    batch = empty_batch(config, config.train_batch_size)
    return lowered(task.train_step, batch, tf.constant(0, tf.int64))


def memory_of(device: Device, program: bytes) -> tuple[int, int, float]:
    """Compiles a lowered step.

    Returns:
      Bytes that the step takes (arguments, results that replace none, temporaries, code), bytes of the arguments alone,
      and a processor's seconds of the compilation, 0 if the compiler refused the step for its memory.

    Raises:
      UserError: the extra is not installed, or the compiler refuses the step for another reason than its size.
    """
    arguments = Program(program).argument_bytes
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "program"
        target = Path(folder) / "target"
        source.write_bytes(program)
        target.write_text(device.target)
        answer = _answer(device, [str(source), str(target)])
    if "error" in answer:
        needed = _refused_bytes(answer["error"], arguments)
        if needed is None:
            raise UserError(f"the compiler for {device.name} refuses the step: {answer['error'][:500]}")
        return needed, arguments, 0.0
    memory = sum(answer[name] for name in ("arguments", "outputs", "temporaries", "code")) - answer["aliases"]
    return memory, arguments, answer["seconds"]


def check_compiler(device: Device) -> None:
    """Raises UserError, with what to install, if there is no compiler for a device."""
    lacking = _answer(device, ["tpu" if device.is_tpu else "gpu"])["missing"]
    if lacking:
        raise UserError(f"compiling for {device.name} needs {lacking}, of the extra accelerators: {INSTALL}")


def _answer(device: Device, arguments: list[str]) -> dict[str, Any]:
    """The answer of benchmarks/compiled_compiler.py."""
    python = os.environ.get("ACCELERATORS_PYTHON", sys.executable)
    # The compiler needs no device, and would keep others from one.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    command = [python, compiled_compiler.__file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    except OSError as error:
        raise UserError(f"ACCELERATORS_PYTHON: {python} cannot be run: {error.strerror}") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UserError(f"the compiler for {device.name} ended without an answer: {reason[0]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _refused_bytes(message: str, arguments: int) -> int | None:
    """Reads the bytes that a step would need from a compiler's refusal; None where it refuses for another reason."""
    temporaries = re.search(r"HLO temporaries \(([\d.]+)([KMGT])\) exceeds", message)
    if temporaries is not None:
        return arguments + _bytes(temporaries)
    everything = re.search(r"[Uu]sed ([\d.]+)([KMGT]) of", message)
    if everything is not None:
        return _bytes(everything)
    return None


def _bytes(size: re.Match[str]) -> int:
    """Bytes of a number and its unit, the groups of a match."""
    number, unit = size.groups()
    return int(float(number) * 1024 ** ("KMGT".index(unit) + 1))
