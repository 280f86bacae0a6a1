"""Loads the weights from which a trial starts, and those that it left."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files.reading import read_json
from electra_tf2.finetune.model import FinetuningModel, FinetuningTask
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.finetune.trained_folder import TASKS
from electra_tf2.formats import checkpoint_files
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.formats.warm_start import LoadReport, generator_names, warm_start
from electra_tf2.settings.described import settings_of
from electra_tf2.training.distribution import wants_xla
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import warn


def start(model: FinetuningModel, config: FinetuningConfig) -> str:
    """Loads the pre-trained weights. Returns what to tell the user.

    A fine-tuned folder gives the weights that were scored, the best ones if they were kept.
    """
    if not config.init_checkpoint:
        return "random_init: starting from random weights"
    stored = open_model(config.init_checkpoint)
    heads = heads_of_pretraining(model, stored)
    answers = head_of_questions(model, config, stored)
    report = warm_start(
        model, stored, lambda name: [*generator_names(name), *heads.get(name, []), *answers.get(name, [])]
    )
    missing = _missing_encoder(report)
    if missing:
        warn(f"{config.init_checkpoint} lacks variables of its network, which stay random: {', '.join(missing)}")
    new = len(report.missing) - len(missing)
    lines = [f"loaded {len(report.loaded)} variables; {new} of new heads start from random values"]
    if answers:
        lines.append("the head that finds answers is that of the fine-tuned model")
    if heads:
        lines.append("the pre-trained head is kept, with a new last layer for each task")
    scopes_of_heads: set[str] = set()
    for stored_names in heads.values():
        scopes_of_heads.update(stored_name.split("/")[0] for stored_name in stored_names)
    left = report.unused_parts(partly=scopes_of_heads)
    if left:
        lines.append(f"not used here (expected): {', '.join(left)}")
    return "\n".join(lines)


def head_of_questions(model: FinetuningModel, config: FinetuningConfig, stored: StoredModel) -> dict[str, list[str]]:
    """Finds the head of a model that was fine-tuned on other questions, with which those of questions start.

    Heads of other kinds are of the labels of their tasks, and start from random values.

    Returns:
      Names in the checkpoint by a variable's name.
    """
    asks_questions = any(config.kind_of(task) == "qa" for task in config.task_names)
    has_heads = any(name.startswith("task_specific/") for name in stored.weights)
    if not (asks_questions and has_heads and stored.is_fine_tuned):
        return {}
    described = stored.hparams.get("tasks", {})
    old_tasks = [name for name in stored.hparams["task_names"] if settings_of(name, described).kind == "qa"]
    if len(old_tasks) != 1:
        return {}
    [old_task] = old_tasks
    had_unanswered = stored.state_of(old_task).get("v2", False)
    stored_names: dict[str, list[str]] = {}
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        of_head = re.fullmatch(r"task_specific/([^/]+)/(.+)", name)
        if not of_head or config.kind_of(of_head[1]) != "qa":
            continue
        if of_head[2].startswith("answerable") and not had_unanswered:
            continue  # it has learned nothing
        stored_name = f"task_specific/{old_task}/{of_head[2]}"
        value = stored.weights.get(stored_name)
        if value is not None and value.shape == variable.shape:
            stored_names[name] = [stored_name]
    return stored_names


def heads_of_pretraining(model: FinetuningModel, stored: StoredModel) -> dict[str, list[str]]:
    """Finds the pre-trained head with which heads of head_style modernbert start, as in Hugging Face's ModernBERT.

    It is the detector's head or the language model's, without the last layer.

    Returns:
      Names in the checkpoint by a variable's name, if the shapes are the same. They differ for a head that reads more
      than one state.
    """
    scopes = ["discriminator_predictions"]
    if stored.language_model:
        scopes.append(stored.language_model)
    stored_names: dict[str, list[str]] = {}
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        of_head = re.fullmatch(r"task_specific/[^/]+/head/(.+)", name)
        if not of_head:
            continue
        for scope in scopes:
            stored_name = f"{scope}/{of_head[1]}"
            value = stored.weights.get(stored_name)
            if value is not None and value.shape == variable.shape:
                stored_names.setdefault(name, []).append(stored_name)
    # A head whose dense layer has another shape, since it reads more than one state, takes nothing.
    whole = {}
    for name, names in stored_names.items():
        head = name.split("/head/")[0]
        if f"{head}/head/dense/kernel" in stored_names:
            whole[name] = names
    return whole


def _missing_encoder(report: LoadReport) -> list[str]:
    """Lists variables that the checkpoint lacks, without those of new heads."""
    return [name for name in report.missing if not name.startswith("task_specific/")]


def check_states(folder: Path, tasks: Sequence[Task]) -> None:
    """Lets tasks adopt what the outputs of a folder's model mean. Raises UserError: the data say otherwise."""
    adopt_states(tasks, read_json(folder / TASKS, "fine-tuned model"), str(folder))


def adopt_states(tasks: Sequence[Task], states: Mapping[str, Any], where: str) -> None:
    """Lets tasks adopt states (`Task.state`) by the task's name. Raises UserError as `check_states`."""
    for task in tasks:
        state = states.get(task.name)
        if not isinstance(state, dict):
            raise UserError(f"{where}: {TASKS} says nothing of the task {task.name}")
        labels = state.get("labels", [])
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise UserError(f"{where}: {TASKS} is damaged: {task.name}: labels must be names, got {shown(labels)}")
        try:
            task.check_state(state)
        except UserError:
            raise
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: {TASKS} is damaged: {task.name}: {error!r}") from None


def take_averages(model: FinetuningModel, folder: Path, step: int) -> None:
    """Loads the averaged weights of a run with ema_decay."""
    warm_start(model, open_model(checkpoint_files.prefix(folder, step)))


def build_trained(
    config: FinetuningConfig, tasks: Sequence[Task], strategy: tf.distribute.Strategy, folder: Path
) -> tuple[FinetuningTask, int]:
    """Builds the model of a fine-tuned folder, whose states the tasks have adopted.

    Returns:
      The model, and the step of its weights, the best ones if they were kept.
    """
    with strategy.scope():
        task = FinetuningTask(config, tasks, strategy, wants_xla(config), None, config.seed)
    stored = open_model(folder)
    missing = warm_start(task.model, stored).missing
    if missing:
        raise UserError(f"{folder} lacks {', '.join(missing[:5])}")
    return task, stored.step
