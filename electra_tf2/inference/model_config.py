"""The configuration of a stored model's run, and what follows from it: generator sizes, pooling, the network."""

import dataclasses

from electra_tf2.config.hparams import places
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats.sentence_modules import pooling_in
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.network import Network
from electra_tf2.model.architecture import Architecture
from electra_tf2.settings.described import without_files
from electra_tf2.settings.kinds import kind_named


def config_of(model: StoredModel) -> PretrainingConfig | FinetuningConfig:
    """Configuration of the run that trained a model; for other formats, that of a run of this network.

    Its paths are left out, except for the vocabulary, which is the model's.

    Raises:
      UserError: the model's hparams are not valid.
    """
    if model.is_fine_tuned:
        hparams = _without_paths(model, FinetuningConfig)
        # Not the shipped model that may have the same name as the run's.
        hparams["pretrained_model_dir"] = model.path
        hparams["tasks"] = without_files(hparams.get("tasks", {}))
        return configuration(hparams)
    # A paper's hparams are known, but its `implied_hparams` is not run: files that it reads, such as a teacher, may be
    # gone.
    extended = PretrainingConfig.extended(model.hparams)
    return PretrainingConfig.from_dict(_without_paths(model, extended))


def _without_paths(model: StoredModel, config_class: type) -> dict[str, object]:
    paths = places(config_class)
    hparams = {name: value for name, value in model.hparams.items() if name not in paths}
    return hparams | {"vocab_file": model.vocab_file}


def with_config(model: StoredModel) -> StoredModel:
    """Adds what writers in formats/ need of the configuration: all hparams, the generator's sizes, classes of tasks."""
    config = config_of(model)
    paths = places(type(config))
    hparams = {name: value for name, value in dataclasses.asdict(config).items() if name not in paths}
    classes = {}
    if isinstance(config, FinetuningConfig):
        for name in config.task_names:
            classes[name] = kind_named(config.kind_of(name)).transformers_class
    return model.changed(
        resolved_hparams=hparams, task_classes=classes, generator_sizes=_generator_sizes(model, config)
    )


def generator_architecture(model: StoredModel) -> Architecture:
    """Sizes of the generator; those of the main network if there is no generator."""
    return _generator_sizes(model, config_of(model))


def _generator_sizes(model: StoredModel, config: PretrainingConfig | FinetuningConfig) -> Architecture:
    if model.generator_sizes is not None:
        return model.generator_sizes
    if isinstance(config, FinetuningConfig):
        return config.architecture
    return config.generator_architecture


def make_network(model: StoredModel, precision: str = "float32") -> Network:
    """The pre-trained network with its heads."""
    return Network(model.architecture, generator_architecture(model), model.weights, precision)


def embeds(model: StoredModel) -> bool:
    """True if a model was fine-tuned to make text vectors."""
    config = config_of(model)
    if not isinstance(config, FinetuningConfig):
        return False
    return any(kind_named(config.kind_of(name)).embeds for name in config.task_names)


def pooling_in_files(model: StoredModel) -> str:
    """The pooling that a model of text vectors was trained with, or that sentence-transformers runs; "" of all others.

    Raises:
      UserError: the model's folder has modules of sentence-transformers that are not supported.
    """
    if embeds(model):
        return model.hparams["classifier_pooling"]
    return pooling_in(model.folder)


def pooling_of(model: StoredModel) -> str:
    """The pooling that makes a text's vector: the model's, or else "mean". Errors as of `pooling_in_files`."""
    return pooling_in_files(model) or "mean"
