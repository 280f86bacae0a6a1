"""The task that a name stands for: a built-in one, one that the hparam `tasks` describes, or one made in Python.

A description is one entry of `tasks` (docs/own_tasks.md); configurations name and check their tasks here.
"""

import math
from collections.abc import Mapping
from typing import Any

from electra_tf2.finetune.tasks.built_in import BUILT_IN
from electra_tf2.finetune.tasks.metrics import METRICS, REGRESSION_METRICS
from electra_tf2.finetune.tasks.spec import Columns, Entry, TextTaskSpec
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest

HELD_OUT = 0.1  # share of the training data that is scored where there is no development data
_FILES: dict[str, tuple[type, ...]] = {"files": (dict,), "held_out": (int, float)}
_TEXT_KEYS: dict[str, tuple[type, ...]] = _FILES | {
    "text_columns": (list,),
    "label_column": (str, int),
    "metric": (str,),
    "header": (bool,),
    "double_unordered": (bool,),
    "delimiter": (str,),
    "quoted": (bool,),
}
_KEYS: dict[str, dict[str, tuple[type, ...]]] = {
    "classification": _TEXT_KEYS | {"labels": (list,)},
    "regression": _TEXT_KEYS | {"min": (int, float), "max": (int, float)},
    "embedding": {"files": (dict,)},
    "tagging": _FILES | {"spans": (bool,)},
    "qa": _FILES | {"v2": (bool,), "mrqa": (bool,)},
}
KINDS = tuple(_KEYS)
_LIKE = {"regression": "sts", "embedding": "sentence_embedding", "tagging": "chunk", "qa": "squad"}
_WORDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false", dict: "an object"}
_SPLITS = ("train", "dev", "test")
_GREATEST = 2**63 - 1

made_in_python: set[str] = set()  # names that finetune.task_classes.register has added


def entry_of(name: str, own: Mapping[str, Any]) -> Entry | None:
    """Description of a task; None if it is made in Python. Raises UserError for a wrong one."""
    if name in made_in_python:
        return None
    return _described(name, own[name]) if name in own else BUILT_IN[name]


def check_names(names: Any, own: Mapping[str, Any]) -> None:
    """Raises UserError unless these are different names of known tasks and all of one's own are described rightly."""
    known = list(dict.fromkeys([*BUILT_IN, *own, *sorted(made_in_python)]))
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise UserError(f"task_names must be different tasks, at least one, got {shown(names)}")
    of = f"(one of {', '.join(known)})"
    wrong = [f"{shown(name)}{closest(str(name)[:100], known)} {of}" for name in names if name not in known]
    if wrong:
        listed = "; ".join(f"task_names: unknown task {name}" for name in wrong)
        in_python = (
            "" if "did you mean" in listed else "; one made in Python is known to the file that registers it alone"
        )
        raise UserError(f"{listed}{in_python}")
    for name in own:
        entry_of(name, own)


def _described(name: str, described: Any) -> Entry:
    """The task of a description, with the settings of the built-in task that is like it. Raises UserError: no or an
    unknown type, unknown keys, values of the wrong type, what does not go together."""
    where = f"tasks: {name}"
    kind = described.get("type") if isinstance(described, dict) else None
    if not isinstance(kind, str) or kind not in _KEYS:
        raise UserError(f"{where} needs a type, one of {', '.join(_KEYS)}; got {kind!r}")
    options = {key: value for key, value in described.items() if key != "type"}
    for key, value in options.items():
        if key not in _KEYS[kind]:
            valid = _KEYS[kind]
            raise UserError(f"{where}: unknown key {key!r}{closest(key, valid)} ({kind} has {', '.join(valid)})")
        _check_type(f"{where}: {key}", value, *_KEYS[kind][key])
    for split, path in options.get("files", {}).items():
        if split not in _SPLITS:
            raise UserError(f"{where}: files: {split!r} is no split (one of {', '.join(_SPLITS)})")
        _check_type(f"{where}: files: {split}", path, str)
    held_out = float(options.get("held_out", HELD_OUT))
    if not 0 <= held_out < 1:
        raise UserError(f"{where}: held_out is a share of the training data, from 0 to below 1, got {held_out:g}")
    like, spec = _LIKE.get(kind, ""), None
    if "held_out" in _KEYS[kind]:
        options["held_out"] = held_out
    if "text_columns" in _KEYS[kind]:
        spec = _text_spec(where, kind == "regression", options)
        options = {key: value for key, value in options.items() if key in _FILES}
    return Entry(kind, spec, options, BUILT_IN[like].hparams if like else {}, like=like)


def _check_type(what: str, value: Any, *types: type) -> None:
    right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not right or (isinstance(value, (int, float)) and not abs(value) <= _GREATEST):
        raise UserError(f"{what} is {value!r}, but must be {' or '.join(dict.fromkeys(_WORDS[one] for one in types))}")


def _text_spec(where: str, regression: bool, options: Mapping[str, Any]) -> TextTaskSpec:
    texts, labels = options.get("text_columns", ["text"]), options.get("labels")
    if len(texts) not in (1, 2):
        raise UserError(f"{where}: text_columns must be one or two columns, got {texts!r}")
    for column in texts:
        _check_type(f"{where}: a column of text_columns", column, str, int)
    if labels is not None:
        for label in labels:
            _check_type(f"{where}: one of labels", label, str, int)
        if len(labels) < 2 or len({str(label) for label in labels}) < len(labels):
            raise UserError(f"{where}: labels must be different names, at least two, got {labels!r}")
    valid = [name for name in METRICS if (name in REGRESSION_METRICS) == regression]
    metric = options.get("metric", "spearman" if regression else "accuracy")
    if metric not in valid:
        raise UserError(f"{where}: metric {metric!r}{closest(metric, valid)} (one of {', '.join(sorted(valid))})")
    low, high = float(options.get("min", -math.inf)), float(options.get("max", math.inf))
    if low >= high:
        raise UserError(f"{where}: min {low:g} must be below max {high:g}")
    delimiter = options.get("delimiter", "")
    if len(delimiter) > 1 or delimiter in ('"', "\n", "\r"):
        raise UserError(f"{where}: delimiter is one character between two columns, got {shown(delimiter)}")
    label, header, quoted = options.get("label_column", "label"), options.get("header", True), options.get("quoted")
    columns = Columns(tuple(texts), label, header, delimiter=delimiter, quoted=quoted)
    return TextTaskSpec(
        columns,
        columns._replace(texts=tuple(map(str, texts)), label=str(columns.label)),
        tuple(dict.fromkeys([metric, "pearson" if regression else "accuracy"])),
        tuple(map(str, labels)) if labels else None,
        value_range=(low, high) if regression else None,
        range_of_data=regression,
        double_unordered=options.get("double_unordered", False),
    )
