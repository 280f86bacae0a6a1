"""Weights of Hugging Face's ModernBERT: which of their tensors are which of our variables.

Factorised embeddings are multiplied out: our network normalises the product, as theirs does its word table. The
detector of replaced tokens is a token classifier of two labels whose logits are 0 and ours.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.exchange.tensor_pairs import Pair
from electra_tf2.model.architecture import Architecture

PREFIXES = ("model.", "")
WORDS = "embeddings.tok_embeddings.weight"
DETECTION_LABELS = ["original", "replaced"]
TIED = ("decoder.weight",)
_TASKS = {
    "ModernBertForSequenceClassification": "classes",
    "ModernBertForTokenClassification": "tags",
    "ModernBertForQuestionAnswering": "answers",
}


class DifferenceOfLabels(NamedTuple):
    """A variable of one logit and the tensor of two: the first label's row is 0 on the way out."""

    ours: str
    theirs: tuple[str, ...]

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        return {self.theirs[0]: np.concatenate([np.zeros_like(value), value], -1).T}

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        original, replaced = tensors[self.theirs[0]]
        return np.reshape(replaced - original, [-1, 1] if self.ours.endswith("kernel") else [1])

    def is_in(self, tensors: Mapping[str, np.ndarray]) -> bool:
        return self.theirs[0] in tensors


def encoder(a: Architecture, prefix: str, scope: str, embeddings: str) -> list[Pair]:
    """An encoder's variables but for its word table where it is factorised; arguments as exchange.huggingface's."""
    return list(_encoder(a, prefix, scope, embeddings))


def _encoder(a: Architecture, prefix: str, scope: str, embeddings: str) -> Iterator[Pair]:
    if a.embedding_size == a.hidden_size:
        yield Pair(f"{embeddings}/word_embeddings", (f"{prefix}{WORDS}",))
    yield from _norm(a, f"{scope}/embeddings_LayerNorm", f"{prefix}embeddings.norm")
    for number in range(a.num_hidden_layers):
        ours, theirs = f"{scope}/encoder/layer_{number}", f"{prefix}layers.{number}"
        if number:
            yield from _norm(a, f"{ours}/attention/output/LayerNorm", f"{theirs}.attn_norm")
        yield from _dense(f"{ours}/attention/self/qkv", f"{theirs}.attn.Wqkv", a.attention_bias)
        yield from _dense(f"{ours}/attention/output/dense", f"{theirs}.attn.Wo", a.attention_bias)
        yield from _norm(a, f"{ours}/output/LayerNorm", f"{theirs}.mlp_norm")
        yield from _dense(f"{ours}/intermediate/gated", f"{theirs}.mlp.Wi", a.mlp_bias)
        yield from _dense(f"{ours}/output/dense", f"{theirs}.mlp.Wo", a.mlp_bias)
    yield from _norm(a, f"{scope}/encoder/LayerNorm", f"{prefix}final_norm")


def shapes(a: Architecture, prefix: str) -> dict[str, tuple[int, ...]]:
    """Shapes of an encoder's tensors, the word table apart, which may be padded."""
    hidden, inner = a.hidden_size, a.intermediate_size
    of_layer = {"attn.Wqkv": (3 * hidden, hidden), "attn.Wo": (hidden, hidden), "mlp.Wi": (2 * inner, hidden)}
    of_layer |= {"mlp.Wo": (hidden, inner)}
    return {
        f"{prefix}layers.{number}.{name}.weight": shape
        for number in range(a.num_hidden_layers)
        for name, shape in of_layer.items()
    }


def _dense(ours: str, theirs: str, has_bias: bool = True) -> list[Pair]:
    kernel = Pair(f"{ours}/kernel", (f"{theirs}.weight",), transposed=True)
    return [kernel, Pair(f"{ours}/bias", (f"{theirs}.bias",))] if has_bias else [kernel]


