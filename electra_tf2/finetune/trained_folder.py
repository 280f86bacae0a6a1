"""The folder of a fine-tuned model, which is all that evaluation and prediction need of it, and what it is made of.

    config.json    the resolved configuration of the run
    tasks.json     task -> what its head's outputs mean (label names)
    vocab.txt      the vocabulary
    model.ckpt-*   weights; best/ has those that did best, where they were kept
    made_of.json   {"start": SHA-256, "trained_on": {task: {split: SHA-256}}, "steps": to train}: the weights that
                   training began with and the data that it learned, written when it begins
    scores.json    repeats it, with `scored_on` and the settings of the evaluation, under "made_of"
    replaced.json  an --overwrite of several trials is to replace this one, too

A trial is done, goes on or shares a median with others only where all that it is made of is still the same
(configuration and vocabulary are training.run_folder's to compare). Free of TensorFlow.
"""

import dataclasses
import functools
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.formats.original_config import find_prefix
from electra_tf2.formats.stored_model import find_model
from electra_tf2.settings.defaults import pretrained_dir, run_name
from electra_tf2.training.hparams import DeviceHparams
from electra_tf2.training.run_folder import holds_work
from electra_tf2.util.errors import UserError, reason
from electra_tf2.util.files import write_json
from electra_tf2.util.hparams import checked, free_on_resume, layered_by_entry, places, shapes_model
from electra_tf2.util.progress import say
from electra_tf2.util.reading import read_json

if TYPE_CHECKING:
    from electra_tf2.finetune.tasks.task import Task

Digests = dict[str, dict[str, str]]  # task -> split -> SHA-256 of its files
TASKS, SCORES = "tasks.json", "scores.json"
_MADE_OF, _REPLACED, _OVERWRITING = "made_of.json", "replaced.json", "overwriting"
_OF_SCORING = (
    *("average_orders", "beam_size", "max_answer_length", "n_best_size", "prompt_evaluation_draws", "qa_na_threshold"),
)


def find_trained(given: Mapping[str, Any], trial: int) -> Path:
    """The folder that --model-dir names, or that of a trial under that name or the default one. Raises UserError: no
    fine-tuned model there."""
    default = os.path.join(pretrained_dir(given), "finetuning_models", f"{run_name(given)}_model")
    model_dir = given.get("model_dir") or default
    for folder in (Path(model_dir), Path(f"{model_dir}_{trial}")):
        if (folder / TASKS).is_file():
            return folder
    raise UserError(
        f"neither {model_dir} nor {model_dir}_{trial} holds a fine-tuned model (no {TASKS}): name its folder by "
        "--model-dir, or train first"
    )


def trained_config(folder: Path, hparams: Mapping[str, Any], elsewhere: bool) -> FinetuningConfig:
    """The configuration of a fine-tuned model, with what hparams change for its use.

    Args:
      hparams: unchecked; what a trained model depends on may be repeated, but not changed.
      elsewhere: the model is all that is there: of where things were and what computed them nothing is kept.

    Raises:
      UserError: a configuration that is none; hparams that do not fit the model.
    """
    saved = read_json(folder / "config.json", "configuration of a fine-tuned model")
    fields = {field.name for field in dataclasses.fields(FinetuningConfig)}
    dropped = free_on_resume(FinetuningConfig)
    if elsewhere:
        dropped &= {field.name for field in dataclasses.fields(DeviceHparams)}
        dropped |= places(FinetuningConfig)
    base = checked(FinetuningConfig, {name: saved[name] for name in fields & saved.keys() - dropped})
    merged = layered_by_entry(FinetuningConfig, base, hparams)
    changed = [
        f"{name} was {base[name]!r}, is {merged[name]!r}"
        for name in sorted(shapes_model(FinetuningConfig) & base.keys())
        if without_files(name, merged[name]) != without_files(name, base[name])
    ]
    if changed:
        raise UserError(f"{folder} holds a model of other hparams: {'; '.join(changed)}")
    merged |= {"do_train": False, "overwrite": False, "vocab_file": find_model(folder).vocab_file}
    if elsewhere:
        merged |= {"pretrained_model_dir": str(folder), "init_checkpoint": None, "model_dir": str(folder)}
    return FinetuningConfig.from_dict(merged)


