"""Configuration and tokenizer of a Hugging Face directory of ELECTRA, BERT or ModernBERT, as our hparams, and back.

Both sides must mean the same function: what the other cannot express is refused with the reason, never approximated. Of
ModernBERT, transformers 5 writes `layer_types` and, for each of them, `rope_parameters`; older versions write
`global_attn_every_n_layers`, `global_rope_theta` and `local_rope_theta`. Both are read, and both written. Imports
neither TensorFlow nor numpy: formats.readers asks here for configurations.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.corpus.vocabulary import TOKENIZER_FILE, added_tokens, is_wordpiece, load_tokens
from electra_tf2.formats import ELSEWHERE
from electra_tf2.model.architecture import PRESETS, Architecture
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import read_json, typed

MODEL_TYPES = ("electra", "bert", "modernbert")
_EPSILON = 1e-12  # of layer norms, if a configuration names none: their default and ours
# Entries of model_hparam_overrides, which have the same names there.
_OVERRIDES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)
_MODERNBERT = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_THETAS = {_FULL: ("global_rope_theta", 160000.0), _SLIDING: ("local_rope_theta", 10000.0)}
_SAME = ("norm_eps", "norm_bias", "attention_bias", "mlp_bias", "tie_word_embeddings", "initializer_range")
_KINDS = {"norm_bias": bool, "attention_bias": bool, "mlp_bias": bool, "tie_word_embeddings": bool}
# Switches that Hugging Face's ModernBERT has in this position only.
_FIXED = ("norm_style", "first_norm", "embedding_norm", "gated_mlp", "type_vocab_size", "relative_positions")
# Defaults of transformers' configuration classes.
_BOTH = {"vocab_size": 30522, "num_hidden_layers": 12, "max_position_embeddings": 512, "type_vocab_size": 2}
_DEFAULTS: dict[str, dict[str, int]] = {
    "electra": _BOTH | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "bert": _BOTH | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "modernbert": _MODERNBERT,
}
# Switches of ours, of which BERT has the defaults.
_OF_BERT = ("embedding_norm", "norm_bias", "norm_eps", "attention_bias", "mlp_bias", "gated_mlp")
_MOST = {"num_hidden_layers": 1000}  # more would be listed one by one before a tensor is missed
_TOKENIZERS = r"(Electra|\w*Bert)Tokenizer(Fast)?"  # that divide text as BERT's does
_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")


class Casing(NamedTuple):
    """Normalisation of text; strip_accents None: as do_lower_case."""

    do_lower_case: bool = True
    strip_accents: bool | None = None

    @property
    def hparams(self) -> dict[str, Any]:
        """Hparams of our configurations."""
        return {"do_lower_case": self.do_lower_case, "do_strip_accents": self.strip_accents}


def is_huggingface(config: Mapping[str, Any]) -> bool:
    """True for a config.json of Hugging Face; ours have no `model_type`."""
    return "model_type" in config


def network_of(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Reads model_size, model_hparam_overrides, embedding_size and vocab_size of a Hugging Face directory.

    Raises:
      UserError: names everything in it that our networks cannot do.
    """
    where = f"{folder}/config.json"
    if config["model_type"] not in MODEL_TYPES:
        raise UserError(
            f"{where}: model_type is {config['model_type']!r}; only {', '.join(MODEL_TYPES)} networks can be read"
        )
    values = _DEFAULTS[config["model_type"]] | dict(config)
    sizes = {name: values[name] for name in _DEFAULTS[config["model_type"]]}
    wrong = [name for name, size in sizes.items() if type(size) is not int or size < (name != "type_vocab_size")]
    wrong += [name for name, most in _MOST.items() if name not in wrong and sizes[name] > most]
    if wrong:
        listed = ", ".join(f"{name} {shown(sizes[name])}" for name in wrong)
        raise UserError(f"{where}: sizes must be integers of a network that can be, but there is {listed}")
    same = [name for name in _OVERRIDES if name in values]
    if config["model_type"] == "modernbert":
        overrides = {name: values[name] for name in same if name in _MODERNBERT}
        overrides |= _modernbert_overrides(values, where)
    else:
        _check_bert(config, where)
        overrides = {name: values[name] for name in same}
        epsilon = values.get("layer_norm_eps", _EPSILON)
        overrides |= {} if epsilon == _EPSILON else {"norm_eps": epsilon}
    hidden = values["hidden_size"]
    tokens = len(tokens_in(folder))
    if tokens > values["vocab_size"]:
        raise UserError(f"{folder}: the vocabulary has {tokens} tokens, but vocab_size is {values['vocab_size']}")
    embedding = values["embedding_size"] if config["model_type"] == "electra" else hidden
    return {
        "model_size": "large" if hidden >= 1024 else "base" if hidden >= 768 else "small",
        "model_hparam_overrides": overrides,
        "embedding_size": embedding,
        "vocab_size": tokens,
    }


