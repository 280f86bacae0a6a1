"""Reads an XLA program, to which TensorFlow lowers a step: its operations, constants, types, calls of the host."""

import math
from collections.abc import Iterator
from typing import Any

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

_BITS = {"PRED": 8, "BF16": 16, "C64": 64, "C128": 128, "TOKEN": 0, "TUPLE": 0, "OPAQUE_TYPE": 0}
_NO_OPERATION = {"parameter", "constant", "tuple", "get-tuple-element", "opt-barrier"}
_HOST = ("infeed", "outfeed", "send", "recv", "custom-call")


class Program:
    """An XLA program.

    Args:
      serialised: an HloModuleProto's bytes.
    """

    def __init__(self, serialised: bytes) -> None:
        self._module = hlo_pb2.HloModuleProto.FromString(serialised)

    def instructions(self) -> Iterator[Any]:
        """Yields all HloInstructionProtos. Those in loops and fusions come once."""
        for computation in self._module.computations:
            yield from computation.instructions

    @property
    def operations(self) -> int:
        """Number of operations in the program's text, without parameters, constants, tuples and barriers."""
        return sum(i.opcode not in _NO_OPERATION for i in self.instructions())

    @property
    def largest_constant(self) -> int:
        """Size of the largest constant, in bytes."""
        return max((_bytes(i.shape) for i in self.instructions() if i.opcode == "constant"), default=0)

    @property
    def types(self) -> set[str]:
        """Types of all arrays: F32, BF16, S32, ..."""
        types = set()
        for instruction in self.instructions():
            types |= {_type(array) for array in _arrays(instruction.shape)}
        return types

    def host_calls(self) -> list[str]:
        """Operations that wait for the host."""
        return [f"{i.opcode} {i.custom_call_target}".strip() for i in self.instructions() if i.opcode.startswith(_HOST)]

    def dynamic_shapes(self) -> list[str]:
        """Names of instructions whose result has a size that is known at run time only."""
        names = []
        for instruction in self.instructions():
            if any(any(array.is_dynamic_dimension) for array in _arrays(instruction.shape)):
                names.append(instruction.name)
        return names

    @property
    def argument_bytes(self) -> int:
        """Bytes of the arguments of the whole program."""
        computations = {computation.id: computation for computation in self._module.computations}
        entry = computations[self._module.entry_computation_id]
        return sum(_bytes(i.shape) for i in entry.instructions if i.opcode == "parameter")


def _arrays(shape: Any) -> Iterator[Any]:
    """The arrays of a shape, which may be a tuple of tuples."""
    if _type(shape) == "TUPLE":
        for inner in shape.tuple_shapes:
            yield from _arrays(inner)
    else:
        yield shape


def _type(shape: Any) -> str:
    return str(xla_data_pb2.PrimitiveType.Name(shape.element_type))


def _bytes(shape: Any) -> int:
    """Bytes of all arrays of a shape, without padding."""
    total = 0
    for array in _arrays(shape):
        total += math.prod(array.dimensions) * _bits(_type(array)) // 8
    return total


def _bits(name: str) -> int:
    """Bits of a value of a type. Most names tell them: F32, S64, F8E4M3FN."""
    if name in _BITS:
        return _BITS[name]
    digits = "".join(filter(str.isdigit, name.partition("E")[0]))
    return int(digits or 0)
