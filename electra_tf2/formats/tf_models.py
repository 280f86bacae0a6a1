"""Reads and writes checkpoints of tf-models-official's `official.nlp.modeling.networks.BertEncoder`.

Its layers compute what ours do. Query, key and value are three variables with an axis for the heads. Its pooler, which
we do not have, is ignored in reading and random in what is written. Its default activation is gelu's tanh form and ours
the exact one, so a BertEncoder for our weights must be built with `exact_gelu`.

TensorFlow and numpy are imported by the functions that need them.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf2.files.reading import no_pattern
from electra_tf2.formats import ANY_NETWORK_HINT
from electra_tf2.formats.huggingface_config import export_problems
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError, how_to_install

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

# Their names -> ours.
_TABLES = {
    "word_embeddings/embeddings": "word_embeddings",
    "position_embedding/embeddings": "position_embeddings",
    "type_embeddings/embeddings": "token_type_embeddings",
}
_DENSE_AND_NORMS = {"embeddings/layer_norm": "embeddings/LayerNorm", "embedding_projection": "embeddings_project"}
_DENSE_AND_NORMS_OF_LAYER = {  # below transformer/layer_N and electra/encoder/layer_N
    "self_attention/attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
_DENSE_OR_NORM_VARIABLES = ("kernel", "bias", "gamma", "beta")
_QKV = ("self_attention/query", "self_attention/key", "self_attention/value")
_FIRST_QUERY = "transformer/layer_0/self_attention/query/kernel"
_POOLER = "pooler_transform/"
_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")  # hidden_act that their encoder can be given
_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")


# Names.


def variables(layers: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names that an encoder's variables may have: ours, and theirs that are concatenated along its last axis."""
    for theirs, ours in _TABLES.items():
        yield f"electra/embeddings/{ours}", (theirs,)
    for theirs, ours in _DENSE_AND_NORMS.items():
        yield from _dense_or_norm(f"electra/{ours}", (theirs,))
    for index in range(layers):
        our_layer = f"electra/encoder/layer_{index}"
        their_layer = f"transformer/layer_{index}"
        for theirs, ours in _DENSE_AND_NORMS_OF_LAYER.items():
            yield from _dense_or_norm(f"{our_layer}/{ours}", (f"{their_layer}/{theirs}",))
        query_key_value = tuple(f"{their_layer}/{theirs}" for theirs in _QKV)
        yield from _dense_or_norm(f"{our_layer}/attention/self/qkv", query_key_value)


