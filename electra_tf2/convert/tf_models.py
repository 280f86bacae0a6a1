"""Checkpoints for tf-models-official's BERT encoder (formats.tf_models reads them).

Its pooler, which we have not, has random values. Its default activation is gelu's tanh form; the exported encoder is
the exact one, so whoever builds it passes that (`exact_gelu`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert.own_folder import write_vocabulary
from electra_tf2.exports.self_check import Options, Written, check_inputs, largest_at_tokens, outputs
from electra_tf2.files.reading import no_pattern
from electra_tf2.formats import ELSEWHERE
from electra_tf2.formats.huggingface_config import export_problems
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.formats.tf_models import short_name, variables
from electra_tf2.inference.network import STATES
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError, how_to_install


def convert(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a checkpoint as `write_checkpoint`, and beside it the vocabulary."""
    prefix = write_checkpoint(folder, model.weights, model.architecture)
    write_vocabulary(folder, model)
    what = f"{prefix}: the encoder, without heads; its pooler has random weights"
    return Written(what, difference(model, prefix), "tf-models'")


def difference(model: StoredModel, prefix: str) -> float:
    """The largest difference between our states and those of tf-models' encoder with the checkpoint's weights."""
    encoder = build_encoder(model.architecture)
    with no_pattern(prefix) as readable:
        status = tf.train.Checkpoint(encoder=encoder).read(readable)
        status.assert_existing_objects_matched().expect_partial()
    rows = check_inputs(model)
    names = ("input_word_ids", "input_mask", "input_type_ids")
    theirs = encoder(dict(zip(names, rows, strict=True)))["sequence_output"].numpy()
    return largest_at_tokens(outputs(model, "body"), {STATES: theirs}, rows)


def exact_gelu(x: tf.Tensor) -> tf.Tensor:
    """The erf form, as in BERT and ELECTRA; tf-models' own default is the tanh approximation."""
    return tf.nn.gelu(x, approximate=False)


def build_encoder(architecture: Architecture) -> Any:
    """Builds tf-models' encoder of these sizes, with random weights.

    Raises:
      UserError: the network has parts that it has not, or their package is not installed.
    """
    problems = export_problems(architecture)
    if architecture.hidden_act not in ("gelu", "relu", "tanh", "linear"):
        problems.append(f"activation {architecture.hidden_act}")
    if problems:
        raise UserError(f"tf-models' encoder has no {'; no '.join(problems)}: {ELSEWHERE}")
    try:
        from official.nlp.modeling import networks
    except ImportError as error:
        raise UserError(
            f"the format tf_models needs the package tf-models-official: {how_to_install('tf-models')}"
        ) from error

    return networks.BertEncoder(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        num_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        max_sequence_length=architecture.max_position_embeddings,
        type_vocab_size=architecture.type_vocab_size or 2,
        inner_dim=architecture.intermediate_size,
        inner_activation=exact_gelu if architecture.hidden_act == "gelu" else architecture.hidden_act,
        output_dropout=architecture.hidden_dropout_prob,
        attention_dropout=architecture.attention_probs_dropout_prob,
        initializer=tf.keras.initializers.TruncatedNormal(stddev=architecture.initializer_range),
        embedding_width=architecture.embedding_size,
        dict_outputs=True,
        return_all_encoder_outputs=True,
    )


def assign(encoder: Any, weights: Mapping[str, np.ndarray], architecture: Architecture) -> None:
    """Gives tf-models' encoder the weights of ours ("electra/..."); without token types theirs are zeros."""
    values = {"type_embeddings/embeddings": np.zeros([2, architecture.embedding_size], np.float32)}
    for ours, theirs in variables(architecture.num_hidden_layers):
        if ours in weights:
            values |= zip(theirs, np.split(weights[ours], len(theirs), axis=-1), strict=True)
    for variable in encoder.trainable_variables:
        name = short_name(variable.name.split(":")[0])
        if not name.startswith("pooler_transform/"):
            variable.assign(values.pop(name).reshape(variable.shape))  # theirs have an axis for the heads
    assert not values, sorted(values)


def write_checkpoint(folder: str | Path, weights: Mapping[str, np.ndarray], architecture: Architecture) -> str:
    """Writes `encoder-1`, a tf.train.Checkpoint(encoder=...) as tf-models' `init_checkpoint` takes it.

    Returns:
      Its prefix.
    """
    encoder = build_encoder(architecture)
    assign(encoder, weights, architecture)
    return tf.train.CheckpointManager(
        tf.train.Checkpoint(encoder=encoder), str(folder), max_to_keep=1, checkpoint_name="encoder"
    ).save(1)
