"""The folder of a fine-tuned model, all that evaluation and prediction need, and what the model is made of.

    config.json    the resolved configuration of the run
    tasks.json     by task, what its head's outputs mean (label names)
    vocab.txt      the vocabulary
    model.ckpt-*   weights; best/ has the best ones, if they were kept
    made_of.json   `fingerprint` of starting weights and training data, written when training begins, and its steps
    scores.json    under "made_of" the same, and the fingerprint of the scores

A trial counts as done, is resumed, or shares a median with others only if all that it is made of is still the same.
training.run_folder compares configuration and vocabulary. Free of TensorFlow.
"""

import contextlib
import dataclasses
import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.config.hparams import checked, free_on_resume, layered, places, shapes_model
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files.reading import read_json
from electra_tf2.finetune.starts import configuration, pretrained_dir
from electra_tf2.finetune.tasks.sampling import selection_splits
from electra_tf2.formats.checkpoint_files import find_prefix
from electra_tf2.formats.electra_folder import best_or_newest
from electra_tf2.formats.folders import (
    SCORES,
    fine_tuned_folders,
    is_missing,
    nearby_data_dirs,
    no_model,
    shipped_folder,
)
from electra_tf2.formats.huggingface import HuggingFaceDirectory
from electra_tf2.formats.readers import find_model
from electra_tf2.settings.described import without_files
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import holds_work
from electra_tf2.training.shared_hparams import DeviceHparams
from electra_tf2.util.errors import UserError, reason

if TYPE_CHECKING:
    from electra_tf2.finetune.tasks.task import Task

TASKS = "tasks.json"
MADE_OF = "made_of.json"
_START = "weights to start from"  # the entry of `fingerprint` beside those of data, "<task> <split>"
_LISTED = 5  # folders that a message names
# Hparams on which scores depend, and weights do not.
_SCORING_HPARAMS = ("beam_size", "max_answer_length", "n_best_size", "prompt_evaluation_draws", "qa_na_threshold")


def folder_to_use(config: FinetuningConfig) -> Path:
    """Names the folder of a run's model that is used: the first trial's, or the last's if only its weights are kept."""
    trial = 1 if config.keep_all_models else config.num_trials
    return Path(f"{config.model_dir}_{trial}")


def find_trained(chosen: Mapping[str, Any], trial: int, flag: str = "--model-dir") -> Path:
    """Finds the folder of a fine-tuned model: the one that model_dir names, or that of a trial of this or the default
    name.

    Args:
      flag: flag that names it, for the message.

    Raises:
      UserError: neither holds a fine-tuned model; says which folders do.
    """
    model_dir = chosen.get("model_dir")
    if not model_dir:
        run_name = ",".join(chosen.get("task_names", ["chunk"]))
        model_dir = os.path.join(pretrained_dir(chosen), "finetuning_models", f"{run_name}_model")
    for folder in (Path(model_dir), Path(f"{model_dir}_{trial}")):
        if (folder / TASKS).is_file() or _came_back(folder):
            return folder
    problem = f"neither {model_dir} nor {model_dir}_{trial} holds a fine-tuned model (no {TASKS})"
    if not chosen.get("model_dir") and not chosen.get("task_names"):
        problem = "no fine-tuned model is named"
    elif chosen.get("init_checkpoint"):
        problem += f", nor does init_checkpoint {chosen['init_checkpoint']}"
    elif any(Path(model_dir).glob("model.ckpt*.index")) and not (Path(model_dir) / "config.json").is_file():
        problem = (
            f"{model_dir} holds a checkpoint of the original, whose heads of tasks are not read: fine-tune the "
            "pre-trained model again. This program's own fine-tuned models"
        )
    elif shipped_folder(model_dir) or (Path(model_dir) / "config.json").is_file():
        problem = f"{model_dir} is not fine-tuned"
    data_dir = chosen.get("data_dir", "data")
    elsewhere = []
    for nearby in nearby_data_dirs():
        elsewhere += _trained_in(nearby)
    trained = _newest_first(_trained_in(data_dir) or elsewhere)
    # Those whose name was given stand before all others, wherever they are.
    names = (Path(model_dir).name, f"{Path(model_dir).name}_{trial}")
    of_that_name = [folder for folder in _newest_first(elsewhere) if folder.name in names]
    trained = of_that_name + [folder for folder in trained if folder not in of_that_name]
    if not trained:
        raise UserError(
            f"{problem}, and there is none in {os.path.join(data_dir, 'models')}: name its folder by {flag}, or train "
            "one by electra finetune"
        )
    raise UserError(f"{problem}: name its folder by {flag}, such as {' or '.join(map(str, trained[:_LISTED]))}")


