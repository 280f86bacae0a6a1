"""Tasks that a user describes, by the hparam `tasks`, or by --train-file and the flags that go with it.

A description is an entry of `tasks` (docs/own_tasks.md). Its type is a kind of task or a class in Python, its other
keys are settings of that kind or class. Free of TensorFlow.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.files import table_files
from electra_tf2.files.cells import label_text
from electra_tf2.settings import columns
from electra_tf2.settings.built_in import BUILT_IN, TaskSettings, TextSettings
from electra_tf2.settings.kinds import FILE_KEYS, KINDS, kind_named
from electra_tf2.settings.metrics import CLASSIFICATION_METRICS, F1_OF, REGRESSION_METRICS
from electra_tf2.util.errors import UserError, closest, shown

HELD_OUT = 0.1  # share of the training data that is scored where there is no development data
DESCRIBED = tuple(name for name, kind in KINDS.items() if kind.keys)  # kinds that a description may name
_TYPE_NAMES = {
    list: "a list",
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
}
_GREATEST = 2**63 - 1  # int64


def settings_of(name: str, tasks: Mapping[str, Any]) -> TaskSettings:
    """Makes the settings of a task whose name `check_names` has accepted. tasks: the hparam."""
    if name in tasks:
        return _settings_of_description(name, tasks[name])
    return BUILT_IN[name]


def without_files(tasks: Any) -> Any:
    """Takes the paths of files out of the hparam `tasks`. Values of a wrong type stay, for checks to report them."""
    if not isinstance(tasks, dict):
        return tasks
    result = {}
    for name, description in tasks.items():
        if isinstance(description, dict):
            description = {key: value for key, value in description.items() if key != "files"}
        result[name] = description
    return result


def check_names(names: Any, tasks: Mapping[str, Any]) -> None:
    """Checks the hparam `task_names`, and with it `tasks`.

    Raises:
      UserError: `names` is not a list of different known tasks, or any description is wrong.
    """
    known = list(dict.fromkeys([*BUILT_IN, *tasks]))
    if not isinstance(names, list) or not names or len({str(name) for name in names}) < len(names):
        raise UserError(f"task_names must be different tasks, at least one, got {shown(names)}")
    messages = []
    for name in names:
        if name not in known:
            suggestion = closest(str(name)[:100], known)
            messages.append(f"task_names: unknown task {shown(name)}{suggestion} (one of {', '.join(known)})")
    if messages:
        raise UserError("; ".join(messages))
    for name in tasks:
        settings_of(name, tasks)


def _settings_of_description(name: str, description: Any) -> TaskSettings:
    """Makes the settings of a description, with the hparams of the built-in task that its kind is like.

    Raises:
      UserError: no or an unknown type, unknown keys, values of a wrong type or out of range.
    """
    where = f"tasks: {name}"
    options = dict(description) if isinstance(description, dict) else {}
    kind = options.pop("type", None)
    if isinstance(kind, str) and re.fullmatch(r"[\w.]+:\w+", kind):
        # A class in Python checks its settings itself.
        return TaskSettings(kind, None, options)
    if not isinstance(kind, str) or kind not in DESCRIBED:
        raise UserError(f"{where} needs a type, one of {', '.join(DESCRIBED)}, or module:Class; got {kind!r}")
    _check_options(where, kind, options)
    row = KINDS[kind]
    if "held_out" in row.keys:
        options["held_out"] = float(options.get("held_out", HELD_OUT))
    if "labels" in options:
        options["labels"] = _labels(where, options["labels"])
    hparams = BUILT_IN[row.like].hparams if row.like else {}
    if not row.plain_texts:
        return TaskSettings(kind, None, options, hparams, row.like)
    text = _text_settings(where, row.numeric, options)
    file_options = {key: value for key, value in options.items() if key in FILE_KEYS}
    return TaskSettings(kind, text, file_options, hparams, row.like)


def _check_options(where: str, kind: str, options: Mapping[str, Any]) -> None:
    """Checks keys and values. Raises UserError: a key that the kind does not have, or a wrong value."""
    types_of_key = KINDS[kind].keys
    for key, value in options.items():
        if key not in types_of_key:
            suggestion = closest(key, types_of_key)
            raise UserError(f"{where}: unknown key {key!r}{suggestion} ({kind} has {', '.join(types_of_key)})")
        _check_type(f"{where}: {key}", value, *types_of_key[key])
    for split, path in options.get("files", {}).items():
        if split not in table_files.SPLITS:
            raise UserError(f"{where}: files: {split!r} is no split (one of {', '.join(table_files.SPLITS)})")
        _check_type(f"{where}: files: {split}", path, str)
    held_out = float(options.get("held_out", HELD_OUT))
    if not 0 <= held_out < 1:
        raise UserError(f"{where}: held_out is a share of the training data, from 0 to below 1, got {held_out:g}")
    if kind in _MEANING_OF_COLUMNS and "text_columns" in options:
        _check_text_columns(where, kind, options["text_columns"])
    f1_of = options.get("f1_of", F1_OF[0])
    if f1_of not in F1_OF:
        raise UserError(f"{where}: f1_of {f1_of!r}{closest(f1_of, F1_OF)} (one of {', '.join(F1_OF)})")


# Kinds whose text_columns are not one or two texts: the numbers of columns that they may have, and what these are.
_MEANING_OF_COLUMNS = {
    "qa": ((2,), "two, of questions and of contexts (--text-column QUESTION,CONTEXT)"),
    "tagging": ((1, 2), "that of the words or texts, and that of the sentences' numbers (--text-column WORD,SENTENCE)"),
}


def _check_text_columns(where: str, kind: str, names: Sequence[Any]) -> None:
    """Raises UserError unless names are as many texts as the kind needs."""
    counts, meaning = _MEANING_OF_COLUMNS[kind]
    if len(names) not in counts:
        raise UserError(f"{where}: text_columns must be {meaning}, got {shown(names)}")
    for name in names:
        _check_type(f"{where}: a column of text_columns", name, str)


def _check_type(what: str, value: Any, *types: type) -> None:
    is_right = isinstance(value, types)
    if isinstance(value, bool) and bool not in types:
        is_right = False  # true is no number, though Python's bool is an int
    if isinstance(value, (int, float)) and not abs(value) <= _GREATEST:
        is_right = False  # NaN, too, which compares as false
    if not is_right:
        type_names = dict.fromkeys(_TYPE_NAMES[valid_type] for valid_type in types)
        raise UserError(f"{what} is {value!r}, but must be {' or '.join(type_names)}")


def _labels(where: str, labels: list[Any]) -> tuple[str, ...]:
    for label in labels:
        _check_type(f"{where}: one of labels", label, str, int, bool)
    names = tuple(label_text(label) or "" for label in labels)
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(f"{where}: labels must be different names, at least two, got {labels!r}")
    return names


def _text_settings(where: str, regression: bool, options: Mapping[str, Any]) -> TextSettings:
    texts = options.get("text_columns", [columns.TEXT])
    if len(texts) not in (1, 2):
        raise UserError(f"{where}: text_columns must be one or two columns, got {texts!r}")
    for column in texts:
        _check_type(f"{where}: a column of text_columns", column, str, int)
    label = options.get("label_column", columns.LABEL)
    if len({*texts, label}) < len(texts) + 1:
        raise UserError(f"{where}: the columns of texts {shown(texts)} and of labels {shown(label)} must be different")
    low = float(options.get("min", -math.inf))
    high = float(options.get("max", math.inf))
    if low >= high:
        raise UserError(f"{where}: min {low:g} must be below max {high:g}")
    delimiter = options.get("delimiter", "")
    if len(delimiter) > 1 or delimiter in ('"', "\n", "\r"):
        raise UserError(f"{where}: delimiter is one character between two columns, got {shown(delimiter)}")
    labels = options.get("labels")
    return TextSettings(
        texts=tuple(texts),
        label=label,
        header=options.get("header", True),
        delimiter=delimiter,
        quoted=options.get("quoted"),
        metrics=_metrics(where, regression, options),
        labels=labels,
        numbers=labels,
        value_range=(low, high) if regression else None,
        range_of_data=regression,
        double_unordered=options.get("double_unordered", False),
    )


def _metrics(where: str, regression: bool, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Lists the metric by which the best weights are chosen, and the usual ones. Raises UserError: it is unknown."""
    valid = tuple(CLASSIFICATION_METRICS)
    usual = ["accuracy", "macro_f1"]
    if regression:
        valid = tuple(REGRESSION_METRICS)
        usual = ["spearman", "pearson", "mae"]
    metric = options.get("metric", usual[0])
    if metric not in valid:
        raise UserError(f"{where}: metric {metric!r}{closest(metric, valid)} (one of {', '.join(sorted(valid))})")
    return tuple(dict.fromkeys([metric, *usual]))


