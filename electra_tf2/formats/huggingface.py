"""Weights of Hugging Face directories: which of their tensors are which of our variables, both ways, and reading them.

    config.json, model.safetensors (or several with model.safetensors.index.json), vocab.txt or tokenizer.json

Needs neither PyTorch nor transformers. Read are the networks of the classes of ELECTRA, BERT and ModernBERT, with the
heads of pre-training and those for labels, tags and answers. Poolers without such a head and next-sentence classifiers
are left out, and reported.

PyTorch keeps a dense layer's kernel transposed. ELECTRA and BERT have query, key and value apart; the two ends of an
answer are columns of one layer. ModernBERT has no factorised embeddings: ours are multiplied out, since our network
normalises the product, as theirs does its word table. Its detector of replaced tokens is a token classifier of two
labels whose logits are 0 and ours.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.files.reading import is_file, read_json
from electra_tf2.formats.folders import what_lies_at
from electra_tf2.formats.huggingface_config import class_of, labels_of
from electra_tf2.formats.stored_model import DETECTOR, MASKED_LM
from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, read_tensors
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.util.errors import UserError, shown

DETECTION_LABELS = ["original", "replaced"]
_OF_BERT = ("ElectraForPreTraining", "ElectraForMaskedLM", "BertForMaskedLM")  # of pre-training
WORDS = "embeddings.tok_embeddings.weight"  # ModernBERT's word table
# What may stand before the names of an encoder's tensors.
_PREFIXES = {"embeddings.word_embeddings.weight": ("electra.", "bert.", ""), WORDS: ("model.", "")}
# Copies that transformers ties again when it loads: name -> names that the original may have.
_TABLES = ("electra.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight", f"model.{WORDS}")
_TIED: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("cls.predictions.decoder.weight", "generator_lm_head.weight", "decoder.weight"), _TABLES
)
_BIASES = ("cls.predictions.decoder.bias", "cls.predictions.bias")  # in older files, and today
_TIED[_BIASES[0]] = _BIASES[1:]
_LAYER_NORM = {"gamma": "weight", "beta": "bias"}  # TensorFlow's names
_NETWORK = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")  # of `make_architecture`
# Numbers that older versions stored beside the weights and that follow from the sizes.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_OF_VOCABULARY = ("/word_embeddings", "/output_bias", "/decoder")  # variables with a row for each token
# Our task, by what follows a family's name in that of a class.
_TASKS = {"SequenceClassification": "classes", "TokenClassification": "tags", "QuestionAnswering": "answers"}
# Both dense layers of a class.
_TWO_LAYERS = {
    "ElectraForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
}


class Pair(NamedTuple):
    """A variable of ours and the tensors that hold it; several tensors make up its last axis.

    transposed: as PyTorch keeps a dense layer's kernel. column: the one of the tensor's last axis that is ours.
    of_labels: ours is of one logit, theirs of two labels, the first one's 0: theirs are subtracted.
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    column: int | None = None
    of_labels: bool = False

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        value = np.concatenate([np.zeros_like(value), value], -1) if self.of_labels else value
        parts = np.split(value, len(self.theirs), axis=-1)
        return {name: part.T if self.transposed else part for name, part in zip(self.theirs, parts, strict=True)}

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = [tensors[name].T if self.transposed else tensors[name] for name in self.theirs]
        if self.of_labels:
            original, replaced = np.split(parts[0], 2, axis=-1)
            return replaced - original
        if self.column is not None:
            return parts[0][..., self.column : self.column + 1]
        return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def prefix_of(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Prefix of the names of the encoder's tensors; None if there is no encoder."""
    named = ((prefix, words) for words, prefixes in _PREFIXES.items() for prefix in prefixes)
    return next((prefix for prefix, words in named if prefix + words in tensors), None)


def to_theirs(pairs: Sequence[Pair], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Their tensors of our variables, the columns of one put together. Raises KeyError if a variable is missing."""
    tensors: dict[str, np.ndarray] = {}
    for pair in pairs:
        for name, value in pair.to_theirs(weights[pair.ours]).items():
            tensors[name] = np.concatenate([tensors[name], value]) if name in tensors else value
    return tensors


def _dense(ours: str, *theirs: str, has_bias: bool = True) -> list[Pair]:
    """Kernel and bias; several of theirs are side by side in ours."""
    kernel = Pair(f"{ours}/kernel", tuple(f"{name}.weight" for name in theirs), transposed=True)
    return [kernel, Pair(f"{ours}/bias", tuple(f"{name}.bias" for name in theirs))] if has_bias else [kernel]


def _norm(a: Architecture, ours: str, theirs: str) -> list[Pair]:
    gamma = Pair(f"{ours}/gamma", (f"{theirs}.weight",))
    return [gamma, Pair(f"{ours}/beta", (f"{theirs}.bias",))] if a.norm_bias else [gamma]


def encoder(a: Architecture, prefix: str, modern: bool, scope: str = "electra") -> list[Pair]:
    """An encoder's variables, but for ModernBERT's word table where it is factorised.

    Args:
      prefix: of their names. modern: whether it is ModernBERT's. scope: of ours.
    """
    return list((_modernbert if modern else _bert)(a, prefix, scope))


def _bert(a: Architecture, prefix: str, scope: str) -> Iterator[Pair]:
    segments = ["token_type_embeddings"] if a.type_vocab_size else []
    for table in ("word_embeddings", "position_embeddings", *segments):
        yield Pair(f"{scope}/embeddings/{table}", (f"{prefix}embeddings.{table}.weight",))
    yield from _norm(a, f"{scope}/embeddings/LayerNorm", f"{prefix}embeddings.LayerNorm")
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


def _modernbert(a: Architecture, prefix: str, scope: str) -> Iterator[Pair]:
    if a.embedding_size == a.hidden_size:
        yield Pair(f"{scope}/embeddings/word_embeddings", (f"{prefix}{WORDS}",))
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


def head(class_name: str, a: Architecture, scope: str = "") -> list[Pair]:
    """Variables of the head of a class.

    Args:
      scope: of ours; "": that of pre-training.
    """
    family, _, kind = class_name.partition("For")
    modern = family == "ModernBert"
    scope = scope or (MASKED_LM if kind == "MaskedLM" else DETECTOR)
    first, last = (f"{scope}/head", f"{scope}/dense") if scope.startswith("task_") else (scope, f"{scope}/dense_1")
    pairs: list[Pair] = []
    if modern:  # has a dense layer and a norm before every last layer
        pairs = [*_dense(f"{first}/dense", "head.dense"), *_norm(a, f"{first}/LayerNorm", "head.norm")]
    if kind == "PreTraining":
        return [*_dense(f"{scope}/dense", f"{scope}.dense"), *_dense(last, f"{scope}.dense_prediction")]
    if kind == "MaskedLM" and modern:
        tables = [] if a.tie_word_embeddings else [Pair(f"{scope}/decoder", ("decoder.weight",))]
        return [*pairs, Pair(f"{scope}/output_bias", ("decoder.bias",)), *tables]
    if kind == "MaskedLM":
        there, bias = ("cls.predictions.transform", _BIASES[1])
        if family == "Electra":
            there, bias = scope, "generator_lm_head.bias"
        pairs = [*_dense(f"{scope}/dense", f"{there}.dense"), *_norm(a, f"{scope}/LayerNorm", f"{there}.LayerNorm")]
        return [*pairs, Pair(f"{scope}/output_bias", (bias,))]
    if kind == "QuestionAnswering":
        for column, end in enumerate(("start", "end")):
            of_end = _dense(f"{scope}/{end}", "classifier" if modern else "qa_outputs")
            pairs += [pair._replace(column=column) for pair in of_end]
        return pairs
    if class_name in _TWO_LAYERS:
        inner, outer = _TWO_LAYERS[class_name]
        return [*_dense(f"{scope}/inner", inner), *_dense(last, outer)]
    return [*pairs, *(pair._replace(of_labels=scope == DETECTOR) for pair in _dense(last, "classifier"))]


def task_of(class_name: str, labels: list[str]) -> str | None:
    """Name of the task of ours that a fine-tuned class does; None for others and for the detector."""
    known = re.fullmatch(r"(Electra|Bert|ModernBert)For(\w+)", class_name)
    is_detector = class_name == "ModernBertForTokenClassification" and labels == DETECTION_LABELS
    return _TASKS.get(known[2]) if known and not is_detector else None


def heads_in(config: Mapping[str, Any], a: Architecture) -> Iterator[tuple[str | None, list[Pair]]]:
    """The heads that a directory may have, each with its task of ours; older BERTs may have several."""
    name, modern = class_of(config), config["model_type"] == "modernbert"
    task = task_of(name, labels_of(config) if modern else [])
    if not modern:
        yield from ((None, head(known, a)) for known in _OF_BERT)
    elif task is None and name.endswith(("MaskedLM", "TokenClassification")):
        yield None, head(name, a)
    if task is not None and config.get("problem_type") != "multi_label_classification":  # ours choose one of the labels
        yield task, head(name, a, f"task_specific/{task}")


class Read(NamedTuple):
    """A directory by our names.

    weights: float32 arrays, the encoder under "electra/", without the rows for tokens beyond the vocabulary that some
    releases pad tables to. task: name of the task of ours whose head it has, or None. left_out: tensors that have no
    place here.
    """

    weights: dict[str, np.ndarray]
    task: str | None
    left_out: list[str]


def read_weights(folder: Path, config: Mapping[str, Any], network: Mapping[str, Any]) -> Read:
    """Reads the weights of a directory.

    Args:
      config: its config.json.
      network: our hparams of its network (huggingface_config.network_of).

    Raises:
      UserError: a network with missing parts, or heads that are not ours.
    """
    modern = config["model_type"] == "modernbert"
    if config.get("id2label") is not None:
        labels_of(config)  # whatever the class, no labels that are none
    a = make_architecture(*(network[name] for name in _NETWORK))
    stored = load_tensors(folder)
    tensors = stored | (_switched_off(config, a) if modern else {})
    prefix = prefix_of(tensors)
    if prefix is None:
        raise UserError(f"{folder}: no encoder among its tensors: {', '.join(sorted(tensors)[:5])} ...")
    pairs = encoder(a, prefix, modern)
    missing = [pair.ours for pair in pairs if not tensors.keys() >= {*pair.theirs}]
    if missing:
        raise UserError(f"{folder}: tensors are missing for {', '.join(missing[:5])}")
    for name, shape in shapes(a, prefix, modern).items():
        if name in tensors and tensors[name].shape != shape:
            raise UserError(f"{folder}: {name} is {tensors[name].shape}, but by config.json it is {shape}")
    task, weights = None, dict[str, np.ndarray]()
    for of_head, head_pairs in heads_in(config, a):
        if all(tensors.keys() >= {*pair.theirs} for pair in head_pairs):
            task = of_head
            pairs += head_pairs
    for pair in pairs:
        try:
            value = pair.to_ours(tensors)
        except (ValueError, IndexError):
            found = ", ".join(f"{name} {tensors[name].shape}" for name in pair.theirs)
            raise UserError(f"{folder}: the shapes of {found} make no {pair.ours}") from None
        weights[pair.ours] = value[: a.vocab_size] if pair.ours.endswith(_OF_VOCABULARY) else value
    used = {name for pair in pairs for name in pair.theirs}
    left_out = sorted(name for name in stored.keys() - used if not _is_copy(name, tensors))
    if f"{MASKED_LM}/output_bias" in weights:
        _check_language_model(folder, config, a, tensors, left_out)
    return Read(weights, task, left_out)


def _switched_off(config: Mapping[str, Any], a: Architecture) -> dict[str, np.ndarray]:
    """Zeros for the biases that ModernBERT's heads have not by their switches, and ours have."""
    sizes = {"head.dense.bias": ("classifier_bias", False, a.hidden_size)}
    sizes["decoder.bias"] = "decoder_bias", True, a.vocab_size
    return {
        name: np.zeros([size], np.float32)
        for name, (switch, default, size) in sizes.items()
        if not config.get(switch, default)
    }


def _check_language_model(
    folder: Path, config: Mapping[str, Any], a: Architecture, tensors: Mapping[str, np.ndarray], left_out: list[str]
) -> None:
    """Raises UserError for a masked language model whose head computes something else than ours."""
    apart = [name for name in left_out if name in _TIED]
    if apart and config.get("tie_word_embeddings", True) is False:
        raise UserError(
            f"{folder}: {apart[0]} is an output table of its own (tie_word_embeddings false), which our networks have "
            "in ModernBERT's architecture only"
        )
    if "generator_lm_head.bias" in tensors and a.hidden_act != "gelu":
        raise UserError(
            f"{folder}: the head of ElectraForMaskedLM has the activation gelu, its layers {a.hidden_act} "
            "(hidden_act): our networks have one for both"
        )


def _is_copy(name: str, tensors: Mapping[str, np.ndarray]) -> bool:
    """True for what is the same as the tensor that transformers ties it to."""
    tied = next((there for there in _TIED.get(name, ()) if there in tensors), None)
    return tied is not None and np.array_equal(tensors[name], tensors[tied])


def load_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a directory's file or files by today's names, without numbers of positions."""
    index = folder / INDEX_NAME
    paths = _listed_in(index) if is_file(index) else [folder / FILE_NAME]
    lacking = next((path.name for path in paths if not is_file(path)), None)
    if lacking is not None:
        known = what_lies_at(folder)
        raise UserError(f"{folder} has no {lacking}{'; ' * bool(known)}{known}")
    tensors: dict[str, np.ndarray] = {}
    for path in paths:
        tensors |= {_todays_name(name): value for name, value in read_tensors(path, _BUFFERS).items()}
    bias, todays = _BIASES
    if bias in tensors:
        tensors.setdefault(todays, tensors[bias])
    return tensors


def _listed_in(index: Path) -> list[Path]:
    """The files that an index names. Raises UserError where it names none, or one outside of its folder."""
    files = read_json(index, "weights").get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{index}: weight_map, an object of tensors and their files, is needed, got {shown(files)}")
    outside = [name for name in files.values() if Path(name).name != name]
    if outside:
        raise UserError(f"{index} names {outside[0]!r}: only files in its own folder are read")
    return sorted({index.parent / name for name in files.values()})


def _todays_name(name: str) -> str:
    return re.sub(r"\.LayerNorm\.(gamma|beta)$", lambda old: f".LayerNorm.{_LAYER_NORM[old[1]]}", name)
