"""Makes tasks by their names, of a row of the table of tasks (settings) and the class of its kind."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from electra_tf2.settings.described import settings_of
from electra_tf2.settings.kinds import KINDS, kind_named
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.corpus.tokenization import WordpieceTokenizer
    from electra_tf2.finetune.tasks.task import Task


def make_tasks(config: "FinetuningConfig", tokenizer: "WordpieceTokenizer") -> "list[Task]":
    """Makes the tasks of a run, which have read nothing yet. Raises UserError: one cannot be learned so."""
    if config.prompt and tokenizer is not None and not tokenizer.is_wordpiece:
        raise UserError(
            f"task_names: {', '.join(config.task_names)}: a prompt's words are looked up in a WordPiece vocabulary, "
            f"and {config.vocab_file} is of another tokenizer: leave prompt out"
        )
    return [make_task(name, config, tokenizer) for name in config.task_names]


def make_task(
    name: str, config: "FinetuningConfig", tokenizer: "WordpieceTokenizer", files: Mapping[str, str] | None = None
) -> "Task":
    """Makes the task of a name that settings.described.check_names accepted.

    Args:
      files: by split, the path of its file; default: as the task is described.

    Raises:
      UserError: it has no class.
    """
    settings = settings_of(name, config.tasks)
    kind = settings.kind
    options = dict(settings.options)
    if files is not None:
        options["files"] = files
    if config.prompt:
        if not kind_named(kind).plain_texts:
            raise UserError(f"prompt: {name} is a task with another head: it cannot be prompted")
        kind = "prompt"
    make = _class(f"tasks: {name}", kind)
    if settings.text is None:
        return make(name, config, tokenizer, **options)
    return make(name, config, tokenizer, settings.text, **options)


def _class(where: str, kind: str) -> Any:
    """Imports the class of one of our kinds, or of a task in Python, "module:Class"."""
    if kind in KINDS:
        module, _, name = KINDS[kind].task.partition(":")
        return getattr(importlib.import_module(f"electra_tf2.finetune.tasks.{module}"), name)
    module, _, name = kind.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{where}: type: there is no class {kind}: {error}") from None
