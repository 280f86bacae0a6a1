"""Configuration and tokenizer of a Hugging Face directory of ELECTRA, BERT or ModernBERT, as our hparams, and back.

Both sides must mean the same function: what the other cannot express is refused with the reason, never approximated.
`FIELDS` says which of their fields is which of ours, for both ways. Of ModernBERT, transformers 5 writes `layer_types`
and, for each of them, `rope_parameters`; older versions write `global_attn_every_n_layers`, `global_rope_theta` and
`local_rope_theta`. Both are read, and both written. Imports neither TensorFlow nor numpy: formats.readers asks here for
configurations.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.config.hparams import checked
from electra_tf2.corpus.vocabulary import (
    SPECIAL_TOKENS,
    TOKENIZER_FILE,
    SpecialIds,
    added_tokens,
    is_wordpiece,
    load_tokens,
)
from electra_tf2.files.reading import field, read_json, typed
from electra_tf2.formats import ELSEWHERE
from electra_tf2.model.architecture import PRESETS, Architecture
from electra_tf2.util.errors import UserError, shown

# Fields that have one name in their configurations and in ours (Architecture).
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
          "max_position_embeddings", "initializer_range")  # fmt: skip
_OF_BERT = ("type_vocab_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob")
_OF_MODERNBERT = ("norm_eps", "norm_bias", "attention_bias", "mlp_bias", "tie_word_embeddings", "local_attention",
                  "global_attn_every_n_layers", "local_rope_theta")  # fmt: skip
_BERT = {name: name for name in (*_SIZES, *_OF_BERT)} | {"layer_norm_eps": "norm_eps"}
FIELDS = {  # model_type -> name there -> name here
    "electra": _BERT | {"embedding_size": "embedding_size"},
    "bert": _BERT,
    "modernbert": {name: name for name in (*_SIZES, *_OF_MODERNBERT)}
    | {"hidden_activation": "hidden_act", "attention_dropout": "attention_probs_dropout_prob"}
    | dict.fromkeys(("embedding_dropout", "mlp_dropout"), "hidden_dropout_prob")
    | {"global_rope_theta": "rope_theta"},
}
# Defaults of transformers' configuration classes; what is in none is ours where they do not say it.
_BOTH = {"vocab_size": 30522, "num_hidden_layers": 12, "max_position_embeddings": 512, "type_vocab_size": 2}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "electra": _BOTH | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "bert": _BOTH | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "modernbert": {
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "hidden_activation": "gelu",
        "global_rope_theta": PRESETS["modernbert"]["rope_theta"],
        **dict.fromkeys(("embedding_dropout", "mlp_dropout", "attention_dropout"), 0.0),
        **{name: PRESETS["modernbert"][name] for name in _OF_MODERNBERT if name in PRESETS["modernbert"]},
    },
}
# Fields whose values all networks of ours have.
_MUST_BE = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
# Switches of ours of which programs that know one architecture have its preset alone.
_SWITCHES = {
    "bert": ("relative_positions", "norm_style", "embedding_norm", "norm_bias", "norm_eps", "attention_bias",
             "mlp_bias", "gated_mlp", "share_layers", "local_attention"),
    "modernbert": ("norm_style", "first_norm", "embedding_norm", "gated_mlp", "type_vocab_size", "relative_positions",
                   "share_layers"),
}  # fmt: skip
_MOST_LAYERS = 1000  # more would be listed one by one before a tensor is missed
_FULL, _SLIDING = "full_attention", "sliding_attention"
# That divide text as BERT's does; of others whose names end in BertTokenizer (RemBert) some do not.
_TOKENIZERS = r"(Electra|Bert|ConvBert|DistilBert|MobileBert|RetriBert|SqueezeBert|VisualBert)Tokenizer(Fast)?"


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
    where, kind = f"{folder}/config.json", config["model_type"]
    if kind not in [*FIELDS]:  # which may be of any type
        raise UserError(f"{where}: model_type is {kind!r}; only {', '.join(FIELDS)} networks can be read")
    config, problems = _in_older_words(config) if kind == "modernbert" else (config, [])
    values = _DEFAULTS[kind] | {name: config[name] for name in FIELDS[kind] if name in config}
    problems += [problem for name, value in values.items() if (problem := _problem(name, FIELDS[kind][name], value))]
    if not problems and values["num_hidden_layers"] > _MOST_LAYERS:
        problems.append(f"num_hidden_layers {values['num_hidden_layers']} ({_MOST_LAYERS} at most)")
    must_be = {"classifier_activation": values["hidden_activation"]} if kind == "modernbert" else _MUST_BE
    others = [name for name, value in must_be.items() if config.get(name) not in (None, value)]
    problems += [f"{name} {shown(config[name])} ({must_be[name]} only)" for name in others]
    if problems:
        raise UserError(f"{where} is of a network that ours cannot be: {'; '.join(problems)}")
    overrides = {ours: values[name] for name, ours in FIELDS[kind].items() if name in values}
    if kind == "modernbert":
        overrides["architecture"] = "modernbert"
        overrides["hidden_dropout_prob"] = max(values["embedding_dropout"], values["mlp_dropout"])
        if overrides["global_attn_every_n_layers"] == 1:
            overrides["local_attention"] = 0
    tokens, hidden, rows = len(tokens_in(folder)), values["hidden_size"], overrides.pop("vocab_size")
    if tokens > rows:
        raise UserError(f"{folder}: the vocabulary has {tokens} tokens, but vocab_size is {rows}")
    return {
        "model_size": "large" if hidden >= 1024 else "base" if hidden >= 768 else "small",
        "embedding_size": overrides.pop("embedding_size", hidden),
        "model_hparam_overrides": overrides,
        "vocab_size": tokens,
    }


def _problem(name: str, ours: str, value: object) -> str:
    """The problem with a value by the limits of our field; "": nothing."""
    try:
        checked(Architecture, {ours: value})
    except UserError as error:
        return str(error).removeprefix("hparams: ").replace(ours, name, 1)
    return ""


def _in_older_words(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """ModernBERT's layer_types and rope_parameters said as older versions do, and what cannot be said so."""
    found, problems = {"classifier_activation": "gelu"} | dict(config), []
    types, layers = config.get("layer_types"), config.get("num_hidden_layers", 22)
    if types is not None:
        full = [number for number, kind in enumerate(types) if kind == _FULL] if isinstance(types, list) else []
        found["global_attn_every_n_layers"] = period = full[1] if len(full) > 1 else layers
        if not isinstance(types, list) or len(types) != layers or types != _layer_types(len(types), period):
            wanted = f"one for each of the {layers} layers, {_FULL} in layers 0, n, 2n, ... and {_SLIDING} in others"
            problems.append(f"layer_types {shown(types)} ({wanted})")
    if config.get("rope_scaling"):
        problems.append(f"rope_scaling {shown(config['rope_scaling'])}")
    parameters = config.get("rope_parameters") or {}
    for kind, name in ((_FULL, "global_rope_theta"), (_SLIDING, "local_rope_theta")):
        of_kind = parameters.get(kind) or {} if isinstance(parameters, dict) else parameters
        if not isinstance(of_kind, dict) or of_kind.get("rope_type", "default") != "default":
            problems.append(f"rope_parameters of {kind} {shown(of_kind)} (rope_type default only)")
        elif "rope_theta" in of_kind:
            found[name] = of_kind["rope_theta"]
    window = config.get("local_attention", 128)
    if type(window) is int and window < 1:
        problems.append(f"local_attention {window} (1 or more)")
    return found, problems


