"""Models made of stored ones: with the generator of another directory, without a generator, without shared layers.

Models with a generator of their own or with shared layers must come from `inference.model_config.with_config`.
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from electra_tf2.formats.stored_model import MASKED_LM, StoredModel
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np

_GENERATOR_SCOPES = ("generator", "cloze_predictions/")  # names of a generator's variables begin so
# Parts of a layer whose weights may be shared -> beginnings of their variables' names within the layer.
_SHARED_PARTS = {"attention": ("attention/",), "ffn": ("intermediate/", "output/")}


def with_generator(model: StoredModel, generator: StoredModel) -> StoredModel:
    """Joins a discriminator with its generator, the masked language model of another directory.

    The generator keeps its own embeddings, so those of the main network do not change.

    Raises:
      UserError: `generator` has no masked language model, or another vocabulary.
    """
    if f"{MASKED_LM}/output_bias" not in generator.weights:
        raise UserError(f"{generator.origin} has no masked language model, so it is no generator")
    if generator.tokens != model.tokens:
        raise UserError(f"{model.origin} and {generator.origin} have different vocabularies")
    if any(name.startswith("generator/") for name in generator.weights):  # a whole ELECTRA: only its generator is used
        network = "generator/"
        sizes = generator.generator_sizes
    else:
        network = "electra/"
        sizes = generator.architecture
    weights = dict(model.weights)
    # First the tables that an ELECTRA's generator shares with its main network; tables of its own then replace them.
    weights |= _renamed(generator.weights, "electra/embeddings/", "generator/embeddings/")
    weights |= _renamed(generator.weights, network, "generator/")
    weights |= _renamed(generator.weights, MASKED_LM, MASKED_LM)
    return model.changed(weights=weights, generator_sizes=sizes)


def _renamed(weights: "Mapping[str, np.ndarray]", scope: str, new_scope: str) -> "dict[str, np.ndarray]":
    """The weights whose names begin with `scope`, under names that begin with `new_scope`."""
    renamed = {}
    for name, value in weights.items():
        if name.startswith(scope):
            renamed[name.replace(scope, new_scope, 1)] = value
    return renamed


def without_generator(model: StoredModel) -> StoredModel:
    """The main network with its heads, from which fine-tuning starts.

    Raises:
      UserError: the model has no generator beside its main network.
    """
    if not model.has_generator:
        raise UserError(f"{model.origin} has no generator that could be left out")
    weights = {name: value for name, value in model.weights.items() if not name.startswith(_GENERATOR_SCOPES)}
    return model.changed(weights=weights)


def with_unshared_layers(model: StoredModel) -> StoredModel:
    """The same network with a copy of shared weights in every layer, for formats that cannot share layers."""
    if model.architecture.share_layers == "none":
        return model
    generator = model.generator_sizes
    assert generator is not None, "set by with_config"
    weights = unshared(model.weights, model.architecture, "electra")
    for scope in ("generator", "generator_ltr", "generator_rtl"):
        weights = unshared(weights, generator, scope)
    hparams = copy.deepcopy(model.hparams)
    hparams["model_hparam_overrides"]["share_layers"] = "none"
    resolved = copy.deepcopy(model.resolved_hparams)
    resolved["model_hparam_overrides"]["share_layers"] = "none"
    return model.changed(
        hparams=hparams,
        resolved_hparams=resolved,
        weights=weights,
        generator_sizes=dataclasses.replace(generator, share_layers="none"),
    )


def unshared(weights: "Mapping[str, np.ndarray]", architecture: Architecture, scope: str) -> "dict[str, np.ndarray]":
    """The weights with a copy for every layer of what an encoder's layers share.

    Args:
      architecture: of the encoder. scope: first part of its variables' names.
    """
    layer_prefix = f"{scope}/encoder/layer_"
    result = {name: value for name, value in weights.items() if not name.startswith(layer_prefix)}
    for part, beginnings in _SHARED_PARTS.items():
        # The owner is the layer under whose name the shared weights are stored.
        for layer, owner in enumerate(architecture.shared_with(part)):
            owner_prefix = f"{layer_prefix}{owner}/"
            for name, value in weights.items():
                name_in_layer = name.removeprefix(owner_prefix)
                if name.startswith(owner_prefix) and name_in_layer.startswith(beginnings):
                    result[f"{layer_prefix}{layer}/{name_in_layer}"] = value
    return result
