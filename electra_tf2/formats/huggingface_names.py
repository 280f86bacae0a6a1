"""Tensors of Hugging Face directories: which are which of our variables, both ways, and reading them.

    config.json, model.safetensors (or several with model.safetensors.index.json), vocab.txt or tokenizer.json

Needs neither PyTorch nor transformers. Read are the networks of the classes of ELECTRA, BERT and ModernBERT, with the
heads of pre-training and those for labels, tags and answers. Poolers without such a head and next-sentence classifiers
are left out, and reported.

PyTorch keeps a dense layer's kernel transposed. ELECTRA and BERT have query, key and value apart; the two ends of an
answer are columns of one layer. ModernBERT has no factorised embeddings: ours are multiplied out, since our network
normalises the product, as theirs does its word table. Its detector of replaced tokens is a token classifier of two
labels whose logits are 0 and ours.

formats.huggingface reads and writes whole directories with it.
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
# Classes of pre-training whose heads a directory of ELECTRA's or BERT's architecture may have.
_PRETRAINING_CLASSES = ("ElectraForPreTraining", "ElectraForMaskedLM", "BertForMaskedLM")
WORDS = "embeddings.tok_embeddings.weight"  # ModernBERT's word table
# Word table of an encoder -> what may stand before its name, and so before those of all the encoder's tensors.
_PREFIXES = {"embeddings.word_embeddings.weight": ("electra.", "bert.", ""), WORDS: ("model.", "")}
_WORD_TABLES = ("electra.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight", f"model.{WORDS}")
_OLD_BIAS = "cls.predictions.decoder.bias"
_BIAS = "cls.predictions.bias"
# Tensors that transformers ties to others when it loads -> the names that the other may have.
_TIED: dict[str, tuple[str, ...]] = {
    "cls.predictions.decoder.weight": _WORD_TABLES,
    "generator_lm_head.weight": _WORD_TABLES,
    "decoder.weight": _WORD_TABLES,
    _OLD_BIAS: (_BIAS,),
}
_LAYER_NORM = {"gamma": "weight", "beta": "bias"}  # TensorFlow's names
_NETWORK = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")  # arguments of `make_architecture`
# Numbers that older versions stored beside the weights and that follow from the sizes.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_ROW_PER_TOKEN = ("/word_embeddings", "/output_bias", "/decoder")  # ends of the names of such variables
# Our task, by what follows a family's name in that of a class.
_TASKS = {"SequenceClassification": "classes", "TokenClassification": "tags", "QuestionAnswering": "answers"}
# Both dense layers of a class.
_TWO_LAYERS = {
    "ElectraForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
}


class Pair(NamedTuple):
    """A variable of ours and the tensors that hold it; several tensors make up its last axis.

    transposed: True where PyTorch keeps a dense layer's kernel transposed. column: the column of the tensor's last axis
    that is ours. two_labels: ours is one logit, theirs are the logits of two labels, of which ours is the difference.
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


def prefix_of(tensors: Mapping[str, np.ndarray]) -> str | None:
    """Prefix of the names of the encoder's tensors; None if there is no encoder."""
    for words, prefixes in _PREFIXES.items():
        for prefix in prefixes:
            if prefix + words in tensors:
                return prefix
    return None


