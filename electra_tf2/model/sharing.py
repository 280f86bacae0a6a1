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
    layers: dict[int, Any] = {}  # by number
    for number in reversed(range(count)):
        layer = make_layer(number)
        layers[number] = layer
        for part, names in _PARTS.items():
            owner = layers[architecture.shared_with(part)[number]]
            for name in names:
                if getattr(layer, name) is None:  # the first layer may lack the norm of its attention
                    continue
                # Deleted first, so that the order of the parts, and of their variables, stays.
                shared = getattr(owner, name)
                delattr(layer, name)
                setattr(layer, name, shared)
    return [layers[number] for number in range(count)]
