"""Weights of Hugging Face directories: which of their tensors are which of our variables, and reading them.

    config.json, model.safetensors (or several with model.safetensors.index.json), vocab.txt or tokenizer.json

Needs neither PyTorch nor transformers. Read are the networks of the classes of ELECTRA and BERT, with the heads of
pre-training and those for labels, tags and answers; those of ModernBERT are in exchange.modernbert. Poolers without
such a head and next-sentence classifiers are left out, and reported. PyTorch keeps a dense layer's kernel transposed,
and query, key and value apart; everything else is a matter of names.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.exchange import modernbert
from electra_tf2.exchange.formats.folders import read_config
from electra_tf2.exchange.formats.huggingface_config import class_of, labels_of, network_of
from electra_tf2.exchange.tensor_file import FILE_NAME, TensorFile
from electra_tf2.exchange.tensor_pairs import Pair
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import is_file, read_json

_INDEX = f"{FILE_NAME}.index.json"
_PREFIXES = ("electra.", "bert.", "")  # before the names of an encoder's tensors
# Names in older files, and those of today.
_LM_BIAS = ("cls.predictions.decoder.bias", "cls.predictions.bias")
_LAYER_NORM = ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias"))  # TensorFlow's


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
_OF_VOCABULARY = ("/word_embeddings", "/output_bias", "/decoder")  # variables with a row for each token
# Copies of the word table that transformers ties again when it loads.
TIED = (
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "generator_lm_head.weight",
    *modernbert.TIED,
)


def to_theirs(pairs: Sequence[Pair], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Their tensors of our variables.

    Raises:
      KeyError: a variable is missing.
    """
    tensors: dict[str, np.ndarray] = {}
    for pair in pairs:
        tensors.update(pair.to_theirs(weights[pair.ours]))
    return tensors


