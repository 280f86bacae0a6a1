"""Models made of stored ones: with the generator of another directory, without a generator, without shared layers."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from electra_tf2.formats.stored_model import MASKED_LM, StoredModel
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np

_OF_GENERATORS = ("generator", "cloze_predictions/")  # begin the names of their variables


def with_generator(model: StoredModel, generator: StoredModel) -> StoredModel:
    """Joins a discriminator and the masked language model of another directory, its generator.

    The generator keeps its own embeddings, so those of the main network stay as they are.

    Args:
      generator: a described model (`inference.configured.described`).

    Raises:
      UserError: the other has no masked language model, or another vocabulary.
    """
    if f"{MASKED_LM}/output_bias" not in generator.weights:
        raise UserError(f"{generator.origin} has no masked language model, so it is no generator")
    if generator.tokens != model.tokens:
        raise UserError(f"{model.origin} and {generator.origin} have different vocabularies")
    if any(name.startswith("generator/") for name in generator.weights):  # an ELECTRA, of which the generator is taken
        network = "generator/"
        sizes = generator.generator_sizes
    else:
        network = "electra/"
        sizes = generator.architecture
    weights = dict(model.weights)
    # Embeddings first: a generator with tables of its own puts these in the place of the shared ones.
    weights |= _renamed(generator.weights, "electra/embeddings/", "generator/embeddings/")
    weights |= _renamed(generator.weights, network, "generator/")
    weights |= _renamed(generator.weights, MASKED_LM, MASKED_LM)
    return model.changed(weights=weights, generator_sizes=sizes)


def _renamed(weights: "Mapping[str, np.ndarray]", theirs: str, ours: str) -> "dict[str, np.ndarray]":
    """The weights whose names begin with `theirs`, under names that begin with `ours`."""
    return {name.replace(theirs, ours, 1): weights[name] for name in weights if name.startswith(theirs)}


def without_generator(model: StoredModel) -> StoredModel:
    """The main network with its heads: what fine-tuning starts from.

    Raises:
      UserError: the model has no generator beside its main network.
    """
    if not model.has_generator:
        raise UserError(f"{model.origin} has no generator that could be left out")
    weights = {name: value for name, value in model.weights.items() if not name.startswith(_OF_GENERATORS)}
    return model.changed(weights=weights)


def with_own_layers(model: StoredModel) -> StoredModel:
    """Writes shared weights out for each layer, for formats that have no shared layers: the same function.

    Args:
      model: a described one (`inference.configured.described`).
    """
    if model.architecture.share_layers == "none":
        return model
    generator = model.generator_sizes
    assert generator is not None, "described"
    weights = written_out(model.weights, model.architecture, "electra")
    for scope in ("generator", "generator_ltr", "generator_rtl"):
        weights = written_out(weights, generator, scope)
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


def written_out(weights: "Mapping[str, np.ndarray]", architecture: Architecture, scope: str) -> "dict[str, np.ndarray]":
    """Copies the weights that layers of an encoder share to every layer's own name."""
    start = f"{scope}/encoder/layer_"
    result = {name: value for name, value in weights.items() if not name.startswith(start)}
    for part, beginnings in (("attention", ("attention/",)), ("ffn", ("intermediate/", "output/"))):
        for layer, owner in enumerate(architecture.shared_with(part)):  # whose name the shared weights have
            owners_name = f"{start}{owner}/"
            for name, value in weights.items():
                within = name.removeprefix(owners_name)
                if name.startswith(owners_name) and within.startswith(beginnings):
                    result[f"{start}{layer}/{within}"] = value
    return result
