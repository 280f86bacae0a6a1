"""The tasks: classes with settings (settings), and those of a run."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from electra_tf2.settings.built_in import TEXT, TaskSettings
from electra_tf2.settings.own import settings_of
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.corpus.tokenization import WordpieceTokenizer
    from electra_tf2.finetune.tasks.task import Task


def make_tasks(config: "FinetuningConfig", tokenizer: "WordpieceTokenizer") -> "list[Task]":
    """The tasks of a run, nothing loaded yet. Raises UserError for tasks that cannot be learned together, or so."""
    tasks = [make_task(name, config, tokenizer) for name in config.task_names]
    prompted = [task.name for task in tasks if task.prompts]
    if prompted and tokenizer is not None and not tokenizer.is_wordpiece:
        raise UserError(
            f"task_names: {', '.join(prompted)}: a prompt's words are looked up in a WordPiece vocabulary, and "
            f"{config.vocab_file} is of another tokenizer: leave prompt out"
        )
    for task in tasks:
        if config.prompt and not task.prompts:
            raise UserError(f"prompt: {task.name} is a task in Python with another head: derive it from PromptTask")
    if len(tasks) > 1 and len({task.choices if config.do_train else task.predicted_choices for task in tasks}) > 1:
        listed = ", ".join(f"{task.name} has {task.choices}" for task in tasks)
        raise UserError(f"task_names: tasks that are learned together need as many candidates for an example: {listed}")
    return tasks


def make_task(name: str, config: "FinetuningConfig", tokenizer: "WordpieceTokenizer") -> "Task":
    """A task of a name that `check_names` has let pass. Raises UserError: no such class."""
    settings = settings_of(name, config.tasks)
    prompted = config.prompt and settings.cls == TEXT
    make = _class(f"tasks: {name}", settings._replace(cls="prompt:PromptTask") if prompted else settings)
    text = {} if settings.text is None else {"settings": settings.text}
    return make(name, config, tokenizer, **text, **settings.options)


def _class(where: str, settings: TaskSettings) -> Any:
    module, _, name = settings.cls.partition(":")
    if settings.is_ours:
        module = f"electra_tf2.finetune.tasks.{module}"
    elif os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{where}: type: there is no class {settings.cls}: {error}") from None
