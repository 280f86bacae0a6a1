"""The table of names: which tensors of a Hugging Face directory hold which of our variables, for both ways.

`encoder` and `head` list an encoder's and a head's variables as `Pair`s. The two sides differ in more than names:

- PyTorch keeps a dense layer's kernel transposed.
- ELECTRA and BERT keep query, key and value in three tensors. Ours are fused.
- The start and the end of an answer are two rows of one of their tensors, and two layers here.
- ModernBERT has no factorised embeddings: ours are multiplied out (`multiplied_out`).
- ModernBERT has no class for replaced-token detection: it becomes a token classifier of two labels.

formats.huggingface_tensors reads with it, formats.huggingface_export writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.formats.stored_model import DETECTOR, MASKED_LM
from electra_tf2.model.architecture import Architecture

DETECTION_LABELS = ["original", "replaced"]
WORDS = "embeddings.tok_embeddings.weight"  # ModernBERT's word table
BERT_MLM_BIAS = "cls.predictions.bias"
# The first and the last dense layer of classes that have two.
_TWO_LAYERS = {
    "ElectraForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
}


class Pair(NamedTuple):
    """A variable of ours and the tensors that hold it. Several tensors are concatenated along our last axis.

    transposed: True for a dense layer's kernel. column: of the tensor's last axis, the only column that is ours.
    two_labels: True where ours is one logit and theirs are the logits of two labels. Only their difference matters, so
    ours is written as (0, logit).
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    column: int | None = None
    two_labels: bool = False

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        if self.two_labels:
            value = np.concatenate([np.zeros_like(value), value], -1)
        tensors = {}
        for name, piece in zip(self.theirs, np.split(value, len(self.theirs), axis=-1), strict=True):
            tensors[name] = piece.T if self.transposed else piece
        return tensors

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        pieces = [tensors[name] for name in self.theirs]
        if self.transposed:
            pieces = [piece.T for piece in pieces]
        if self.two_labels:
            original, replaced = np.split(pieces[0], 2, axis=-1)
            return replaced - original
        if self.column is not None:
            return pieces[0][..., self.column : self.column + 1]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces, axis=-1)


