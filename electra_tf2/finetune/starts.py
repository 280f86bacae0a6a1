"""Hparams of fine-tuning before a configuration is made: those of the model's folder, its recipe and the task.

Programs call `configuration`, which hands them to FinetuningConfig, a class that reads no files. What the user gives
wins over all of them. Free of TensorFlow.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.config.hparams import checked, layered
from electra_tf2.config.recipes import has_section, is_recipe, read_recipe
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.formats.folders import read_config, shipped_folder
from electra_tf2.formats.readers import find_model
from electra_tf2.settings.described import check_names, settings_of, task_of_file
from electra_tf2.util.errors import UserError, reason, shown


def configuration(given: Mapping[str, Any]) -> FinetuningConfig:
    """The configuration of a run with these hparams. Raises UserError: names every problem."""
    return FinetuningConfig.from_dict(hparams_of(given))


def hparams_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams of a run: what is given, and below it what the task, the recipe and the model's folder say.

    Raises:
      UserError: a wrong hparam, an unknown task, a folder or a recipe that cannot be read.
    """
    given = with_named(checked(FinetuningConfig, given))
    section = read_section(given)
    # By entry: a dropout rate of one's own, say, leaves the sizes of the pre-trained network.
    return layered(
        FinetuningConfig, model_hparams(given), section.hparams, task_hparams(given, section), given, by_entry=True
    )


def with_named(given: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams with those that follow from `model`, and from `train_file` and what belongs to it. Idempotent.

    Raises:
      UserError: what belongs to a train_file without one; a model or a task that is also named in another way.
    """
    return dict(given) | _named_model(given) | task_of_file(given)


def _named_model(given: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams that follow from `model`: a name, or the path of a model in any format."""
    model = given.get("model")
    if not model:
        return {}
    path = Path(model)
    try:
        is_name = path.name == model and not path.exists() and not Path(f"{model}.index").exists()
    except (OSError, ValueError) as error:
        raise UserError(f"model {shown(model)} is no name and no path: {reason(error)}") from None
    implied = {"model_name": model}
    if not is_name:
        implied = {"model_name": path.resolve().name, "init_checkpoint": model}
    for name, value in implied.items():
        if given.get(name, value) != value:
            raise UserError(f"model {model} and {name} {given[name]} are both given: choose one")
    return implied


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


def pretrained_dir(given: Mapping[str, Any]) -> str:
    """Folder of the pre-trained model that hparams name."""
    folder = os.path.join(given.get("data_dir", "data"), "models", given.get("model_name", "electra_small"))
    return given.get("pretrained_model_dir") or folder


def run_name(given: Mapping[str, Any]) -> str:
    """Name of a run's folders and results: its tasks."""
    return ",".join(given.get("task_names", ["chunk"]))


def start_of(given: Mapping[str, Any]) -> str:
    """Path of the weights where they are not in the pre-trained model's folder; "" where they are.

    It is init_checkpoint, or a shipped model of the name that is given, unless a run of the user's has that name.
    """
    if given.get("init_checkpoint") or given.get("pretrained_model_dir") or read_config(pretrained_dir(given)):
        return given.get("init_checkpoint") or ""
    return shipped_folder(given.get("model_name", ""))


def recipe_of(given: Mapping[str, Any]) -> str | None:
    """The recipe whose section `finetuning` applies: the one that is given, or that of the pre-trained model.

    Prompts have settings of their own, and compat "original" the original's: there only a recipe that is given applies.
    """
    if given.get("recipe"):
        return given["recipe"]
    if given.get("prompt") or given.get("compat") == "original":
        return None
    model = find_model(start_of(given) or pretrained_dir(given))
    if not model.is_run:
        return None
    for hparam in ("recipe", "model_name"):
        name = model.hparams.get(hparam)
        if is_recipe(name) and has_section(str(name), "finetuning"):
            return str(name)
    return None


# The layers of hparams below those that are given, the lowest first: model, recipe, task.


class Section(NamedTuple):
    """A recipe's section `finetuning`: hparams of every task, and of single ones by name."""

    recipe: str | None
    hparams: dict[str, Any]
    per_task: Any

    def hparams_for(self, name: str, like: str) -> dict[str, Any]:
        """The hparams of a task alone, or of the built-in one that it is like. Raises UserError: they are no object."""
        hparams = self.per_task
        if isinstance(self.per_task, dict):
            hparams = self.per_task.get(name, self.per_task.get(like, {}))
        if not isinstance(hparams, dict):
            raise UserError(
                f"recipe {self.recipe}: finetuning.per_task must hold objects of hparams, got {shown(hparams)}"
            )
        return hparams


def read_section(given: Mapping[str, Any]) -> Section:
    """The section that applies, empty without one. Raises UserError: a recipe that cannot be read."""
    recipe = recipe_of(given)
    if not recipe:
        return Section(None, {}, {})
    hparams = read_recipe(recipe, "finetuning")
    per_task = hparams.pop("per_task", {})
    return Section(recipe, hparams, per_task)


def model_hparams(given: Mapping[str, Any]) -> dict[str, Any]:
    """Hparams of the pre-trained model: its sizes and vocabulary, where it is, and the paper's settings for its size.

    Raises:
      UserError: its configuration is none.
    """
    folder = pretrained_dir(given)
    start = start_of(given)
    hparams = find_model(folder).network | find_model(start).network
    hparams["pretrained_model_dir"] = folder
    if start and not given.get("random_init"):
        hparams["init_checkpoint"] = start
    size = given.get("model_size", hparams.get("model_size", "small"))
    if size == "small" and given.get("compat") == "original":
        return hparams
    return hparams | _SIZES.get(size, {})


def task_hparams(given: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Hparams of the task that is trained alone, by its row in the table or in the recipe; of a prompt and debugging.

    Raises:
      UserError: unknown tasks, a task's description that is none.
    """
    names = given.get("task_names", section.hparams.get("task_names", ["chunk"]))
    described = given.get("tasks", {})
    check_names(names, described)
    hparams: dict[str, Any] = {}
    recipes_for_task: dict[str, Any] = {}
    if len(names) == 1:
        settings = settings_of(names[0], described)
        hparams = dict(settings.hparams)
        recipes_for_task = section.hparams_for(names[0], settings.like)
        if names[0] in described and _may_train_longer(given):
            hparams["min_train_steps"] = _LEAST_STEPS
    if given.get("prompt"):
        hparams |= _PROMPT | section.hparams
    hparams |= recipes_for_task
    if given.get("debug"):
        hparams |= _DEBUG
    return hparams


def _may_train_longer(given: Mapping[str, Any]) -> bool:
    """True where the number of epochs is neither given nor that of a paper's or the original's protocol."""
    if "num_train_epochs" in given:
        return False
    return not (given.get("prompt") or given.get("few_shot") or given.get("debug") or given.get("compat") == "original")