class Tensors(Mapping[str, np.ndarray]):
    """Tensors of one or several files by today's names, read when asked for."""

    def __init__(self, folder: Path) -> None:
        index = folder / _INDEX
        paths = [folder / FILE_NAME]
        if is_file(index):
            paths = _listed_in(index)
        if not all(map(is_file, paths)):
            old = (
                "; pytorch_model.bin is a pickle, which is not read: save it again with transformers' "
                "save_pretrained, which writes safetensors"
            )
            lacking = next(path.name for path in paths if not is_file(path))
            raise UserError(f"{folder} has no {lacking}{old if (folder / 'pytorch_model.bin').is_file() else ''}")
        files = map(TensorFile, paths)
        self._files = {_todays_name(name): (file, name) for file in files for name in file.names()}
        old, new = _LM_BIAS
        if old in self._files:
            self._files.setdefault(new, self._files[old])

    def __getitem__(self, name: str) -> np.ndarray:
        file, stored = self._files[name]
        return file.get(stored)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class HuggingFaceWeights:
    """The weights of a directory by our names, the encoder under "electra/".

    Rows of tables beyond the vocabulary, which some releases pad, are cut off. task: name of the task of ours whose
    head it has (`TASK_HEADS`), or None. left_out: tensors that have no place here.

    Raises:
      UserError: another kind of network, or one with missing parts.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        config = read_config(folder)
        if config is None:
            raise UserError(f"{folder} has no config.json")
        network = network_of(config, self.folder)
        self.architecture = make_architecture(
            network["model_size"], network["model_hparam_overrides"], network["vocab_size"], network["embedding_size"]
        )
        self._tensors = Tensors(self.folder)
        prefix = prefix_of(self._tensors)
        if prefix is None:
            raise UserError(f"{folder}: no encoder among its tensors: {', '.join(sorted(self._tensors)[:5])} ...")
        self._zeros: dict[str, int] = {}
        self.task: str | None = None
        if config["model_type"] == "modernbert":
            self._read_modernbert(config, prefix)
        else:
            self._read_bert(config, prefix)
        used = {name for pair in self._pairs.values() for name in pair.theirs}
        self.left_out = sorted(name for name in self._tensors if name not in used and not _is_copy(name))

    def _read_bert(self, config: Mapping[str, Any], prefix: str) -> None:
        sizes = self.architecture
        self._pairs = {pair.ours: pair for pair in encoder(sizes, prefix)}
        self._check_tensors(
            {
                f"{prefix}embeddings.position_embeddings.weight": (sizes.max_position_embeddings, sizes.embedding_size),
                f"{prefix}embeddings.token_type_embeddings.weight": (sizes.type_vocab_size, sizes.embedding_size),
                f"{prefix}encoder.layer.0.intermediate.dense.weight": (sizes.intermediate_size, sizes.hidden_size),
            }
        )
        for head in (DETECTION_HEAD, ELECTRA_LM_HEAD, BERT_LM_HEAD):
            if all(pair.is_in(self._tensors) for pair in head):
                self._pairs |= {pair.ours: pair for pair in head}
        task, head = TASK_HEADS.get(class_of(config), (None, []))
        if config.get("problem_type") == "multi_label_classification":  # ours choose one of the labels
            task = None
        if task and all(pair.is_in(self._tensors) for pair in head):
            self.task = task
            self._pairs |= {pair.ours: pair for pair in head}

    def _read_modernbert(self, config: Mapping[str, Any], prefix: str) -> None:
        sizes, name = self.architecture, class_of(config)
        pairs = modernbert.encoder(sizes, prefix, "electra", "electra/embeddings")
        self._pairs = {pair.ours: pair for pair in pairs}
        self._check_tensors(modernbert.shapes(sizes, prefix))
        labels = labels_of(config)
        head = modernbert.head_of(name, config, labels, sizes)
        if config.get("problem_type") == "multi_label_classification":  # ours choose one of the labels
            head = []
        if head and all(pair.is_in(self._tensors) for pair in head):
            self.task = modernbert.task_of(name, labels)
            self._pairs |= {pair.ours: pair for pair in head}
            self._zeros = modernbert.absent(name, config, labels, sizes)

    def _check_tensors(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises UserError where tensors of the encoder are missing, or some have other shapes than these."""
        missing = [name for name, pair in self._pairs.items() if not pair.is_in(self._tensors)]
        if missing:
            raise UserError(f"{self.folder}: tensors are missing for {', '.join(missing[:5])}")
        for name, shape in shapes.items():
            found = self._tensors[name].shape if name in self._tensors else shape
            if found != shape:
                raise UserError(f"{self.folder}: {name} is {found}, but by config.json it is {shape}")

    def names(self) -> list[str]:
        return sorted([*self._pairs, *self._zeros])

    def get(self, name: str) -> np.ndarray:
        if name in self._zeros:
            return np.zeros([self._zeros[name]], np.float32)
        pair = self._pairs[name]
        try:
            value = pair.to_ours(self._tensors)
            return value[: self.architecture.vocab_size] if name.endswith(_OF_VOCABULARY) else value
        except UserError:
            raise
        except (ValueError, IndexError):
            shapes = ", ".join(f"{theirs} {self._tensors[theirs].shape}" for theirs in pair.theirs)
            raise UserError(f"{self.folder}: the shapes of {shapes} make no {name}") from None


def _listed_in(index: Path) -> list[Path]:
    """The files that an index names. Raises UserError where it names none, or one outside of its folder."""
    files = read_json(index, "weights").get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{index}: weight_map, an object of tensors and their files, is needed, got {shown(files)}")
    outside = [name for name in files.values() if Path(name).name != name]
    if outside:
        raise UserError(f"{index} names {outside[0]!r}: only files in its own folder are read")
    return sorted({index.parent / name for name in files.values()})


def prefix_of(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Prefix of the names of the encoder's tensors; None if there is no encoder."""
    bert = (prefix for prefix in _PREFIXES if f"{prefix}embeddings.word_embeddings.weight" in tensors)
    modern = (prefix for prefix in modernbert.PREFIXES if f"{prefix}{modernbert.WORDS}" in tensors)
    return next(itertools.chain(bert, modern), None)


def _todays_name(name: str) -> str:
    return next((name.removesuffix(old) + new for old, new in _LAYER_NORM if name.endswith(old)), name)


def _is_copy(name: str) -> bool:
    """True for buffers and tied copies: nothing is lost with them."""
    return name in TIED or name.endswith("embeddings.position_ids")
