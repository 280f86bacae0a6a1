"""Targets of texts, classes or a scale: labels as files spell them, the head learns them, answers show them.

Both kinds of `Target` have the same methods: `checked` (a label as a file holds it; UserError that names the place),
`encoded` (as the head learns it, 0 for None), `group` (which few-shot splits and demonstrations take equally many of),
`predicted` (what a prediction is scored by), `answers` (predictions as they are written), `submitted` (an answer as
GLUE's server wants it), `state` (what is saved beside a model). `key` and `label` are name and type in
`Features.labels`, `num_classes` is that of the softmax.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.finetune.tasks.task import Label, Prediction
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError, closest, shown
from electra_tf2.util.progress import say

_NUMBER = re.compile(r"-?\d*\.?\d+")


def label_text(value: Any) -> str | None:
    """A class's name from what a file holds there; None if that can be no name.

    The same name however it is written: white space around it, accents apart or not, 1.0 as a table with gaps has 1.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return unicodedata.normalize("NFC", str(value).strip()) if isinstance(value, (str, int, float)) else None


def is_no_label(value: Any) -> bool:
    """Tells whether a label says that there is none: nothing, a dash, NaN; -1 may be a class and is not among them."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "-", "nan"))


def probabilities(logits: Any) -> tf.Tensor:
    """float64 [B, C], the softmax of logits [B, C]: beyond 17, float32 would not tell which of two is the likelier."""
    return tf.nn.softmax(tf.cast(logits, tf.float64))


class Classes:
    """One of several names, in the order of their ids.

    Args:
      numbers: names in the order of numbers that may stand for them, unless names are numbers themselves; (): none may.
    """

    key, label = "label_ids", Label("int32")

    def __init__(self, names: Sequence[str], numbers: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.num_classes = len(self.names)
        are_numbers = any(name.lstrip("-").isdecimal() for name in self.names)
        self._of_number = {} if are_numbers else {str(number): name for number, name in enumerate(numbers)}

    def checked(self, value: Any, where: str) -> str:
        name = label_text(value)
        if name in self.names:
            return name
        if type(value) is not bool and name in self._of_number:
            return self._of_number[name]
        close = closest(name[:100], self.names) if name else ""
        raise UserError(f"{where}: unknown label {shown(value)}{close} (one of {', '.join(self.names)})")

    def encoded(self, label: str | float | None) -> int:
        return 0 if label is None else self.group(label)

    def group(self, label: str | float) -> int:
        return self.names.index(str(label))

    def predicted(self, prediction: Prediction) -> int:
        return int(prediction["logits"].argmax())

    def answers(self, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        logits = np.reshape([prediction["logits"] for prediction in predictions], [-1, len(self.names)])
        shares = probabilities(logits).numpy().tolist()
        answers = []
        for prediction, row in zip(predictions, shares, strict=True):
            label = self.names[self.predicted(prediction)]
            answers.append({"label": label, "probabilities": dict(zip(self.names, row, strict=True))})
        return answers

    def submitted(self, answer: dict[str, Any]) -> str:
        return answer["label"]

    def state(self) -> dict[str, Any]:
        return {"labels": list(self.names)}


class Scale:
    """A number between two ends, learned as a share of their distance; the groups are the halves.

    strict: whether a number beyond the ends is an error; not where they are those of the training data.
    """

    key, label, num_classes = "targets", Label("float32"), None

    def __init__(self, low: float, high: float, strict: bool = True) -> None:
        if not low < high:
            raise ValueError(f"{low:g} must be below {high:g}")
        self.low, self.high, self.strict = low, high, strict

    def checked(self, value: Any, where: str) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise UserError(f"{where}: the label must be a number, got {shown(value)}")
        if self.strict and not self.low <= number <= self.high:
            raise UserError(
                f"{where}: the label {number:g} is not between {self.low:g} and {self.high:g}, the task's min and max"
            )
        return number

    def encoded(self, label: str | float | None) -> float:
        return 0.0 if label is None else (float(label) - self.low) / (self.high - self.low)

    def group(self, label: str | float) -> int:
        return int(float(label) >= (self.low + self.high) / 2)

    def value(self, share: Any) -> Any:
        """The number that a share of the distance between the ends stands for; of arrays and tensors, too."""
        return self.low + (self.high - self.low) * share

    def predicted(self, prediction: Prediction) -> float:
        return float(prediction["value"])

    def answers(self, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        return [{"label": self.predicted(one)} for one in predictions]

    def submitted(self, answer: dict[str, Any]) -> str:
        return f"{min(self.high, max(self.low, answer['label'])):.3f}"

    def state(self) -> dict[str, Any]:
        return {"range": [self.low, self.high]}


Target = Classes | Scale


def no_label(value: Any) -> bool:
    """Tells whether a label of a test file says that there is none, where -1 does so, too."""
    return is_no_label(value) or value in (-1, "-1")


def labelled_rows(rows: list[TextExample], task: str, settings: TextSettings) -> list[TextExample]:
    """The rows that have a label, after a word on the others.

    Raises:
      UserError: none has one, or it is not clear whether -1 is one.
    """
    if settings.label is None:
        return rows
    labels = {label_text(row.label) for row in rows} - {None}
    named = settings.labels or (("-",) if "+" in labels else ())  # as + and - may be classes
    others = {label for label in labels if not is_no_label(label)} - {"-1"}
    are_counted = len(others) > 1 and others == set(map(str, range(len(others))))
    may_mean_none = "-1" in labels and settings.value_range is None and "-1" not in named
    minus_one_is_none = may_mean_none and bool(named or are_counted)
    if minus_one_is_none and are_counted and len(others) == 2 and not named:
        raise UserError(
            f"{task}: the label -1 beside 0 and 1 is a class or means none: name the labels in the "
            'description, "labels": ["-1", "0", "1"], or leave these rows out'
        )

    def has_label(row: TextExample) -> bool:
        text = label_text(row.label)
        if text in named:
            return True
        return not is_no_label(row.label) and not (minus_one_is_none and text == "-1")

    kept = [row for row in rows if has_label(row)]
    if rows and not kept:
        raise UserError(f"{rows[0].where}: a label is needed, got {shown(rows[0].label)}")
    if len(kept) < len(rows):
        first = next(row for row in rows if not has_label(row))
        say(
            f"WARNING: {task}: {len(rows) - len(kept):,} of {len(rows):,} examples are left out, which have "
            f"no label; the first: {first.where}, {shown(first.label)}"
        )
    return kept


def classes_of(rows: Sequence[TextExample], task: str, metrics: Sequence[str]) -> Classes:
    """The classes that the training data of a task have, in their alphabetical order. Raises UserError."""
    names = set()
    for row in rows:
        name = label_text(row.label)
        if not name:
            raise UserError(f"{row.where}: a label is needed, got {shown(row.label)}")
        names.add(name)
    if len(names) < 2:
        raise UserError(f"{task}: the training data has one label only: {', '.join(names)}")
    alike = [name for name in sorted(names) if name.lower() != name and name.lower() in names]
    if alike:
        say(f"WARNING: {task}: labels that differ in case alone are different classes: {shown(alike[0])}")
    if any("." in name for name in names) and all(map(_NUMBER.fullmatch, names)):
        say(
            f"WARNING: {task}: each of {len(names)} numbers is a class of its own: "
            "where their size counts, give --task-type regression"
        )
    return checked_classes(Classes(sorted(names)), task, metrics)


def checked_classes(classes: Classes, task: str, metrics: Sequence[str]) -> Classes:
    """The classes. Raises UserError where a metric of the task is for two."""
    if "f1" in metrics and len(classes.names) > 2:
        raise UserError(f"{task}: the metric f1 is for two labels, there are {len(classes.names)}: choose macro_f1")
    return classes


def scale_of(rows: Sequence[TextExample], task: str, value_range: tuple[float, float]) -> Scale:
    """The scale of a regression's training data: an infinite end is their least or greatest label. Raises UserError."""
    any_number = Scale(*value_range)
    values = [any_number.checked(row.label, row.where) for row in rows]
    low, high = value_range
    low = min(values) if math.isinf(low) else low
    high = max(values) if math.isinf(high) else high
    if low >= high:
        raise UserError(f"{task}: the training data has one label only: {low:g}")
    return Scale(low, high, strict=False)


def check_same(target: Target, saved: Target, task: str) -> None:
    """Raises UserError if the labels of the data are not those that a model was trained on."""
    if isinstance(target, Classes) and isinstance(saved, Classes):
        check_same_names(target.names, saved.names, task)
    if not isinstance(target, Scale) or not isinstance(saved, Scale):
        return
    if (target.low, target.high) != (saved.low, saved.high):
        raise UserError(
            f"{task}: the model was trained on labels from {saved.low:g} to {saved.high:g}, they are now from "
            f"{target.low:g} to {target.high:g}: give the task's min and max, or train it again"
        )


def check_same_names(names: Sequence[str], saved: Sequence[str], task: str) -> None:
    """Raises UserError if the names of the data's labels are not those that a model was trained on."""
    if list(names) != list(saved):
        before, now = ", ".join(saved), ", ".join(names)
        raise UserError(f"{task}: the model was trained on the labels {before}, but the data has {now}")
