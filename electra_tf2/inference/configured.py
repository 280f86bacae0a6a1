"""Stored models with the configurations of their runs, and what conversions make of them.

One with another's generator, without its generator, without shared layers; and how it makes one vector of a text
(`pooling_of`).
"""

import copy
import dataclasses
from collections.abc import Mapping

import numpy as np

from electra_tf2.config.hparams import places
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.huggingface_config import pooling_in
from electra_tf2.formats.stored_model import MASKED_LM, StoredModel
from electra_tf2.inference.network import Network
from electra_tf2.model.architecture import Architecture
from electra_tf2.settings.own import without_files
from electra_tf2.util.errors import UserError


def config_of(model: StoredModel) -> PretrainingConfig | FinetuningConfig:
    """Configuration of the run that made a model, or the one that a run of this network would have; with the model's
    vocabulary, and without the run's other paths.

    Raises:
      UserError: its hparams are none.
    """
    saved = model.hparams
    config_class: type[PretrainingConfig] | type[FinetuningConfig]
    config_class = FinetuningConfig if model.is_fine_tuned else PretrainingConfig
    # A paper's hparams, too. It is not asked what it reads: a teacher may be gone by now.
    hparams: type = config_class if config_class is FinetuningConfig else PretrainingConfig.extended(saved)
    kept = {name: value for name, value in saved.items() if name not in places(hparams)}
    if config_class is FinetuningConfig:  # its own network, not that of a shipped model with the run's name
        kept["pretrained_model_dir"] = model.path
        kept["tasks"] = without_files(kept.get("tasks", {}))
    return config_class.from_dict(kept | {"vocab_file": model.vocab_file})


def make_network(model: StoredModel, precision: str = "float32") -> Network:
    """The pre-trained network with its heads."""
    return Network(model.architecture, generator_architecture(model), model.weights, precision)


def generator_architecture(model: StoredModel) -> Architecture:
    """Sizes of the generator's network; those of the main network where it has none of its own."""
    config = config_of(model)
    if isinstance(config, FinetuningConfig):
        return config.architecture
    return model.generator_sizes or config.generator_architecture


def with_generator(model: StoredModel, generator: StoredModel) -> StoredModel:
    """Joins a discriminator and the masked language model of another directory, its generator.

    Raises:
      UserError: the other has no masked language model, or another vocabulary.
    """
    if f"{MASKED_LM}/output_bias" not in generator.weights:
        raise UserError(f"{generator.origin} has no masked language model, so it is no generator")
    if generator.tokens != model.tokens:
        raise UserError(f"{model.origin} and {generator.origin} have different vocabularies")
    own = any(name.startswith("generator/") for name in generator.weights)
    scope = "generator/" if own else "electra/"
    parts: dict[str, np.ndarray] = {}
    renamed = {"electra/embeddings/": "generator/embeddings/", scope: "generator/", MASKED_LM: MASKED_LM}
    for start, ours in renamed.items():
        theirs = (name for name in generator.weights if name.startswith(start))
        parts |= {name.replace(start, ours, 1): generator.weights[name] for name in theirs}
    sizes = generator_architecture(generator) if own else generator.architecture
    return model.changed(weights={**model.weights, **parts}, generator_sizes=sizes)


_OF_GENERATORS = ("generator", "cloze_predictions/")  # begin the names of their variables


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
    """Writes shared weights out for each layer, for formats that have no shared layers: the same function."""
    if model.architecture.share_layers == "none":
        return model
    generator = generator_architecture(model)
    weights = written_out(model.weights, model.architecture, "electra")
    for scope in ("generator", "generator_ltr", "generator_rtl"):
        weights = written_out(weights, generator, scope)
    hparams = copy.deepcopy(model.hparams)
    hparams["model_hparam_overrides"]["share_layers"] = "none"
    return model.changed(
        hparams=hparams,
        weights=weights,
        generator_sizes=dataclasses.replace(generator, share_layers="none"),
    )


def written_out(weights: Mapping[str, np.ndarray], architecture: Architecture, scope: str) -> dict[str, np.ndarray]:
    """Copies the weights that layers of an encoder share to every layer's own name."""
    start = f"{scope}/encoder/layer_"
    result = {name: value for name, value in weights.items() if not name.startswith(start)}
    for part, beginnings in (("attention", ("attention/",)), ("ffn", ("intermediate/", "output/"))):
        for layer, named in enumerate(architecture.shared_with(part)):
            for name, value in weights.items():
                within = name.removeprefix(f"{start}{named}/")
                if within != name and within.startswith(beginnings):
                    result[f"{start}{layer}/{within}"] = value
    return result


def embeds(model: StoredModel) -> bool:
    """True if a model was fine-tuned to make vectors of texts."""
    config = config_of(model)
    return isinstance(config, FinetuningConfig) and "embedding" in map(config.kind_of, config.task_names)


def pooling_of(model: StoredModel) -> str:
    """How a model makes one vector of a text: as it was trained, as its folder says (sentence-transformers'), or the
    mean of all tokens' states. Raises UserError where its folder says what is not read."""
    if embeds(model):
        return model.hparams["classifier_pooling"]
    return pooling_in(model.folder) or "mean"
