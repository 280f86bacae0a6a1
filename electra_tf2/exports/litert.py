"""Writing models for LiteRT (TensorFlow Lite), which runs on phones and small boards: a folder as that of ONNX.

    model.tflite   input_ids, attention_mask, token_type_ids: int32 [batch, length] -> last_hidden_state, logits, ...;
                   of a fine-tuned model, what its head predicts
    README.md, model.json, tokenizer.json, tokenizer_config.json, vocab.txt

TensorFlow's converter makes it of our networks' plain formulas. Batch and length are dynamic: a signature runner
resizes the inputs to what it is given. A batch of no rows is refused by LiteRT's own operations.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf2.exports.cards import litert_usage
from electra_tf2.exports.exportable import Exportable, IdsToOutputs, Runtime
from electra_tf2.files.writing import replacing
from electra_tf2.model import kernels
from electra_tf2.util.environment import errors_unseen
from electra_tf2.util.errors import UserError


def write(made: Exportable, path: Path) -> None:
    """Writes a file. Raises UserError: LiteRT cannot hold the network."""
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in made.inputs}
    module = tf.Module()
    module.variables_read = list(made.variables)
    module.function = tf.function(made.function, autograph=False, input_signature=[specs])
    with errors_unseen():  # notes on options and, of what it cannot convert, the whole graph
        with kernels.off():
            concrete = module.function.get_concrete_function()
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
        try:
            content = converter.convert()
        except Exception as error:  # of many types
            reason = type(error).__name__
            for line in str(error).split("\n"):
                if line.startswith("TF Select ops:"):  # the operations that it lacks
                    reason = line.removeprefix("TF Select ops:").strip()
                    break
            raise UserError(f"LiteRT cannot hold this network ({reason}): --format onnx can") from None
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load(path: Path) -> tuple[IdsToOutputs, list[str]]:
    """The function in a file, by the interpreter on the processor, and the names of its outputs."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:  # TensorFlow's own, until a later version leaves it out
        Interpreter = tf.lite.Interpreter
    with errors_unseen():
        runner = Interpreter(model_content=path.read_bytes()).get_signature_runner()

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with errors_unseen():
            return runner(**{name: value.astype(np.int32) for name, value in inputs.items()})

    return run, [*runner.get_output_details()]


RUNTIME = Runtime("LiteRT", "model.tflite", "tflite", litert_usage("model.tflite"), write, load)
convert = RUNTIME.convert
