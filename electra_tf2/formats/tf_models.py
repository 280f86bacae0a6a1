"""Checkpoints of tf-models-official's BERT encoder (`official.nlp.modeling.networks.BertEncoder`), in and out.

Its layers compute what ours do, with query, key and value apart and per head. It has a pooler, which we have not: it is
left out on the way in and has random values on the way out. Its default activation is gelu's tanh form; the exported
encoder is the exact one, so whoever builds it passes that (`exact_gelu`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.formats import ELSEWHERE
from electra_tf2.formats.checkpoints import TensorFlowCheckpoint
from electra_tf2.formats.huggingface_config import export_problems
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError

# Theirs -> ours.
_TABLES = {
    "word_embeddings/embeddings": "word_embeddings",
    "position_embedding/embeddings": "position_embeddings",
    "type_embeddings/embeddings": "token_type_embeddings",
}
_BLOCKS = {"embeddings/layer_norm": "embeddings/LayerNorm", "embedding_projection": "embeddings_project"}
_LAYER = {  # within transformer/layer_N and electra/encoder/layer_N
    "self_attention/attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
_LAST = ("kernel", "bias", "gamma", "beta")
_QKV = tuple(f"self_attention/{part}" for part in ("query", "key", "value"))
_FIRST_QUERY = "transformer/layer_0/self_attention/query/kernel"


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
            "the format tf_models needs the package tf-models-official: pip install 'electra-tf2[tf-models]'"
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


def _variables(layers: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our variables, and theirs that make up the last axis of ours; not every encoder has each."""
    yield from ((f"electra/embeddings/{ours}", (theirs,)) for theirs, ours in _TABLES.items())
    blocks: list[tuple[str, tuple[str, ...]]]
    blocks = [(f"electra/{ours}", (theirs,)) for theirs, ours in _BLOCKS.items()]
    for number in range(layers):
        here, there = f"electra/encoder/layer_{number}", f"transformer/layer_{number}"
        blocks += [(f"{here}/{ours}", (f"{there}/{theirs}",)) for theirs, ours in _LAYER.items()]
        blocks.append((f"{here}/attention/self/qkv", tuple(f"{there}/{theirs}" for theirs in _QKV)))
    for ours, parts in blocks:
        yield from ((f"{ours}/{last}", tuple(f"{theirs}/{last}" for theirs in parts)) for last in _LAST)


def assign(encoder: Any, weights: Mapping[str, np.ndarray], architecture: Architecture) -> None:
    """Gives tf-models' encoder the weights of ours ("electra/..."); without token types theirs are zeros."""
    values = {"type_embeddings/embeddings": np.zeros([2, architecture.embedding_size], np.float32)}
    for ours, theirs in _variables(architecture.num_hidden_layers):
        if ours in weights:
            values |= zip(theirs, np.split(weights[ours], len(theirs), axis=-1), strict=True)
    for variable in encoder.trainable_variables:
        name = _short(variable.name.split(":")[0])
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


def read_weights(prefix: str) -> tuple[dict[str, np.ndarray], int]:
    """Reads the encoder of a checkpoint of tf-models: arrays by our names, and the number of heads.

    Raises:
      UserError: it has none.
    """
    source = TensorFlowCheckpoint(prefix)
    keys = {_short(name): name for name in source.names()}
    if "word_embeddings/embeddings" not in keys or _FIRST_QUERY not in keys:
        raise UserError(f"{prefix} holds no encoder of tf-models: no word_embeddings, transformer/layer_0 in it")
    layers = sum(name.endswith("/intermediate/kernel") for name in keys)
    weights = {}
    for ours, theirs in _variables(layers):
        parts = [source.get(keys[name]) for name in theirs if name in keys]
        if len(parts) > 1:  # query, key and value [..., heads, size]
            parts = [part.reshape([*part.shape[:-2], -1]) for part in parts]
        elif ours.endswith("/attention/output/dense/kernel"):  # [heads, size, hidden]
            parts = [parts[0].reshape([-1, parts[0].shape[-1]])]
        if parts:
            weights[ours] = np.concatenate(parts, -1)
    return weights, source.get(keys[_FIRST_QUERY]).shape[1]


def is_checkpoint(prefix: str) -> bool:
    """True for a TensorFlow checkpoint with an encoder of tf-models."""
    return any(name.endswith(_FIRST_QUERY) for name in TensorFlowCheckpoint(prefix).names())


def _short(name: str) -> str:
    """A variable's name without the scope that the second version of the encoder puts before it."""
    for start in (*_TABLES, *_BLOCKS, "transformer/layer_", "pooler_transform/"):
        position = name.find(start)
        if position == 0 or (position > 0 and name[position - 1] == "/"):
            return name[position:]
    return name
