"""Writes models for LiteRT (TensorFlow Lite), which runs on phones and small boards.

    model.tflite   input_ids, attention_mask, token_type_ids: int32 [batch, length]
                   -> last_hidden_state, logits, ...; or the predictions of a fine-tuned model
    README.md, model.json, tokenizer.json, tokenizer_config.json, vocab.txt

TensorFlow's converter reads our networks as plain formulas, without kernels. Batch and length are dynamic: a signature
runner resizes its inputs. Operations of LiteRT refuse an empty batch.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf2.exports.card_programs import litert_usage
from electra_tf2.exports.exportable import Exportable, IdsToOutputs, Runtime
from electra_tf2.files.writing import replacing
from electra_tf2.model import kernels
from electra_tf2.util.environment import errors_unseen
from electra_tf2.util.errors import UserError


def write(network: Exportable, path: Path) -> None:
    """Writes a file. Raises UserError if LiteRT cannot hold the network."""
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in network.inputs}
    module = tf.Module()
    module.variables_read = list(network.variables)
    module.function = tf.function(network.function, autograph=False, input_signature=[specs])
    with errors_unseen():  # the converter prints notes on options, and the whole graph when it fails
        with kernels.off():
            concrete = module.function.get_concrete_function()
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
        try:
            content = converter.convert()
        except Exception as error:  # the converter raises many types
            reason = type(error).__name__
            for line in str(error).split("\n"):
                if line.startswith("TF Select ops:"):  # lists the operations that LiteRT lacks
                    reason = line.removeprefix("TF Select ops:").strip()
                    break
            raise UserError(f"LiteRT cannot hold this network ({reason}): --format onnx can") from None
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load(path: Path) -> tuple[IdsToOutputs, list[str]]:
    """Loads a file into the interpreter on the processor.

    Returns:
      The function, and the names of its outputs.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:  # TensorFlow still contains the interpreter, but announces that it will be removed
        Interpreter = tf.lite.Interpreter
    with errors_unseen():
        runner = Interpreter(model_content=path.read_bytes()).get_signature_runner()

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with errors_unseen():
            return runner(**{name: value.astype(np.int32) for name, value in inputs.items()})

    return run, [*runner.get_output_details()]


RUNTIME = Runtime("LiteRT", "model.tflite", "a file", "tflite", litert_usage, write, load)
convert = RUNTIME.convert
