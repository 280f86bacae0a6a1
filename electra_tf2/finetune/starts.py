"""Makes the hparams of fine-tuning: those of the model's folder, its recipe, the task and the user, later ones win.

Programs call `configuration`, which hands them to FinetuningConfig, a class that reads no files. Free of TensorFlow.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.config.hparams import checked, layered
from electra_tf2.config.recipes import has_section, is_recipe, read_recipe
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.formats.folders import holds_weights, read_config, shipped_folder, with_shipped
from electra_tf2.formats.readers import find_model
from electra_tf2.model.architecture import make_architecture
from electra_tf2.settings.described import check_names, settings_of, task_of_file
from electra_tf2.settings.kinds import kind_named
from electra_tf2.util.errors import UserError, reason, shown


def configuration(chosen: Mapping[str, Any]) -> FinetuningConfig:
    """Makes the configuration of a run of the hparams that the user chose. Raises UserError: names every problem."""
    return FinetuningConfig.from_dict(hparams_of(chosen))


def hparams_of(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Merges what the model's folder, the recipe and the task say, and what the user chose, which wins.

    Raises:
      UserError: a wrong hparam, an unknown task, a folder or a recipe that cannot be read.
    """
    chosen = with_named(checked(FinetuningConfig, chosen))
    section = read_section(chosen)
    # By entry: a dropout rate of one's own, say, leaves the sizes of the pre-trained network.
    return layered(
        FinetuningConfig, model_hparams(chosen), section.hparams, task_hparams(chosen, section), chosen, by_entry=True
    )


