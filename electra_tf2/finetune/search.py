"""A search over hparams: a run for each combination of the values that are given, as many as the budget allows.

    --search '{"learning_rate": [1e-4, 2e-4, 3e-4], "num_train_epochs": [3, 10]}' --search-budget 4

Each combination has model folders of its own, so a search that was stopped goes on with the same command. What counts
is the primary metric on the development data, the mean over tasks and trials; the best combination's models are kept,
the weights of the others are deleted when they have lost. The best score is thus one that was chosen by: its file says
so. Over shares of the training data (`{"train_share": [0.01, 0.1, 1]}`) it is a learning curve (COCO-LM, figure 7).
Imports no TensorFlow, so that a mistake in --search is answered at once.

<results_dir>/<tasks>_search_<names>.json, .txt    all combinations that are done, the best first
<results_dir>/<tasks>_best_of_<names>.json, .txt   scores of the best one
<model_dir>_search/<name=value,...>_1              models
<model_dir>_search/<name=value,...>/               results and test predictions of a combination
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.finetune.results import aligned
from electra_tf2.finetune.tasks.defaults import run_name
from electra_tf2.training.hparams import DeviceHparams, NetworkHparams
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically, write_json
from electra_tf2.util.hparams import checked, free_on_resume, places
from electra_tf2.util.reading import parse_json, read_json

if TYPE_CHECKING:
    from electra_tf2.finetune.task import Task

Hparams = dict[str, Any]
_LONGEST = 100  # letters of a name, far below what a file's may have

# What is not tried out: what says where, what, how often and on what a run is, and what the pre-trained network is.
_FIXED = (
    places(FinetuningConfig)
    | free_on_resume(FinetuningConfig)
    | {field.name for of in (NetworkHparams, DeviceHparams) for field in dataclasses.fields(of)}
    | {"task_names", "tasks", "seed", "intermediate_task", "debug_examples", "compat"}
)


class Search(NamedTuple):
    """The combinations to run, in this order, of so many in all, and the names of what is searched."""

    combinations: list[Hparams]
    of: int
    names: tuple[str, ...]


class Found(NamedTuple):
    """A combination that is done: mean and standard deviation of its score over the trials; None: not finite."""

    hparams: Hparams
    score: float | None
    std: float
    config: FinetuningConfig
    trials: list[dict[str, Any]]


def read_search(text: str, budget: int, seed: int) -> Search:
    """The combinations of a JSON object of lists.

    Args:
      budget: combinations at most, which are drawn at random; 0: all.

    Raises:
      UserError: no object of lists of different values, a wrong value, an hparam that is unknown or not searched.
    """
    space = parse_json(text, "--search")
    if not space or _FIXED & space.keys():
        raise UserError(f"--search: give hparams of training, not {', '.join(sorted(_FIXED & space.keys())) or '{}'}")
    for name, values in space.items():
        if not isinstance(values, list) or not values:
            raise UserError(f"--search: {name} needs a list of values, got {values!r}")
        seen = [json.dumps(checked(FinetuningConfig, {name: value}), sort_keys=True) for value in values]
        twice = [value for number, value in enumerate(values) if seen[number] in seen[:number]]
        if twice:
            raise UserError(f"--search: {name} has {twice[0]!r} twice")
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    chosen = sorted(np.random.default_rng(seed).permutation(len(every))[: budget or None].tolist())
    return Search([every[number] for number in chosen], len(every), tuple(space))


def configs(search: Search, given: Mapping[str, Any], base: FinetuningConfig) -> list[FinetuningConfig]:
    """The configuration of every combination, all checked before the first is run.

    Args:
      given: the user's hparams. base: what they come to without a search.
    """
    result: dict[str, FinetuningConfig] = {}
    for hparams in search.combinations:
        spelled = {key: repr(value) if isinstance(value, float) else str(value) for key, value in hparams.items()}
        name = _short(",".join(f"{key}={re.sub('[^A-Za-z0-9.+-]', '_', text)}" for key, text in spelled.items()))
        folder = os.path.join(f"{base.model_dir}_search", name)
        own = {"model_dir": folder, "results_dir": os.path.join(folder, "results")}
        own |= {"test_predictions": os.path.join(folder, "test_predictions"), "results_txt": "", "results_json": ""}
        if name.casefold() in result:
            raise UserError(f"--search: two combinations would have the folder {folder}: search one of them on its own")
        result[name.casefold()] = FinetuningConfig.from_dict({**given, **hparams, **own})
    return list(result.values())


def _short(name: str) -> str:
    """A name that a file can have: the end of one that is too long is its digest."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def score_of(tasks: "Sequence[Task]", trials: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Mean and standard deviation over trials of the mean primary metric of all tasks on their development data."""
    chosen_by = [(task, split) for task in tasks for split in task.selection_splits or task.evaluation_splits]
    scores = [
        statistics.fmean(trial["scores"][task.name][split][task.primary_metric] for task, split in chosen_by)
        for trial in trials
    ]
    return statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0


def best_of(found: Sequence[Found]) -> Found | None:
    """The highest score, the earlier one of equals; None if there is no score."""
    return max((one for one in found if one.score is not None), key=lambda one: one.score or 0.0, default=None)


def results_path(search: Search, base: FinetuningConfig, what: str = "search") -> Path:
    """The file of all combinations, of this and of every other search over the same hparams; or "best_of" them."""
    return Path(base.results_dir) / f"{run_name(vars(base))}_{what}_{_short(','.join(search.names))}.json"


def write(search: Search, found: Sequence[Found], base: FinetuningConfig, made_of: Mapping[str, Any]) -> None:
    """Writes what has been found so far as JSON and as a table. What an earlier search in the same folders found of
    other combinations stays, if it is made of the same.

    Args:
      made_of: data and starting weights of all of them.
    """
    path = results_path(search, base)
    rows: list[dict[str, Any]] = []
    for hparams, score, std, config, trials in found:
        scores = [trial["scores"] for trial in trials]
        rows.append({"hparams": hparams, "score": score, "std": std, "trials": scores, "model_dir": config.model_dir})
    settings = json.loads(base.to_json())
    free = free_on_resume(FinetuningConfig) - {"model_dir"}
    settings = {name: value for name, value in settings.items() if name not in free | set(search.names)}
    if path.is_file() and not base.overwrite:
        before = read_json(path, "results of a search")
        if before.get("settings") == settings and before.get("made_of") == made_of:
            done = [one.hparams for one in found]
            rows += [row for row in before.get("found", []) if row["hparams"] not in done]
    rows.sort(key=lambda row: math.inf if row["score"] is None else -row["score"])
    content = {"tasks": base.task_names, "searched": search.names, "combinations": search.of, "found": rows}
    write_json(path, content | {"settings": settings, "made_of": made_of})
    write_atomically(path.with_suffix(".txt"), table(search.names, rows))


def table(names: Sequence[str], found: Sequence[Mapping[str, Any]]) -> str:
    """A row for each combination."""
    rows = [[*names, "score", "std"]]
    for one in found:
        scores = ["not finite", ""] if one["score"] is None else [f"{one['score']:.4g}", f"{one['std']:.3g}"]
        rows.append([*(str(one["hparams"][name]) for name in names), *scores])
    return aligned(rows)