def to_theirs(pairs: Sequence[Pair], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts our variables to their tensors. Raises KeyError if a variable is missing."""
    tensors: dict[str, np.ndarray] = {}
    for pair in pairs:
        for name, value in pair.to_theirs(weights[pair.ours]).items():
            if name in tensors:  # the start and the end of an answer are rows of one tensor
                value = np.concatenate([tensors[name], value])
            tensors[name] = value
    return tensors


def _dense(ours: str, *theirs: str, has_bias: bool = True) -> list[Pair]:
    """Kernel and bias of our layer, which may fuse several of theirs."""
    pairs = [Pair(f"{ours}/kernel", tuple(f"{name}.weight" for name in theirs), transposed=True)]
    if has_bias:
        pairs.append(Pair(f"{ours}/bias", tuple(f"{name}.bias" for name in theirs)))
    return pairs


def _norm(a: Architecture, ours: str, theirs: str) -> list[Pair]:
    pairs = [Pair(f"{ours}/gamma", (f"{theirs}.weight",))]
    if a.norm_bias:
        pairs.append(Pair(f"{ours}/beta", (f"{theirs}.bias",)))
    return pairs


# The encoder.


def encoder(a: Architecture, prefix: str, modern: bool, scope: str = "electra") -> list[Pair]:
    """Variables of an encoder, except for a factorised word table of ModernBERT's (`multiplied_out`).

    Args:
      prefix: first part of their names. modern: True for ModernBERT's architecture. scope: first part of our names.
    """
    if modern:
        return list(_modernbert(a, prefix, scope))
    return list(_bert(a, prefix, scope))


def _bert(a: Architecture, prefix: str, scope: str) -> Iterator[Pair]:
    tables = ["word_embeddings", "position_embeddings"]
    if a.type_vocab_size:
        tables.append("token_type_embeddings")
    for table in tables:
        yield Pair(f"{scope}/embeddings/{table}", (f"{prefix}embeddings.{table}.weight",))
    yield from _norm(a, f"{scope}/embeddings/LayerNorm", f"{prefix}embeddings.LayerNorm")
    if a.embedding_size != a.hidden_size:
        yield from _dense(f"{scope}/embeddings_project", f"{prefix}embeddings_project")
    for index in range(a.num_hidden_layers):
        ours = f"{scope}/encoder/layer_{index}"
        theirs = f"{prefix}encoder.layer.{index}"
        attention = f"{theirs}.attention.self"
        yield from _dense(f"{ours}/attention/self/qkv", f"{attention}.query", f"{attention}.key", f"{attention}.value")
        yield from _dense(f"{ours}/attention/output/dense", f"{theirs}.attention.output.dense")
        yield from _norm(a, f"{ours}/attention/output/LayerNorm", f"{theirs}.attention.output.LayerNorm")
        yield from _dense(f"{ours}/intermediate/dense", f"{theirs}.intermediate.dense")
        yield from _dense(f"{ours}/output/dense", f"{theirs}.output.dense")
        yield from _norm(a, f"{ours}/output/LayerNorm", f"{theirs}.output.LayerNorm")


def _modernbert(a: Architecture, prefix: str, scope: str) -> Iterator[Pair]:
    if a.embedding_size == a.hidden_size:
        yield Pair(f"{scope}/embeddings/word_embeddings", (f"{prefix}{WORDS}",))
    yield from _norm(a, f"{scope}/embeddings_LayerNorm", f"{prefix}embeddings.norm")
    for index in range(a.num_hidden_layers):
        ours = f"{scope}/encoder/layer_{index}"
        theirs = f"{prefix}layers.{index}"
        if index > 0:  # the norm of the embeddings stands before the first layer's attention
            yield from _norm(a, f"{ours}/attention/output/LayerNorm", f"{theirs}.attn_norm")
        yield from _dense(f"{ours}/attention/self/qkv", f"{theirs}.attn.Wqkv", has_bias=a.attention_bias)
        yield from _dense(f"{ours}/attention/output/dense", f"{theirs}.attn.Wo", has_bias=a.attention_bias)
        yield from _norm(a, f"{ours}/output/LayerNorm", f"{theirs}.mlp_norm")
        yield from _dense(f"{ours}/intermediate/gated", f"{theirs}.mlp.Wi", has_bias=a.mlp_bias)
        yield from _dense(f"{ours}/output/dense", f"{theirs}.mlp.Wo", has_bias=a.mlp_bias)
    yield from _norm(a, f"{scope}/encoder/LayerNorm", f"{prefix}final_norm")


# Heads.


def head(class_name: str, a: Architecture, scope: str = "") -> list[Pair]:
    """Variables of a class's head.

    Args:
      scope: first part of our names; "": that of the pre-training head.
    """
    family, _, use = class_name.partition("For")
    modern = family == "ModernBert"
    if not scope:
        scope = MASKED_LM if use == "MaskedLM" else DETECTOR
    if use == "PreTraining":
        return _dense(f"{scope}/dense", f"{scope}.dense") + _dense(f"{scope}/dense_1", f"{scope}.dense_prediction")
    if use == "MaskedLM" and not modern:
        return _language_model(family, a, scope)
    if class_name in _TWO_LAYERS:
        first, last = _TWO_LAYERS[class_name]
        return _dense(f"{scope}/inner", first) + _dense(_last_layer(scope), last)
    pairs: list[Pair] = []
    if modern:  # every head begins with a dense layer and a norm
        transform = f"{scope}/head" if _is_task_scope(scope) else scope
        pairs += _dense(f"{transform}/dense", "head.dense")
        pairs += _norm(a, f"{transform}/LayerNorm", "head.norm")
    if use == "MaskedLM":
        pairs.append(Pair(f"{scope}/output_bias", ("decoder.bias",)))
        if not a.tie_word_embeddings:
            pairs.append(Pair(f"{scope}/decoder", ("decoder.weight",)))
    elif use == "QuestionAnswering":
        layer = "classifier" if modern else "qa_outputs"
        pairs += [pair._replace(column=0) for pair in _dense(f"{scope}/start", layer)]
        pairs += [pair._replace(column=1) for pair in _dense(f"{scope}/end", layer)]
    else:
        is_detector = scope == DETECTOR
        pairs += [pair._replace(two_labels=is_detector) for pair in _dense(_last_layer(scope), "classifier")]
    return pairs


def _language_model(family: str, a: Architecture, scope: str) -> list[Pair]:
    """Variables of the head of an ElectraForMaskedLM or a BertForMaskedLM."""
    if family == "Electra":
        transform = scope
        bias = "generator_lm_head.bias"
    else:
        transform = "cls.predictions.transform"
        bias = BERT_MLM_BIAS
    pairs = _dense(f"{scope}/dense", f"{transform}.dense")
    pairs += _norm(a, f"{scope}/LayerNorm", f"{transform}.LayerNorm")
    pairs.append(Pair(f"{scope}/output_bias", (bias,)))
    return pairs


def _is_task_scope(scope: str) -> bool:
    return scope.startswith("task_")


def _last_layer(scope: str) -> str:
    """Our name for a head's last layer. In pre-training it is the second dense layer."""
    return f"{scope}/dense" if _is_task_scope(scope) else f"{scope}/dense_1"


# Values that are computed.


def linear_as_two_layers(kernel: np.ndarray, bias: np.ndarray) -> dict[str, np.ndarray] | None:
    """Expresses one linear layer by an ElectraForSequenceClassification, which is dense, gelu, dense.

    gelu(z) - gelu(-z) = z for every z. So the first layer computes the logits and their negatives, and the second one
    subtracts the two. This needs twice as many units as classes.

    Returns:
      The class's tensors; None if there are too many classes.
    """
    hidden, classes = kernel.shape
    spare = hidden - 2 * classes
    if spare < 0:
        return None
    both_signs = np.concatenate([kernel, -kernel], 1)
    first = np.pad(both_signs, [(0, 0), (0, spare)])
    first_bias = np.pad(np.concatenate([bias, -bias]), [(0, spare)])
    difference = np.concatenate([np.eye(classes), -np.eye(classes)])
    second = np.pad(difference, [(0, spare), (0, 0)]).astype(np.float32)
    return {
        "classifier.dense.weight": first.T,
        "classifier.dense.bias": first_bias,
        "classifier.out_proj.weight": second.T,
        "classifier.out_proj.bias": np.zeros([classes], np.float32),
    }


def multiplied_out(weights: Mapping[str, np.ndarray], scope: str) -> np.ndarray:
    """float32 [V, H], an encoder's word table, multiplied with the projection if embeddings are factorised.

    It computes the same, since both networks normalise after this product.
    """
    table = weights[f"{scope}/embeddings/word_embeddings"]
    projection = weights.get(f"{scope}/embeddings_project/kernel")
    if projection is None:
        return table
    return (table.astype(np.float64) @ projection).astype(np.float32)


def no_segments(a: Architecture) -> np.ndarray:
    """A table of segment embeddings that are zero, for a network of ours that has none."""
    return np.zeros([2, a.embedding_size], np.float32)
