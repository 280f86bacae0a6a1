"""Translates the config.json of ELECTRA, BERT and ModernBERT for transformers to our hparams, and back.

A network that the other side cannot express is refused with the reason, never approximated. `FIELDS` is the table of
fields for both directions.

For ModernBERT, transformers 5 writes `layer_types` and `rope_parameters`. Older versions write
`global_attn_every_n_layers`, `global_rope_theta` and `local_rope_theta`. Either is read, and both are written.

Imports neither TensorFlow nor numpy, because configurations are read before these are imported.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import checked
from electra_tf2.files.reading import typed
from electra_tf2.formats import ANY_NETWORK_HINT
from electra_tf2.formats.huggingface_tokenizer import tokens_in
from electra_tf2.formats.stored_model import size_of_width
from electra_tf2.model.architecture import PRESETS, Architecture
from electra_tf2.util.errors import UserError, shown

# Fields with the same name in config.json and in our Architecture.
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "initializer_range",
)
_BERT_FIELDS = ("type_vocab_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob")
_MODERNBERT_FIELDS = (
    "norm_eps",
    "norm_bias",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "local_attention",
    "global_attn_every_n_layers",
    "local_rope_theta",
)
_BERT = {name: name for name in (*_SIZES, *_BERT_FIELDS)} | {"layer_norm_eps": "norm_eps"}
_MODERNBERT = {name: name for name in (*_SIZES, *_MODERNBERT_FIELDS)} | {
    "hidden_activation": "hidden_act",
    "attention_dropout": "attention_probs_dropout_prob",
    "embedding_dropout": "hidden_dropout_prob",
    "mlp_dropout": "hidden_dropout_prob",
    "global_rope_theta": "rope_theta",
}
FIELDS = {  # model_type -> name in config.json -> name in Architecture
    "electra": _BERT | {"embedding_size": "embedding_size"},
    "bert": _BERT,
    "modernbert": _MODERNBERT,
}
# Defaults of transformers' configuration classes, for fields that a config.json lacks. Others have our default.
_BERT_DEFAULTS = {"vocab_size": 30522, "num_hidden_layers": 12, "max_position_embeddings": 512, "type_vocab_size": 2}
_MODERNBERT_PRESET = PRESETS["modernbert"]
_DEFAULTS: dict[str, dict[str, Any]] = {
    "electra": _BERT_DEFAULTS
    | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "bert": _BERT_DEFAULTS | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "modernbert": {name: _MODERNBERT_PRESET[name] for name in _MODERNBERT_FIELDS if name in _MODERNBERT_PRESET}
    | {
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu",
        "global_rope_theta": _MODERNBERT_PRESET["rope_theta"],
        "embedding_dropout": 0.0,
        "mlp_dropout": 0.0,
        "attention_dropout": 0.0,
    },
}
# Fields that may have one value only, since all our networks have it.
_REQUIRED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
# Our switches that a program for one architecture does not have. It can hold networks with the preset's values.
_SWITCHES = {
    "bert": (
        "relative_positions",
        "norm_style",
        "embedding_norm",
        "norm_bias",
        "norm_eps",
        "attention_bias",
        "mlp_bias",
        "gated_mlp",
        "share_layers",
        "local_attention",
    ),
    "modernbert": (
        "norm_style",
        "first_norm",
        "embedding_norm",
        "gated_mlp",
        "type_vocab_size",
        "relative_positions",
        "share_layers",
    ),
}
_MOST_LAYERS = 1000  # a nonsense number would make a table of that many layers before the first is found missing
_FULL = "full_attention"
_SLIDING = "sliding_attention"


# Reading.


def is_huggingface(config: Mapping[str, Any]) -> bool:
    """True for a config.json of Hugging Face; ours have no `model_type`."""
    return "model_type" in config


def network_of(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Converts a config.json to model_size, model_hparam_overrides, embedding_size and vocab_size.

    Raises:
      UserError: names everything in it that our networks do not have.
    """
    where = f"{folder}/config.json"
    model_type = config["model_type"]
    if not isinstance(model_type, str) or model_type not in FIELDS:
        raise UserError(f"{where}: model_type is {model_type!r}; only {', '.join(FIELDS)} networks can be read")
    modern = model_type == "modernbert"
    problems: list[str] = []
    if modern:
        config, problems = _with_older_fields(config)
    fields = FIELDS[model_type]
    values = _DEFAULTS[model_type] | {name: config[name] for name in fields if name in config}
    for name, value in values.items():
        problem = _problem(name, fields[name], value)
        if problem:
            problems.append(problem)
    if not problems and values["num_hidden_layers"] > _MOST_LAYERS:
        problems.append(f"num_hidden_layers {values['num_hidden_layers']} ({_MOST_LAYERS} at most)")
    required = {"classifier_activation": values["hidden_activation"]} if modern else _REQUIRED
    for name, value in required.items():
        if config.get(name) not in (None, value):
            problems.append(f"{name} {shown(config[name])} ({value} only)")
    if problems:
        raise UserError(f"{where} is of a network that ours cannot be: {'; '.join(problems)}")
    overrides = {ours: values[name] for name, ours in fields.items() if name in values}
    if modern:
        overrides["architecture"] = "modernbert"
        # ModernBERT has a dropout rate for embeddings and one for feed-forward networks. We have one for both.
        overrides["hidden_dropout_prob"] = max(values["embedding_dropout"], values["mlp_dropout"])
        if overrides["global_attn_every_n_layers"] == 1:  # every layer attends to all tokens
            overrides["local_attention"] = 0
    hidden = values["hidden_size"]
    tokens = len(tokens_in(folder))
    table_rows = overrides.pop("vocab_size")  # may be padded
    if tokens > table_rows:
        raise UserError(f"{folder}: the vocabulary has {tokens} tokens, but vocab_size is {table_rows}")
    return {
        "model_size": size_of_width(hidden),
        "embedding_size": overrides.pop("embedding_size", hidden),
        "model_hparam_overrides": overrides,
        "vocab_size": tokens,
    }


