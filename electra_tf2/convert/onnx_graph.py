"""ONNX graphs as they are written: nodes, constants and weights, and layers of a network out of them.

Operators are of ONNX itself (opset 20), none of a runtime's own, so that ONNX Runtime, OpenVINO and others read the
files. With `peaks`, matrix products multiply integers: a weight is stored as int8 with a scale for each column, and
inputs are quantised as they come, by their own range (dynamic quantisation); tables of embeddings have a scale for each
row. A few channels of an input may be many times as large as all others, and would leave those few of the integers:
they are divided by a factor, and their weights multiplied by it (as SmoothQuant does with every channel; Xiao et al.
2023, equation 3). B batch, L length.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from electra_tf2.model.kernels.cpu import LAYER_NORM_EPSILON
from electra_tf2.util.errors import UserError

OPSET = 20  # the first with Gelu
_IR_VERSION = 9  # of opset 20: no newer than it has to be
_MOST_BYTES = 2**31 - 2**20  # protocol buffers end at 2 GiB
_PEAK = "peak/"  # before the names of outputs that say how large a product's input is
_ORDINARY = 0.99  # share of an input's channels that are no outliers
_OUTLYING = 1.5  # as many times as large as those is worth a factor
_TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}


class Graph:
    """A graph in the making; tensors are known by their names.

    Args:
      weights: float32 arrays by name; those that are used are stored once.
      packed: whether what is computed for each token leaves out padding (convert.onnx_network.Encoder).
      peaks: the largest magnitude of each channel of matrix products' inputs, by the names of their weights; with it
        products and tables are quantised.
    """

    def __init__(
        self, weights: Mapping[str, np.ndarray], packed: bool = False, peaks: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.epsilon = LAYER_NORM_EPSILON  # of layer norms
        self.weights, self.packed, self.peaks = weights, packed, peaks
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._stored: dict[str, np.ndarray] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._quantized: dict[str, list[str]] = {}  # input of a product -> its integers, scale and zero point
        self._even: dict[tuple[str, str], str] = {}  # input of a product, factors -> with outlying channels divided
        self._read: dict[str, tuple[str, int]] = {}  # name of a product's weight -> its input and width

    @property
    def int8(self) -> bool:
        """Tells whether matrix products and tables are quantised."""
        return self.peaks is not None

    def input(self, name: str, shape: Sequence[str | int], dtype: str = "int64") -> str:
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], shape))
        return name

    def output(self, name: str, value: str, *shape: str | int, dtype: str = "float32") -> None:
        """Gives a tensor a name under which it leaves the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, _TYPES[dtype], shape))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node of one output."""
        return self.split(kind, *inputs, parts=1, **attributes)[0]

    def split(self, kind: str, *inputs: str, parts: int, **attributes: Any) -> list[str]:
        """Adds a node of several outputs."""
        number = len(self._nodes)
        names = [f"{kind}_{number}" if part == 0 else f"{kind}_{number}_{part}" for part in range(parts)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}_{number}", **attributes))
        return names

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """Stores an array, once for all that is the same."""
        array = np.asarray(value, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._store(f"constant_{len(self._constants)}", array)
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """Stores int64 [values], a shape or axes."""
        return self.constant(values, "int64")

    def weight(self, name: str) -> str:
        return self._store(name, self.weights[name])

    def _store(self, name: str, array: np.ndarray) -> str:
        self._stored[name] = array
        return name

    # Layers; weights are named as ours.

    def dense(self, x: str, name: str, kernel: np.ndarray | None = None, bias: np.ndarray | None = None) -> str:
        """x W + b of the weights `name`/kernel and `name`/bias, if there is one; or of arrays for them."""
        kernel = self.weights[f"{name}/kernel"] if kernel is None else kernel
        bias = self.weights.get(f"{name}/bias") if bias is None else bias
        product = self._product(x, f"{name}/kernel", kernel)
        return product if bias is None else self.op("Add", product, self._store(f"{name}/bias", bias))

    def _product(self, x: str, name: str, kernel: np.ndarray) -> str:
        """x [..., n] times a kernel [n, m]; one of few columns, in which no time is spent, stays as it is."""
        if self.peaks is None or kernel.shape[-1] < 16:
            self._read[name] = x, len(kernel)
            return self.op("MatMul", x, self._store(name, kernel))
        ordinary = np.quantile(self.peaks[name], _ORDINARY)
        factors = np.maximum(self.peaks[name] / (ordinary or np.inf), 1).astype(np.float32)
        if factors.max() > _OUTLYING:
            key = x, self.constant(1 / factors)
            self._even[key] = self._even.get(key) or self.op("Mul", *key)
            x, kernel = self._even[key], kernel * factors[:, np.newaxis]
        integers, scales = quantized(kernel, axis=0)
        self._store(f"{name}/int8", integers)
        return self._integer_product(x, f"{name}/int8", self._store(f"{name}/scale", scales[0]))

    def watch(self) -> None:
        """Adds an output for each product of a kernel so far, which `peaks_in` reads."""
        for name, (x, width) in self._read.items():
            rows = self.op("Reshape", self.op("Abs", x), self.ints(-1, width))
            self.output(_PEAK + name, self.op("ReduceMax", rows, self.ints(0), keepdims=0), width)

    def _integer_product(self, x: str, integers: str, scale: str) -> str:
        if x not in self._quantized:
            self._quantized[x] = self.split("DynamicQuantizeLinear", x, parts=3)
        rows, of_rows, zero = self._quantized[x]
        product = self.op("Cast", self.op("MatMulInteger", rows, integers, zero), to=TensorProto.FLOAT)
        return self.op("Mul", product, self.op("Mul", of_rows, scale))

    def times_table(self, x: str, name: str) -> str:
        """x [..., E] times the transpose of a table [V, E]: the softmax that is tied to the embeddings."""
        if not self.int8:
            return self.op("MatMul", x, self.op("Transpose", self.weight(name), perm=[1, 0]))
        integers, scales = self._quantized_table(name)
        return self._integer_product(x, self.op("Transpose", integers, perm=[1, 0]), self.op("Squeeze", scales))

    def rows(self, name: str, places: str) -> str:
        """Rows of a table [V, E] at places [...]: [..., E]."""
        if not self.int8:
            return self.op("Gather", self.weight(name), places)
        integers, scales = (self.op("Gather", table, places) for table in self._quantized_table(name))
        return self.op("Mul", self.op("Cast", integers, to=TensorProto.FLOAT), scales)

    def _quantized_table(self, name: str) -> tuple[str, str]:
        integers, scales = quantized(self.weights[name], axis=1)
        return self._store(f"{name}/int8", integers), self._store(f"{name}/scale", scales)

    def layer_norm(self, x: str, name: str) -> str:
        weights = [self.weight(f"{name}/gamma")]
        weights += [self.weight(f"{name}/beta")] if f"{name}/beta" in self.weights else []
        return self.op("LayerNormalization", x, *weights, epsilon=self.epsilon)

    def activation(self, x: str, name: str) -> str:
        kinds = {"gelu": "Gelu", "relu": "Relu", "relu2": "Relu", "tanh": "Tanh"}
        value = x if name == "linear" else self.op(kinds[name], x)
        return self.op("Mul", value, value) if name == "relu2" else value

    def floats(self, x: str) -> str:
        return self.op("Cast", x, to=TensorProto.FLOAT)

    # The file.

    def serialized(self, about: Mapping[str, str]) -> bytes:
        """The content of a file.

        Args:
          about: facts to be kept in its metadata.

        Raises:
          UserError: the weights are more than such a file can hold.
        """
        size = sum(array.nbytes for array in self._stored.values())
        if size > _MOST_BYTES:
            raise UserError(f"an ONNX file holds 2 GB, these weights are {size / 1e9:.1f} GB: try --quantize int8")
        stored = [numpy_helper.from_array(array, name) for name, array in self._stored.items()]
        graph = helper.make_graph(self._nodes, "electra", self.inputs, self.outputs, stored)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION, producer_name="electra-tf2"
        )
        helper.set_model_props(model, dict(about))
        return model.SerializeToString()


def peaks_in(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Takes what `Graph.watch` added out of a graph's outputs: the weight's name -> float32 [inputs]."""
    return {name.removeprefix(_PEAK): outputs.pop(name) for name in list(outputs) if name.startswith(_PEAK)}


def quantized(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 numbers and float32 scales, one for all along an axis: array = numbers x scales, to half a scale."""
    scales = np.abs(array).max(axis, keepdims=True).astype(np.float32) / 127
    scales = np.where(scales == 0, np.float32(1), scales)
    return np.clip(np.rint(array / scales), -127, 127).astype(np.int8), scales