def _check_bert(config: Mapping[str, Any], where: str) -> None:
    """Raises UserError for what our networks have not of a network of ELECTRA or BERT."""
    problems = []
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        problems.append(f"hidden_act {activation!r} (one of {', '.join(_ACTIVATIONS)})")
    epsilon = config.get("layer_norm_eps", _EPSILON)
    if not _is_positive(epsilon):
        problems.append(f"layer_norm_eps {shown(epsilon)} (a positive number)")
    if config.get("position_embedding_type", "absolute") != "absolute":
        problems.append(f"position_embedding_type {config['position_embedding_type']!r} (absolute only)")
    for name in ("is_decoder", "add_cross_attention"):
        if config.get(name):
            problems.append(f"{name} true (encoders only)")
    if problems:
        raise UserError(f"{where}: our networks have no {'; no '.join(problems)}")


def casing_of(folder: Path) -> Casing:
    """Reads a WordPiece tokenizer's casing as transformers does.

    Tokenizer classes of BERT's kind take do_lower_case, strip_accents and tokenize_chinese_chars from
    tokenizer_config.json, or else their defaults, whatever the normalizer in tokenizer.json says; of other classes that
    normalizer stands.

    Raises:
      UserError: the text is divided into words otherwise than BERT's tokenizer does it.
    """
    fast_file, slow_file = folder / TOKENIZER_FILE, folder / "tokenizer_config.json"
    fast, slow = _json(fast_file), _json(slow_file)
    if fast and not (folder / "vocab.txt").is_file() and not is_wordpiece(fast_file):
        return Casing(False)  # its file says how text is read
    kind = typed(slow.get("tokenizer_class") or "BertTokenizer", str, f"{slow_file}: tokenizer_class")
    normalizer, words = (
        typed(fast.get(part) or {}, dict, f"{fast_file}: {part}") for part in ("normalizer", "pre_tokenizer")
    )
    problems = []
    if fast and normalizer.get("type") != "BertNormalizer":
        problems.append(f"normalizer {normalizer.get('type')}")
    if fast and words.get("type") != "BertPreTokenizer":
        problems.append(f"pre_tokenizer {words.get('type')}")
    is_berts = re.fullmatch(_TOKENIZERS, kind) is not None
    where = fast_file if problems or (fast and not is_berts) else slow_file
    if fast and not is_berts:
        casing = Casing(normalizer.get("lowercase", True), normalizer.get("strip_accents"))
        switches = {name: normalizer.get(name, True) for name in ("clean_text", "handle_chinese_chars")}
    else:
        problems += [] if is_berts else [f"tokenizer_class {kind}"]
        casing = Casing(slow.get("do_lower_case", True), slow.get("strip_accents"))
        switches = {name: slow.get(name, True) for name in ("do_basic_tokenize", "tokenize_chinese_chars")}
        switches["clean_text"] = normalizer.get("clean_text", True)
    problems += [f"{name} false" for name, on in switches.items() if not on]
    if casing.strip_accents and not casing.do_lower_case:
        problems.append("strip_accents true for text that is not lower-cased")
    if problems:
        raise UserError(f"{where}: our tokenizer is BERT's and has no {'; no '.join(problems)}")
    return casing


def class_of(config: Mapping[str, Any]) -> str:
    """The class of transformers that a config.json names; "" if none.

    Raises:
      UserError: `architectures` is no list of names.
    """
    names = typed(config.get("architectures") or [""], list, "config.json: architectures")
    return typed(names[0], str, "config.json: architectures")


def labels_of(config: Mapping[str, Any]) -> list[str]:
    """Labels of a classifier or tagger, in the order of their numbers.

    Raises:
      UserError: `id2label` is no object of numbers and labels.
    """
    named = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # the default of transformers
    if not isinstance(named, dict) or not all(number.isdecimal() and len(number) < 10 for number in named):
        raise UserError(f"config.json: id2label must be an object of numbers and labels, got {shown(named)}")
    if sorted(map(int, named)) != list(range(len(named))) or not all(isinstance(one, str) for one in named.values()):
        raise UserError(
            f"config.json: id2label must name the classes 0 to {len(named) - 1} by texts, got {shown(named)}"
        )
    return [str(named[number]) for number in sorted(named, key=int)]


def tokens_in(folder: Path) -> list[str]:
    """Reads the vocabulary of a directory, from vocab.txt or tokenizer.json.

    Raises:
      UserError: there is none, or it is not all of a WordPiece tokenizer's.
    """
    file = tokenizer_in(folder)
    tokens = load_tokens(file)
    if is_wordpiece(file):
        added = _json(folder / "added_tokens.json") | added_tokens(_json(folder / "tokenizer.json"), folder)
        ids = {token: typed(number, int, f"{folder}: id of the added token {token}") for token, number in added.items()}
        beyond = sorted(token for token, number in ids.items() if number >= len(tokens))
        if beyond:
            raise UserError(
                f"{folder}: its tokenizer has tokens beyond the WordPiece vocabulary, which ours cannot have: "
                f"{', '.join(beyond[:5])}"
            )
    return tokens