def is_fine_tuned(path: str) -> bool:
    """Tells whether a fine-tuned model lies in a folder. Raises UserError if nothing lies there."""
    if is_missing(path):
        raise no_model(path, "--init-checkpoint")
    return (Path(path) / TASKS).is_file() or _came_back(Path(path))


def _came_back(folder: Path) -> bool:
    """Tells whether a folder is a directory of Hugging Face with a head that predicts."""
    model = find_model(folder)
    return isinstance(model, HuggingFaceDirectory) and model.is_fine_tuned


def _trained_in(data_dir: str | Path) -> list[Path]:
    """Lists the folders of fine-tuned models in a data folder."""
    return [folder for folder in fine_tuned_folders(data_dir) if (folder / TASKS).is_file()]


def _newest_first(folders: list[Path]) -> list[Path]:
    """Sorts folders of fine-tuned models by the time of their training, the newest first."""
    return sorted(folders, key=lambda folder: (folder / TASKS).stat().st_mtime, reverse=True)


def trained_config(folder: Path, hparams: Mapping[str, Any], elsewhere: bool) -> FinetuningConfig:
    """Makes the configuration of a fine-tuned model for a use of it.

    Args:
      hparams: changes for this use, unchecked. Hparams that shape the model may be repeated, but not changed.
      elsewhere: whether only the folder is there, perhaps on another machine. Then paths and devices are not kept.

    Raises:
      UserError: a configuration that is none; hparams that do not fit the model.
    """
    model = find_model(folder)
    saved = model.hparams
    known = {field.name for field in dataclasses.fields(FinetuningConfig)}
    dropped = free_on_resume(FinetuningConfig)
    if elsewhere:
        # Devices and paths are another machine's; other hparams that may change, as of scoring, stay as they were.
        dropped &= {field.name for field in dataclasses.fields(DeviceHparams)}
        dropped |= places(FinetuningConfig)
    kept = {name: value for name, value in saved.items() if name in known - dropped}
    base = checked(FinetuningConfig, kept)
    merged = layered(FinetuningConfig, base, hparams, by_entry=True)
    changed = []
    for name in sorted(shapes_model(FinetuningConfig) & base.keys()):
        if compared(name, merged[name]) != compared(name, base[name]):
            changed.append(f"{name} was {base[name]!r}, is {merged[name]!r}")
    if changed:
        raise UserError(f"{folder} holds a model of other hparams: {'; '.join(changed)}")
    merged |= {"do_train": False, "overwrite": False, "vocab_file": model.vocab_file}
    if elsewhere:
        merged |= {"pretrained_model_dir": str(folder), "init_checkpoint": None, "model_dir": str(folder)}
    config = configuration(merged)
    if elsewhere:
        # Whoever labels texts need not know in which precision the model was trained, perhaps on another machine.
        config, _ = fitted_to_machine(config, hparams, began={})
    return config


def compared(name: str, value: Any) -> Any:
    """Makes the value by which runs are compared. `tasks` lose their paths, since the files' content counts."""
    return without_files(value) if name == "tasks" else value


def digest(paths: Iterable[Path]) -> str:
    """Computes the SHA-256 of the contents of files, in their order. Raises UserError."""
    sha256 = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    sha256.update(block)
                sha256.update(file.tell().to_bytes(8, "little"))  # where one ends and the next begins
        except OSError as error:
            raise UserError(f"{path} cannot be read: {reason(error)}") from None
    return sha256.hexdigest()


