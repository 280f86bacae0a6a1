"""Tasks of one's own: those that the hparam `tasks` describes, and the one that --train-file is.

A description is one entry of `tasks` (docs/own_tasks.md). Its type is a kind of task, or a class in Python, whose
settings are the description's other keys. Free of TensorFlow.
"""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.files import tables
from electra_tf2.settings.built_in import BUILT_IN, TaskSettings, TextSettings
from electra_tf2.settings.metrics import F1_OF, METRICS, REGRESSION_METRICS
from electra_tf2.util.errors import UserError, closest, shown

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
    "tagging": _FILES | {"spans": (bool,), "labels": (list,), "label_column": (str,)},
    "qa": _FILES | {"v2": (bool,), "mrqa": (bool,), "f1_of": (str,)},
}
DESCRIBED = tuple(_KEYS)  # kinds of tasks that a description may name
_LIKE = {"regression": "sts", "embedding": "sentence_embedding", "tagging": "chunk", "qa": "squad"}
_WORDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false", dict: "an object"}
_GREATEST = 2**63 - 1


def settings_of(name: str, own: Mapping[str, Any]) -> TaskSettings:
    """The settings of a task that `check_names` has let pass."""
    return _described(name, own[name]) if name in own else BUILT_IN[name]


def without_files(own: Any) -> Any:
    """The descriptions of tasks without the paths of their files; what is none stays, for checks to name it."""
    if not isinstance(own, dict):
        return own
    return {
        name: {key: task[key] for key in task if key != "files"} if isinstance(task, dict) else task
        for name, task in own.items()
    }


def check_names(names: Any, own: Mapping[str, Any]) -> None:
    """Raises UserError unless these are different names of known tasks and all of one's own are described rightly."""
    known = list(dict.fromkeys([*BUILT_IN, *own]))
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise UserError(f"task_names must be different tasks, at least one, got {shown(names)}")
    of = f"(one of {', '.join(known)})"
    wrong = [f"{shown(name)}{closest(str(name)[:100], known)} {of}" for name in names if name not in known]
    if wrong:
        raise UserError("; ".join(f"task_names: unknown task {name}" for name in wrong))
    for name in own:
        settings_of(name, own)


def _described(name: str, described: Any) -> TaskSettings:
    """The task of a description, with the settings of the built-in task that is like it. Raises UserError: no or an
    unknown type, unknown keys, values of the wrong type, what does not go together."""
    where, options = f"tasks: {name}", dict(described) if isinstance(described, dict) else {}
    kind = options.pop("type", None)
    if isinstance(kind, str) and re.fullmatch(r"[\w.]+:\w+", kind):
        return TaskSettings(kind, None, options)
    if not isinstance(kind, str) or kind not in _KEYS:
        raise UserError(f"{where} needs a type, one of {', '.join(_KEYS)}, or module:Class; got {kind!r}")
    valid = _KEYS[kind]
    for key, value in options.items():
        if key not in valid:
            raise UserError(f"{where}: unknown key {key!r}{closest(key, valid)} ({kind} has {', '.join(valid)})")
        _check_type(f"{where}: {key}", value, *valid[key])
    for split, path in options.get("files", {}).items():
        if split not in tables.SPLITS:
            raise UserError(f"{where}: files: {split!r} is no split (one of {', '.join(tables.SPLITS)})")
        _check_type(f"{where}: files: {split}", path, str)
    held_out = float(options.get("held_out", HELD_OUT))
    if not 0 <= held_out < 1:
        raise UserError(f"{where}: held_out is a share of the training data, from 0 to below 1, got {held_out:g}")
    like = _LIKE.get(kind, "")
    hparams = BUILT_IN[like].hparams if like else {}
    if "held_out" in valid:
        options["held_out"] = held_out
    if (f1_of := options.get("f1_of", F1_OF[0])) not in F1_OF:
        raise UserError(f"{where}: f1_of {f1_of!r}{closest(f1_of, F1_OF)} (one of {', '.join(F1_OF)})")
    if "labels" in options:
        options["labels"] = _labels(where, options["labels"])
    if "text_columns" not in valid:
        return TaskSettings(kind, None, options, hparams, like)
    text = _text_settings(where, kind == "regression", options)
    files = {key: value for key, value in options.items() if key in _FILES}
    return TaskSettings(kind, text, files, hparams, like)


def _check_type(what: str, value: Any, *types: type) -> None:
    right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not right or (isinstance(value, (int, float)) and not abs(value) <= _GREATEST):
        raise UserError(f"{what} is {value!r}, but must be {' or '.join(dict.fromkeys(_WORDS[one] for one in types))}")


def _labels(where: str, labels: list[Any]) -> tuple[str, ...]:
    for label in labels:
        _check_type(f"{where}: one of labels", label, str, int)
    if len(labels) < 2 or len({str(label) for label in labels}) < len(labels):
        raise UserError(f"{where}: labels must be different names, at least two, got {labels!r}")
    return tuple(map(str, labels))


def _text_settings(where: str, regression: bool, options: Mapping[str, Any]) -> TextSettings:
    texts = options.get("text_columns", ["text"])
    if len(texts) not in (1, 2):
        raise UserError(f"{where}: text_columns must be one or two columns, got {texts!r}")
    for column in texts:
        _check_type(f"{where}: a column of text_columns", column, str, int)
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
    labels = options.get("labels")
    return TextSettings(
        tuple(texts),
        options.get("label_column", "label"),
        options.get("header", True),
        delimiter,
        options.get("quoted"),
        metrics=tuple(dict.fromkeys([metric, "pearson" if regression else "accuracy"])),
        labels=labels,
        numbers=labels,
        value_range=(low, high) if regression else None,
        range_of_data=regression,
        double_unordered=options.get("double_unordered", False),
    )


# --train-file.

# What belongs to a train_file, and its default, as which every configuration has it.
_OF_FILE: dict[str, Any] = {"dev_file": "", "test_file": "", "text_column": ["text"], "label_column": "label",
                            "task_type": "classification"}  # fmt: skip


def task_of_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """The hparams `tasks` and `task_names` that follow from `train_file` and what belongs to it; {} without one.

    Raises:
      UserError: what belongs to a train_file without one; a task that is also named in another way.
    """
    file = given.get("train_file")
    if not file:
        alone = [name for name, default in _OF_FILE.items() if given.get(name, default) != default]
        if alone and not given.get("tasks"):
            raise UserError(f"{', '.join(alone)}: what belongs to a train_file, which is not given")
        return {}
    name = re.sub(r"[^\w.-]+", "_", Path(file).name.partition(".")[0]) or "own"
    if given.get("task_names", [name]) != [name]:
        raise UserError(f"train_file {file} and task_names {given['task_names']} are both given: choose one")
    files = {split: given.get(f"{split}_file") for split in tables.SPLITS}
    for split, path in files.items():
        if path and Path(path).is_fifo():
            raise UserError(f"{split}_file {path} is a pipe, which can be read only once: save it as a file")
    for split in tables.splits_of(file).keys() - {""}:  # all splits in one folder
        files[split] = files[split] or file
    kind = given.get("task_type", "classification")
    described: dict[str, Any] = {"type": kind}
    described["files"] = {split: os.path.abspath(path) for split, path in files.items() if path}
    if kind in ("classification", "regression"):
        described |= {
            "text_columns": given.get("text_column", ["text"]),
            "label_column": given.get("label_column", "label"),
        }
    own = given.get("tasks", {})
    if own.get(name, described) != described:
        raise UserError(f"train_file {file} is task {name}, which tasks describes otherwise: choose one")
    return {"tasks": {**own, name: described}, "task_names": [name]}