def _layer_types(layers: int, period: int) -> list[str]:
    return [_SLIDING if layer % period else _FULL for layer in range(layers)]


def _added_tokens(slow: dict[str, Any], fast: dict[str, Any], added: dict[str, Any]) -> list[str]:
    """Tokens that transformers finds in a text before it is divided into words, but for BERT's own."""
    found = list(added) + list(slow.get("never_split") or [])
    for entry in (slow.get("added_tokens_decoder") or {}).values():
        found.append(entry.get("content"))
    for entry in [*(fast.get("added_tokens") or []), *(slow.get("additional_special_tokens") or [])]:
        found.append(entry.get("content") if isinstance(entry, dict) else entry)
    own = {slow.get(f"{name}_token") for name in SpecialIds._fields if isinstance(slow.get(f"{name}_token"), str)}
    return sorted({str(token) for token in found} - {*SPECIAL_TOKENS} - own)


_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_POOLINGS = {"cls_token": "cls", "mean_tokens": "mean"}


def pooling_in(folder: Path) -> str:
    """How sentence-transformers makes a vector of the states of a folder's encoder, as its modules say; "" where the
    folder is none of that program's.

    Raises:
      UserError: names the module, pooling or prompt that would be left out.
    """
    modules = folder / "modules.json"
    if not modules.is_file():
        return ""
    pooling = "mean"
    for module in read_json(modules, "modules", list):
        kind = field(module, "type", str, str(modules)).rpartition(".")[2]
        path = folder / field(module, "path", str, str(modules))
        if kind == "Pooling":
            pooling = _pooling_of_module(path / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise UserError(f"{modules}: a module of the kind {kind} is not read ({path}), so vectors would be others")
    said = folder / "config_sentence_transformers.json"
    if said.is_file():
        config = read_json(said, "configuration")
        name = config.get("default_prompt_name")
        if name and (config.get("prompts") or {}).get(name):
            raise UserError(
                f"{said}: the prompt {shown(name)} before every text is not read, so vectors would be others"
            )
    return pooling


def _pooling_of_module(path: Path) -> str:
    config = read_json(path, "pooling")
    modes = [mode for mode in _MODES if config.get(f"pooling_mode_{mode}")]
    if "pooling_mode" in config:  # of newer versions
        modes = [{"cls": "cls_token", "mean": "mean_tokens"}.get(config["pooling_mode"], str(config["pooling_mode"]))]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UserError(f"{path}: pooling by {' and '.join(modes) or 'nothing'} is not read, by mean or cls alone")
    return _POOLINGS[modes[0]]


def longest_in(folder: Path) -> int | None:
    """The length at which sentence-transformers cuts texts, as the folder says."""
    path = folder / "sentence_bert_config.json"
    longest = read_json(path, "configuration").get("max_seq_length") if path.is_file() else None
    return longest if type(longest) is int and longest > 2 else None


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
    added = _added_tokens(slow, fast, _json(folder / "added_tokens.json"))
    if added:
        problems.append(f"tokens beside the vocabulary's that stand for themselves in text: {shown(added)}")
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


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, "tokenizer") if path.is_file() else {}


