"""The way to the trials of a fine-tuning, from the program as from `electra_tf2.finetune`: refusals and a summary.

Imports no TensorFlow, so that a mistake is answered at once.
"""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.config.hparams import free_on_resume, shapes_model
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.vocabulary import load_tokens
from electra_tf2.files.reading import read_json
from electra_tf2.finetune.starts import configuration, recipe_of, with_named
from electra_tf2.finetune.tasks.files import TaskFiles
from electra_tf2.finetune.trained_folder import compared
from electra_tf2.formats.folders import holds_weights, is_missing, is_shipped, no_model, no_weights_hint, read_config
from electra_tf2.pretrain import diagnosis
from electra_tf2.settings.described import settings_of
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.training.run_folder import RunFolder, begins_anew, holds_debug_run, holds_work
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say, warn


def prepare(config: FinetuningConfig, given: Mapping[str, Any], advice: str) -> FinetuningConfig:
    """Checks a training before anything slow, and prints a summary of it.

    Args:
      given: the hparams that the user gave, before others follow from them.
      advice: ends the error about a folder that holds another run: what to do.

    Returns:
      The configuration, with the precision that suits this machine.

    Raises:
      UserError: the model, the vocabulary or the data are missing, or a folder holds another run.
    """
    check_start(config)
    check_vocabulary(config)
    check_data(config)
    config = in_fitting_precision(config, given)
    check_folders(config, given, advice)
    print_summary(config, with_named(given))
    return config


def check_start(config: FinetuningConfig) -> None:
    """Raises UserError if the pre-trained model is missing."""
    if Path(f"{config.model_dir}_1").exists():
        return  # the first trial has begun: it starts from its own checkpoints
    start = config.init_checkpoint
    if not start:
        return
    if is_missing(start):
        raise no_model(start, "--model", has_data_dir=True)
    if Path(start).is_dir() and not holds_weights(start):
        hint = no_weights_hint(start) or "nothing was trained there yet"
        raise UserError(f"no checkpoint at {start}: {hint}")


def check_vocabulary(config: FinetuningConfig) -> None:
    """Raises UserError if the vocabulary is missing or has another size than the model."""
    size = len(load_tokens(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: "
            "give the vocabulary that the model was pre-trained with, or its vocab_size"
        )


def check_data(config: FinetuningConfig) -> None:
    """Raises UserError if the files that a task names are missing, or all folders in which its files may lie."""
    for name in config.task_names:
        settings = settings_of(name, config.tasks)
        if not settings.is_ours:
            continue  # a class of the user's own finds its files itself
        named = settings.options.get("files", {})
        files = TaskFiles(name, config, files=named, folders=settings.options.get("folders", ()))
        for split in named:
            files.path(split)
        if not named and not any(folder.is_dir() for folder in files.folders):
            folders = " or ".join(str(folder) for folder in files.folders)
            raise UserError(
                f"task {name}: there is no folder {folders} with its files (docs/finetuning.md#tasks). --task-names "
                "names another task, --train-file a file of your own"
            )


def in_fitting_precision(config: FinetuningConfig, given: Mapping[str, Any]) -> FinetuningConfig:
    """The configuration with the precision in which its first trial began, or else one that suits this machine.

    Prints a note if that differs from the settings.
    """
    first_trial = Path(f"{config.model_dir}_1")
    began: dict[str, Any] = {}
    if holds_work(first_trial) and not begins_anew(first_trial, config.overwrite, config.debug):
        began = read_config(first_trial) or {}
    config, notes = fitted_to_machine(config, given, began)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return config


def check_folders(config: FinetuningConfig, given: Mapping[str, Any], advice: str) -> None:
    """Raises UserError if a trial's folder holds a run with other hparams, and --overwrite is off.

    Reads only. Before a trial trains, it locks its folder and checks again.
    """
    free = free_on_resume(FinetuningConfig)
    for trial in range(1, config.num_trials + 1):
        path = Path(f"{config.model_dir}_{trial}")
        folder = RunFolder(path, overwrite=begins_anew(path, config.overwrite, config.debug), advice=advice)
        folder.check(
            config.to_json(), free, compared, chosen=given, resolve=lambda hparams: configuration(hparams).to_json()
        )


_RATES = ("learning_rate", "layerwise_lr_decay", "weight_decay_rate")
_PRINTED_APART = {"optimizer", *_RATES, "num_train_epochs", "train_batch_size", "max_seq_length"}


def print_summary(config: FinetuningConfig, given: Mapping[str, Any]) -> None:
    """Prints the model, the settings with their origin, and warnings about the model."""
    sizes = config.architecture
    start = Path(config.init_checkpoint or "random weights")
    name = str(start)
    if is_shipped(config.init_checkpoint):
        name = start.name
    settings = ["defaults"]
    recipe = recipe_of(given)
    if recipe:
        settings = [f"those of recipe {recipe} for fine-tuning"]
    not_listed = free_on_resume(FinetuningConfig) | shapes_model(FinetuningConfig) | _PRINTED_APART
    settings += [f"{hparam} {given[hparam]}" for hparam in sorted(given.keys() - not_listed)]
    schedule = [f"{rate} {getattr(config, rate):g}" for rate in _RATES]
    schedule.append(f"dropout {sizes.hidden_dropout_prob:g}")
    if config.optimizer != "adamw":
        schedule.insert(0, f"optimizer {config.optimizer}")
    unit = "epoch" if config.num_train_epochs == 1 else "epochs"
    epochs = f"{config.num_train_epochs:g} {unit}"
    if config.min_train_steps:  # how many epochs that makes is known when the rows are read
        epochs += f" or {config.min_train_steps:,} steps, whichever is longer,"
    schedule.append(f"{epochs} in batches of {config.train_batch_size}")
    schedule.append(f"max_seq_length {config.max_seq_length}")
    lines = [
        f"model          {name}: {sizes.num_hidden_layers} layers of {sizes.hidden_size}, {config.vocab_size:,} tokens",
        f"settings       {', '.join(settings)}",
        f"               {', '.join(schedule)}",
    ]
    say("\n".join(lines), indent=15, broken=True)
    for problem in problems_of_start(config.init_checkpoint):
        warn(f"{name}, the model to start from: {problem}")


def problems_of_start(folder: str | None) -> list[str]:
    """Warnings from the newest evaluation of a model's pre-training; [] if there was none."""
    newest_step = -1.0
    problems: list[str] = []
    if not folder:
        return problems
    if holds_debug_run(folder):
        return ["it is of a run of debug, a small network after a few steps: scores say nothing of the recipe"]
    for path in [*Path(folder).glob("eval/step-*.json"), *Path(folder).glob("results/unsup_results.json")]:
        with contextlib.suppress(UserError, KeyError, TypeError, ValueError):  # skips damaged files
            metrics = read_json(path, "evaluation")
            step = float(metrics.get("step", path.stem.rpartition("-")[2]))
            warnings = diagnosis.warnings(metrics)
            if step > newest_step:
                newest_step = step
                problems = warnings
    return problems
