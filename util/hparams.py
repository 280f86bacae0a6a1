"""Typed, documented, range-checked hyperparameters, free of TensorFlow.

A configuration is a frozen dataclass whose fields are made by `hparam`. From them follow the checks, the flags
(util.flags) and the JSON beside every checkpoint. All problems are found in one pass, and an unknown name is answered
with the closest valid one.
"""

import dataclasses
import difflib
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from util.errors import UserError


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
) -> Any:
    """A field with a default, a one-line description and its range.

    Args:
      heading: opens a group in --help.
      free_on_resume: may differ when a run is resumed: how long, how often, where and on what, but not what is trained.
      shapes_model: a trained model depends on it, so it is repeated wherever the model is used.
    """
    metadata = {
        "help": help,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "below": below,
        "choices": choices,
        "heading": heading,
        "free_on_resume": free_on_resume,
        "shapes_model": shapes_model,
    }
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def free_hparam(default: Any, help: str, **limits: Any) -> Any:
    """An `hparam` that may differ when a run is resumed."""
    return hparam(default, help, free_on_resume=True, **limits)


def free_on_resume(config_class: type) -> frozenset[str]:
    """Names of the hparams that may differ when a run is resumed."""
    return _marked(config_class, "free_on_resume")


def shapes_model(config_class: type) -> frozenset[str]:
    """Names of the hparams that a trained model depends on."""
    return _marked(config_class, "shapes_model")


def _marked(config_class: type, mark: str) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(config_class) if field.metadata[mark])


def value_type(config_class: type, field: dataclasses.Field) -> tuple[type, bool]:
    """(type, may be None) of a field, from its annotation."""
    hint = _type_hints(config_class)[field.name]
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    plain = [option for option in options if option is not type(None)]
    origin = typing.get_origin(plain[0]) or plain[0]
    return origin, len(plain) < len(options)


_type_hints = functools.cache(typing.get_type_hints)  # resolving a hundred annotations takes milliseconds


def closest(name: str, valid: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    names = {one.lstrip("-"): one for one in valid}  # dashes that all flags have do not make two alike
    matches = difflib.get_close_matches(name.lstrip("-"), names, n=1, cutoff=0.5)
    return f"; did you mean {names[matches[0]]!r}?" if matches else ""


def _type_problem(config_class: type, field: dataclasses.Field, value: Any) -> str | None:
    expected, optional = value_type(config_class, field)
    if value is None and optional:
        return None
    accepted = (int, float) if expected is float else (expected,)
    if isinstance(value, accepted) and (expected is bool or not isinstance(value, bool)):
        return None
    wanted = expected.__name__ + (" or null" if optional else "")
    return f"{field.name} must be {wanted}, got {value!r} ({type(value).__name__})"


def _range_problem(field: dataclasses.Field, value: Any) -> str | None:
    limits = field.metadata
    if limits["choices"] is not None and value not in limits["choices"]:
        return (
            f"{field.name} is {value!r}{closest(str(value), limits['choices'])} (one of {', '.join(limits['choices'])})"
        )
    if isinstance(value, float) and not math.isfinite(value):
        return f"{field.name} must be finite, got {value!r}"
    checks: list[tuple[str, str, Callable[[Any, Any], bool]]] = [
        ("at_least", "at least", lambda v, limit: v >= limit),
        ("above", "above", lambda v, limit: v > limit),
        ("at_most", "at most", lambda v, limit: v <= limit),
        ("below", "below", lambda v, limit: v < limit),
    ]
    for key, words, holds in checks:
        if limits[key] is not None and not holds(value, limits[key]):
            return f"{field.name} must be {words} {limits[key]:g}, got {value!r}"
    return None


def checked(config_class: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as constructor arguments; integers become floats where a float is expected.

    Raises:
      UserError: unknown names, wrong types, values out of range: all of them in one message.
    """
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    problems, result = [], {}
    for name, value in values.items():
        if name not in fields:
            problems.append(f"unknown hparam {name!r}{closest(name, fields)}")
            continue
        problem = _type_problem(config_class, fields[name], value)
        if problem is None and value is not None:
            problem = _range_problem(fields[name], value)
        if problem is not None:
            problems.append(problem)
        elif value is not None and value_type(config_class, fields[name])[0] is float:
            result[name] = float(value)
        else:
            result[name] = value
    if problems:
        raise UserError("hparams: " + "; ".join(problems))
    return result


def read_json_object(text_or_path: str, what: str) -> dict[str, Any]:
    """A JSON object given as text or as the path of a .json file."""
    text = text_or_path
    if not text_or_path.lstrip().startswith("{"):
        try:
            text = Path(text_or_path).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{what}: {text_or_path!r} is neither a JSON object nor a readable file: {error}") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{what}: not valid JSON ({error}): {text[:80]!r}") from None
    if not isinstance(value, dict):
        raise UserError(f"{what}: a JSON object is needed, got {type(value).__name__}")
    return value
