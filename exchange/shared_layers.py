"""A network whose layers share weights, written out as one whose layers have their own.

Hugging Face's classes, the original program and tf-models have no shared layers (`share_layers`); a network that
repeats the shared weights computes the same, so that is what they get. The way back is not taken: what is read from
them has layers of its own.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from electra_tf2.exchange.sources import Model
from electra_tf2.model.architecture import Architecture

_OWN = {"share_layers": "none"}


def with_own_layers(model: Model) -> Model:
    """The same function without shared layers; the model itself if it has none."""
    if model.architecture.share_layers == "none":
        return model
    weights = written_out(model.weights, model.architecture, "electra")
    for scope in ("generator", "generator_ltr", "generator_rtl"):
        weights = written_out(weights, model.generator_architecture, scope)
    sizes = model.config.model_hparam_overrides | _OWN
    generator = model.generator_sizes
    return model._replace(
        config=dataclasses.replace(model.config, model_hparam_overrides=sizes),
        weights=weights,
        generator_sizes=None if generator is None else dataclasses.replace(generator, share_layers="none"),
    )


def written_out(weights: Mapping[str, np.ndarray], architecture: Architecture, scope: str) -> dict[str, np.ndarray]:
    """The weights with those of every layer of an encoder under that layer's number."""
    start = f"{scope}/encoder/layer_"
    result = {name: value for name, value in weights.items() if not name.startswith(start)}
    for part, beginnings in (("attention", ("attention/",)), ("ffn", ("intermediate/", "output/"))):
        for layer, owner in enumerate(architecture.owners(part)):
            for name, value in weights.items():
                within = name.removeprefix(f"{start}{owner}/")
                if within != name and within.startswith(beginnings):
                    result[f"{start}{layer}/{within}"] = value
    return result