def without_files(name: str, value: Any) -> Any:
    """The value of a hparam, of `tasks` without the paths of files: what they hold counts (`MadeOf`), not where."""
    if name != "tasks" or not isinstance(value, dict):
        return value
    return {
        task: {key: own for key, own in described.items() if key != "files"}
        if isinstance(described, dict)
        else described
        for task, described in value.items()
    }


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of the contents of some files, in their order. Raises UserError."""
    found = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    found.update(block)
                found.update(file.tell().to_bytes(8, "little"))  # where one ends and the next begins
        except OSError as error:
            raise UserError(f"{path} cannot be read: {reason(error)}") from None
    return found.hexdigest()


def weights_digest(checkpoint: str) -> str | None:
    """SHA-256 of the weights that training starts from at a path; None where there is nothing."""
    prefix = find_prefix(checkpoint)
    if prefix is not None:
        parts = [path for path in Path(prefix).parent.iterdir() if path.name.startswith(f"{Path(prefix).name}.")]
        return digest(sorted(path for path in parts if path.suffix == ".index" or ".data-" in path.name))
    path = Path(checkpoint)
    parts = sorted(path.glob("*.safetensors")) if path.is_dir() else [path] if path.is_file() else []
    return digest(parts) if parts else None


class MadeOf:
    """Contents that the trials of a command are made of, read when they are asked for.

    Args:
      start: path of the weights that training begins with; None for random ones.
    """

    def __init__(self, config: FinetuningConfig, tasks: "Sequence[Task]", start: str | None) -> None:
        self.config, self.tasks, self._start = config, tasks, start

    @functools.cached_property
    def training(self) -> dict[str, Any]:
        """Contents that the weights depend on. With `keep_best` the development data choose some of them."""
        trained_on = {}
        for task in self.tasks:
            chosen_by = (task.selection_splits or task.evaluation_splits) if self.config.keep_best else ()
            trained_on[task.name] = _digests(task, ["train", *chosen_by])
        start = "random weights" if self._start is None else weights_digest(self._start)
        return {"start": start, "trained_on": trained_on}

    @functools.cached_property
    def scoring(self) -> dict[str, Any]:
        """Contents that the scores depend on beside the weights."""
        scored_on: Digests = {}
        for task in self.tasks:
            tests = [split for split in task.test_splits if self.config.write_test_outputs or task.has_labels(split)]
            scored_on[task.name] = _digests(task, [*task.evaluation_splits, *tests])
        return {"scored_on": scored_on, "settings": {name: getattr(self.config, name) for name in _OF_SCORING}}

    def write(self, folder: Path, steps: int, overwriting: "Overwriting | None") -> None:
        """Remembers what a trial that begins now is made of, and of how many steps."""
        by = {_OVERWRITING: overwriting.id} if overwriting and overwriting.first == folder else {}
        write_json(folder / _MADE_OF, self.training | {"steps": steps} | by)

    def check(self, folder: Path, advice: str) -> None:
        """Raises UserError if the trial in a folder is made of other things. What is no longer there may have been
        anything; a trial of an older version, which does not say, is taken with a warning."""
        if not holds_work(folder):
            return
        before = read_made_of(folder)
        if not before:
            say(f"WARNING: {folder} does not say what it was made of: make sure that neither data nor weights changed")
        changed = _changes(before.get("trained_on", {}), self.training["trained_on"])
        if changed:
            raise UserError(f"{folder} was trained on other data: {changed} has changed. {advice}")
        start, now = before.get("start"), self.training["start"]
        if start and now and start != now:
            raise UserError(f"{folder} began with other weights than those of {self._start or now}. {advice}")
        path = folder / SCORES
        if not path.exists():
            return
        before = read_json(path, "scores").get("made_of", {})
        changed = _changes(before.get("scored_on", {}), self.scoring["scored_on"])
        if changed:
            raise UserError(
                f"{path} is of other data: {changed} has changed: --no-do-train scores the model on what is there now. "
                f"{advice}"
            )
        for name, value in self.scoring["settings"].items():
            if before.get("settings", {}).get(name, value) != value:
                was = before["settings"][name]
                raise UserError(f"{path} was made with {name} {was}, not {value}: --no-do-train scores the model anew")


def read_made_of(folder: Path) -> dict[str, Any]:
    """Reads what a trial's weights are made of; {} if it does not say."""
    return {name: value for name, value in _remembered(folder).items() if name != _OVERWRITING}


class Overwriting:
    """An --overwrite of several trials, which holds for all of them or, if the first does not come to a checkpoint, for
    none: a mark in each of the others counts only as long as the first trial is that of this very command.

    Args:
      folders: of the trials, in the order in which they are trained.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.first, self._others, self.id = folders[0], folders[1:], secrets.token_hex(8)

    def begin(self, folder: Path) -> None:
        """Marks the other trials, before a trial is replaced that is the first one."""
        for other in self._others if folder == self.first else ():
            if holds_work(other):
                first = os.path.relpath(self.first, other)
                write_json(other / _REPLACED, {"first": first, _OVERWRITING: self.id})


def is_replaced(folder: Path) -> bool:
    """Tells whether an --overwrite was stopped before this trial's turn came."""
    if not (folder / _REPLACED).is_file():
        return False
    mark = read_json(folder / _REPLACED, "mark of --overwrite")
    first = folder / str(mark.get("first"))
    return holds_work(first) and _remembered(first).get(_OVERWRITING) == mark.get(_OVERWRITING)


def _remembered(folder: Path) -> dict[str, Any]:
    path = folder / _MADE_OF
    return read_json(path, "what a trial is made of") if path.is_file() else {}


def _digests(task: "Task", splits: Iterable[str]) -> dict[str, str]:
    """Digests of the splits whose files are there."""
    found = {}
    for split in splits:
        try:
            files = [path for path in task.files(split) if path.is_file()]
        except UserError:  # which loading says, if they are needed
            continue
        if files:
            found[split] = digest(files)
    return found


def _changes(before: Mapping[str, Mapping[str, str]], now: Digests) -> str:
    """The names of what is there before and now, but differs."""
    return ", ".join(
        f"{task} {split}"
        for task, splits in now.items()
        for split, content in splits.items()
        if before.get(task, {}).get(split, content) != content
    )
