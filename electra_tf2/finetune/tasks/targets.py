"""Targets of text tasks, classes or a scale: how labels are read, learned and written.

Both kinds of `Target` have these methods and attributes:
  checked: a label as a file holds it -> the label; UserError with the place if it is none.
  encoded: a label -> what the head learns, a class id or a share of the scale; 0 for None.
  group: a label -> an index; few-shot splits and demonstrations take equally many examples of each group.
  predicted: a prediction -> the value that is scored.
  answers: predictions -> their rows in files of answers.
  submitted: an answer -> the text that GLUE's server expects.
  state: what is saved beside a model.
  key, label: the name and the type in `Features.labels`.
  num_classes: the size of the softmax; None for a scale.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.files.cells import label_text
from electra_tf2.finetune.tasks.task import Label, Prediction
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError, closest, shown


def probabilities(logits: Any) -> tf.Tensor:
    """float64 [B, C], the softmax of logits [B, C].

    In float32, the larger of two probabilities is exactly 1 from a difference of 17 between the logits.
    """
    return tf.nn.softmax(tf.cast(logits, tf.float64))


class Classes:
    """One of several names, in the order of their ids.

    Args:
      numbers: the names that the numbers 0, 1, ... in a file stand for; (): none. Without effect if names are numbers
        themselves.
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
    """A number between two ends, learned as a share of their distance. Its two groups are the halves of the scale.

    Args:
      strict: whether a number beyond the ends is an error. It is none if the ends are the least and the greatest label
        of the training data, which other data may exceed.
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
            hint = ""
            if isinstance(value, str) and re.fullmatch(r"-?\d+(,\d+)+(\.\d+)?", value.strip()):
                hint = ", which has a comma: write decimals with a point, and thousands with nothing between"
            raise UserError(f"{where}: the label must be a number, got {shown(value)}{hint}")
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
    """The classes or the scale in a task's settings; None: the training data have to say it."""
    if settings.value_range is not None:
        an_end_is_unknown = any(map(math.isinf, settings.value_range))
        if an_end_is_unknown and settings.range_of_data:
            return None
        return Scale(*settings.value_range)
    if settings.labels is not None:
        return checked_classes(Classes(settings.labels, settings.numbers or ()), task, settings.metrics)
    return None


def checked_classes(classes: Classes, task: str, metrics: Sequence[str]) -> Classes:
    """Returns the classes. Raises UserError: there are more than two, but a metric of the task is for two."""
    if "f1" in metrics and len(classes.names) > 2:
        raise UserError(f"{task}: the metric f1 is for two labels, there are {len(classes.names)}: choose macro_f1")
    return classes


def adopted(target: Target | None, saved: Mapping[str, Any], task: str, settings: TextSettings) -> Target | None:
    """Takes what labels mean from a model's saved state if the data do not say it.

    Args:
      target: what labels mean by the data; None: they do not say it.

    Raises:
      UserError: the data have other labels than those that the model was trained on.
    """
    if settings.value_range is None:
        names = saved.get("labels", ())
        if target is None:
            return checked_classes(Classes(names), task, settings.metrics)
        assert isinstance(target, Classes)
        check_same_names(target.names, names, task)
    elif settings.range_of_data:
        low, high = map(float, saved["range"])
        if target is None:
            return Scale(low, high, strict=False)
        assert isinstance(target, Scale)
        if (target.low, target.high) != (low, high):
            raise UserError(
                f"{task}: the model was trained on labels from {low:g} to {high:g}, they are now from "
                f"{target.low:g} to {target.high:g}: give the task's min and max, or train it again"
            )
    return target


def check_same_names(names: Sequence[str], saved: Sequence[str], task: str) -> None:
    """Raises UserError if the names of the data's labels are not those that a model was trained on."""
    if list(names) != list(saved):
        before = ", ".join(saved)
        now = ", ".join(names)
        raise UserError(f"{task}: the model was trained on the labels {before}, but the data has {now}")
