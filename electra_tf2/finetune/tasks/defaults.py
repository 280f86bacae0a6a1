"""Defaults of fine-tuning: settings of the model, its size, its recipe and the task; a task and a model by their files.

`configure_finetuning` takes its defaults from here; --hparams and flags win over all of them. Free of TensorFlow.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.formats.folders import config_of, network_hparams, read_config, released
from electra_tf2.finetune.tasks.registry import check_names, entry_of
from electra_tf2.finetune.tasks.spec import Entry
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.recipes import has_section, is_recipe, read_recipe

_FOLDERS = {"train": ("train",), "dev": ("validation", "dev"), "test": ("test",)}
# What belongs to a train_file, and its default, as which every configuration has it.
_OF_FILE: dict[str, Any] = {"dev_file": "", "test_file": "", "text_column": ["text"], "label_column": "label",
                            "task_type": "classification"}  # fmt: skip


def with_named(given: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams with those that follow from `model`, `train_file` and what belongs to it; the same if done again.
    Raises UserError: what belongs to a train_file without one; a model or a task that is also named in another way."""
    return dict(given) | _model(given) | _task(given)


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    model = given.get("model")
    if not model:
        return {}
    path = Path(model)
    is_name = path.name == model and not path.exists() and not Path(f"{model}.index").exists()
    found = {"model_name": model} if is_name else {"model_name": path.resolve().name, "init_checkpoint": model}
    for name, value in found.items():
        if given.get(name, value) != value:
            raise UserError(f"model {model} and {name} {given[name]} are both given: choose one")
    return found


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    file = given.get("train_file")
    if not file:
        alone = [name for name, default in _OF_FILE.items() if given.get(name, default) != default]
        if alone and not given.get("tasks"):
            raise UserError(f"{', '.join(alone)}: what belongs to a train_file, which is not given")
        return {}
    name = re.sub(r"[^\w.-]+", "_", Path(file).name.partition(".")[0]) or "own"
    if given.get("task_names", [name]) != [name]:
        raise UserError(f"train_file {file} and task_names {given['task_names']} are both given: choose one")
    files = {split: given.get(f"{split}_file") for split in _FOLDERS}
    for split, path in files.items():
        if path and Path(path).is_fifo():
            raise UserError(f"{split}_file {path} is a pipe, which can be read only once: save it as a file")
    if Path(file, "dataset_dict.json").is_file():  # all splits in one folder, as `datasets` saves them
        files["train"] = None
        for split, names in _FOLDERS.items():
            there = [os.path.join(file, name) for name in names if Path(file, name).is_dir()]
            files[split] = files[split] or next(iter(there), None)
    kind = given.get("task_type", "classification")
    described: dict[str, Any] = {"type": kind}
    described["files"] = {split: os.path.abspath(path) for split, path in files.items() if path}
    if kind in ("classification", "regression"):
        described |= {
            "text_columns": given.get("text_column", ["text"]),
            "label_column": given.get("label_column", "label"),
        }
    own = given.get("tasks", {})
    if own.get(name, described) != described:
        raise UserError(f"train_file {file} is task {name}, which tasks describes otherwise: choose one")
    return {"tasks": {**own, name: described}, "task_names": [name]}


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
    """Name of a run's folders and results: its tasks, after the one that it was fine-tuned on first."""
    names = ",".join(given.get("task_names", ["chunk"]))
    return f"{given['intermediate_task']}-{names}" if given.get("intermediate_task") else names


def start_of(given: Mapping[str, Any]) -> str:
    """Path of the weights if not the pre-trained model's folder: `init_checkpoint`, or a model of this repository
    of the name that is given, where no run of the user's has it; "" for neither."""
    if given.get("init_checkpoint") or given.get("pretrained_model_dir") or read_config(pretrained_dir(given)):
        return given.get("init_checkpoint") or ""
    return released(given.get("model_name", ""))


def recipe_of(given: Mapping[str, Any]) -> str | None:
    """The recipe whose section `finetuning` applies: the one that is given, or that of the pre-trained model.

    Prompts have settings of their own, and compat "original" the original's: there only a recipe that is given applies.
    """
    if given.get("recipe"):
        return given["recipe"]
    if given.get("prompt") or given.get("compat") == "original":
        return None
    saved = config_of(start_of(given)) or read_config(pretrained_dir(given)) or {}
    names = [str(name) for name in (saved.get("recipe"), saved.get("model_name")) if is_recipe(name)]
    return next((name for name in names if has_section(name, "finetuning")), None)


def default_hparams(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the hparams that are not given.

    Args:
      given: hparams of the right types.

    Raises:
      UserError: unknown tasks; a model's configuration, a task's description or a recipe's section that is none.
    """
    start = start_of(given)
    network = network_hparams(pretrained_dir(given)) | network_hparams(start)
    if start and not given.get("random_init"):
        network["init_checkpoint"] = start
    size = given.get("model_size", network.get("model_size", "small"))
    of_size = {} if size == "small" and given.get("compat") == "original" else _SIZES.get(size, {})
    recipe = recipe_of(given)
    section: dict[str, Any] = read_recipe(recipe, "finetuning") if recipe else {}
    per_task = section.pop("per_task", {})
    names, own = given.get("task_names", section.get("task_names", ["chunk"])), given.get("tasks", {})
    check_names(names, own)
    entry: Entry | None = None
    of_task: Any = {}
    if len(names) == 1:
        entry = entry_of(names[0], own)
        of_task = per_task
        if isinstance(per_task, dict):
            of_task = per_task.get(names[0], per_task.get(entry.like if entry else "", {}))
        if not isinstance(of_task, dict):
            raise UserError(f"recipe {recipe}: finetuning.per_task must hold objects of hparams, got {shown(of_task)}")
    defaults = network | of_size | section | dict(entry.hparams if entry else {}) | of_task
    if given.get("prompt"):
        defaults |= _PROMPT | section | of_task
    return defaults | (_DEBUG if given.get("debug") else {})
