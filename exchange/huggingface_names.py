"""Our variables and Hugging Face's tensors: which is which.

PyTorch keeps a dense layer's kernel transposed, and query, key and value apart. Everything else is a matter of names.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.model.architecture import Architecture


class Pair(NamedTuple):
    """A variable of ours and the tensors that hold it: several make up its last axis.

    column: of the last axis of what theirs hold, where ours is that one alone; only read.
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    column: int | None = None

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        parts = np.split(value, len(self.theirs), axis=-1)
        return {name: part.T if self.transposed else part for name, part in zip(self.theirs, parts, strict=True)}

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """None if a tensor is missing."""
        if not all(name in tensors for name in self.theirs):
            return None
        parts = [tensors[name].T if self.transposed else tensors[name] for name in self.theirs]
        if self.column is not None:
            return parts[0][..., self.column : self.column + 1]
        return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def dense(ours: str, *theirs: str) -> list[Pair]:
    """Kernel and bias; several of theirs are side by side in ours."""
    return [
        Pair(f"{ours}/kernel", tuple(f"{name}.weight" for name in theirs), transposed=True),
        Pair(f"{ours}/bias", tuple(f"{name}.bias" for name in theirs)),
    ]


def layer_norm(ours: str, theirs: str) -> list[Pair]:
    return [Pair(f"{ours}/gamma", (f"{theirs}.weight",)), Pair(f"{ours}/beta", (f"{theirs}.bias",))]


def encoder(architecture: Architecture, prefix: str, scope: str = "electra", embeddings: str = "") -> list[Pair]:
    """An encoder's variables.

    Args:
      prefix: of their names: "electra.", "bert." or "".
      scope: of ours.
      embeddings: scope of the embedding block where it is another network's.
    """
    return list(_encoder(architecture, prefix, scope, embeddings or f"{scope}/embeddings"))


def _encoder(architecture: Architecture, prefix: str, scope: str, embeddings: str) -> Iterator[Pair]:
    tables = ["word_embeddings", "position_embeddings"]
    if architecture.type_vocab_size:
        tables.append("token_type_embeddings")
    for table in tables:
        yield Pair(f"{embeddings}/{table}", (f"{prefix}embeddings.{table}.weight",))
    yield from layer_norm(f"{embeddings}/LayerNorm", f"{prefix}embeddings.LayerNorm")
    if architecture.embedding_size != architecture.hidden_size:
        yield from dense(f"{scope}/embeddings_project", f"{prefix}embeddings_project")
    for number in range(architecture.num_hidden_layers):
        ours, theirs = f"{scope}/encoder/layer_{number}", f"{prefix}encoder.layer.{number}"
        parts = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        yield from dense(f"{ours}/attention/self/qkv", *parts)
        yield from dense(f"{ours}/attention/output/dense", f"{theirs}.attention.output.dense")
        yield from layer_norm(f"{ours}/attention/output/LayerNorm", f"{theirs}.attention.output.LayerNorm")
        yield from dense(f"{ours}/intermediate/dense", f"{theirs}.intermediate.dense")
        yield from dense(f"{ours}/output/dense", f"{theirs}.output.dense")
        yield from layer_norm(f"{ours}/output/LayerNorm", f"{theirs}.output.LayerNorm")


DETECTION_HEAD = [
    *dense("discriminator_predictions/dense", "discriminator_predictions.dense"),
    *dense("discriminator_predictions/dense_1", "discriminator_predictions.dense_prediction"),
]
ELECTRA_LM_HEAD = [
    *dense("generator_predictions/dense", "generator_predictions.dense"),
    *layer_norm("generator_predictions/LayerNorm", "generator_predictions.LayerNorm"),
    Pair("generator_predictions/output_bias", ("generator_lm_head.bias",)),
]
BERT_LM_HEAD = [
    *dense("generator_predictions/dense", "cls.predictions.transform.dense"),
    *layer_norm("generator_predictions/LayerNorm", "cls.predictions.transform.LayerNorm"),
    Pair("generator_predictions/output_bias", ("cls.predictions.bias",)),
]


def _end_of_answer(name: str, column: int) -> list[Pair]:
    pairs = dense(f"task_specific/answers/{name}", "qa_outputs")
    return [pair._replace(column=column) for pair in pairs]


# Fine-tuned heads by class: our task's name and its variables.
TASK_HEADS: dict[str, tuple[str, list[Pair]]] = {
    "ElectraForSequenceClassification": (
        "classes",
        [
            *dense("task_specific/classes/inner", "classifier.dense"),
            *dense("task_specific/classes/dense", "classifier.out_proj"),
        ],
    ),
    "BertForSequenceClassification": (
        "classes",
        [
            *dense("task_specific/classes/inner", "bert.pooler.dense"),
            *dense("task_specific/classes/dense", "classifier"),
        ],
    ),
    "ElectraForTokenClassification": ("tags", dense("task_specific/tags/dense", "classifier")),
    "BertForTokenClassification": ("tags", dense("task_specific/tags/dense", "classifier")),
    "ElectraForQuestionAnswering": ("answers", [*_end_of_answer("start", 0), *_end_of_answer("end", 1)]),
    "BertForQuestionAnswering": ("answers", [*_end_of_answer("start", 0), *_end_of_answer("end", 1)]),
}
# Copies of the word table that transformers ties again when it loads.
TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "generator_lm_head.weight")


def to_theirs(pairs: Sequence[Pair], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Their tensors of our variables.

    Raises:
      KeyError: a variable is missing.
    """
    tensors: dict[str, np.ndarray] = {}
    for pair in pairs:
        tensors.update(pair.to_theirs(weights[pair.ours]))
    return tensors
