"""Reads the weights of Hugging Face directories.

    config.json, model.safetensors (or several with model.safetensors.index.json)

It reads ELECTRA's, BERT's and ModernBERT's classes: the encoder with the heads of pre-training and those for labels,
tags and answers. Poolers without such a head and next-sentence classifiers are left out, and reported.
formats.huggingface_names has the names of tensors and variables.

Needs neither PyTorch nor transformers.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.files.reading import is_file, read_json
from electra_tf2.formats.folders import no_weights_hint
from electra_tf2.formats.huggingface_config import class_of, labels_of
from electra_tf2.formats.huggingface_names import BERT_MLM_BIAS, DETECTION_LABELS, WORDS, Pair, encoder, head
from electra_tf2.formats.stored_model import MASKED_LM
from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, read_tensors
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.util.errors import UserError, shown

_NETWORK = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")  # arguments of `make_architecture`
# Classes of pre-training whose heads a directory of ELECTRA's or BERT's architecture may have.
_PRETRAINING_CLASSES = ("ElectraForPreTraining", "ElectraForMaskedLM", "BertForMaskedLM")
# Name of our task, by the second half of a class's name.
_TASKS = {"SequenceClassification": "classes", "TokenClassification": "tags", "QuestionAnswering": "answers"}
# Name of an encoder's word table -> prefixes that the names of all the encoder's tensors may have.
_PREFIXES = {"embeddings.word_embeddings.weight": ("electra.", "bert.", ""), WORDS: ("model.", "")}
_WORD_TABLES = ("electra.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight", f"model.{WORDS}")
_OLD_BIAS = "cls.predictions.decoder.bias"
# Tensors that transformers replaces by others when it loads (weight tying) -> names that the other may have.
_TIED: dict[str, tuple[str, ...]] = {
    "cls.predictions.decoder.weight": _WORD_TABLES,
    "generator_lm_head.weight": _WORD_TABLES,
    "decoder.weight": _WORD_TABLES,
    _OLD_BIAS: (BERT_MLM_BIAS,),
}
# Older directories have TensorFlow's names for the scale and the offset of a norm.
_LAYER_NORM = {"gamma": "weight", "beta": "bias"}
# Constants that older versions of transformers stored beside the weights. They follow from the sizes.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_ROW_PER_TOKEN = ("/word_embeddings", "/output_bias", "/decoder")  # our variables with these endings have such rows


class Tensors(NamedTuple):
    """The weights of a directory under our names.

    weights: float32 arrays, the encoder's under "electra/". Some releases pad tables with rows beyond the vocabulary;
    these are cut off. task: name of the task whose head the directory has, or None. left_out: names of tensors that our
    networks have no variable for.
    """

    weights: dict[str, np.ndarray]
    task: str | None
    left_out: list[str]


def read_weights(folder: Path, config: Mapping[str, Any], network: Mapping[str, Any]) -> Tensors:
    """Reads the weights of a directory.

    Args:
      config: content of its config.json.
      network: our hparams of its network (huggingface_config.network_of).

    Raises:
      UserError: tensors are missing, or a head computes something else than ours.
    """
    modern = config["model_type"] == "modernbert"
    if config.get("id2label") is not None:
        labels_of(config)  # raises UserError for malformed labels, whether the class uses them or not
    a = make_architecture(*(network[name] for name in _NETWORK))
    stored = load_tensors(folder)
    tensors = dict(stored)
    if modern:
        tensors |= _absent_biases(config, a)
    pairs = _encoder_pairs(folder, tensors, a, modern)
    task = None
    for head_task, head_pairs in _possible_heads(config, a):
        if all(_has_tensors(tensors, pair) for pair in head_pairs):
            task = head_task
            pairs += head_pairs
    weights = {}
    used: set[str] = set()
    for pair in pairs:
        value = _to_ours(folder, pair, tensors)
        if pair.ours.endswith(_ROW_PER_TOKEN):
            value = value[: a.vocab_size]
        weights[pair.ours] = value
        used.update(pair.theirs)
    left_out = sorted(name for name in stored.keys() - used if not _is_tied_copy(name, tensors))
    if f"{MASKED_LM}/output_bias" in weights:
        _check_language_model(folder, config, a, tensors, left_out)
    return Tensors(weights, task, left_out)


def _has_tensors(tensors: Mapping[str, np.ndarray], pair: Pair) -> bool:
    return all(name in tensors for name in pair.theirs)


def load_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a directory's file or files, under the names that transformers gives them today."""
    index = folder / INDEX_NAME
    paths = _listed_in(index) if is_file(index) else [folder / FILE_NAME]
    for path in paths:
        if not is_file(path):
            message = f"{folder} has no {path.name}"
            hint = no_weights_hint(folder)
            if hint:
                message += f"; {hint}"
            raise UserError(message)
    tensors: dict[str, np.ndarray] = {}
    for path in paths:
        for name, value in read_tensors(path, _BUFFERS).items():
            tensors[_todays_name(name)] = value
    if _OLD_BIAS in tensors:
        tensors.setdefault(BERT_MLM_BIAS, tensors[_OLD_BIAS])
    return tensors


def _listed_in(index: Path) -> list[Path]:
    """The files that an index lists. Raises UserError if it lists none, or one outside of its folder."""
    files = read_json(index, "weights").get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{index}: weight_map, an object of tensors and their files, is needed, got {shown(files)}")
    outside = [name for name in files.values() if Path(name).name != name]
    if outside:
        raise UserError(f"{index} names {outside[0]!r}: only files in its own folder are read")
    return sorted({index.parent / name for name in files.values()})