def _norm(a: Architecture, ours: str, theirs: str) -> list[Pair]:
    gamma = Pair(f"{ours}/gamma", (f"{theirs}.weight",))
    return [gamma, Pair(f"{ours}/beta", (f"{theirs}.bias",))] if a.norm_bias else [gamma]


def prediction_head(a: Architecture, scope: str, has_bias: bool) -> list[Pair]:
    """Dense layer and norm before every last layer."""
    return [*_dense(f"{scope}/dense", "head.dense", has_bias), *_norm(a, f"{scope}/LayerNorm", "head.norm")]


def language_model(a: Architecture, has_bias: bool, decoder_bias: bool) -> list[Pair]:
    scope = "generator_predictions"
    pairs = prediction_head(a, scope, has_bias)
    if decoder_bias:
        pairs.append(Pair(f"{scope}/output_bias", ("decoder.bias",)))
    return pairs if a.tie_word_embeddings else [*pairs, Pair(f"{scope}/decoder", ("decoder.weight",))]


def detector(a: Architecture, has_bias: bool) -> list[Any]:
    scope = "discriminator_predictions"
    last = [
        DifferenceOfLabels(f"{scope}/dense_1/{part}", (f"classifier.{name}",))
        for part, name in (("kernel", "weight"), ("bias", "bias"))
    ]
    return [*prediction_head(a, scope, has_bias), *last]


def task_head(a: Architecture, scope: str, has_bias: bool, is_qa: bool) -> list[Any]:
    """A fine-tuned head; the two ends of an answer, columns of one tensor, can be read only."""
    pairs = prediction_head(a, f"{scope}/head", has_bias)
    if not is_qa:
        return [*pairs, *_dense(f"{scope}/dense", "classifier")]
    for column, end in enumerate(("start", "end")):
        pairs += [pair._replace(column=column) for pair in _dense(f"{scope}/{end}", "classifier")]
    return pairs


def task_of(class_name: str, labels: list[str]) -> str | None:
    """Name of the task of ours that a fine-tuned class does; None for others and for the detector."""
    is_detector = class_name == "ModernBertForTokenClassification" and labels == DETECTION_LABELS
    return None if is_detector else _TASKS.get(class_name)


def head_of(class_name: str, config: Mapping[str, Any], labels: list[str], a: Architecture) -> list[Any]:
    """Our variables of the head of one of their classes; [] where ours has none."""
    has_bias = bool(config.get("classifier_bias", False))
    task = task_of(class_name, labels)
    if task is not None:
        return task_head(a, f"task_specific/{task}", has_bias, task == "answers")
    if class_name == "ModernBertForMaskedLM":
        return language_model(a, has_bias, bool(config.get("decoder_bias", True)))
    if class_name == "ModernBertForTokenClassification" and labels == DETECTION_LABELS:
        return detector(a, has_bias)
    return []


def absent(class_name: str, config: Mapping[str, Any], labels: list[str], a: Architecture) -> dict[str, int]:
    """Biases that our heads have and theirs has not, which are zeros: name -> size."""
    task = task_of(class_name, labels)
    scope = "generator_predictions" if class_name == "ModernBertForMaskedLM" else "discriminator_predictions"
    scope = scope if task is None else f"task_specific/{task}/head"
    found = {} if config.get("classifier_bias", False) else {f"{scope}/dense/bias": a.hidden_size}
    if class_name == "ModernBertForMaskedLM" and not config.get("decoder_bias", True):
        found[f"{scope}/output_bias"] = a.vocab_size
    return found


def word_table(weights: Mapping[str, np.ndarray], a: Architecture, scope: str, embeddings: str) -> np.ndarray:
    """Word table [V, H] of a network, multiplied out where it is factorised."""
    table = weights[f"{embeddings}/word_embeddings"]
    if a.embedding_size == a.hidden_size:
        return table
    return (table.astype(np.float64) @ weights[f"{scope}/embeddings_project/kernel"]).astype(np.float32)
