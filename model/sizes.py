"""Model sizes by name and the hparams that override them, of pre-training and fine-tuning; free of TensorFlow."""

import math
from collections.abc import Mapping
from typing import Any

from model.architecture import HEAD_SIZE, Architecture
from util.hparams import closest

MODEL_SIZES = {"small": (12, 256), "base": (12, 768), "large": (24, 1024)}  # layers, hidden (ELECTRA, Table 6)
OVERRIDES: dict[str, type] = {
    "hidden_size": int,
    "num_hidden_layers": int,
    "num_attention_heads": int,
    "intermediate_size": int,
    "hidden_act": str,
    "hidden_dropout_prob": float,
    "attention_probs_dropout_prob": float,
    "max_position_embeddings": int,
    "type_vocab_size": int,
    "initializer_range": float,
    "relative_positions": str,
    "relative_position_buckets": int,
    "relative_position_max_distance": int,
    "norm_style": str,
    "scaled_residual_init": bool,
}
_CHOICES = {
    "hidden_act": ("gelu", "relu", "tanh", "linear"),
    "relative_positions": ("none", "t5", "coco"),
    "norm_style": ("post", "pre"),
}
_MAY_BE_ZERO = ("type_vocab_size",)


def make_architecture(
    model_size: str, overrides: Mapping[str, Any], vocab_size: int, embedding_size: int | None
) -> Architecture:
    """The network's sizes; heads and feed-forward follow the width unless overridden."""
    layers, hidden = MODEL_SIZES[model_size]
    sizes: dict[str, Any] = {"num_hidden_layers": layers, "hidden_size": hidden} | dict(overrides)
    hidden = sizes["hidden_size"]
    sizes = {"num_attention_heads": max(1, hidden // HEAD_SIZE), "intermediate_size": 4 * hidden} | sizes
    return Architecture(vocab_size=vocab_size, embedding_size=embedding_size or hidden, **sizes)


def override_problems(overrides: Mapping[str, Any]) -> list[str]:
    """What is wrong with model_hparam_overrides; empty if nothing is."""
    problems = []
    for name, value in overrides.items():
        if name not in OVERRIDES:
            problems.append(f"unknown name in model_hparam_overrides: {name!r}{closest(name, OVERRIDES)}")
            continue
        if type(value) is not OVERRIDES[name] and (OVERRIDES[name], type(value)) != (float, int):
            problems.append(f"model_hparam_overrides: {name} must be {OVERRIDES[name].__name__}, got {value!r}")
        elif OVERRIDES[name] is int and int(value) < (least := 0 if name in _MAY_BE_ZERO else 1):
            problems.append(f"model_hparam_overrides: {name} must be at least {least}, got {value!r}")
        elif name.endswith("_prob") and not 0 <= float(value) < 1:
            problems.append(f"model_hparam_overrides: {name} must be in [0, 1), got {value!r}")
        elif name == "initializer_range" and not 0 < float(value) < math.inf:
            problems.append(f"model_hparam_overrides: {name} must be above 0, got {value!r}")
        elif name in _CHOICES and value not in _CHOICES[name]:
            problems.append(f"model_hparam_overrides: {name} is {value!r}; one of {', '.join(_CHOICES[name])}")
    return problems
