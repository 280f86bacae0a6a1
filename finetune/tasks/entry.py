"""What is known of a task by its name alone, before TensorFlow is imported."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A task by name.

    kind: classification, regression, tagging, qa, choice or spans (finetune.tasks.registry).
    options: keyword arguments of the class that does the work.
    hparams: defaults of a run that learns this task alone.
    maker: "module:class" of that class, where it is not the kind's own.
    """

    kind: str
    options: Mapping[str, Any]
    hparams: Mapping[str, Any] = {}
    maker: str = ""