def _problem(name: str, ours: str, value: object) -> str:
    """Describes why our Architecture's field `ours` cannot have a value; "" if it can."""
    try:
        checked(Architecture, {ours: value})
    except UserError as error:
        return str(error).removeprefix("hparams: ").replace(ours, name, 1)
    return ""


def _with_older_fields(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Adds the fields of older versions for ModernBERT's layer_types and rope_parameters.

    Returns:
      The configuration, and a list of what the older fields cannot express.
    """
    older = {"classifier_activation": "gelu"} | dict(config)
    problems = []
    layers = config.get("num_hidden_layers", 22)
    types = config.get("layer_types")
    if types is not None:
        full_layers = []
        if isinstance(types, list):
            full_layers = [index for index, layer_type in enumerate(types) if layer_type == _FULL]
        # The first layer has full attention, so the second such layer tells the period.
        period = full_layers[1] if len(full_layers) > 1 else layers
        older["global_attn_every_n_layers"] = period
        if not isinstance(types, list) or len(types) != layers or types != _layer_types(len(types), period):
            wanted = f"one for each of the {layers} layers, {_FULL} in layers 0, n, 2n, ... and {_SLIDING} in others"
            problems.append(f"layer_types {shown(types)} ({wanted})")
    if config.get("rope_scaling"):
        problems.append(f"rope_scaling {shown(config['rope_scaling'])}")
    parameters = config.get("rope_parameters") or {}
    for layer_type, name in ((_FULL, "global_rope_theta"), (_SLIDING, "local_rope_theta")):
        rope = parameters  # if it is no object, it is refused below
        if isinstance(parameters, dict):
            rope = parameters.get(layer_type) or {}
        if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default":
            problems.append(f"rope_parameters of {layer_type} {shown(rope)} (rope_type default only)")
        elif "rope_theta" in rope:
            older[name] = rope["rope_theta"]
    window = config.get("local_attention", 128)
    if type(window) is int and window < 1:
        problems.append(f"local_attention {window} (1 or more)")
    return older, problems


def _layer_types(layers: int, period: int) -> list[str]:
    return [_SLIDING if layer % period else _FULL for layer in range(layers)]


def class_of(config: Mapping[str, Any]) -> str:
    """The class of transformers in a config.json; "" if it has none.

    Raises:
      UserError: `architectures` is no list of names.
    """
    names = typed(config.get("architectures") or [""], list, "config.json: architectures")
    return typed(names[0], str, "config.json: architectures")


def labels_of(config: Mapping[str, Any]) -> list[str]:
    """Labels of a classifier or tagger, in the order of their ids.

    Raises:
      UserError: `id2label` is no object of ids and labels.
    """
    labels = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # the default of transformers
    # JSON has no integer keys, so ids are texts. Longer ones than nine digits are no ids of classes.
    if not isinstance(labels, dict) or not all(key.isdecimal() and len(key) < 10 for key in labels):
        raise UserError(f"config.json: id2label must be an object of numbers and labels, got {shown(labels)}")
    ids = sorted(map(int, labels))
    if ids != list(range(len(labels))) or not all(isinstance(label, str) for label in labels.values()):
        raise UserError(
            f"config.json: id2label must name the classes 0 to {len(labels) - 1} by texts, got {shown(labels)}"
        )
    return [labels[key] for key in sorted(labels, key=int)]


# Writing.


def config_json(a: Architecture, model_type: str, class_name: str) -> dict[str, Any]:
    """Makes the config.json for one of our networks, without the ids of special tokens.

    Args:
      model_type: one of `FIELDS`; "bert" needs embeddings as wide as the layers.
      class_name: the class that transformers instantiates.

    Raises:
      UserError: names every part that Hugging Face's classes do not have.
    """
    modern = model_type == "modernbert"
    if modern:
        problems = export_problems(a, "modernbert")
    else:
        problems = export_problems(a, exempt=("norm_eps",))
    if model_type == "bert" and a.embedding_size != a.hidden_size:
        problems.append(f"embeddings narrower than its layers ({class_name})")
    if problems:
        raise UserError(f"Hugging Face's {model_type} classes have no {'; no '.join(problems)}: {ANY_NETWORK_HINT}")
    config: dict[str, Any] = {"architectures": [class_name], "model_type": model_type}
    config |= {name: getattr(a, ours) for name, ours in FIELDS[model_type].items()}
    if not modern:
        config |= {"position_embedding_type": "absolute", "tie_word_embeddings": True}
        # A network of ours without segments is written with embeddings of zero for two.
        return config | {"type_vocab_size": a.type_vocab_size or 2}
    period = a.global_attn_every_n_layers if a.local_attention else 1
    thetas = {_FULL: a.rope_theta, _SLIDING: a.local_rope_theta or a.rope_theta}
    return config | {
        "classifier_activation": a.hidden_act,
        "classifier_bias": False,
        "decoder_bias": True,
        "local_attention": a.local_attention or 128,
        "global_attn_every_n_layers": period,
        "layer_types": _layer_types(a.num_hidden_layers, period),
        "local_rope_theta": thetas[_SLIDING],
        "rope_parameters": {
            layer_type: {"rope_type": "default", "rope_theta": theta} for layer_type, theta in thetas.items()
        },
    }


def export_problems(a: Architecture, target: str = "bert", exempt: Sequence[str] = ()) -> list[str]:
    """Lists what a network has and a program for one architecture (the original, tf-models, Hugging Face) has not.

    Args:
      target: the program's architecture, "bert" or "modernbert".
      exempt: switches that may have any value.
    """
    expected = {field.name: field.default for field in dataclasses.fields(Architecture)} | PRESETS[target]
    problems = []
    for name in _SWITCHES[target]:
        value = getattr(a, name)
        if name not in exempt and value != expected[name]:
            problems.append(f"{name} {value} ({expected[name]} only)")
    return problems


def is_like_modernbert(a: Architecture) -> bool:
    """True for a network that is nearer to ModernBERT than to BERT."""
    return a.gated_mlp or a.architecture == "modernbert"
