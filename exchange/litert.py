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

from electra_tf2.exchange.network import Network
from electra_tf2.exchange.network_file import (
    INPUTS,
    LOGITS,
    SENTENCE,
    STATES,
    Comparison,
    facts,
    head_of,
    meaning,
    movement,
    write_beside,
)
from electra_tf2.exchange.pooling import pooling_of
from electra_tf2.exchange.sources import Model
from electra_tf2.model import kernels
from electra_tf2.util.environment import errors_unseen
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import replacing

Function = Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]  # of inputs by name


def pretrained(model: Model, part: str) -> tuple[Function, Sequence[tf.Variable], dict[str, Any]]:
    """The function of a part of a pre-trained network, the variables it reads, and facts about it.

    Raises:
      UserError: the model has no such part.
    """
    head, pooling = head_of(model, part), pooling_of(model)
    network = Network(model.architecture, model.generator_architecture, model.weights)
    about = meaning(head) or {"pooling": pooling.mode}

    def outputs(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = [inputs[name] for name in INPUTS]
        if part == "generator":
            return {LOGITS: network.token_logits(*rows)}
        states = network.states(*rows)
        if head == "detector":
            assert network.detector is not None
            return {STATES: states, LOGITS: network.detector(states)}
        if head:
            assert network.language_model is not None
            return {STATES: states, LOGITS: network.language_model(states)}
        weights = tf.expand_dims(tf.cast(rows[1], tf.float32), 2)
        means = tf.reduce_sum(states * weights, 1) / tf.reduce_sum(weights, 1)
        vectors = means if pooling.mode == "mean" else states[:, 0]
        if pooling.projection:
            kernel, bias = (model.weights[f"{pooling.projection}/{name}"] for name in ("kernel", "bias"))
            vectors = tf.matmul(vectors, kernel) + bias
        return {STATES: states, SENTENCE: tf.math.l2_normalize(vectors, -1)}

    return outputs, network.trainable_variables, about


def write_litert(
    folder: Path,
    model: Model,
    made: tuple[Function, Sequence[tf.Variable], dict[str, Any]],
    compared: Comparison,
    int8: bool,
) -> tuple[str, float]:
    """Writes the folder, as exchange.onnx_export.write_onnx does.

    Args:
      made: the function, its variables and facts about it; inputs are those of the comparison.

    Raises:
      UserError: LiteRT has not all of the network's operations, or int8 makes another network of it.
    """
    function, variables, about = made
    path, about = folder / "model.tflite", facts(model, int8) | about
    with replacing(path) as temporary:
        temporary.write_bytes(_converted(function, variables, compared, int8))
    outputs = run(path.read_bytes(), compared)
    moved = movement(compared, outputs) if int8 else []
    about |= {"inputs": [*INPUTS, *compared.further], "outputs": sorted(outputs)}
    write_beside(folder, model, about)
    if int8:
        outputs = run(_converted(function, variables, compared, int8=False), compared)
    said = [f"{path}: {', '.join(about['outputs'])}; {about['weights']}, {path.stat().st_size / 1e6:.1f} MB", *moved]
    return "\n  ".join(said), compared.difference(outputs)


def _converted(function: Function, variables: Sequence[tf.Variable], compared: Comparison, int8: bool) -> bytes:
    names = [*INPUTS, *compared.further]
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


def run(content: bytes, compared: Comparison) -> dict[str, np.ndarray]:
    """Outputs of a file's content by the interpreter, on the processor."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:  # TensorFlow's own, until a later version leaves it out
        Interpreter = tf.lite.Interpreter
    with errors_unseen():
        runner = Interpreter(model_content=content).get_signature_runner()
        inputs = dict(zip(INPUTS, compared.rows, strict=True)) | compared.further
        return runner(**{name: value.astype(np.int32) for name, value in inputs.items()})
