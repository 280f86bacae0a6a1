"""Layers that share weights (ALBERT, Lan et al. 2020, section 3.1; the hparam share_layers)."""

from collections.abc import Callable
from typing import Any

from electra_tf2.model.architecture import Architecture

# Part that layers may share -> attributes of `TransformerLayer` that belong to it.
_PARTS = {
    "attention": ("attention", "attention_norm"),
    "ffn": ("intermediate", "output_dense", "output_norm"),
}


def make_layers(make_layer: Callable[[int], Any], architecture: Architecture) -> list[Any]:
    """Makes all layers of an encoder, some of which share attention, feed-forward network, or both.

    Args:
      make_layer: index of a layer, from 0 -> a layer with weights of its own.
    """
    count = architecture.num_hidden_layers
    if architecture.share_layers == "none":
        return [make_layer(index) for index in range(count)]
    layers: dict[int, Any] = {}
    # From the uppermost down: shared weights are named after the uppermost layer that uses them.
    for index in reversed(range(count)):
        layer = make_layer(index)
        layers[index] = layer
        for part, names in _PARTS.items():
            owner = layers[architecture.shared_with(part)[index]]
            for name in names:
                if getattr(layer, name) is None:  # the first layer may have no norm before its attention
                    continue
                # Deleted first: Keras keeps a layer's parts, and so the variables, in the order of assignment.
                shared = getattr(owner, name)
                delattr(layer, name)
                setattr(layer, name, shared)
    return [layers[index] for index in range(count)]
