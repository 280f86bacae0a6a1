"""Which tensors of Hugging Face's classes are which of our variables: ELECTRA, BERT and ModernBERT.

PyTorch keeps a dense layer's kernel transposed. ELECTRA and BERT have query, key and value apart; the two ends of an
answer are columns of one layer. ModernBERT has no factorised embeddings: ours are multiplied out, since our network
normalises the product, as theirs does its word table. Its detector of replaced tokens is a token classifier of two
labels whose logits are 0 and ours.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.formats.huggingface_config import class_of, labels_of
from electra_tf2.model.architecture import Architecture

DETECTION_LABELS = ["original", "replaced"]
# Classes of pre-training; that of ModernBERT's detector is also one of taggers.
_OF_BERT = ("ElectraForPreTraining", "ElectraForMaskedLM", "BertForMaskedLM")
PRETRAINED = (*_OF_BERT, "ModernBertForTokenClassification", "ModernBertForMaskedLM")
WORDS = "embeddings.tok_embeddings.weight"  # ModernBERT's word table
# What may stand before the names of an encoder's tensors.
_PREFIXES = {"embeddings.word_embeddings.weight": ("electra.", "bert.", ""), WORDS: ("model.", "")}
# Copies that transformers ties again when it loads: name -> names that the original may have.
_TABLES = ("electra.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight", f"model.{WORDS}")
TIED: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("cls.predictions.decoder.weight", "generator_lm_head.weight", "decoder.weight"), _TABLES
)
TIED["cls.predictions.decoder.bias"] = ("cls.predictions.bias",)
# Our task, by what follows a family's name in that of a class.
_TASKS = {"SequenceClassification": "classes", "TokenClassification": "tags", "QuestionAnswering": "answers"}
# Both dense layers of a class.
_TWO_LAYERS = {
    "ElectraForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
}


class Pair(NamedTuple):
    """A variable of ours and the tensors that hold it; several tensors make up its last axis.

    transposed: PyTorch keeps a dense layer's kernel transposed. column: the one of the tensor's last axis that is ours.
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    column: int | None = None

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        parts = np.split(value, len(self.theirs), axis=-1)
        return {name: part.T if self.transposed else part for name, part in zip(self.theirs, parts, strict=True)}

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = [tensors[name].T if self.transposed else tensors[name] for name in self.theirs]
        if self.column is not None:
            return parts[0][..., self.column : self.column + 1]
        return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


class DifferenceOfLabels(NamedTuple):
    """A variable of one logit and the tensor of two: the first label's row is 0 on the way out."""

    ours: str
    theirs: tuple[str, ...]

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        return {self.theirs[0]: np.concatenate([np.zeros_like(value), value], -1).T}

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        original, replaced = tensors[self.theirs[0]]
        return np.reshape(replaced - original, [-1, 1] if self.ours.endswith("kernel") else [1])


Pairs = list[Pair | DifferenceOfLabels]


class Head(NamedTuple):
    """A head in a directory: the task of ours that it does, its variables, and those that it lacks and are zeros."""

    task: str | None
    pairs: Pairs
    zeros: dict[str, int]  # name -> size


