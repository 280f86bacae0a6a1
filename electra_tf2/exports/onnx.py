"""Writes models for ONNX Runtime, OpenVINO and others.

    model.onnx   input_ids, attention_mask, token_type_ids: int64 [batch, length]
                 -> last_hidden_state, logits, ...; or the predictions of a fine-tuned model
    README.md, model.json, tokenizer.json, tokenizer_config.json, vocab.txt

tf2onnx reads our networks as plain formulas, without kernels. All operators are ONNX's standard ones. Batch and length
are dynamic.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from onnx import checker
from tf2onnx import optimizer

from electra_tf2.exports.card_programs import onnx_usage
from electra_tf2.exports.exportable import Exportable, IdsToOutputs, Runtime
from electra_tf2.files.writing import replacing
from electra_tf2.model import kernels
from electra_tf2.util.environment import errors_unseen
from electra_tf2.util.errors import UserError

OPSET = 18
_MOST_BYTES = 2**31 - 2**20  # a protocol buffer holds at most 2 GiB; some of it is for the graph


def write(network: Exportable, path: Path) -> None:
    """Writes a file. Raises UserError if ONNX cannot hold the network."""
    size = 4 * sum(int(np.prod(variable.shape)) for variable in network.variables)  # bytes in float32
    if size > _MOST_BYTES:
        raise UserError(f"these weights take {size / 1e9:.1f} GB, an ONNX file at most 2: use --format saved_model")
    names = list(network.inputs)

    def function(*values: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Takes int64 inputs, which tools for ONNX expect, and by position, which tf2onnx needs."""
        inputs = {name: tf.cast(value, tf.int32) for name, value in zip(names, values, strict=True)}
        return network.function(inputs)

    signature = [tf.TensorSpec([None, None], tf.int64, name=name) for name in names]
    with errors_unseen(), kernels.off():
        # tf2onnx logs what it optimised, and tracebacks of errors that are handled below.
        logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
        try:
            # Without this pass: it merges the two reshapes around a matrix product without bias into a wrong shape.
            optimizer._get_optimizers().pop("reshape_optimizer", None)
            graph = tf.function(function, autograph=False)
            proto, _ = tf2onnx.convert.from_function(graph, signature, opset=OPSET)
            checker.check_model(proto)  # tf2onnx copies operations that ONNX lacks without an error
        except (ValueError, NotImplementedError, RuntimeError, checker.ValidationError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(f"ONNX cannot hold this network ({reason}): --format saved_model can") from None
    with replacing(path) as temporary:
        temporary.write_bytes(proto.SerializeToString())


def load(path: Path) -> tuple[IdsToOutputs, list[str]]:
    """Loads a file into ONNX Runtime on the processor.

    Returns:
      The function, and the names of its outputs.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    input_names = [entry.name for entry in session.get_inputs()]  # tf2onnx removes inputs that the network ignores
    output_names = [entry.name for entry in session.get_outputs()]

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        feed = {name: inputs[name].astype(np.int64) for name in input_names}
        outputs = session.run(None, feed)
        return dict(zip(output_names, outputs, strict=True))

    return run, output_names


RUNTIME = Runtime("ONNX Runtime", "model.onnx", "a file", "onnx", onnx_usage, write, load)
convert = RUNTIME.convert