def to_theirs(pairs: Sequence[Pair], weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Their tensors of our variables. Raises KeyError if a variable is missing."""
    tensors: dict[str, np.ndarray] = {}
    for pair in pairs:
        for name, value in pair.to_theirs(weights[pair.ours]).items():
            if name in tensors:  # both ends of an answer: columns of ours, rows of one tensor of PyTorch's
                value = np.concatenate([tensors[name], value])
            tensors[name] = value
    return tensors


def _dense(ours: str, *theirs: str, has_bias: bool = True) -> list[Pair]:
    """Kernel and bias; several of theirs are side by side in ours."""
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
    """An encoder's variables, but for ModernBERT's word table where it is factorised.

    Args:
      prefix: of their names. modern: True for ModernBERT's. scope: first part of our names.
    """
    return list(_modernbert(a, prefix, scope) if modern else _bert(a, prefix, scope))


def _bert(a: Architecture, prefix: str, scope: str) -> Iterator[Pair]:
    tables = ["word_embeddings", "position_embeddings"]
    if a.type_vocab_size:
        tables.append("token_type_embeddings")
    for table in tables:
        yield Pair(f"{scope}/embeddings/{table}", (f"{prefix}embeddings.{table}.weight",))
    yield from _norm(a, f"{scope}/embeddings/LayerNorm", f"{prefix}embeddings.LayerNorm")
    if a.embedding_size != a.hidden_size:
        yield from _dense(f"{scope}/embeddings_project", f"{prefix}embeddings_project")
    for number in range(a.num_hidden_layers):
        ours = f"{scope}/encoder/layer_{number}"
        theirs = f"{prefix}encoder.layer.{number}"
        attention = f"{theirs}.attention.self"
        yield from _dense(f"{ours}/attention/self/qkv", f"{attention}.query", f"{attention}.key", f"{attention}.value")
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
        ours = f"{scope}/encoder/layer_{number}"
        theirs = f"{prefix}layers.{number}"
        if number:  # the first layer's attention has no norm of its own
            yield from _norm(a, f"{ours}/attention/output/LayerNorm", f"{theirs}.attn_norm")
        yield from _dense(f"{ours}/attention/self/qkv", f"{theirs}.attn.Wqkv", has_bias=a.attention_bias)
        yield from _dense(f"{ours}/attention/output/dense", f"{theirs}.attn.Wo", has_bias=a.attention_bias)
        yield from _norm(a, f"{ours}/output/LayerNorm", f"{theirs}.mlp_norm")
        yield from _dense(f"{ours}/intermediate/gated", f"{theirs}.mlp.Wi", has_bias=a.mlp_bias)
        yield from _dense(f"{ours}/output/dense", f"{theirs}.mlp.Wo", has_bias=a.mlp_bias)
    yield from _norm(a, f"{scope}/encoder/LayerNorm", f"{prefix}final_norm")


def shapes(a: Architecture, prefix: str, modern: bool) -> dict[str, tuple[int, ...]]:
    """Shapes that tensors of an encoder must have; the word table may be padded."""
    hidden = a.hidden_size
    inner = a.intermediate_size
    if not modern:
        return {
            f"{prefix}embeddings.position_embeddings.weight": (a.max_position_embeddings, a.embedding_size),
            f"{prefix}embeddings.token_type_embeddings.weight": (a.type_vocab_size, a.embedding_size),
            f"{prefix}encoder.layer.0.intermediate.dense.weight": (inner, hidden),
        }
    expected: dict[str, tuple[int, ...]] = {}
    for number in range(a.num_hidden_layers):
        layer = f"{prefix}layers.{number}"
        expected[f"{layer}.attn.Wqkv.weight"] = (3 * hidden, hidden)
        expected[f"{layer}.attn.Wo.weight"] = (hidden, hidden)
        expected[f"{layer}.mlp.Wi.weight"] = (2 * inner, hidden)
        expected[f"{layer}.mlp.Wo.weight"] = (hidden, inner)
    return expected


# Heads.


def head(class_name: str, a: Architecture, scope: str = "") -> list[Pair]:
    """Variables of the head of a class.

    Args:
      scope: first part of our names; "": that of pre-training.
    """
    family, _, kind = class_name.partition("For")
    modern = family == "ModernBert"
    if not scope:
        scope = MASKED_LM if kind == "MaskedLM" else DETECTOR
    if kind == "PreTraining":
        return _dense(f"{scope}/dense", f"{scope}.dense") + _dense(f"{scope}/dense_1", f"{scope}.dense_prediction")
    if kind == "MaskedLM" and not modern:
        return _language_model(family, a, scope)
    if class_name in _TWO_LAYERS:
        inner, outer = _TWO_LAYERS[class_name]
        return _dense(f"{scope}/inner", inner) + _dense(_last_layer(scope), outer)
    pairs: list[Pair] = []
    if modern:  # has a dense layer and a norm before every last layer
        first = f"{scope}/head" if _is_of_task(scope) else scope
        pairs += _dense(f"{first}/dense", "head.dense")
        pairs += _norm(a, f"{first}/LayerNorm", "head.norm")
    if kind == "MaskedLM":
        pairs.append(Pair(f"{scope}/output_bias", ("decoder.bias",)))
        if not a.tie_word_embeddings:
            pairs.append(Pair(f"{scope}/decoder", ("decoder.weight",)))
        return pairs
    if kind == "QuestionAnswering":
        layer = "classifier" if modern else "qa_outputs"
        pairs += [pair._replace(column=0) for pair in _dense(f"{scope}/start", layer)]
        pairs += [pair._replace(column=1) for pair in _dense(f"{scope}/end", layer)]
        return pairs
    last_layer = _dense(_last_layer(scope), "classifier")
    return pairs + [pair._replace(two_labels=scope == DETECTOR) for pair in last_layer]


def _language_model(family: str, a: Architecture, scope: str) -> list[Pair]:
    """Variables of the head of an ElectraForMaskedLM or a BertForMaskedLM."""
    transform = "cls.predictions.transform"
    bias = _BIAS
    if family == "Electra":
        transform = scope
        bias = "generator_lm_head.bias"
    pairs = _dense(f"{scope}/dense", f"{transform}.dense")
    pairs += _norm(a, f"{scope}/LayerNorm", f"{transform}.LayerNorm")
    pairs.append(Pair(f"{scope}/output_bias", (bias,)))
    return pairs


def _is_of_task(scope: str) -> bool:
    return scope.startswith("task_")


def _last_layer(scope: str) -> str:
    """Name of the last layer of a head of ours, which in pre-training stands behind another dense layer."""
    return f"{scope}/dense" if _is_of_task(scope) else f"{scope}/dense_1"


def linear_as_two_layers(kernel: np.ndarray, bias: np.ndarray) -> dict[str, np.ndarray] | None:
    """Tensors of an ElectraForSequenceClassification that computes one linear layer of [CLS], though that class has a
    dense layer with gelu before its last one. None for more classes than fit.

    gelu(z) - gelu(-z) = z for every z. So the first layer computes the logits and their negatives, and the second one
    subtracts the two; this needs twice as many units as classes.
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
    """float32 [V, H], the word table of an encoder with its projection, where embeddings are factorised."""
    table = weights[f"{scope}/embeddings/word_embeddings"]
    projection = weights.get(f"{scope}/embeddings_project/kernel")
    if projection is None:
        return table
    return (table.astype(np.float64) @ projection).astype(np.float32)


def no_segments(a: Architecture) -> np.ndarray:
    """A table of segments that adds nothing, for a network of ours without segments."""
    return np.zeros([2, a.embedding_size], np.float32)


def task_of(class_name: str, labels: list[str]) -> str | None:
    """Name of the task of ours that a fine-tuned class does; None for others and for the detector."""
    match = re.fullmatch(r"(Electra|Bert|ModernBert)For(\w+)", class_name)
    is_detector = class_name == "ModernBertForTokenClassification" and labels == DETECTION_LABELS
    if match is None or is_detector:
        return None
    return _TASKS.get(match[2])


def heads_in(config: Mapping[str, Any], a: Architecture) -> Iterator[tuple[str | None, list[Pair]]]:
    """The heads that a directory may have, each with its task of ours; older BERTs may have several."""
    class_name = class_of(config)
    modern = config["model_type"] == "modernbert"
    task = task_of(class_name, labels_of(config) if modern else [])
    if not modern:
        for pretraining_class in _PRETRAINING_CLASSES:
            yield None, head(pretraining_class, a)
    elif task is None and class_name.endswith(("MaskedLM", "TokenClassification")):
        yield None, head(class_name, a)
    chooses_several = config.get("problem_type") == "multi_label_classification"  # ours choose one of the labels
    if task is not None and not chooses_several:
        yield task, head(class_name, a, f"task_specific/{task}")


# Reading.


class Tensors(NamedTuple):
    """Contents of a directory by our names.

    weights: float32 arrays, the encoder under "electra/", without the rows for tokens beyond the vocabulary that some
    releases pad tables to. task: name of the task of ours whose head it has, or None. left_out: tensors that have no
    place here.
    """

    weights: dict[str, np.ndarray]
    task: str | None
    left_out: list[str]


def read_weights(folder: Path, config: Mapping[str, Any], network: Mapping[str, Any]) -> Tensors:
    """Reads the weights of a directory.

    Args:
      config: its config.json.
      network: our hparams of its network (huggingface_config.network_of).

    Raises:
      UserError: a network with missing parts, or heads that are not ours.
    """
    modern = config["model_type"] == "modernbert"
    if config.get("id2label") is not None:
        labels_of(config)  # raises UserError for labels that are none, whatever the class
    a = make_architecture(*(network[name] for name in _NETWORK))
    stored = load_tensors(folder)
    tensors = dict(stored)
    if modern:
        tensors |= _absent_biases(config, a)
    pairs = _encoder_in(folder, tensors, a, modern)
    task = None
    for head_task, head_pairs in heads_in(config, a):
        if all(tensors.keys() >= {*pair.theirs} for pair in head_pairs):
            task = head_task
            pairs += head_pairs
    weights = {}
    for pair in pairs:
        value = _to_ours(folder, pair, tensors)
        if pair.ours.endswith(_ROW_PER_TOKEN):
            value = value[: a.vocab_size]
        weights[pair.ours] = value
    used: set[str] = set()
    for pair in pairs:
        used.update(pair.theirs)
    left_out = sorted(name for name in stored.keys() - used if not _is_copy(name, tensors))
    if f"{MASKED_LM}/output_bias" in weights:
        _check_language_model(folder, config, a, tensors, left_out)
    return Tensors(weights, task, left_out)


def _absent_biases(config: Mapping[str, Any], a: Architecture) -> dict[str, np.ndarray]:
    """Zeros for the biases that a ModernBERT's heads have not by its switches; ours have them always."""
    biases = {}
    if not config.get("classifier_bias", False):
        biases["head.dense.bias"] = np.zeros([a.hidden_size], np.float32)
    if not config.get("decoder_bias", True):
        biases["decoder.bias"] = np.zeros([a.vocab_size], np.float32)
    return biases


def _encoder_in(folder: Path, tensors: Mapping[str, np.ndarray], a: Architecture, modern: bool) -> list[Pair]:
    """The variables of the encoder. Raises UserError where its tensors are missing or have other sizes."""
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
    for original in _TIED.get(name, ()):
        if original in tensors:
            return np.array_equal(tensors[name], tensors[original])
    return False


def load_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a directory's file or files by today's names, without numbers of positions."""
    index = folder / INDEX_NAME
    paths = _listed_in(index) if is_file(index) else [folder / FILE_NAME]
    for path in paths:
        if not is_file(path):
            message = f"{folder} has no {path.name}"
            hint = what_lies_at(folder)
            if hint:
                message += f"; {hint}"
            raise UserError(message)
    tensors: dict[str, np.ndarray] = {}
    for path in paths:
        for name, value in read_tensors(path, _BUFFERS).items():
            tensors[_todays_name(name)] = value
    if _OLD_BIAS in tensors:
        tensors.setdefault(_BIAS, tensors[_OLD_BIAS])
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
    """A tensor's name with PyTorch's names of a norm's scale and offset, where TensorFlow's stand."""
    stem, _, last = name.rpartition(".")
    if stem.endswith(".LayerNorm") and last in _LAYER_NORM:
        return f"{stem}.{_LAYER_NORM[last]}"
    return name
