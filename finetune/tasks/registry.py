"""Which task a name stands for: a built-in one, one that hparams describe, or one made in Python.

Free of TensorFlow until a class is asked for, so that configure_finetuning names and checks tasks here.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from electra_tf2.finetune.tasks.built_in import BUILT_IN
from electra_tf2.finetune.tasks.entry import Entry
from electra_tf2.finetune.tasks.own import own_entry
from electra_tf2.util.catalogue import load
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest

# Of a name, a FinetuningConfig and a tokenizer: a finetune.task.Task.
TaskFactory = Callable[..., Any]
_CLASSES = {
    "classification": "electra_tf2.finetune.classification.tasks:TextTask",
    "regression": "electra_tf2.finetune.classification.tasks:TextTask",
    "tagging": "electra_tf2.finetune.tagging.tasks:TaggingTask",
    "qa": "electra_tf2.finetune.qa.tasks:QATask",
    "spans": "electra_tf2.finetune.spans.tasks:SpanTask",
    "prompt": "electra_tf2.finetune.prompting.tasks:PromptTask",
}
_factories: dict[str, TaskFactory] = {}


def register(name: str, factory: TaskFactory) -> None:
    """Makes a task known under a name, for `task_names`; a subclass of Task is a factory."""
    _factories[name] = factory


def known_tasks(own: Mapping[str, Any]) -> list[str]:
    """Names that `task_names` may hold.

    Args:
      own: the hparam `tasks`.
    """
    return list(dict.fromkeys([*BUILT_IN, *own, *sorted(_factories)]))


def entry_of(name: str, own: Mapping[str, Any]) -> Entry | None:
    """What is known of a task beforehand; None if it is made in Python. Raises UserError for a wrong description."""
    if name in _factories:
        return None
    return own_entry(name, own[name]) if name in own else BUILT_IN[name]


def check_names(names: Any, own: Mapping[str, Any]) -> None:
    """Raises UserError unless these are different names of known tasks and all of one's own are described rightly."""
    known = known_tasks(own)
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise UserError(f"task_names must be different tasks, at least one, got {shown(names)}")
    unknown = [
        f"task_names: unknown task {shown(name)}{closest(str(name)[:100], known)} (one of {', '.join(known)})"
        for name in names
        if name not in known
    ]
    if unknown:
        raise UserError("; ".join(unknown))
    for name in own:
        entry_of(name, own)


def factory_of(name: str, own: Mapping[str, Any], prompt: bool) -> TaskFactory:
    """What makes the task of a name, which `check_names` has let pass; `prompt`: for prompt-based fine-tuning."""
    entry = entry_of(name, own)
    if entry is None:
        return _factories[name]
    maker = _CLASSES["prompt"] if prompt else entry.maker or _CLASSES[entry.kind]
    return functools.partial(load(maker), **entry.options)
