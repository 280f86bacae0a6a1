"""Checkpoints of tf-models-official's BERT encoder (`official.nlp.modeling.networks.BertEncoder`): which variables are
which of ours.

Its layers compute what ours do, with query, key and value apart and per head. It has a pooler, which we have not: it is
left out. Imports neither TensorFlow nor numpy.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

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


class Read(NamedTuple):
    """An encoder: arrays by our names, number of heads, and names of the variables that ours have not."""

    weights: "dict[str, np.ndarray]"
    heads: int
    left_out: list[str]


def variables(layers: int) -> Iterator[tuple[str, tuple[str, ...]]]:
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


def short_name(name: str) -> str:
    """A variable's name without the scope that the second version of the encoder puts before it."""
    for start in (*_TABLES, *_BLOCKS, "transformer/layer_", "pooler_transform/"):
        position = name.find(start)
        if position == 0 or (position > 0 and name[position - 1] == "/"):
            return name[position:]
    return name


def is_encoder(names: Iterable[str]) -> bool:
    """True for the names of the variables of an encoder of tf-models."""
    return any(name.endswith(_FIRST_QUERY) for name in names)


def read_encoder(theirs: "Mapping[str, np.ndarray]") -> Read:
    """Reads an encoder. Raises IndexError, KeyError or ValueError: its variables do not fit together."""
    import numpy as np

    names, found = {short_name(name): name for name in theirs}, {}
    for ours, of_parts in variables(sum(name.endswith("/intermediate/kernel") for name in names)):
        if of_parts[0] not in names:
            continue
        parts = [theirs[names[part]] for part in of_parts]
        if len(parts) > 1:  # query, key and value [..., heads, size]
            parts = [part.reshape([*part.shape[:-2], -1]) for part in parts]
        elif ours.endswith("/attention/output/dense/kernel"):  # [heads, size, hidden]
            parts = [parts[0].reshape([-1, parts[0].shape[-1]])]
        found[ours] = np.concatenate(parts, -1)
    heads = theirs[names[_FIRST_QUERY]].shape[1]
    return Read(found, heads, [name for name in theirs if "pooler_transform" in name])