def _dense_or_norm(ours: str, theirs: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for variable in _DENSE_OR_NORM_VARIABLES:
        yield f"{ours}/{variable}", tuple(f"{name}/{variable}" for name in theirs)


def short_name(name: str) -> str:
    """A variable's name without the scope that version 2 of the encoder puts before it."""
    for start in (*_TABLES, *_DENSE_AND_NORMS, "transformer/layer_", _POOLER):
        position = name.find(start)
        if position == 0 or (position > 0 and name[position - 1] == "/"):
            return name[position:]
    return name


def is_encoder(names: Iterable[str]) -> bool:
    """True if a checkpoint's variables with these names are of tf-models' encoder."""
    return any(name.endswith(_FIRST_QUERY) for name in names)


# Reading.


class Encoder(NamedTuple):
    """Content of a checkpoint.

    weights: arrays under our names. heads: number of attention heads. left_out: names of the pooler's variables.
    """

    weights: "dict[str, np.ndarray]"
    heads: int
    left_out: list[str]


def read_encoder(theirs: "Mapping[str, np.ndarray]") -> Encoder:
    """Reads an encoder. Raises IndexError, KeyError or ValueError if its variables do not fit together."""
    import numpy as np

    full_names = {short_name(name): name for name in theirs}
    layers = sum(name.endswith("/intermediate/kernel") for name in full_names)
    weights = {}
    for ours, names in variables(layers):
        if names[0] not in full_names:
            continue
        values = [theirs[full_names[name]] for name in names]
        if len(values) > 1:  # query, key and value: [..., heads, size]
            values = [value.reshape([*value.shape[:-2], -1]) for value in values]
        elif ours.endswith("/attention/output/dense/kernel"):  # [heads, size, hidden]
            values = [values[0].reshape([-1, values[0].shape[-1]])]
        weights[ours] = np.concatenate(values, -1)
    heads = theirs[full_names[_FIRST_QUERY]].shape[1]
    return Encoder(weights, heads, [name for name in theirs if "pooler_transform" in name])


# Writing.


def exact_gelu(x: "tf.Tensor") -> "tf.Tensor":
    """The erf form, as in BERT and ELECTRA; tf-models' own default is the tanh approximation."""
    import tensorflow as tf

    return tf.nn.gelu(x, approximate=False)


def build_encoder(architecture: Architecture) -> Any:
    """Builds tf-models' encoder with these sizes and random weights.

    Raises:
      UserError: the network has parts that theirs lacks, or their package is not installed.
    """
    import tensorflow as tf

    problems = export_problems(architecture)
    if architecture.hidden_act not in _ACTIVATIONS:
        problems.append(f"activation {architecture.hidden_act}")
    if problems:
        raise UserError(f"tf-models' encoder has no {'; no '.join(problems)}: {ANY_NETWORK_HINT}")
    try:
        from official.nlp.modeling import networks
    except ImportError as error:
        raise UserError(
            f"the format tf_models needs the package tf-models-official: {how_to_install('tf-models')}"
        ) from error

    activation = exact_gelu if architecture.hidden_act == "gelu" else architecture.hidden_act
    return networks.BertEncoder(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        num_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        max_sequence_length=architecture.max_position_embeddings,
        type_vocab_size=architecture.type_vocab_size or 2,
        inner_dim=architecture.intermediate_size,
        inner_activation=activation,
        output_dropout=architecture.hidden_dropout_prob,
        attention_dropout=architecture.attention_probs_dropout_prob,
        initializer=tf.keras.initializers.TruncatedNormal(stddev=architecture.initializer_range),
        embedding_width=architecture.embedding_size,
        dict_outputs=True,
        return_all_encoder_outputs=True,
    )


def assign(encoder: Any, weights: "Mapping[str, np.ndarray]", architecture: Architecture) -> None:
    """Assigns our weights to tf-models' encoder. Its token types are zeros if ours has none."""
    import numpy as np

    values = {"type_embeddings/embeddings": np.zeros([2, architecture.embedding_size], np.float32)}
    for ours, theirs in variables(architecture.num_hidden_layers):
        if ours in weights:
            pieces = np.split(weights[ours], len(theirs), axis=-1)
            values.update(zip(theirs, pieces, strict=True))
    for variable in encoder.trainable_variables:
        name = short_name(variable.name.split(":")[0])
        if not name.startswith(_POOLER):
            variable.assign(values.pop(name).reshape(variable.shape))  # theirs have an axis for the heads
    assert not values, sorted(values)


def write_checkpoint(folder: str | Path, weights: "Mapping[str, np.ndarray]", architecture: Architecture) -> str:
    """Writes `encoder-1`, a tf.train.Checkpoint(encoder=...), which tf-models takes as `init_checkpoint`.

    Returns:
      The checkpoint's prefix.
    """
    import tensorflow as tf

    encoder = build_encoder(architecture)
    assign(encoder, weights, architecture)
    checkpoint = tf.train.Checkpoint(encoder=encoder)
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=1, checkpoint_name="encoder")
    return manager.save(1)


def states_of(prefix: str, architecture: Architecture, rows: "Iterable[np.ndarray]") -> "np.ndarray":
    """float32 [B, L, H], the last states that tf-models' own encoder computes with a checkpoint's weights.

    Args:
      rows: ids, mask and segments, int32 [B, L] each.
    """
    import tensorflow as tf

    encoder = build_encoder(architecture)
    with no_pattern(prefix) as readable:
        status = tf.train.Checkpoint(encoder=encoder).read(readable)
        status.assert_existing_objects_matched().expect_partial()
    inputs = dict(zip(_INPUTS, rows, strict=True))
    return encoder(inputs)["sequence_output"].numpy()