def prefix_of(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Prefix of the names of the encoder's tensors; None if there is no encoder."""
    named = ((prefix, words) for words, prefixes in _PREFIXES.items() for prefix in prefixes)
    return next((prefix for prefix, words in named if prefix + words in tensors), None)


def to_theirs(pairs: Sequence[Pair | DifferenceOfLabels], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Their tensors of our variables, the columns of one put together. Raises KeyError if a variable is missing."""
    tensors: dict[str, np.ndarray] = {}
    for pair in pairs:
        for name, value in pair.to_theirs(weights[pair.ours]).items():
            tensors[name] = np.concatenate([tensors[name], value]) if name in tensors else value
    return tensors


def _dense(ours: str, *theirs: str, has_bias: bool = True) -> Pairs:
    """Kernel and bias; several of theirs are side by side in ours."""
    kernel = Pair(f"{ours}/kernel", tuple(f"{name}.weight" for name in theirs), transposed=True)
    return [kernel, Pair(f"{ours}/bias", tuple(f"{name}.bias" for name in theirs))] if has_bias else [kernel]


def _norm(a: Architecture, ours: str, theirs: str) -> Pairs:
    gamma = Pair(f"{ours}/gamma", (f"{theirs}.weight",))
    return [gamma, Pair(f"{ours}/beta", (f"{theirs}.bias",))] if a.norm_bias else [gamma]


def encoder(a: Architecture, prefix: str, modern: bool, scope: str = "electra", embeddings: str = "") -> Pairs:
    """An encoder's variables, but for ModernBERT's word table where it is factorised.

    Args:
      prefix: of their names. modern: whether it is ModernBERT's. scope: of ours.
      embeddings: scope of the embedding block where it is another network's.
    """
    return list((_modernbert if modern else _bert)(a, prefix, scope, embeddings or f"{scope}/embeddings"))


def _bert(a: Architecture, prefix: str, scope: str, embeddings: str) -> Iterator[Pair | DifferenceOfLabels]:
    segments = ["token_type_embeddings"] if a.type_vocab_size else []
    for table in ("word_embeddings", "position_embeddings", *segments):
        yield Pair(f"{embeddings}/{table}", (f"{prefix}embeddings.{table}.weight",))
    yield from _norm(a, f"{embeddings}/LayerNorm", f"{prefix}embeddings.LayerNorm")
    if a.embedding_size != a.hidden_size:
        yield from _dense(f"{scope}/embeddings_project", f"{prefix}embeddings_project")
    for number in range(a.num_hidden_layers):
        ours, theirs = f"{scope}/encoder/layer_{number}", f"{prefix}encoder.layer.{number}"
        parts = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        yield from _dense(f"{ours}/attention/self/qkv", *parts)
        yield from _dense(f"{ours}/intermediate/dense", f"{theirs}.intermediate.dense")
        for block in ("attention/output", "output"):
            there = f"{theirs}.{block.replace('/', '.')}"
            yield from _dense(f"{ours}/{block}/dense", f"{there}.dense")
            yield from _norm(a, f"{ours}/{block}/LayerNorm", f"{there}.LayerNorm")


def _modernbert(a: Architecture, prefix: str, scope: str, embeddings: str) -> Iterator[Pair | DifferenceOfLabels]:
    if a.embedding_size == a.hidden_size:
        yield Pair(f"{embeddings}/word_embeddings", (f"{prefix}{WORDS}",))
    yield from _norm(a, f"{scope}/embeddings_LayerNorm", f"{prefix}embeddings.norm")
    for number in range(a.num_hidden_layers):
        ours, theirs = f"{scope}/encoder/layer_{number}", f"{prefix}layers.{number}"
        if number:
            yield from _norm(a, f"{ours}/attention/output/LayerNorm", f"{theirs}.attn_norm")
        yield from _dense(f"{ours}/attention/self/qkv", f"{theirs}.attn.Wqkv", has_bias=a.attention_bias)
        yield from _dense(f"{ours}/attention/output/dense", f"{theirs}.attn.Wo", has_bias=a.attention_bias)
        yield from _norm(a, f"{ours}/output/LayerNorm", f"{theirs}.mlp_norm")
        yield from _dense(f"{ours}/intermediate/gated", f"{theirs}.mlp.Wi", has_bias=a.mlp_bias)
        yield from _dense(f"{ours}/output/dense", f"{theirs}.mlp.Wo", has_bias=a.mlp_bias)
    yield from _norm(a, f"{scope}/encoder/LayerNorm", f"{prefix}final_norm")


def shapes(a: Architecture, prefix: str, modern: bool) -> dict[str, tuple[int, ...]]:
    """Shapes that tensors of an encoder must have; the word table may be padded."""
    hidden, inner = a.hidden_size, a.intermediate_size
    if modern:
        of_layer = {"attn.Wqkv": (3 * hidden, hidden), "attn.Wo": (hidden, hidden)}
        of_layer |= {"mlp.Wi": (2 * inner, hidden), "mlp.Wo": (hidden, inner)}
        numbers = range(a.num_hidden_layers)
        return {f"{prefix}layers.{n}.{name}.weight": shape for n in numbers for name, shape in of_layer.items()}
    return {
        f"{prefix}embeddings.position_embeddings.weight": (a.max_position_embeddings, a.embedding_size),
        f"{prefix}embeddings.token_type_embeddings.weight": (a.type_vocab_size, a.embedding_size),
        f"{prefix}encoder.layer.0.intermediate.dense.weight": (inner, hidden),
    }


def _prediction_head(a: Architecture, scope: str, has_bias: bool) -> Pairs:
    """Dense layer and norm before every last layer of ModernBERT's."""
    return [*_dense(f"{scope}/dense", "head.dense", has_bias=has_bias), *_norm(a, f"{scope}/LayerNorm", "head.norm")]


def head(class_name: str, a: Architecture, has_bias: bool = True, decoder_bias: bool = True) -> Pairs:
    """Variables of the head of a class that pre-training has.

    Args:
      has_bias, decoder_bias: switches of ModernBERT's heads.
    """
    detector, predictor = "discriminator_predictions", "generator_predictions"
    bias = f"{predictor}/output_bias"
    if class_name == "ElectraForPreTraining":
        last = _dense(f"{detector}/dense_1", f"{detector}.dense_prediction")
        return [*_dense(f"{detector}/dense", f"{detector}.dense"), *last]
    if class_name == "ModernBertForTokenClassification":
        last = [
            DifferenceOfLabels(f"{detector}/dense_1/{part}", (f"classifier.{name}",))
            for part, name in (("kernel", "weight"), ("bias", "bias"))
        ]
        return [*_prediction_head(a, detector, has_bias), *last]
    if class_name == "ModernBertForMaskedLM":
        pairs = _prediction_head(a, predictor, has_bias)
        pairs += [Pair(bias, ("decoder.bias",))] if decoder_bias else []
        return pairs if a.tie_word_embeddings else [*pairs, Pair(f"{predictor}/decoder", ("decoder.weight",))]
    electra = class_name == "ElectraForMaskedLM"
    there = predictor if electra else "cls.predictions.transform"
    pairs = [*_dense(f"{predictor}/dense", f"{there}.dense"), *_norm(a, f"{predictor}/LayerNorm", f"{there}.LayerNorm")]
    return [*pairs, Pair(bias, ("generator_lm_head.bias" if electra else "cls.predictions.bias",))]


def task_of(class_name: str, labels: list[str]) -> str | None:
    """Name of the task of ours that a fine-tuned class does; None for others and for the detector."""
    known = re.fullmatch(r"(Electra|Bert|ModernBert)For(\w+)", class_name)
    is_detector = class_name == "ModernBertForTokenClassification" and labels == DETECTION_LABELS
    return _TASKS.get(known[2]) if known and not is_detector else None


def task_head(class_name: str, scope: str, a: Architecture, has_bias: bool = True) -> Pairs:
    """Variables of the head of a fine-tuned class, below a scope of ours."""
    if class_name in _TWO_LAYERS:
        inner, last = _TWO_LAYERS[class_name]
        return [*_dense(f"{scope}/inner", inner), *_dense(f"{scope}/dense", last)]
    modern = class_name.startswith("ModernBert")
    pairs = _prediction_head(a, f"{scope}/head", has_bias) if modern else []
    if not class_name.endswith("QuestionAnswering"):
        return [*pairs, *_dense(f"{scope}/dense", "classifier")]
    for column, end in enumerate(("start", "end")):
        for pair in _dense(f"{scope}/{end}", "classifier" if modern else "qa_outputs"):
            assert isinstance(pair, Pair)
            pairs.append(pair._replace(column=column))
    return pairs


def heads_in(config: Mapping[str, Any], a: Architecture) -> Iterator[Head]:
    """The heads that a directory may have; older BERTs may have several."""
    name, modern, zeros = class_of(config), config["model_type"] == "modernbert", dict[str, int]()
    task = task_of(name, labels_of(config) if modern else [])
    has_bias, decoder_bias = (bool(config.get(f"{part}_bias", part == "decoder")) for part in ("classifier", "decoder"))
    if not modern:
        for known in _OF_BERT:
            yield Head(None, head(known, a), {})
    elif name == "ModernBertForMaskedLM" or (name == "ModernBertForTokenClassification" and task is None):
        scope = "generator_predictions" if name.endswith("MaskedLM") else "discriminator_predictions"
        zeros |= {} if has_bias else {f"{scope}/dense/bias": a.hidden_size}
        zeros |= {f"{scope}/output_bias": a.vocab_size} if name.endswith("MaskedLM") and not decoder_bias else {}
        yield Head(None, head(name, a, has_bias, decoder_bias), zeros)
    if task is not None and config.get("problem_type") != "multi_label_classification":  # ours choose one of the labels
        scope = f"task_specific/{task}"
        zeros = {f"{scope}/head/dense/bias": a.hidden_size} if modern and not has_bias else {}
        yield Head(task, task_head(name, scope, a, has_bias), zeros)


def word_table(weights: Mapping[str, np.ndarray], a: Architecture, scope: str, embeddings: str) -> np.ndarray:
    """Word table [V, H] of a network, multiplied out where it is factorised."""
    table = weights[f"{embeddings}/word_embeddings"]
    if a.embedding_size == a.hidden_size:
        return table
    return (table.astype(np.float64) @ weights[f"{scope}/embeddings_project/kernel"]).astype(np.float32)
