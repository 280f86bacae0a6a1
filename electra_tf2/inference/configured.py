"""Stored models with the configurations of their runs: sizes of the generator, kinds of tasks, pooling, the network."""

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
    """Configuration of the run that made a model, or the one that a run of this network would have; with the model's
    vocabulary, and without the run's other paths.

    Raises:
      UserError: its hparams are none.
    """
    if model.is_fine_tuned:
        hparams = _without_paths(model, FinetuningConfig)
        hparams["pretrained_model_dir"] = model.path  # its own network, not that of a shipped model with the run's name
        hparams["tasks"] = without_files(hparams.get("tasks", {}))
        return configuration(hparams)
    # With a paper's hparams. Files that the paper reads, such as a teacher, may be gone by now, so it is not asked.
    extended = PretrainingConfig.extended(model.hparams)
    return PretrainingConfig.from_dict(_without_paths(model, extended))


def _without_paths(model: StoredModel, config_class: type) -> dict[str, object]:
    """The hparams of a model's run, with its vocabulary and without the other paths."""
    paths = places(config_class)
    hparams = {name: value for name, value in model.hparams.items() if name not in paths}
    return hparams | {"vocab_file": model.vocab_file}


def described(model: StoredModel) -> StoredModel:
    """The model with what its configuration adds, for the writers of formats/: every hparam, the sizes of the
    generator, the classes of transformers for its tasks."""
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
    """Sizes of the generator's network; those of the main network where it has none of its own."""
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
    """True if a model was fine-tuned to make vectors of texts."""
    config = config_of(model)
    if not isinstance(config, FinetuningConfig):
        return False
    return any(kind_named(config.kind_of(name)).embeds for name in config.task_names)


def pooling_of(model: StoredModel) -> str:
    """How a model makes one vector of a text: as it was trained, or by the modules of sentence-transformers in its
    folder, or else by the mean of all tokens' states.

    Raises:
      UserError: its folder has modules that are not read.
    """
    if embeds(model):
        return model.hparams["classifier_pooling"]
    return pooling_in(model.folder) or "mean"
