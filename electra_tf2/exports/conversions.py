"""Writes the formats that formats/ also reads (ours, Hugging Face's, the original's, tf-models'), each with its check.

The written files are read back: tf-models' by tf-models, all others by our own readers. Then the fixed sentences of
exports.self_check go through both networks. Formats for other runtimes are checked in exports.exportable. Tests compare
with transformers.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports.cards import advice, huggingface_card, lacks_head, missing_parts
from electra_tf2.exports.exportable import Options, Written
from electra_tf2.exports.self_check import distance, fixed_inputs, largest, largest_at_tokens
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.formats import electra_folder, huggingface_export, tf1_checkpoint, tf_models
from electra_tf2.formats.joining import with_unshared_layers, without_generator
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.formats.tensor_file import FILE_NAME
from electra_tf2.inference.model_config import make_network, with_config
from electra_tf2.inference.network import LOGITS, STATES
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels

# The formats.


def to_electra(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a self-contained folder of ours, without the generator if options.part is "main"."""
    if options.part == "main":
        model = without_generator(model)
    vocabulary = electra_folder.write_folder(folder, with_config(model), options.dtype)
    summary = f"{folder}: config.json, {FILE_NAME}, {vocabulary}"
    return Written(summary, read_back_difference(model, read_model(folder)), "that of the folder")


def to_huggingface(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a Hugging Face directory of a part of a model, with its card."""
    model = with_unshared_layers(with_config(model))
    exported = huggingface_export.to_huggingface(model, options.part)
    huggingface_export.write_directory(folder, model, exported, options.dtype, huggingface_card(model, exported))
    summary = _huggingface_summary(folder, model, exported)
    rows = fixed_inputs(model)
    theirs = outputs(read_model(folder), "main", rows)
    has_head = theirs.keys() != {STATES}
    has_lost_head = not has_head and not exported.is_encoder_alone
    has_gained_head = has_head and exported.is_encoder_alone
    if has_lost_head or has_gained_head:
        return Written(summary, float("inf"), exported.class_name)
    part = options.part
    if part == "main" and not has_head:
        part = "body"
    ours = outputs(model, part, rows)
    ours = {output: ours[output] for output in theirs}
    return Written(summary, largest_at_tokens(ours, theirs, rows), exported.class_name)


def _huggingface_summary(folder: Path, model: StoredModel, exported: huggingface_export.Exported) -> str:
    """Says what a directory holds; before it, what it lacks if that is the task's head."""
    missing = missing_parts(model, exported)
    if lacks_head(model, exported):
        lost = "; ".join(missing) or "the task's head"
        return f"{folder}, without {lost}\n  only the encoder is there: {exported.class_name}, tokenizer and model card"
    summary = f"{folder}: {exported.class_name} with tokenizer and model card"
    for part in missing:
        summary += f"\n  left out: {part}"
    line = advice(model, exported)
    if line:
        summary += f"\n  {line}"
    return summary


def to_original(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a TF1 checkpoint, with its vocabulary and hparams."""
    model = with_unshared_layers(with_config(model))
    prefix = tf1_checkpoint.write_folder(folder, model, options.step, options.adam_slots)
    summary = f"{prefix}; {tf1_checkpoint.HPARAMS_FILE} holds the --hparams that the original needs with it"
    return Written(summary, read_back_difference(model, read_model(folder)), "the checkpoint's")


def to_tf_models(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a checkpoint of tf-models' encoder, with the vocabulary."""
    del options
    model = with_unshared_layers(with_config(model))
    prefix = tf_models.write_checkpoint(folder, model.weights, model.architecture)
    electra_folder.write_vocabulary(folder, model)
    summary = f"{prefix}: the encoder, without heads; its pooler has random weights"
    return Written(summary, tf_models_difference(model, prefix), "tf-models'")


# The check.


def outputs(model: StoredModel, part: str, rows: Encoded) -> dict[str, np.ndarray]:
    """Outputs of a part of our network (`Network.outputs`). LOGITS of a fine-tuned model are its first task's.

    Args:
      part: "main", "generator" or "body".
    """
    with kernels.off():
        ids, mask, segments = (tf.constant(value, tf.int32) for value in rows)
        computed = make_network(model).outputs(part, ids, mask, segments)
        if part == "main" and model.is_fine_tuned:
            predictor = Predictor(model, model.tokenizer())
            inputs = HeadInput(computed[STATES], mask, segments, {})
            computed[LOGITS] = predictor.model.heads[0].logits(inputs, None)
        return {name: value.numpy() for name, value in computed.items()}


def read_back_difference(model: StoredModel, read_back: StoredModel) -> float:
    """The largest difference between the outputs and weights of a model and of what was read back.

    Infinite if one has a variable that the other lacks.
    """
    if model.weights.keys() != read_back.weights.keys():
        return float("inf")
    parts = ["body"] if model.is_fine_tuned else ["main"]
    if any(name.startswith("generator/encoder/") for name in model.weights):
        parts.append("generator")
    rows = fixed_inputs(model)
    differences = []
    for part in parts:
        ours = outputs(model, part, rows)
        theirs = outputs(read_back, part, rows)
        differences.append(largest_at_tokens(ours, theirs, rows))
    for name, value in model.weights.items():
        differences.append(distance(value, read_back.weights[name]))
    return largest(differences)


def tf_models_difference(model: StoredModel, prefix: str) -> float:
    """The largest difference between our states and those that tf-models computes from a checkpoint."""
    rows = fixed_inputs(model)
    theirs = tf_models.states_of(prefix, model.architecture, rows)
    return largest_at_tokens(outputs(model, "body", rows), {STATES: theirs}, rows)
