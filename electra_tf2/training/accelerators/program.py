"""The contents of an XLA program: operations, constants, products' FLOPs, kernels and the bytes that they move.

Programs are HloModuleProtos, as TensorFlow lowers a step and as the accelerators' compilers give it back.
"""

import json
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

_BITS = {"PRED": 8, "BF16": 16, "C64": 64, "C128": 128, "TOKEN": 0, "TUPLE": 0, "OPAQUE_TYPE": 0}
_NO_KERNEL = {"parameter", "get-tuple-element", "bitcast", "constant", "tuple", "after-all", "partition-id", "while"}
_NO_OPERATION = {"parameter", "constant", "tuple", "get-tuple-element", "opt-barrier"}
# What waits for, or only names, what another operation moves.
_NO_BYTES = {"copy-done", "async-done", "slice-done", "opt-barrier", "conditional", "call", "dynamic-slice-done"}
_PART_OF_FIRST = ("dynamic-slice", "gather", "slice")
_REPLACES_PART = {"dynamic-update-slice": 1, "scatter": 2}  # which operand the new rows are
_HOST = ("infeed", "outfeed", "send", "recv")
_INNER = ("fusion", "while", "call", "conditional", "async-start")


class Kernel(NamedTuple):
    """A launch.

    Attributes:
      times: how often a step runs it.
      bytes: of operands and results in the device's main memory, each time.
      is_product: whether a matrix product is in it.
      operation: opcode; of a fusion "fusion".
      source: name of TensorFlow's operation that it comes from.
    """

    times: int
    bytes: int
    is_product: bool
    operation: str
    source: str


