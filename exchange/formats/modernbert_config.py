"""Configuration of a Hugging Face directory of ModernBERT, as our hparams, and the way back.

transformers 5 writes `layer_types` and, for each of them, `rope_parameters`; older versions write
`global_attn_every_n_layers`, `global_rope_theta` and `local_rope_theta`. Both are read, and both written. Imports
neither TensorFlow nor numpy.
"""

from collections.abc import Mapping
from typing import Any

from electra_tf2.exchange.formats import ELSEWHERE
from electra_tf2.model.architecture import PRESETS, Architecture
from electra_tf2.util.errors import UserError, shown

DEFAULTS = {
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


def overrides_of(config: Mapping[str, Any], where: str, activations: tuple[str, ...]) -> dict[str, Any]:
    """Reads model_hparam_overrides, sizes apart.

    Args:
      where: the file, for messages.
      activations: those that our networks have.

    Raises:
      UserError: names everything in it that our networks cannot do.
    """
    problems = []
    act = config.get("hidden_activation", "gelu")
    head_act = config.get("classifier_activation", "gelu")
    if act not in activations:
        problems.append(f"hidden_activation {shown(act)} (one of {', '.join(activations)})")
    elif head_act != act:
        problems.append(f"classifier_activation {shown(head_act)} beside hidden_activation {shown(act)} (they are one)")
    found: dict[str, Any] = {"architecture": "modernbert", "hidden_act": act}
    for name in _SAME:
        value = config.get(name, PRESETS["modernbert"].get(name, {"initializer_range": 0.02}.get(name, True)))
        kind = _KINDS.get(name, float)
        if (type(value) is not bool) if kind is bool else not is_positive(value):
            problems.append(f"{name} {shown(value)} ({'true or false' if kind is bool else 'a positive number'})")
        found[name] = value
    dropouts = {name: config.get(name, 0.0) for name in ("embedding_dropout", "mlp_dropout", "attention_dropout")}
    for name, rate in dropouts.items():
        if type(rate) not in (int, float) or not 0 <= rate < 1:
            problems.append(f"{name} {shown(rate)} (from 0 to below 1)")
    found["attention_probs_dropout_prob"] = dropouts.pop("attention_dropout")
    if not problems:
        found["hidden_dropout_prob"] = max(dropouts.values())
    layers, window = config.get("num_hidden_layers", DEFAULTS["num_hidden_layers"]), config.get("local_attention", 128)
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


def is_positive(value: object) -> bool:
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
    if not is_positive(found) or found <= 1:
        return theta, f"rope_theta {shown(found)} of {kind} (above 1)"
    return found, ""


def is_like(architecture: Architecture) -> bool:
    """True for a network that is nearer to ModernBERT than to BERT."""
    return architecture.gated_mlp or architecture.architecture == "modernbert"


def export_problems(architecture: Architecture) -> list[str]:
    """Parts of this network that Hugging Face's ModernBERT has not."""
    wanted = PRESETS["modernbert"]
    problems = [
        f"{name} {getattr(architecture, name)} ({wanted[name]} only)"
        for name in _FIXED
        if getattr(architecture, name) != wanted[name]
    ]
    if architecture.qk_norm:
        problems.append("norm of queries and keys (qk_norm)")
    if architecture.share_layers != "none":
        problems.append(f"weights that layers share (share_layers {architecture.share_layers})")
    return problems


def config_of(architecture: Architecture, class_name: str) -> dict[str, Any]:
    """Makes the config.json of a network of ours, without the numbers of special tokens.

    Raises:
      UserError: names every part that Hugging Face's classes do not have.
    """
    a = architecture
    problems = export_problems(a)
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
        **{name: getattr(a, name) for name in (*_SAME, *DEFAULTS)},
    }
