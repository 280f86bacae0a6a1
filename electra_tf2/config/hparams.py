"""Typed, documented, range-checked hyperparameters. Imports no TensorFlow.

A configuration is a frozen dataclass whose fields are made by `hparam`. Checks, flags (config.flags) and the JSON
beside every checkpoint are made of these declarations. All problems are reported together, and an unknown name with the
closest valid one.
"""

import dataclasses
import functools
import inspect
import math
import operator
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from electra_tf2.util.errors import HALF_PAIR, UserError, closest, shown

_GREATEST = 2**63 - 1
_HOME = re.compile(r"~[\w.-]*/")
Place = Literal["read", "other"]


# Declaring hparams.


def hparam(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    heading: str | None = None,
    free_on_resume: bool = False,
    shapes_model: bool = False,
    entries: type | None = None,
    flags_for_entries: bool = True,
    place: Place | None = None,
    needs: tuple[str, str] | None = None,
) -> Any:
    """Declares a field of a configuration: default, description of one line, range.

    Args:
      at_least, above, at_most, below: limits of a number.
      choices: the values that a string may have.
      heading: begins a group in --help, under this heading.
      free_on_resume: may differ when a run is resumed: how long, how often, where and on what, and the learning
        rate, but not what is trained.
      shapes_model: a trained model depends on it, so it is needed wherever the model is used.
      entries: for a dict: the dataclass whose fields are its entries. Each entry is also an hparam and a flag by its
        own name, unless flags_for_entries is false.
      place: a path or address, of no use once the model is moved: "read" for files that a resumed run reads again, else
        "other".
      needs: (another hparam that must be given if this one is set, description of it). A recipe may set this one and
        leave the other to the user, so a configuration may lack it, but no run begins without it (`unmet_needs`).
    """
    metadata = {name: value for name, value in locals().items() if name != "default"}
    if isinstance(default, (dict, list)):
        # So that configurations do not share one dict or list.
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def dashed(name: str) -> str:
    """The flag of an hparam as users type it: "num_train_steps" -> --num-train-steps."""
    return f"--{name.replace('_', '-')}"


