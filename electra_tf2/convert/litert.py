"""Writing models for LiteRT (TensorFlow Lite), which runs on phones and small boards: a folder as that of ONNX.

    model.tflite   input_ids, attention_mask, token_type_ids: int32 [batch, length] -> last_hidden_state, logits, ...;
                   of a fine-tuned model, what its head predicts
    model.json, tokenizer.json, tokenizer_config.json, vocab.txt

TensorFlow's converter makes it of our networks' plain formulas. Batch and length are dynamic: a signature runner
resizes the inputs to what it is given. With int8, weights are stored as such and multiplied as integers.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert import network_file as files
from electra_tf2.inference.network import Network
from electra_tf2.inference.stored_model import StoredModel, pooling_of
from electra_tf2.model import kernels
from electra_tf2.model.pooling import text_vectors
from electra_tf2.util.environment import errors_unseen
from electra_tf2.util.errors import UserError

Function = Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]  # of inputs by name


def pretrained(model: StoredModel, part: str) -> tuple[Function, Sequence[tf.Variable], dict[str, Any]]:
    """The function of a part of a pre-trained network, the variables it reads, and facts about it.

    Raises:
      UserError: the model has no such part.
    """
    head, pooling = files.head_of(model, part), pooling_of(model).mode
    network = Network(model.architecture, model.generator_architecture, model.weights)

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = [inputs[name] for name in files.INPUTS]
        if part == "generator":
            return {files.LOGITS: network.token_logits(*rows)}
        states = network.states(*rows)
        last = network.detector if head == "detector" else network.language_model
        if head and last is not None:
            return {files.STATES: states, files.LOGITS: last(states)}
        return {files.STATES: states, files.SENTENCE: text_vectors(states, rows[1], pooling, network.projection)}

    return outputs, network.trainable_variables, files.meaning(head) or {"pooling": pooling}


def write_litert(
    folder: Path,
    model: StoredModel,
    made: tuple[Function, Sequence[tf.Variable], dict[str, Any]],
    compared: files.Comparison,
    int8: bool,
) -> tuple[str, float]:
    """Writes the folder, as convert.onnx_network.write_onnx does.

    Args:
      made: the function, its variables and facts about it; inputs are those of the comparison.

    Raises:
      UserError: LiteRT has not all of the network's operations, or int8 makes another network of it.
    """
    function, variables, about = made
    content = _converted(function, variables, compared, int8)
    exact = run(_converted(function, variables, compared, int8=False), compared) if int8 else None
    about = files.facts(model, int8) | about | {"inputs": [*files.INPUTS, *compared.further]}
    return files.write_network(folder / "model.tflite", content, model, about, compared, run, exact)


def _converted(function: Function, variables: Sequence[tf.Variable], compared: files.Comparison, int8: bool) -> bytes:
    names = [*files.INPUTS, *compared.further]
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names}
    module = tf.Module()
    module.variables_read = list(variables)
    module.function = tf.function(function, autograph=False, input_signature=[specs])
    with errors_unseen():  # notes on options and, of what it cannot convert, the whole graph
        with kernels.off():
            concrete = module.function.get_concrete_function()
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            return converter.convert()
        except Exception as error:  # of many types
            lines = [line for line in str(error).split("\n") if line.startswith("TF Select ops:")]
            reason = lines[0].removeprefix("TF Select ops:").strip() if lines else type(error).__name__
            raise UserError(f"LiteRT cannot hold this network ({reason}): --format onnx can") from None


def run(content: bytes, compared: files.Comparison) -> dict[str, np.ndarray]:
    """Outputs of a file's content by the interpreter, on the processor."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:  # TensorFlow's own, until a later version leaves it out
        Interpreter = tf.lite.Interpreter
    with errors_unseen():
        runner = Interpreter(model_content=content).get_signature_runner()
        inputs = dict(zip(files.INPUTS, compared.rows, strict=True)) | compared.further
        return runner(**{name: value.astype(np.int32) for name, value in inputs.items()})
