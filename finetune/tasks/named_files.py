"""A task and a model by their files alone: `--train-file reviews.csv --model electra_evening`.

`with_named` puts what these hparams stand for into `tasks`, `task_names`, `model_name` and `init_checkpoint`, which the
rest of the program reads. Free of TensorFlow.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.util.errors import UserError

_FOLDERS = {"train": ("train",), "dev": ("validation", "dev"), "test": ("test",)}
# What belongs to a train_file, and its default, as which every configuration has it.
_OF_FILE: dict[str, Any] = {"dev_file": "", "test_file": "", "text_column": ["text"], "label_column": "label",
                            "task_type": "classification"}  # fmt: skip


def with_named(given: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams with those that follow from `model`, `train_file` and what belongs to it; the same if done again.

    Raises:
      UserError: what belongs to a train_file without one; a model or a task that is also named in another way.
    """
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
