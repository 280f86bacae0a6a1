"""Targets of texts, classes or a scale: labels as files spell them, the head learns them, answers show them.

Both kinds of `Target` have the same methods: `checked` (a label as a file holds it; UserError that names the place),
`encoded` (as the head learns it, 0 for None), `group` (which few-shot splits and demonstrations take equally many of),
`predicted` (what a prediction is scored by), `served` (what a SavedModel says of a batch of the head's outputs),
`answers` (the same as it is written), `submitted` (an answer as GLUE's server wants it), `balance` (how labels are
distributed). `key` and `label` are name and type in `Features.labels`, `num_classes` is that of the softmax.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.finetune.tasks.task import Label, Prediction
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest


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

    def served(self, outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        labels, logits = tf.constant(self.names), outputs["logits"]
        return {
            "label": tf.gather(labels, tf.argmax(logits, -1)),
            "probabilities": tf.cast(probabilities(logits), tf.float32),
            "labels": tf.tile(labels[tf.newaxis], [tf.shape(logits)[0], 1]),
        }

    def answers(self, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        shares = probabilities(np.reshape([one["logits"] for one in predictions], [-1, len(self.names)])).numpy()
        return [
            {"label": self.names[self.predicted(one)], "probabilities": dict(zip(self.names, row, strict=True))}
            for one, row in zip(predictions, shares.tolist(), strict=True)
        ]

    def submitted(self, answer: dict[str, Any]) -> str:
        return answer["label"]

    def balance(self, labels: Sequence[str | float]) -> dict[str, float]:
        return dict(Counter(map(str, labels)).most_common())


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

    def served(self, outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"value": outputs["value"]}

    def answers(self, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        return [{"label": self.predicted(one)} for one in predictions]

    def submitted(self, answer: dict[str, Any]) -> str:
        return f"{min(self.high, max(self.low, answer['label'])):.3f}"

    def balance(self, labels: Sequence[str | float]) -> dict[str, float]:
        values = np.percentile(np.array(labels, float), [0, 50, 100])
        return dict(zip(("lowest", "median", "highest"), map(float, values), strict=True))


Target = Classes | Scale