def config_json(a: Architecture, model_type: str, class_name: str) -> dict[str, Any]:
    """Makes the config.json of a network of ours, without the ids of special tokens.

    Args:
      model_type: one of `FIELDS`; "bert" needs embeddings as wide as the layers.
      class_name: the architecture that transformers instantiates.

    Raises:
      UserError: names every part that Hugging Face's classes do not have.
    """
    modern = model_type == "modernbert"
    problems = export_problems(a, "modernbert") if modern else export_problems(a, but=("norm_eps",))
    if model_type == "bert" and a.embedding_size != a.hidden_size:
        problems.append(f"embeddings narrower than its layers ({class_name})")
    if problems:
        raise UserError(f"Hugging Face's {model_type} classes have no {'; no '.join(problems)}: {ELSEWHERE}")
    config: dict[str, Any] = {"architectures": [class_name], "model_type": model_type}
    config |= {name: getattr(a, ours) for name, ours in FIELDS[model_type].items()}
    if not modern:
        config |= {"position_embedding_type": "absolute", "tie_word_embeddings": True}
        return config | {"type_vocab_size": a.type_vocab_size or 2}  # written as zeros
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
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
    }


def export_problems(a: Architecture, like: str = "bert", but: Sequence[str] = ()) -> list[str]:
    """Switches of this network that programs have not which know one architecture: the original, tf-models, and Hugging
    Face's classes.

    Args:
      like: "bert" or "modernbert".
      but: switches that may be as they like.
    """
    wanted = {field.name: field.default for field in dataclasses.fields(Architecture)} | PRESETS[like]
    others = [name for name in _SWITCHES[like] if name not in but and getattr(a, name) != wanted[name]]
    return [f"{name} {getattr(a, name)} ({wanted[name]} only)" for name in others]


def is_like_modernbert(a: Architecture) -> bool:
    """True for a network that is nearer to ModernBERT than to BERT."""
    return a.gated_mlp or a.architecture == "modernbert"
