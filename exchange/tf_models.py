"""tf-models-official's BERT encoder (`official.nlp.modeling.networks.BertEncoder`): its checkpoints in and out.

Its layers compute what ours do, with query, key and value apart and per head, and with a pooler, which we have not: it
is left out on the way in and starts from random values on the way out. Its own default activation is gelu's tanh form;
the exported encoder is the exact one, so whoever builds it passes that (`exact_gelu`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.exchange.checkpoints import TensorFlowCheckpoint
from electra_tf2.exchange.formats.huggingface_config import export_problems
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError

_TABLES = {
    "word_embeddings/embeddings": "electra/embeddings/word_embeddings",
    "position_embedding/embeddings": "electra/embeddings/position_embeddings",
    "type_embeddings/embeddings": "electra/embeddings/token_type_embeddings",
}
_BLOCKS = {
    "embeddings/layer_norm": "electra/embeddings/LayerNorm",
    "embedding_projection": "electra/embeddings_project",
}
# Within transformer/layer_N and electra/encoder/layer_N.
_LAYER = {
    "self_attention/attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
_FIRST_QUERY = "transformer/layer_0/self_attention/query/kernel"
_PARTS = ("query", "key", "value")


def exact_gelu(x: tf.Tensor) -> tf.Tensor:
    """The erf form, as in BERT and ELECTRA; tf-models' own default is the tanh approximation."""
    return tf.nn.gelu(x, approximate=False)


def build_encoder(architecture: Architecture) -> Any:
    """tf-models' encoder of these sizes, with random weights.

    Raises:
      UserError: the network has parts that it has not.
    """
    problems = export_problems(architecture)
    if architecture.hidden_act not in ("gelu", "relu", "tanh", "linear"):
        problems.append(f"activation {architecture.hidden_act}")
    if problems:
        raise UserError(f"tf-models' encoder has no {'; no '.join(problems)}")
    from official.nlp.modeling import networks

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
    values = _to_theirs(weights, architecture)
    for variable in encoder.trainable_variables:
        name = _short(variable.name.split(":")[0])
        if name.startswith("pooler_transform/"):
            continue
        variable.assign(values.pop(name))
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


def read_weights(prefix: str) -> dict[str, np.ndarray]:
    """The encoder of a checkpoint of tf-models, under our names.

    Raises:
      UserError: it has none.
    """
    source = TensorFlowCheckpoint(prefix)
    keys = {_short(name): name for name in source.names()}
    if "word_embeddings/embeddings" not in keys or _FIRST_QUERY not in keys:
        raise UserError(f"{prefix} holds no encoder of tf-models: no word_embeddings, transformer/layer_0 in it")
    values = {short: source.get(name) for short, name in keys.items()}
    weights = {ours: values[theirs] for theirs, ours in _TABLES.items()}
    for theirs, ours in _BLOCKS.items():
        weights |= {f"{ours}/{last}": values[name] for last in _LAST if (name := f"{theirs}/{last}") in values}
    layer = 0
    while f"transformer/layer_{layer}/intermediate/kernel" in values:
        here, there = f"electra/encoder/layer_{layer}", f"transformer/layer_{layer}"
        for theirs, ours in _LAYER.items():
            weights |= {f"{here}/{ours}/{last}": values[name]
                        for last in _LAST if (name := f"{there}/{theirs}/{last}") in values}  # fmt: skip
        for last in ("kernel", "bias"):
            parts = [values[f"{there}/self_attention/{part}/{last}"] for part in _PARTS]
            width = parts[0].shape[-1] * parts[0].shape[-2]
            parts = [part.reshape([*part.shape[:-2], width]) for part in parts]
            weights[f"{here}/attention/self/qkv/{last}"] = np.concatenate(parts, -1)
        attention = f"{here}/attention/output/dense/kernel"
        weights[attention] = weights[attention].reshape([-1, weights[attention].shape[-1]])
        layer += 1
    return weights


def is_checkpoint(prefix: str) -> bool:
    """Whether a TensorFlow checkpoint holds an encoder of tf-models."""
    return any(name.endswith(_FIRST_QUERY) for name in TensorFlowCheckpoint(prefix).names())


def number_of_heads(prefix: str) -> int:
    """Read off the shape of a query, which has the heads apart."""
    source = TensorFlowCheckpoint(prefix)
    name = next(name for name in source.names() if name.endswith(_FIRST_QUERY))
    return source.get(name).shape[1]


_LAST = ("kernel", "bias", "gamma", "beta")


def _short(name: str) -> str:
    """A variable's name without the scope that the second version of the encoder puts before it."""
    for start in (*_TABLES, *_BLOCKS, "transformer/layer_", "pooler_transform/"):
        position = name.find(start)
        if position == 0 or (position > 0 and name[position - 1] == "/"):
            return name[position:]
    return name


def _to_theirs(weights: Mapping[str, np.ndarray], architecture: Architecture) -> dict[str, np.ndarray]:
    heads, size = architecture.num_attention_heads, architecture.head_size
    values = {theirs: weights[ours] for theirs, ours in _TABLES.items() if ours in weights}
    values.setdefault("type_embeddings/embeddings", np.zeros([2, architecture.embedding_size], np.float32))
    for theirs, ours in _BLOCKS.items():
        values |= {f"{theirs}/{last}": weights[name] for last in _LAST if (name := f"{ours}/{last}") in weights}
    for layer in range(architecture.num_hidden_layers):
        here, there = f"electra/encoder/layer_{layer}", f"transformer/layer_{layer}"
        for theirs, ours in _LAYER.items():
            values |= {f"{there}/{theirs}/{last}": weights[name]
                       for last in _LAST if (name := f"{here}/{ours}/{last}") in weights}  # fmt: skip
        for last in ("kernel", "bias"):
            fused = np.split(weights[f"{here}/attention/self/qkv/{last}"], 3, axis=-1)
            for part, value in zip(_PARTS, fused, strict=True):
                values[f"{there}/self_attention/{part}/{last}"] = value.reshape([*value.shape[:-1], heads, size])
        attention = f"{there}/self_attention/attention_output/kernel"
        values[attention] = values[attention].reshape([heads, size, -1])
    return values