def tokenizer_in(folder: Path) -> Path:
    """The file that a directory's vocabulary is read from: vocab.txt or, where there is none, tokenizer.json.

    Raises:
      UserError: it has neither.
    """
    files = [path for name in ("vocab.txt", TOKENIZER_FILE) if (path := folder / name).is_file()]
    if not files:
        raise UserError(f"{folder} has neither vocab.txt nor {TOKENIZER_FILE}: its vocabulary is needed")
    return files[0]


def config_json(architecture: Architecture, model_type: str, class_name: str) -> dict[str, Any]:
    """Makes the config.json of a network of ours.

    Args:
      model_type: one of `MODEL_TYPES`; "bert" needs embeddings as wide as the layers.
      class_name: the architecture that transformers instantiates.

    Raises:
      UserError: names every part that Hugging Face's classes do not have.
    """
    if model_type == "modernbert":
        return _modernbert_config(architecture, class_name)
    problems = export_problems(architecture, but=("norm_eps",))
    if model_type == "bert" and architecture.embedding_size != architecture.hidden_size:
        problems.append(f"embeddings narrower than its layers ({class_name})")
    if problems:
        raise UserError(f"Hugging Face's {model_type} classes have no {'; no '.join(problems)}: {ELSEWHERE}")
    config: dict[str, Any] = {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": architecture.vocab_size,
        "layer_norm_eps": architecture.norm_eps,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }
    config |= {name: getattr(architecture, name) for name in _OVERRIDES}
    config["type_vocab_size"] = architecture.type_vocab_size or 2  # written as zeros
    if model_type == "electra":
        config["embedding_size"] = architecture.embedding_size
    return config


def export_problems(architecture: Architecture, but: Sequence[str] = ()) -> list[str]:
    """Parts of this network that the original, Hugging Face's ELECTRA and BERT and tf-models have not.

    Args:
      but: switches that may be as they like.
    """
    problems = []
    if architecture.relative_positions != "none":
        problems.append("relative position bias (relative_positions)")
    if architecture.norm_style != "post":
        problems.append("layer norm before each branch (norm_style pre)")
    defaults = {field.name: field.default for field in dataclasses.fields(Architecture)}
    switches = {name: getattr(architecture, name) for name in _OF_BERT if name not in but}
    others = {name: value for name, value in switches.items() if value != defaults[name]}
    problems += [f"{name} {json.dumps(value)}" for name, value in others.items()]
    if architecture.share_layers != "none":  # convert_model.py writes them out (inference.configured.with_own_layers)
        problems.append(f"weights that layers share (share_layers {architecture.share_layers})")
    return problems


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, "tokenizer") if path.is_file() else {}


