"""Things found by name: a package's modules declare them, and no other file keeps a list.

A family of tasks, for example, is known to the configuration because a module of finetune.tasks.families declares it.
"""

import functools
import importlib
import pkgutil
from typing import Any


@functools.cache
def module_names(package: str) -> tuple[str, ...]:
    """Names of a package's modules in alphabetical order; none of them is imported."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(importlib.import_module(package).__path__)))


@functools.cache
def declared(package: str, ending: str, attribute: str) -> tuple[Any, ...]:
    """Everything that modules of a package whose names end so declare under `attribute`, a tuple in each."""
    names = [name for name in module_names(package) if name.endswith(ending)]
    return tuple(one for name in names for one in getattr(importlib.import_module(f"{package}.{name}"), attribute))


def load(path: str) -> Any:
    """The object at "module:name", imported now."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