def fingerprint(config: FinetuningConfig, tasks: "Sequence[Task]", scores: bool = False) -> dict[str, Any]:
    """Computes SHA-256 of the files of which a trial's weights are made, or beside the weights its scores.

    The weights also depend on the development data if these choose the checkpoint (`keep_best`). The scores also depend
    on settings of the evaluation, which are added as they are. Missing files are left out.
    """
    digests: dict[str, Any] = {}
    for task in tasks:
        splits = _scored_splits(config, task) if scores else _training_splits(config, task)
        for split in splits:
            files: list[Path] = []
            with contextlib.suppress(UserError):  # which loading says, if the files are needed
                files = [path for path in task.files_of(split) if path.is_file()]
            if files:
                digests[f"{task.name} {split}"] = digest(files)
    if scores:
        return digests | {name: getattr(config, name) for name in _SCORING_HPARAMS}
    return {_START: _digest_of_start(config)} | digests


def _training_splits(config: FinetuningConfig, task: "Task") -> list[str]:
    if not config.keep_best:
        return ["train"]
    return ["train", *selection_splits(config, task.evaluation_splits)]


def _scored_splits(config: FinetuningConfig, task: "Task") -> list[str]:
    splits = list(task.evaluation_splits)
    for name in task.test_splits:
        if config.write_test_outputs or task.files.may_have_labels(name):
            splits.append(name)
    return splits


def _digest_of_start(config: FinetuningConfig) -> str | None:
    """Computes the fingerprint of the starting weights: "random", or None if there are no files."""
    if not config.init_checkpoint:
        return "random"
    start = best_or_newest(config.init_checkpoint)
    if not start:
        return "random"
    files = _weight_files(start)
    if not files:
        return None
    return digest(files)


def _weight_files(checkpoint: str) -> list[Path]:
    """Lists the files of the weights at a path."""
    path = Path(checkpoint)
    prefix = find_prefix(checkpoint)
    if prefix is not None:
        name = Path(prefix).name
        parts = list(Path(prefix).parent.glob(f"{glob.escape(name)}.data-*"))
        return sorted([*parts, Path(f"{prefix}.index")])
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    if path.is_file():
        return [path]
    return []


def check_made_of(folder: Path, fingerprint_of: Callable[[bool], Mapping[str, Any]], advice: str) -> None:
    """Raises UserError if the weights in a trial's folder are made of other things.

    A file that is no longer there matches any fingerprint.

    Args:
      fingerprint_of: `fingerprint` of what would be trained now, by `scores`.
    """
    if not holds_work(folder):
        return
    changed = _changed(read_made_of(folder), fingerprint_of(False))
    if changed:
        raise UserError(f"{folder} was trained with something else: {', '.join(map(_told, changed))}. {advice}")


def _told(name: str) -> str:
    """Says what an entry of `fingerprint` stands for."""
    if name == _START:
        return f"other {name}"
    task, _, split = name.rpartition(" ")
    return f"other {split} data of {task}"


def scored_otherwise(folder: Path, fingerprint_of: Callable[[bool], Mapping[str, Any]]) -> list[str]:
    """Lists what the scores of a finished trial would be of now, and are not: files, as "task split", and settings.

    Args:
      fingerprint_of: `fingerprint` of what would be trained now, by `scores`.
    """
    scored = read_json(folder / SCORES, "scores").get("made_of", {})
    now = fingerprint_of(True)
    later = [name for name in now if name not in scored and name not in _SCORING_HPARAMS]
    return later + _changed(scored, now)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Lists the names whose values differ. A name without a value before is not compared."""
    return [name for name, value in now.items() if before.get(name, value) != value]


def read_made_of(folder: Path) -> dict[str, Any]:
    """Reads what a trial's weights are made of; {} if it does not say."""
    path = folder / MADE_OF
    return read_json(path, "what a trial is made of") if path.is_file() else {}
