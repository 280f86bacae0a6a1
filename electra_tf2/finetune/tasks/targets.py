"""Targets of text tasks, classes or a scale: how labels are read, learned and written.

Both kinds of `Target` have these methods and attributes:
  checked: a label as a file holds it -> the label; UserError with the place if it is none.
  encoded: a label -> what the head learns, a class id or a share of the scale; 0 for None.
  group: a label -> a number; few-shot splits and demonstrations take equally many examples of each number.
  predicted: a prediction -> the value that is scored.
  answers: predictions -> their rows in files of answers.
  submitted: an answer -> the text that GLUE's server expects.
  state: what is saved beside a model.
  key, label: the name and the type in `Features.labels`.
  num_classes: the size of the softmax; None for a scale.
"""

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.finetune.tasks.task import Label, Prediction
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError, closest, shown
from electra_tf2.util.progress import warn

_NUMBER = re.compile(r"-?\d*\.?\d+")
_ENOUGH_ROWS = 20  # from which on labels of one row each look like another column


def label_text(value: Any) -> str | None:
    """A class's name from the value of a label in a file; None if the value is neither text nor a number.

    Different spellings give one name: white space around it, composed or decomposed accents (Unicode's NFC and NFD),
    and 1.0 for 1, to which pandas turns the whole numbers of a column with gaps.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)):
        return None
    return unicodedata.normalize("NFC", str(value).strip())


def is_no_label(value: Any) -> bool:
    """Tells whether a value marks a missing label: None, empty text, a dash, NaN. Not -1, which may be a class."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, str) and value.strip().lower() in ("", "-", "nan")


def probabilities(logits: Any) -> tf.Tensor:
    """float64 [B, C], the softmax of logits [B, C].

    In float32, the larger of two probabilities is exactly 1 from a difference of 17 between the logits.
    """
    return tf.nn.softmax(tf.cast(logits, tf.float64))


