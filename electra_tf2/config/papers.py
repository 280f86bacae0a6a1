"""Loads papers beside the core by their names: `--paper mpa`, or `--paper my_package.my_paper`.

A paper is a module, or a folder of modules, that builds on the core. The core knows no paper. Modules of such a folder:

- `config`: `Config`, a subclass of PretrainingConfig; imports no TensorFlow;
- `model`: `Model` and, if the paper needs one, `Task`, subclasses of those in pretrain/;
- `implied_hparams`: a function of that name, where files imply hparams of the paper (pretrain.implied_hparams);
- `tables`: the kinds of `electra build-table` that the paper adds.

A paper in one module has all of these names there.
"""

import dataclasses
import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from electra_tf2.util.environment import before_tensorflow
from electra_tf2.util.errors import UserError, closest, shown

_FOLDER = Path(__file__).resolve().parent.parent / "papers"
_PACKAGE = __package__.rpartition(".")[0] + ".papers"


def paper_names() -> list[str]:
    """Names of the papers that come with the package."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/config.py"))


def paper_with_hparam(hparam: str) -> str:
    """Name of the paper of this package that declares an hparam, or "". Reads their files as text, without imports."""
    declared = re.compile(rf"^    {re.escape(hparam)}: ", re.MULTILINE)
    for name in paper_names():
        source = (_FOLDER / name / "config.py").read_text("utf-8")
        if declared.search(source):
            return name
    return ""


def check_owners(hparams: Collection[object], known: Collection[str]) -> None:
    """Raises UserError if an hparam that is not `known` belongs to a paper of this package; it names the paper."""
    for name in hparams:
        if not isinstance(name, str) or name in known:
            continue
        paper = paper_with_hparam(name)
        if paper:
            raise UserError(f"hparams: {name} is an hparam of a paper beside the core: add --paper {paper}")


def paper_config_class(name: str, core_class: type[Any]) -> type[Any]:
    """Returns a paper's `Config`, a subclass of the core's.

    Raises:
      UserError: there is no such paper, or its `Config` is not declared as it must be.
    """
    config_class = getattr(load_paper(name, "config"), "Config", None)
    if not (isinstance(config_class, type) and issubclass(config_class, core_class)):
        raise UserError(f"paper {name} has no Config, a subclass of {core_class.__name__}")
    if "__dataclass_params__" not in vars(config_class):
        raise UserError(f"paper {name}: Config must be a @dataclasses.dataclass(frozen=True)")
    undescribed = [field.name for field in dataclasses.fields(config_class) if "help" not in field.metadata]
    if undescribed:
        raise UserError(f"paper {name}: {', '.join(undescribed)} of Config must be declared as hparam(default, help)")
    return config_class


def paper_or_core(paper: str, part: str, name: str, core: Any) -> Any:
    """Returns the class or function of this name in a part of a paper, or `core` if the paper has none.

    Args:
      paper: name of the paper; "": no paper.
      part: as of `load_paper`.
      core: class or function of the core.
    """
    if not paper:
        return core
    return getattr(load_paper(paper, part), name, core)


@functools.cache
def load_paper(name: str, part: str = "") -> ModuleType:
    """Imports a paper, or a part of it.

    Args:
      name: a paper of this package, or a dotted module in the working directory or on PYTHONPATH.
      part: "config", "model", ...: the submodule of this name; if the paper has no such submodule, the paper's module.

    Raises:
      UserError: there is no such paper, or it cannot be imported.
    """
    is_ours = name in paper_names()
    if not is_ours:
        if not all(word.isidentifier() for word in name.split(".")):
            raise UserError(f"paper must be the name of a paper or of a Python module, got {shown(name)}")
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        before_tensorflow()  # a paper in one module imports TensorFlow
    module_name = f"{_PACKAGE}.{name}" if is_ours else name
    try:
        module = importlib.import_module(module_name)
        if part and hasattr(module, "__path__") and importlib.util.find_spec(f"{module_name}.{part}"):
            module = importlib.import_module(f"{module_name}.{part}")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(f"paper {name}: {error}, while importing it") from error
        raise UserError(
            f"paper: there is no {name}{closest(name, paper_names())} (one of {', '.join(paper_names())}, or a module "
            f"of yours in {os.getcwd()} or on PYTHONPATH)"
        ) from error
    except Exception as error:
        raise UserError(f"paper {name}: {type(error).__name__}: {error}, while importing it") from error
    return module