# --train-file.

# Hparams that need train_file, and their defaults, which every configuration has.
_TRAIN_FILE_HPARAMS: dict[str, Any] = {
    "dev_file": "",
    "test_file": "",
    "text_column": [columns.TEXT],
    "label_column": columns.LABEL,
    "task_type": "classification",
}


def task_of_file(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the hparams `tasks` and `task_names` of `train_file` and the hparams that go with it; {} without it.

    Args:
      hparams: hparams by name; others have their defaults.

    Raises:
      UserError: train_file is missing or a pipe, or the task is also named or described otherwise.
    """
    train_file = hparams.get("train_file")
    if not train_file:
        _check_nothing_needs_train_file(hparams)
        return {}
    name = re.sub(r"[^\w.-]+", "_", Path(train_file).name.partition(".")[0]) or "own"
    names = hparams.get("task_names", [name])
    if len(names) != 1 or (names != [name] and names[0] in BUILT_IN):
        raise UserError(
            f"train_file {train_file} is one task of your own: leave task_names {','.join(names)} out, or give it "
            "another name by them"
        )
    [task_name] = names
    tasks = hparams.get("tasks", {})
    given = tasks.get(task_name, {})  # further keys, such as a metric; in a whole configuration all
    kind = hparams.get("task_type", given.get("type", "classification"))
    description: dict[str, Any] = {"type": kind, "files": _files_of_splits(train_file, hparams)}
    defaults: dict[str, Any] = {}
    if kind_named(kind).plain_texts:
        defaults = {"text_columns": [columns.TEXT], "label_column": columns.LABEL}
        if "files" not in given and hparams.get("double_unordered"):
            description["double_unordered"] = True
    for hparam, key in (("text_column", "text_columns"), ("label_column", "label_column")):
        if hparam in hparams:
            if key not in kind_named(kind).keys:
                raise UserError(
                    f"{hparam}: the columns of a file of task_type {kind} are not named by flags: docs/own_tasks.md "
                    "says what they must be called"
                )
            description[key] = hparams[hparam]
    texts = description.get("text_columns", given.get("text_columns", ()))
    if description.get("double_unordered") and len(texts) != 2:
        raise UserError("double_unordered is for pairs of texts: name their columns, --text-column A,B")
    for key, value in description.items():
        if given.get(key, value) != value:
            raise UserError(
                f"train_file {train_file} is task {task_name}, whose {key} {shown(given[key])} in tasks is another "
                f"than {shown(value)}: give it once"
            )
    return {"tasks": {**tasks, task_name: defaults | given | description}, "task_names": [task_name]}


def _check_nothing_needs_train_file(hparams: Mapping[str, Any]) -> None:
    names = [name for name, default in _TRAIN_FILE_HPARAMS.items() if hparams.get(name, default) != default]
    # The hparams of a trained model are also checked without train_file, a path, but have its task in `tasks`.
    if names and not hparams.get("tasks"):
        raise UserError(f"{', '.join(names)}: what belongs to a train_file, which is not given")


def _files_of_splits(train_file: str, hparams: Mapping[str, Any]) -> dict[str, str]:
    """Makes the absolute path of each split's file: --<split>-file, or train_file if it is a folder of several splits.

    Raises:
      UserError: a pipe, which cannot be read more than once.
    """
    paths = {split: hparams.get(f"{split}_file") for split in table_files.SPLITS}
    for split, path in paths.items():
        if path and Path(path).is_fifo():
            raise UserError(f"{split}_file {path} is a pipe, which can be read only once: save it as a file")
    for split in table_files.splits_of(train_file):
        # "" stands for files whose names have no split.
        if split != "" and not paths[split]:
            paths[split] = train_file
    return {split: os.path.abspath(path) for split, path in paths.items() if path}