class Classes:
    """One of several names, in the order of their ids.

    Args:
      numbers: names in the order of the numbers, from 0, by which files may give them; (): no number is accepted.
        Without effect where names are numbers themselves.
    """

    key = "label_ids"
    label = Label("int32")

    def __init__(self, names: Sequence[str], numbers: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.num_classes = len(self.names)
        are_numbers = any(name.lstrip("-").isdecimal() for name in self.names)
        self._name_of_number: dict[str, str] = {}
        if not are_numbers:
            self._name_of_number = {str(number): name for number, name in enumerate(numbers)}

    def checked(self, value: Any, where: str) -> str:
        name = label_text(value)
        if name in self.names:
            return name
        if name in self._name_of_number:
            return self._name_of_number[name]
        close = closest(name[:100], self.names) if name else ""
        raise UserError(f"{where}: unknown label {shown(value)}{close} (one of {', '.join(self.names)})")

    def encoded(self, label: str | float | None) -> int:
        if label is None:
            return 0
        return self.group(label)

    def group(self, label: str | float) -> int:
        return self.names.index(str(label))

    def predicted(self, prediction: Prediction) -> int:
        return int(prediction["logits"].argmax())

    def answers(self, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        logits = np.reshape([prediction["logits"] for prediction in predictions], [-1, len(self.names)])
        all_probabilities = probabilities(logits).numpy().tolist()
        answers = []
        for prediction, class_probabilities in zip(predictions, all_probabilities, strict=True):
            label = self.names[self.predicted(prediction)]
            probability_of_name = dict(zip(self.names, class_probabilities, strict=True))
            answers.append({"label": label, "probabilities": probability_of_name})
        return answers

    def submitted(self, answer: dict[str, Any]) -> str:
        return answer["label"]

    def state(self) -> dict[str, Any]:
        return {"labels": list(self.names)}


class Scale:
    """A number between two ends, learned as a share of their distance; the groups are the halves of the scale.

    Args:
      strict: whether a number beyond the ends is an error. Not if the ends are the least and the greatest label of the
        training data, which other data may exceed.
    """

    key = "targets"
    label = Label("float32")
    num_classes = None

    def __init__(self, low: float, high: float, strict: bool = True) -> None:
        if not low < high:
            raise ValueError(f"{low:g} must be below {high:g}")
        self.low = low
        self.high = high
        self.strict = strict

    def checked(self, value: Any, where: str) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number):
            raise UserError(f"{where}: the label must be a number, got {shown(value)}")
        if self.strict and not self.low <= number <= self.high:
            raise UserError(
                f"{where}: the label {number:g} is not between {self.low:g} and {self.high:g}, the task's min and max"
            )
        return number

    def encoded(self, label: str | float | None) -> float:
        if label is None:
            return 0.0
        return (float(label) - self.low) / (self.high - self.low)

    def group(self, label: str | float) -> int:
        middle = (self.low + self.high) / 2
        return int(float(label) >= middle)

    def value(self, share: Any) -> Any:
        """The number at a share of the distance between the ends; also elementwise, of an array or a tensor."""
        return self.low + (self.high - self.low) * share

    def predicted(self, prediction: Prediction) -> float:
        return float(prediction["value"])

    def answers(self, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        return [{"label": self.predicted(prediction)} for prediction in predictions]

    def submitted(self, answer: dict[str, Any]) -> str:
        number = min(self.high, max(self.low, answer["label"]))
        return f"{number:.3f}"

    def state(self) -> dict[str, Any]:
        return {"range": [self.low, self.high]}


Target = Classes | Scale


def known_target(task: str, settings: TextSettings) -> Target | None:
    """The classes or the scale that a task's settings say; None where the training data have to say it."""
    if settings.value_range is not None:
        an_end_is_unknown = any(map(math.isinf, settings.value_range))
        if an_end_is_unknown and settings.range_of_data:
            return None
        return Scale(*settings.value_range)
    if settings.labels is not None:
        return checked_classes(Classes(settings.labels, settings.numbers or ()), task, settings.metrics)
    return None


# Labels of a file's rows: checked, and where nobody has said what they mean, asked.


def labelled_rows(
    rows: Sequence[TextExample], task: str, settings: TextSettings, target: Target | None
) -> tuple[list[TextExample], Target]:
    """The rows of training or development data whose labels say something, checked, and what labels mean.

    A warning counts the rows that have no label, which are left out.

    Args:
      target: what labels mean; None: what these rows say.

    Raises:
      UserError: no row has a label, a wrong one, or -1 may be a class as well as mark a missing label.
    """
    kept = _rows_with_labels(rows, task, settings)
    if target is None and settings.value_range is not None:
        target = scale_of(kept, task, settings.value_range)
    elif target is None:
        target = classes_of(kept, task, settings.metrics)
    return [row._replace(label=target.checked(row.label, row.where)) for row in kept], target


def test_rows(rows: Sequence[TextExample], split: str, target: Target) -> list[TextExample]:
    """The rows of test data, with labels if all are right. Missing ones are usual, and others need not be the task's.

    A label that is wrong gives a warning.
    """
    are_missing = [is_no_label(row.label) or row.label in (-1, "-1") for row in rows]  # -1: as GLUE on the Hub
    if not all(are_missing):
        try:
            return [row._replace(label=target.checked(row.label, row.where)) for row in rows]
        except UserError as error:
            warn(f"the {split} data is not scored: {error}")
    return [row._replace(label=None) for row in rows]


def _rows_with_labels(rows: Sequence[TextExample], task: str, settings: TextSettings) -> list[TextExample]:
    """The rows that have a label; a warning counts the others."""
    labels = {label_text(row.label) for row in rows} - {None}
    class_names = settings.labels or ()
    if not class_names and "+" in labels:
        class_names = ("-",)  # the classes are + and -
    minus_one_is_none = _minus_one_is_none(labels, class_names, task, settings)
    kept = []
    left_out = []
    for row in rows:
        text = label_text(row.label)
        is_missing = is_no_label(row.label) or (minus_one_is_none and text == "-1")
        if is_missing and text not in class_names:
            left_out.append(row)
        else:
            kept.append(row)
    if rows and not kept:
        raise UserError(f"{rows[0].where}: a label is needed, got {shown(rows[0].label)}")
    if left_out:
        first = left_out[0]
        warn(
            f"{task}: {len(left_out):,} of {len(rows):,} examples are left out, which have "
            f"no label; the first: {first.where}, {shown(first.label)}"
        )
    return kept


def _minus_one_is_none(
    labels: Collection[str | None], class_names: Sequence[str], task: str, settings: TextSettings
) -> bool:
    """Tells whether the label -1 marks a missing label, as beside classes that have names or are counted from 0.

    Raises:
      UserError: beside 0 and 1 alone it may as well be a class, of negative, neutral and positive.
    """
    is_regression = settings.value_range is not None
    if "-1" not in labels or "-1" in class_names or is_regression:
        return False
    if class_names:
        return True
    other_labels = {label for label in labels if label != "-1" and not is_no_label(label)}
    count = len(other_labels)
    are_counted = count > 1 and other_labels == {str(number) for number in range(count)}
    if are_counted and count == 2:
        raise UserError(
            f"{task}: the label -1 beside 0 and 1 is a class or means none: name the labels in the "
            'description, "labels": ["-1", "0", "1"], or leave these rows out'
        )
    return are_counted


def classes_of(rows: Sequence[TextExample], task: str, metrics: Sequence[str]) -> Classes:
    """The classes of a task's training data, in alphabetical order.

    Raises:
      UserError: a row without a label, one class only, or a metric that is for two classes.
    """
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
        warn(f"{task}: labels that differ in case alone are different classes: {shown(alike[0])}")
    are_numbers = all(_NUMBER.fullmatch(name) for name in names)
    if are_numbers and any("." in name for name in names):
        warn(
            f"{task}: each of {len(names)} numbers is a class of its own: "
            "where their size counts, give task_type regression"
        )
    elif len(rows) >= _ENOUGH_ROWS and len(names) > len(rows) / 2:
        warn(
            f"{task}: {len(names):,} different labels in {len(rows):,} rows: most stand in one row alone, so nothing "
            "can be learned of them. Is that the column of the labels? label_column names another"
        )
    return checked_classes(Classes(sorted(names)), task, metrics)


def checked_classes(classes: Classes, task: str, metrics: Sequence[str]) -> Classes:
    """Returns the classes unchanged. Raises UserError: more than two, and a metric of the task is for two."""
    if "f1" in metrics and len(classes.names) > 2:
        raise UserError(f"{task}: the metric f1 is for two labels, there are {len(classes.names)}: choose macro_f1")
    return classes


def scale_of(rows: Sequence[TextExample], task: str, value_range: tuple[float, float]) -> Scale:
    """The scale of a regression. Where value_range is infinite, the end is the training data's least or greatest label.

    Raises:
      UserError: a label that is no number or outside of value_range; all labels are equal.
    """
    any_number = Scale(*value_range)
    values = [any_number.checked(row.label, row.where) for row in rows]
    low, high = value_range
    if math.isinf(low):
        low = min(values)
    if math.isinf(high):
        high = max(values)
    if low >= high:
        raise UserError(f"{task}: the training data has one label only: {low:g}")
    return Scale(low, high, strict=False)


def saved_target(saved: Mapping[str, Any], task: str, settings: TextSettings) -> Target | None:
    """The classes or the scale that a model was trained on, of its saved state; None: the settings say it."""
    if settings.value_range is None:
        return checked_classes(Classes(saved.get("labels", ())), task, settings.metrics)
    if not settings.range_of_data:
        return None
    low, high = map(float, saved["range"])
    return Scale(low, high, strict=False)


def check_same(target: Target, saved: Target, task: str) -> None:
    """Raises UserError if the labels of the data are not those that a model was trained on."""
    if isinstance(target, Classes) and isinstance(saved, Classes):
        check_same_names(target.names, saved.names, task)
    if isinstance(target, Scale) and isinstance(saved, Scale):
        _check_same_ends(target, saved, task)


def _check_same_ends(target: Scale, saved: Scale, task: str) -> None:
    if (target.low, target.high) != (saved.low, saved.high):
        raise UserError(
            f"{task}: the model was trained on labels from {saved.low:g} to {saved.high:g}, they are now from "
            f"{target.low:g} to {target.high:g}: give the task's min and max, or train it again"
        )


def check_same_names(names: Sequence[str], saved: Sequence[str], task: str) -> None:
    """Raises UserError if the names of the data's labels are not those that a model was trained on."""
    if list(names) != list(saved):
        before = ", ".join(saved)
        now = ", ".join(names)
        raise UserError(f"{task}: the model was trained on the labels {before}, but the data has {now}")