def _modernbert_overrides(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Reads model_hparam_overrides, sizes apart."""
    problems = []
    act = config.get("hidden_activation", "gelu")
    head_act = config.get("classifier_activation", "gelu")
    if act not in _ACTIVATIONS:
        problems.append(f"hidden_activation {shown(act)} (one of {', '.join(_ACTIVATIONS)})")
    elif head_act != act:
        problems.append(f"classifier_activation {shown(head_act)} beside hidden_activation {shown(act)} (they are one)")
    found: dict[str, Any] = {"architecture": "modernbert", "hidden_act": act}
    for name in _SAME:
        value = config.get(name, PRESETS["modernbert"].get(name, {"initializer_range": 0.02}.get(name, True)))
        kind = _KINDS.get(name, float)
        if (type(value) is not bool) if kind is bool else not _is_positive(value):
            problems.append(f"{name} {shown(value)} ({'true or false' if kind is bool else 'a positive number'})")
        found[name] = value
    dropouts = {name: config.get(name, 0.0) for name in ("embedding_dropout", "mlp_dropout", "attention_dropout")}
    for name, rate in dropouts.items():
        if type(rate) not in (int, float) or not 0 <= rate < 1:
            problems.append(f"{name} {shown(rate)} (from 0 to below 1)")
    found["attention_probs_dropout_prob"] = dropouts.pop("attention_dropout")
    if not problems:
        found["hidden_dropout_prob"] = max(dropouts.values())
    layers, window = (
        config.get("num_hidden_layers", _MODERNBERT["num_hidden_layers"]),
        config.get("local_attention", 128),
    )
    if type(window) is not int or window < 1:
        problems.append(f"local_attention {shown(window)} (a number of tokens)")
    period, problem = _period(config, layers)
    problems += [problem] if problem else []
    found |= {"local_attention": 0 if period == 1 else window, "global_attn_every_n_layers": period}
    for of_layers, name in ((_FULL, "rope_theta"), (_SLIDING, "local_rope_theta")):
        found[name], problem = _theta(config, of_layers)
        problems += [problem] if problem else []
    if problems:
        raise UserError(f"{where}: our networks have no {'; no '.join(problems)}")
    return found


def _is_positive(value: object) -> bool:
    """True for a finite number above 0."""
    return type(value) in (int, float) and 0 < value < float("inf")  # type: ignore[operator]


def _period(config: Mapping[str, Any], layers: int) -> tuple[int, str]:
    """One layer of how many sees everything, and what is wrong."""
    types = config.get("layer_types")
    if types is None:
        period = config.get("global_attn_every_n_layers", 3)
        is_period = type(period) is int and period >= 1
        return (period, "") if is_period else (1, f"global_attn_every_n_layers {shown(period)} (1 or more)")
    if not isinstance(types, list) or len(types) != layers:
        return 1, f"layer_types {shown(types)} (one for each of the {layers} layers)"
    unknown = [kind for kind in types if kind not in _THETAS]
    if unknown:
        return 1, f"layer_types with {shown(unknown[0])} ({_FULL} and {_SLIDING} only)"
    full = [number for number, kind in enumerate(types) if kind == _FULL]
    period = layers if len(full) < 2 else full[1]
    if types != _types(layers, period):
        return 1, f"layer_types with {_FULL} in layers {', '.join(map(str, full)) or 'none'} (0, n, 2n, ... only)"
    return period, ""


def _types(layers: int, period: int) -> list[str]:
    return [_SLIDING if layer % period else _FULL for layer in range(layers)]


def _theta(config: Mapping[str, Any], kind: str) -> tuple[float, str]:
    """Base of rotary's angles in layers of a type, and what is wrong."""
    old, theta = _THETAS[kind]
    scaling = config.get("rope_scaling")
    parameters = config.get("rope_parameters")
    of_kind = parameters.get(kind) if isinstance(parameters, dict) else None
    if scaling or (of_kind is not None and not isinstance(of_kind, dict)):
        return theta, f"rope_scaling {shown(scaling)}" if scaling else f"rope_parameters.{kind} {shown(of_kind)}"
    of_kind = of_kind or {}
    if of_kind.get("rope_type", "default") != "default":
        return theta, f"rope_parameters.{kind}.rope_type {shown(of_kind['rope_type'])} (default only)"
    found = of_kind.get("rope_theta", config.get(old, theta))
    if found is None:  # of local layers: that of the others
        found = config.get("global_rope_theta", _THETAS[_FULL][1])
    if not _is_positive(found) or found <= 1:
        return theta, f"rope_theta {shown(found)} of {kind} (above 1)"
    return found, ""


def is_like_modernbert(architecture: Architecture) -> bool:
    """True for a network that is nearer to ModernBERT than to BERT."""
    return architecture.gated_mlp or architecture.architecture == "modernbert"


def _modernbert_problems(architecture: Architecture) -> list[str]:
    """Parts of this network that Hugging Face's ModernBERT has not."""
    wanted = PRESETS["modernbert"]
    problems = [
        f"{name} {getattr(architecture, name)} ({wanted[name]} only)"
        for name in _FIXED
        if getattr(architecture, name) != wanted[name]
    ]
    if architecture.share_layers != "none":
        problems.append(f"weights that layers share (share_layers {architecture.share_layers})")
    return problems


def _modernbert_config(a: Architecture, class_name: str) -> dict[str, Any]:
    """`config_json` ModernBERT's classes, without the numbers of special tokens."""
    problems = _modernbert_problems(a)
    if problems:
        raise UserError(f"Hugging Face's modernbert classes have no {'; no '.join(problems)}: {ELSEWHERE}")
    period = a.global_attn_every_n_layers if a.local_attention else 1
    thetas = {_FULL: a.rope_theta, _SLIDING: a.local_rope_theta or a.rope_theta}
    return {
        "architectures": [class_name],
        "model_type": "modernbert",
        "hidden_activation": a.hidden_act,
        "classifier_activation": a.hidden_act,
        "embedding_dropout": a.hidden_dropout_prob,
        "mlp_dropout": a.hidden_dropout_prob,
        "attention_dropout": a.attention_probs_dropout_prob,
        "local_attention": a.local_attention or 128,
        "layer_types": _types(a.num_hidden_layers, period),
        "global_attn_every_n_layers": period,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
        **{_THETAS[kind][0]: theta for kind, theta in thetas.items()},
        "classifier_bias": False,
        "decoder_bias": True,
        **{name: getattr(a, name) for name in (*_SAME, *_MODERNBERT)},
    }