def default_of(field: dataclasses.Field) -> Any:
    """The default of a field; dataclasses.MISSING if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def free_hparam(default: Any, help: str, **limits: Any) -> Any:
    """An `hparam` that may differ when a run is resumed."""
    return hparam(default, help, free_on_resume=True, **limits)


def model_hparam(default: Any, help: str, **limits: Any) -> Any:
    """An `hparam` that a trained model depends on."""
    return hparam(default, help, shapes_model=True, **limits)


# Which hparams a configuration has.


def free_on_resume(config_class: type) -> frozenset[str]:
    """Names of the hparams that may differ when a run is resumed."""
    return frozenset(field.name for field in dataclasses.fields(config_class) if field.metadata["free_on_resume"])


def shapes_model(config_class: type) -> frozenset[str]:
    """Names of the hparams that a trained model depends on."""
    return frozenset(field.name for field in dataclasses.fields(config_class) if field.metadata["shapes_model"])


def places(config_class: type, kind: Place | None = None) -> frozenset[str]:
    """Names of the hparams that are paths or addresses (`place`), all or those of one kind."""
    names = set()
    for field in dataclasses.fields(config_class):
        place = field.metadata["place"]
        if place is not None and kind in (None, place):
            names.add(field.name)
    return frozenset(names)


def unmet_needs(config: Any) -> Iterator[str]:
    """Yields a sentence for each hparam that the user must still give (`needs`)."""
    for field in dataclasses.fields(config):
        if field.metadata["needs"] is None or not getattr(config, field.name):
            continue
        needed, description = field.metadata["needs"]
        if not getattr(config, needed):
            yield f"{field.name} needs {dashed(needed)}: {description}"


def all_hparams(config_class: type) -> Iterator[tuple[type, dataclasses.Field]]:
    """Yields (declaring class, field) for every hparam of a class, also inherited ones and entries of dicts."""
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    # Fields of the class itself first, because help shows them in this order.
    for name in dict.fromkeys([*inspect.get_annotations(config_class), *fields]):
        if name in fields:
            yield config_class, fields[name]
    for name, names in entries_of_dicts(config_class).items():
        entries_class = fields[name].metadata["entries"]
        for field in dataclasses.fields(entries_class):
            if field.name in names:
                yield entries_class, field


def entries_of_dicts(config_class: type) -> dict[str, list[str]]:
    """Field that is a dict -> names of those of its entries that are also hparams by themselves."""
    own_names = {field.name for field in dataclasses.fields(config_class)}
    entries = {}
    for field in dataclasses.fields(config_class):
        entries_class = field.metadata["entries"]
        if entries_class is None or not field.metadata["flags_for_entries"]:
            continue
        names = [entry.name for entry in dataclasses.fields(entries_class)]
        entries[field.name] = [name for name in names if name not in own_names]
    return entries


def value_type(config_class: type, field: dataclasses.Field) -> tuple[type, bool]:
    """Type of a field, and whether it may be None, from its annotation."""
    hint = _type_hints(config_class)[field.name]
    options: tuple[Any, ...] = (hint,)
    if isinstance(hint, types.UnionType):
        options = typing.get_args(hint)
    plain = [option for option in options if option is not type(None)]
    origin = typing.get_origin(plain[0]) or plain[0]  # dict[str, Any] -> dict
    return origin, len(plain) < len(options)


_type_hints = functools.cache(typing.get_type_hints)  # resolving a hundred annotations takes milliseconds


# Layers of hparams: defaults, a recipe's, what files imply, the user's.


def layered(config_class: type, *layers: Mapping[str, Any], by_entry: bool = False) -> dict[str, Any]:
    """Merges layers of hparams; later layers win. Entries of dicts that are given by name are put into their dicts.

    Such an entry replaces only itself in earlier layers.

    Args:
      by_entry: whether a dict that is given as a whole replaces only the entries that it holds, or the whole dict.
    """
    entries_of = entries_of_dicts(config_class)
    result: dict[str, Any] = {}
    for hparams in layers:
        layer = dict(hparams)
        for name, entries in entries_of.items():
            single_entries = {}
            for entry in entries:
                if entry in layer:
                    single_entries[entry] = layer.pop(entry)
            has_whole = name in layer
            whole = layer.get(name, {})
            below: Any = {}
            if by_entry or not has_whole:
                below = result.get(name, {})
            # A value that is no dict stays: it is refused later, with all wrong values.
            if (single_entries or has_whole) and isinstance(below, dict) and isinstance(whole, dict):
                layer[name] = below | whole | single_entries
        result |= layer
    return result


def with_implied(
    config_class: type, recipe: Mapping[str, Any], implied: Mapping[str, Any], user: Mapping[str, Any]
) -> dict[str, Any]:
    """Merges hparams that files imply between those of a recipe and a user's.

    Of a dict that files imply, such as the sizes of a checkpoint, a user's replaces only the entries that it holds.
    """
    implied_dicts = {name: implied[name] for name in entries_of_dicts(config_class) if name in implied}
    users_in_implied = layered(config_class, implied_dicts, user, by_entry=True)
    return layered(config_class, recipe, implied, users_in_implied)


# Values.


def with_home(value: Any) -> Any:
    """Expands "~/" at the start of strings, also inside lists and objects.

    A shell does that only at the start of a word, not after "=", in JSON or in recipes.
    """
    if isinstance(value, str) and _HOME.match(value):
        return expanded(value)
    if isinstance(value, list):
        return [with_home(item) for item in value]
    if isinstance(value, dict):
        return {name: with_home(item) for name, item in value.items()}
    return value


def expanded(path: str) -> str:
    """Expands "~" at the start of a path. Raises UserError: no home folder is known, as in some containers."""
    whole = os.path.expanduser(path)
    if whole.startswith("~/") or whole == "~":
        raise UserError(f"{path}: there is no home folder for ~ (HOME is not set): give the whole path")
    return whole


def value_problem(name: str, value: Any) -> str | None:
    """Describes what makes a value, or one inside of it, unfit for paths, files or arithmetic; None if nothing does."""
    if isinstance(value, str) and "\0" in value:
        return f"{name} must not hold a NUL character, got {shown(value)}"
    if isinstance(value, str) and HALF_PAIR.search(value):
        return f"{name} must be UTF-8 text, got {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} must be finite, got {value!r}"
    if isinstance(value, int) and abs(value) > _GREATEST:
        return f"{name} must be an integer of 64 bits, got {shown(value)}"
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return f"{name} must have strings as names, got {shown(value)}"
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            problem = value_problem(name, item)
            if problem is not None:
                return problem
    return None


def checked(config_class: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Checks values, and returns them as constructor arguments; integers become floats where a float is expected.

    Raises:
      UserError: unknown names, wrong types, values out of range, all in one message.
    """
    by_name: dict[str, Any] = with_home(layered(config_class, values))
    for name in places(config_class) & by_name.keys():
        if isinstance(by_name[name], str):
            by_name[name] = expanded(by_name[name])  # also "~" alone, before anything is derived from it
    result, problems = _check(config_class, by_name)
    if problems:
        raise UserError("hparams: " + "; ".join(problems))
    return result


def _check(config_class: type, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns valid values as constructor arguments, and what is wrong with the others."""
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    names = {field.name for _, field in all_hparams(config_class)}
    problems: list[str] = []
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            problems.append(f"unknown hparam {shown(name)}{closest(name, names)}")
            continue
        field = fields[name]
        problem = _type_problem(config_class, field, value)
        if problem is None and value is not None:
            problem = _range_problem(field, value)
        if problem is not None:
            problems.append(problem)
            continue
        result[name] = value
        if field.metadata["entries"] is not None:
            result[name], entry_problems = _check(field.metadata["entries"], value)
            problems += [f"{name}: {problem}" for problem in entry_problems]
            problems += [f"{entry} is no entry of {name}: it is an hparam" for entry in value if entry in fields]
        elif value is not None and value_type(config_class, field)[0] is float:
            result[name] = float(value)
    return result, problems


def _type_problem(config_class: type, field: dataclasses.Field, value: Any) -> str | None:
    expected, optional = value_type(config_class, field)
    if value is None and optional:
        return None
    accepted = (int, float) if expected is float else (expected,)
    is_misused_bool = isinstance(value, bool) and expected is not bool  # to Python it is an integer
    if isinstance(value, accepted) and not is_misused_bool:
        return value_problem(field.name, value)
    wanted = expected.__name__
    if optional:
        wanted += " or null"
    return f"{field.name} must be {wanted}, got {shown(value)} ({type(value).__name__})"


def _range_problem(field: dataclasses.Field, value: Any) -> str | None:
    limits = field.metadata
    choices = limits["choices"]
    if choices is not None and value not in choices:
        return f"{field.name} is {shown(value)}{closest(value, choices)} (one of {', '.join(choices)})"
    checks = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
    for key, holds in checks.items():
        limit = limits[key]
        if limit is not None and not holds(value, limit):
            return f"{field.name} must be {key.replace('_', ' ')} {limit:g}, got {shown(value)}"
    return None