def with_named(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the hparams that follow from `model`, and from `train_file` and what belongs to it, and the folder of the
    shipped model that init_checkpoint names. Idempotent.

    Raises:
      UserError: train_file is missing beside what belongs to it; a model or a task is named in two ways.
    """
    named = dict(chosen) | _named_model(chosen) | task_of_file(chosen)
    if named.get("init_checkpoint"):
        named["init_checkpoint"] = with_shipped(named["init_checkpoint"])
    return named


def _named_model(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the hparams that follow from `model`: a name, or the path of a model in any format."""
    model = chosen.get("model")
    if not model:
        return {}
    path = Path(model)
    try:
        is_name = path.name == model and not _lies_at(path, chosen)
    except (OSError, ValueError) as error:
        raise UserError(f"model {shown(model)} is no name and no path: {reason(error)}") from None
    implied = {"model_name": model}
    if not is_name:
        implied = {"model_name": path.resolve().name, "init_checkpoint": model}
    for name, value in implied.items():
        if chosen.get(name, value) != value:
            raise UserError(f"model {model} and {name} {chosen[name]} are both given: choose one")
    return implied


def _lies_at(path: Path, chosen: Mapping[str, Any]) -> bool:
    """Tells whether the user means the file or folder at a path, and not a run of that name in the data folder.

    A folder without a model may be the data folder itself, called as the run.
    """
    if path.is_dir() and read_config(path) is None and not holds_weights(path):
        return read_config(pretrained_dir(dict(chosen) | {"model_name": path.name})) is None
    return path.exists() or Path(f"{path}.index").exists()


# ELECTRA, Table 7 (the original's code has 1e-4 for small), and the original's layer-wise decay.
_SIZES: dict[str, dict[str, Any]] = {
    "small": {"learning_rate": 3e-4},
    "large": {"learning_rate": 5e-5, "layerwise_lr_decay": 0.9},
}
# LM-BFF's settings of prompt-based fine-tuning.
_PROMPT: dict[str, Any] = {
    "learning_rate": 1e-5,
    "weight_decay_rate": 0.0,
    "layerwise_lr_decay": 0.0,
    "warmup_proportion": 0.0,
    "loss_reduction": "mean",
    "num_train_epochs": 1.0,
    "train_batch_size": 8,
    "max_seq_length": 256,
}
# Steps at least of a task of one's own. Three epochs of 300 rows are 30 steps, after which a model answers as it began:
# with the commonest label. Small data need more steps, not another learning rate (Zhang et al. 2021, section 6; Mosbach
# et al. 2021: 20 epochs).
_LEAST_STEPS = 100
_DEBUG: dict[str, Any] = {
    "num_trials": 1,
    "iterations_per_loop": 1,
    "train_batch_size": 32,
    "num_train_epochs": 3.0,
    "log_examples": True,
    "debug_examples": 64,
}


def pretrained_dir(chosen: Mapping[str, Any]) -> str:
    """Folder of the pre-trained model that hparams name."""
    folder = os.path.join(chosen.get("data_dir", "data"), "models", chosen.get("model_name", "electra_small"))
    return chosen.get("pretrained_model_dir") or folder


def start_of(chosen: Mapping[str, Any]) -> str:
    """Path of the weights; "": they are in the pre-trained model's folder.

    It is init_checkpoint, or a shipped model of that name, unless a run of the user's has the name.
    """
    if chosen.get("init_checkpoint") or chosen.get("pretrained_model_dir") or read_config(pretrained_dir(chosen)):
        return chosen.get("init_checkpoint") or ""
    return shipped_folder(chosen.get("model_name", ""))


def recipe_of(chosen: Mapping[str, Any]) -> str | None:
    """Name of the recipe whose section `finetuning` applies: the chosen one, or that of the pre-trained model.

    Prompts have settings of LM-BFF, compat "original" has the original's: for these only a chosen recipe applies.
    """
    if chosen.get("recipe"):
        return chosen["recipe"]
    if chosen.get("prompt") or chosen.get("compat") == "original":
        return None
    model = find_model(start_of(chosen) or pretrained_dir(chosen))
    if not model.is_run:
        return None
    for hparam in ("recipe", "model_name"):
        name = model.hparams.get(hparam)
        if is_recipe(name) and has_section(str(name), "finetuning"):
            return str(name)
    return None


# The layers of hparams below what the user chose, the lowest first: model, recipe, task.


class Section(NamedTuple):
    """A recipe's section `finetuning`: hparams of every task, and of single ones by name."""

    hparams: dict[str, Any]
    per_task: dict[str, dict[str, Any]]


def read_section(chosen: Mapping[str, Any]) -> Section:
    """Reads the section that applies, empty without a recipe. Raises UserError: it cannot be read."""
    recipe = recipe_of(chosen)
    if not recipe:
        return Section({}, {})
    hparams = read_recipe(recipe, "finetuning")
    per_task = hparams.pop("per_task", {})
    entries = [per_task]
    if isinstance(per_task, dict):
        entries = list(per_task.values())
    for entry in entries:
        if not isinstance(entry, dict):
            raise UserError(f"recipe {recipe}: finetuning.per_task must hold objects of hparams, got {shown(entry)}")
    return Section(hparams, per_task)


def model_hparams(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the hparams of the pre-trained model: sizes, vocabulary, folder, and the paper's settings for its size.

    Raises:
      UserError: its configuration cannot be read, or the user says that it is of another size.
    """
    folder = pretrained_dir(chosen)
    start = start_of(chosen)
    hparams = find_model(folder).network | find_model(start).network
    if not chosen.get("random_init"):
        _check_size(chosen, hparams, start or folder)
    hparams["pretrained_model_dir"] = folder
    if start and not chosen.get("random_init"):
        hparams["init_checkpoint"] = start
    size = chosen.get("model_size", hparams.get("model_size", "small"))
    if size == "small" and chosen.get("compat") == "original":
        return hparams
    return hparams | _SIZES.get(size, {})


def _check_size(chosen: Mapping[str, Any], network: Mapping[str, Any], path: str) -> None:
    """Raises UserError if the user's model_size is not that of the model at `path`, where there is one.

    The learning rate follows from the size, so a wrong one would train worse without a word.
    """
    size = network.get("model_size")
    if size is None or chosen.get("model_size", size) == size:
        return
    sizes = make_architecture(size, network["model_hparam_overrides"], network["vocab_size"], None)
    raise UserError(
        f"model_size is {shown(chosen['model_size'])}, but the model in {path} is {size!r}: {sizes.num_hidden_layers} "
        f"layers of {sizes.hidden_size}. Leave model_size out: it is read from the model"
    )


def task_hparams(chosen: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Makes the hparams of a task that is trained alone; later ones win.

    They come from the table of tasks, prompts, the recipe's row of the task, and debugging.

    Raises:
      UserError: an unknown task, or a wrong description of one.
    """
    names = chosen.get("task_names", section.hparams.get("task_names", ["chunk"]))
    described = chosen.get("tasks", {})
    check_names(names, described)
    hparams: dict[str, Any] = {}
    recipes_for_task: dict[str, Any] = {}
    if len(names) == 1:
        settings = settings_of(names[0], described)
        hparams = dict(settings.hparams)
        recipes_for_task = section.per_task.get(names[0], section.per_task.get(settings.like, {}))
        is_own = names[0] in described and chosen.get("compat") != "original"
        if is_own and kind_named(settings.kind).plain_texts:
            # The length is that of the built-in task's texts.
            recipes_for_task = {name: value for name, value in recipes_for_task.items() if name != "max_seq_length"}
        if is_own and _may_train_longer(chosen):
            hparams["min_train_steps"] = _LEAST_STEPS
        if is_own and settings.kind == "qa":
            hparams["qa_na_threshold"] = 0.0  # an answer is given where that is likelier than none
    if chosen.get("prompt"):
        hparams |= _PROMPT | section.hparams
    hparams |= recipes_for_task
    if chosen.get("debug"):
        hparams |= _DEBUG
    return hparams


def _may_train_longer(chosen: Mapping[str, Any]) -> bool:
    """Tells whether the number of epochs is neither chosen nor that of a paper's or the original's protocol."""
    if "num_train_epochs" in chosen:
        return False
    return not any(chosen.get(hparam) for hparam in ("prompt", "few_shot", "debug"))