def _todays_name(name: str) -> str:
    """Replaces TensorFlow's names for a norm's scale and offset by PyTorch's."""
    stem, _, last = name.rpartition(".")
    if stem.endswith(".LayerNorm") and last in _LAYER_NORM:
        return f"{stem}.{_LAYER_NORM[last]}"
    return name


def _encoder_prefix(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Prefix of the names of the encoder's tensors; None if there is no encoder."""
    for word_table, prefixes in _PREFIXES.items():
        for prefix in prefixes:
            if prefix + word_table in tensors:
                return prefix
    return None


def _expected_shapes(a: Architecture, prefix: str, modern: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of an encoder's tensors that config.json determines. Not the word table's, which may be padded."""
    hidden = a.hidden_size
    inner = a.intermediate_size
    if not modern:
        return {
            f"{prefix}embeddings.position_embeddings.weight": (a.max_position_embeddings, a.embedding_size),
            f"{prefix}embeddings.token_type_embeddings.weight": (a.type_vocab_size, a.embedding_size),
            f"{prefix}encoder.layer.0.intermediate.dense.weight": (inner, hidden),
        }
    expected: dict[str, tuple[int, ...]] = {}
    for index in range(a.num_hidden_layers):
        layer = f"{prefix}layers.{index}"
        expected[f"{layer}.attn.Wqkv.weight"] = (3 * hidden, hidden)
        expected[f"{layer}.attn.Wo.weight"] = (hidden, hidden)
        expected[f"{layer}.mlp.Wi.weight"] = (2 * inner, hidden)
        expected[f"{layer}.mlp.Wo.weight"] = (hidden, inner)
    return expected


def task_of(class_name: str, labels: list[str]) -> str | None:
    """Name of our task for a fine-tuned class; None for classes of pre-training and detectors of replaced tokens."""
    match = re.fullmatch(r"(Electra|Bert|ModernBert)For(\w+)", class_name)
    is_detector = class_name == "ModernBertForTokenClassification" and labels == DETECTION_LABELS
    if match is None or is_detector:
        return None
    return _TASKS.get(match[2])


def _possible_heads(config: Mapping[str, Any], a: Architecture) -> Iterator[tuple[str | None, list[Pair]]]:
    """Heads that a directory may have: the task (None for pre-training) and its variables.

    An older BERT may have several at once.
    """
    class_name = class_of(config)
    modern = config["model_type"] == "modernbert"
    task = task_of(class_name, labels_of(config) if modern else [])
    if not modern:
        for pretraining_class in _PRETRAINING_CLASSES:
            yield None, head(pretraining_class, a)
    elif task is None and class_name.endswith(("MaskedLM", "TokenClassification")):
        yield None, head(class_name, a)
    # Our classifiers choose exactly one label.
    is_multi_label = config.get("problem_type") == "multi_label_classification"
    if task is not None and not is_multi_label:
        yield task, head(class_name, a, f"task_specific/{task}")


def _absent_biases(config: Mapping[str, Any], a: Architecture) -> dict[str, np.ndarray]:
    """Zeros for the biases that switches of a ModernBERT turn off. Our heads always have them."""
    biases = {}
    if not config.get("classifier_bias", False):
        biases["head.dense.bias"] = np.zeros([a.hidden_size], np.float32)
    if not config.get("decoder_bias", True):
        biases["decoder.bias"] = np.zeros([a.vocab_size], np.float32)
    return biases


def _encoder_pairs(folder: Path, tensors: Mapping[str, np.ndarray], a: Architecture, modern: bool) -> list[Pair]:
    """The variables of the encoder. Raises UserError if tensors are missing or have other sizes."""
    prefix = _encoder_prefix(tensors)
    if prefix is None:
        raise UserError(f"{folder}: no encoder among its tensors: {', '.join(sorted(tensors)[:5])} ...")
    pairs = encoder(a, prefix, modern)
    missing = [pair.ours for pair in pairs if not _has_tensors(tensors, pair)]
    if missing:
        raise UserError(f"{folder}: tensors are missing for {', '.join(missing[:5])}")
    for name, shape in _expected_shapes(a, prefix, modern).items():
        if name in tensors and tensors[name].shape != shape:
            raise UserError(f"{folder}: {name} is {tensors[name].shape}, but by config.json it is {shape}")
    return pairs


def _to_ours(folder: Path, pair: Pair, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    try:
        return pair.to_ours(tensors)
    except (ValueError, IndexError):
        theirs = ", ".join(f"{name} {tensors[name].shape}" for name in pair.theirs)
        raise UserError(f"{folder}: the shapes of {theirs} make no {pair.ours}") from None


def _check_language_model(
    folder: Path, config: Mapping[str, Any], a: Architecture, tensors: Mapping[str, np.ndarray], left_out: list[str]
) -> None:
    """Raises UserError for a masked language model whose head computes something else than ours."""
    untied = [name for name in left_out if name in _TIED]
    if untied and config.get("tie_word_embeddings", True) is False:
        raise UserError(
            f"{folder}: {untied[0]} is an output table of its own (tie_word_embeddings false), which our networks have "
            "in ModernBERT's architecture only"
        )
    if "generator_lm_head.bias" in tensors and a.hidden_act != "gelu":
        raise UserError(
            f"{folder}: the head of ElectraForMaskedLM has the activation gelu, its layers {a.hidden_act} "
            "(hidden_act): our networks have one for both"
        )


def _is_tied_copy(name: str, tensors: Mapping[str, np.ndarray]) -> bool:
    """True for a tensor that equals the one to which transformers ties it."""
    for original in _TIED.get(name, ()):
        if original in tensors:
            return np.array_equal(tensors[name], tensors[original])
    return False
