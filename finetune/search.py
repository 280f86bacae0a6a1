"""A search over hparams: a run for each combination of the values that are given, as many as the budget allows.

    --search '{"learning_rate": [1e-4, 2e-4, 3e-4], "num_train_epochs": [3, 10]}' --search-budget 4

Each combination has model folders of its own, so a search that was stopped goes on with the same command. What counts
is the primary metric on the development data, the mean over tasks and trials; the best combination's models are kept,
the weights of the others are deleted when they have lost. Over shares of the training data
(`{"train_share": [0.01, 0.1, 1]}`) it is a learning curve (COCO-LM, figure 7).

<results_dir>/<tasks>_search.json, .txt    all combinations that are done, the best first
<model_dir>_search/<name=value,...>_1      models
"""

import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configure_finetuning import FinetuningConfig
from finetune.task import Task
from tasks.defaults import run_name
from util.errors import UserError
from util.files import write_atomically, write_json
from util.hparams import checked, places
from util.reading import parse_json

Hparams = dict[str, Any]


class Search(NamedTuple):
    """The combinations to run, in this order, of so many in all, and the names of what is searched."""

    combinations: list[Hparams]
    of: int
    names: tuple[str, ...]


class Found(NamedTuple):
    """A combination that is done: mean and standard deviation of its score over the trials."""

    hparams: Hparams
    score: float
    std: float
    config: FinetuningConfig
    trials: list[dict[str, Any]]


def read_search(text: str, budget: int, seed: int) -> Search:
    """The combinations of a JSON object of lists.

    Args:
      budget: combinations at most, which are drawn at random; 0: all.

    Raises:
      UserError: no object of lists of values, an unknown hparam, a wrong value.
    """
    space = parse_json(text, "--search")
    for name, values in space.items():
        if not isinstance(values, list) or not values:
            raise UserError(f"--search: {name} needs a list of values, got {values!r}")
        for value in values:
            checked(FinetuningConfig, {name: value})
    where = places(FinetuningConfig) | {"task_names", "num_trials", "seed", "do_train", "do_eval"}
    if not space or where & space.keys():
        raise UserError(f"--search: give hparams of training, not {', '.join(sorted(where & space.keys())) or '{}'}")
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    chosen = sorted(np.random.default_rng(seed).permutation(len(every))[: budget or None].tolist())
    return Search([every[number] for number in chosen], len(every), tuple(space))


def configs(search: Search, given: Mapping[str, Any], base: FinetuningConfig) -> list[FinetuningConfig]:
    """The configuration of every combination, all checked before the first is run.

    Args:
      given: the user's hparams. base: what they come to without a search.
    """
    result = []
    for hparams in search.combinations:
        name = ",".join(f"{key}={_spelled(value)}" for key, value in hparams.items())
        folder = os.path.join(f"{base.model_dir}_search", name)
        result.append(FinetuningConfig.from_dict({**given, **hparams, "model_dir": folder}))
    return result


def _spelled(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isalnum() or letter in ".-+" else "_" for letter in text)


def score_of(tasks: Sequence[Task], trials: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Mean and standard deviation over trials of the mean primary metric of all tasks on their development data."""
    scores = []
    for trial in trials:
        of_tasks = [
            trial["scores"][task.name][split][task.primary_metric]
            for task in tasks
            for split in task.selection_splits or task.evaluation_splits
        ]
        scores.append(statistics.fmean(of_tasks))
    return statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0


def best_of(found: Sequence[Found]) -> Found:
    """The highest score, the earlier one of equals."""
    return max(found, key=lambda one: one.score)


def write(search: Search, found: Sequence[Found], base: FinetuningConfig) -> Path:
    """Writes what has been found so far as JSON and as a table. Returns the path of the JSON file."""
    path = Path(base.results_dir) / f"{run_name(vars(base))}_search.json"
    ranked = sorted(found, key=lambda one: -one.score)
    rows = [
        {
            "hparams": one.hparams,
            "score": one.score,
            "std": one.std,
            "trials": [trial["scores"] for trial in one.trials],
            "model_dir": one.config.model_dir,
        }
        for one in ranked
    ]
    content = {"tasks": base.task_names, "searched": search.names, "combinations": search.of, "found": rows}
    write_json(path, content)
    write_atomically(path.with_suffix(".txt"), table(search.names, ranked))
    return path


def table(names: Sequence[str], found: Sequence[Found]) -> str:
    """A row for each combination."""
    rows = [[*names, "score", "std"]]
    rows += [[*(str(one.hparams[name]) for name in names), f"{one.score:.4g}", f"{one.std:.3g}"] for one in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )
