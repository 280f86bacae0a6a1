"""Layers that have weights in common (ALBERT, Lan et al. 2020, section 3.1; `share_layers`)."""

from collections.abc import Callable
from typing import Any

from electra_tf2.model.architecture import Architecture

_PARTS = {"attention": ("attention", "attention_norm"), "ffn": ("intermediate", "output_dense", "output_norm")}


def make_layers(make_layer: Callable[[int], Any], architecture: Architecture) -> list[Any]:
    """Makes all layers of an encoder, with the attention or feed-forward network, and its norm, of those they share.

    They are made from the uppermost down: weights that layers share are named by the uppermost of them.
    """
    count = architecture.num_hidden_layers
    if architecture.share_layers == "none":
        return [make_layer(number) for number in range(count)]
    made: dict[int, Any] = {}
    for number in reversed(range(count)):
        layer = made[number] = make_layer(number)
        for part, names in _PARTS.items():
            owner = made[architecture.shared_with(part)[number]]
            for name in names:
                value = getattr(owner, name)
                if getattr(layer, name) is not None:  # the first layer may lack the norm of its attention
                    delattr(layer, name)  # so that the order of the parts, and of their variables, stays
                    setattr(layer, name, value)
    return [made[number] for number in range(count)]