class Program:
    """A program.

    Args:
      serialised: HloModuleProto.
    """

    def __init__(self, serialised: bytes) -> None:
        self._module = hlo_pb2.HloModuleProto.FromString(serialised)
        self._computations = {one.id: one for one in self._module.computations}
        self._of = {one.id: {i.id: i for i in one.instructions} for one in self._module.computations}

    def instructions(self) -> Iterator[Any]:
        """All HloInstructionProtos, those of loops and fusions once."""
        for computation in self._module.computations:
            yield from computation.instructions

    @property
    def operations(self) -> int:
        """Operations of the program's text, but those that only give, name or order values."""
        return sum(i.opcode not in _NO_OPERATION for i in self.instructions())

    @property
    def largest_constant(self) -> int:
        """Bytes."""
        return max((shape_bytes(i.shape) for i in self.instructions() if i.opcode == "constant"), default=0)

    @property
    def types(self) -> set[str]:
        """Types of all arrays: F32, BF16, S32, ..."""
        return {_type(shape) for i in self.instructions() for shape in arrays(i.shape)}

    def host_calls(self) -> list[str]:
        """Operations that wait for the host."""
        return [
            f"{i.opcode} {i.custom_call_target}".strip()
            for i in self.instructions()
            if i.opcode.startswith(_HOST) or (i.opcode == "custom-call" and not _is_attention(i))
        ]

    def dynamic_shapes(self) -> list[str]:
        """Names of what has a size that is known at run time only."""
        return [i.name for i in self.instructions() if any(any(a.is_dynamic_dimension) for a in arrays(i.shape))]

    @property
    def argument_bytes(self) -> int:
        entry = self._computations[self._module.entry_computation_id]
        return sum(shape_bytes(i.shape) for i in entry.instructions if i.opcode == "parameter")

    @cached_property
    def times(self) -> dict[int, int]:
        """Id of a computation -> how often a step runs it."""
        found: dict[int, int] = {}

        def visit(computation: int, times: int) -> None:
            found[computation] = found.get(computation, 0) + times
            for instruction in self._computations[computation].instructions:
                if instruction.opcode in _INNER:
                    runs = self.trips(computation, instruction) if instruction.opcode == "while" else 1
                    for called in instruction.called_computation_ids:
                        visit(called, times * runs)

        visit(self._module.entry_computation_id, 1)
        return found

    def product_flops(self) -> int:
        """2 per multiply-add of all `dot` operations of a step and of cuDNN's attention; for programs as they were
        lowered."""
        total = 0
        for computation, times in self.times.items():
            for instruction in self._computations[computation].instructions:
                if instruction.opcode == "dot":
                    left = self._of[computation][instruction.operand_ids[0]].shape.dimensions
                    contracted = instruction.dot_dimension_numbers.lhs_contracting_dimensions
                    total += (
                        2 * times * math.prod(instruction.shape.dimensions) * math.prod(left[d] for d in contracted)
                    )
                elif instruction.opcode == "custom-call" and _is_attention(instruction):
                    batch, length, heads, size = self._of[computation][instruction.operand_ids[0]].shape.dimensions
                    products = 5 if instruction.custom_call_target.endswith("Backward") else 2
                    total += 2 * times * products * batch * heads * length**2 * size
        return total

    def kernels(self) -> list[Kernel]:
        """Launches of a compiled program."""
        found = []
        inner = {
            called
            for i in self.instructions()
            if i.opcode not in ("while", "conditional", "call")
            for called in i.called_computation_ids
        }
        for computation, times in self.times.items():
            if computation in inner:
                continue
            by_id = self._of[computation]
            for instruction in self._computations[computation].instructions:
                if instruction.opcode in _NO_KERNEL or instruction.opcode in _NO_BYTES:
                    continue
                read = {
                    operand: self._read_bytes(instruction, number, by_id[operand])
                    for number, operand in enumerate(instruction.operand_ids)
                }
                moved = self._written_bytes(instruction, by_id) + sum(read.values())
                source = instruction.metadata.op_name
                found.append(Kernel(times, moved, self._has_product(instruction), instruction.opcode, source))
        return found

    def _read_bytes(self, instruction: Any, number: int, operand: Any) -> int:
        """Bytes read of an operand: the rows alone where only rows are looked up in it, or replaced."""
        whole = _main_memory_bytes(operand.shape, operand)
        if instruction.opcode in _PART_OF_FIRST and number == 0:
            return min(whole, _main_memory_bytes(instruction.shape, instruction))
        if instruction.opcode in _REPLACES_PART and number == 0:
            return 0
        if instruction.opcode != "fusion" or not whole:
            return whole
        fused = self._computations[instruction.called_computation_ids[0]]
        parameter = next(i for i in fused.instructions if i.opcode == "parameter" and i.parameter_number == number)
        users = [i for i in fused.instructions if parameter.id in i.operand_ids]
        if users and all(
            i.opcode in (*_PART_OF_FIRST, *_REPLACES_PART) and parameter.id not in i.operand_ids[1:] for i in users
        ):
            return min(whole, sum(shape_bytes(i.shape) for i in users if i.opcode in _PART_OF_FIRST))
        return whole

    def _written_bytes(self, instruction: Any, scope: dict[int, Any]) -> int:
        whole, root = _main_memory_bytes(instruction.shape, instruction), instruction
        if instruction.opcode == "fusion":
            fused = self._computations[instruction.called_computation_ids[0]]
            scope = self._of[fused.id]
            root = scope[fused.root_id]
        if root.opcode in _REPLACES_PART:  # in place: the new rows, written, and read or added to
            return min(whole, 2 * shape_bytes(scope[root.operand_ids[_REPLACES_PART[root.opcode]]].shape))
        return whole

    def _has_product(self, instruction: Any) -> bool:
        if instruction.opcode in ("dot", "convolution"):
            return True
        if instruction.opcode == "custom-call":
            return "cublas" in instruction.custom_call_target or _is_attention(instruction)
        return instruction.opcode == "fusion" and any(
            self._has_product(inner)
            for called in instruction.called_computation_ids
            for inner in self._computations[called].instructions
        )

    # Loops.

    def trips(self, computation: int, loop: Any) -> int:
        """Number of runs of a `while`: as the compiler found, or from the constants that its condition compares.

        Of a loop whose end only run time knows: 1.
        """
        if loop.backend_config.startswith(b"{"):
            known = json.loads(loop.backend_config).get("known_trip_count")
            if known:
                return int(known["n"])
        _, condition = loop.called_computation_ids
        start = self._of[computation][loop.operand_ids[0]]
        bounds = []
        for scope in (self._of[one] for one in [condition, *self._called_by(condition)]):
            for compare in (one for one in scope.values() if one.opcode == "compare"):
                low, high = (self._value(scope, scope[i], start, computation) for i in compare.operand_ids)
                if compare.comparison_direction == "LT" and high is not None:
                    bounds.append(high - (low or 0))
        return max(1, min(bounds, default=1))

    def _called_by(self, computation: int) -> list[int]:
        """TensorFlow's condition calls what compares, with the loop's state as it is."""
        return [
            called
            for one in self._computations[computation].instructions
            if one.opcode == "call"
            for called in one.called_computation_ids
        ]

    def _value(self, scope: dict[int, Any], instruction: Any, start: Any, outside: int) -> int | None:
        """A scalar constant, or the constant that a loop's state begins with."""
        if instruction.opcode == "constant" and not instruction.shape.dimensions:
            values = [*instruction.literal.s32s, *instruction.literal.s64s]
            return values[0] if values else None
        if instruction.opcode == "copy":
            return self._value(scope, scope[instruction.operand_ids[0]], start, outside)
        if instruction.opcode != "get-tuple-element" or start.opcode != "tuple":
            return None
        if scope[instruction.operand_ids[0]].opcode != "parameter":
            return None
        begins = self._of[outside][start.operand_ids[instruction.tuple_index]]
        return self._value(self._of[outside], begins, begins, outside)


def _is_attention(call: Any) -> bool:
    """Tells whether a custom call is a kernel of model.kernels.cudnn."""
    return str(call.custom_call_target).startswith("__cudnn$fmha")


def arrays(shape: Any) -> Iterator[Any]:
    """The arrays of a shape, which may be a tuple of tuples."""
    if _type(shape) == "TUPLE":
        for inner in shape.tuple_shapes:
            yield from arrays(inner)
    else:
        yield shape


def shape_bytes(shape: Any) -> int:
    """Bytes of all arrays of a shape, without padding."""
    return sum(_array_bytes(one) for one in arrays(shape))


def _type(shape: Any) -> str:
    return str(xla_data_pb2.PrimitiveType.Name(shape.element_type))


def _array_bytes(shape: Any) -> int:
    name = _type(shape)
    bits = _BITS.get(name, 0) or int("".join(filter(str.isdigit, name.partition("E")[0])) or 0)
    return math.prod(shape.dimensions) * bits // 8


def _main_memory_bytes(shape: Any, instruction: Any) -> int:
    """Without arrays in a TPU's fast memory, and without cuBLAS's workspace, an int8 result."""
    workspace = instruction.opcode == "custom-call"
    return sum(
        _array_bytes(one)
        for one in arrays(shape)
        if not one.layout.memory_space and not (workspace and _type(one) in ("S8", "U8"))
    )
