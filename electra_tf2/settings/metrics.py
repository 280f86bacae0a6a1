"""Scores of classification and regression, from scikit-learn and scipy; in percent.

`measured` gives those of a task by name: each of METRICS, or AVERAGE, the mean of the others, which benchmarks rank by.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

F1_OF = ("words", "characters", "chinese")  # what F1 of answers to questions counts, tasks.qa_answers.COMPARISONS


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    return 100.0 * float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """F1 of class 1."""
    return _of_sklearn("f1_score", labels, predictions, zero_division=0)


def macro_f1(labels: np.ndarray, predictions: np.ndarray, num_classes: int | None = None) -> float:
    """The mean over all classes, 0 for one that occurs nowhere; without their number, over those that occur."""
    classes = None if num_classes is None else range(num_classes)
    return _of_sklearn("f1_score", labels, predictions, labels=classes, average="macro", zero_division=0)


def mcc(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews' correlation; 0 for constant predictions."""
    return _of_sklearn("matthews_corrcoef", labels, predictions)


def _of_sklearn(name: str, gold: np.ndarray, found: np.ndarray, **settings: Any) -> float:
    from sklearn import metrics

    return 100.0 * float(getattr(metrics, name)(gold, found, **settings))


def pearson(targets: np.ndarray, predictions: np.ndarray) -> float:
    """0 where it is not defined: constant predictions, fewer than two examples."""
    return _correlation("pearsonr", targets, predictions)


def spearman(targets: np.ndarray, predictions: np.ndarray) -> float:
    """0 where it is not defined."""
    return _correlation("spearmanr", targets, predictions)


def _correlation(function: str, targets: np.ndarray, predictions: np.ndarray) -> float:
    from scipy import stats

    if len(targets) < 2 or np.ptp(predictions) == 0 or np.ptp(targets) == 0:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 100.0 * float(getattr(stats, function)(targets, predictions)[0])


METRICS = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "mcc": mcc, "pearson": pearson, "spearman": spearman}
REGRESSION_METRICS = ("pearson", "spearman")
AVERAGE = "average"


def measured(
    metrics: Sequence[str], labels: np.ndarray, predictions: np.ndarray, num_classes: int | None = None
) -> dict[str, float]:
    """The scores of these names, by name; `num_classes` of a classification."""
    scores = {}
    for metric in metrics:
        if metric == "macro_f1":
            scores[metric] = macro_f1(labels, predictions, num_classes)
        elif metric != AVERAGE:
            scores[metric] = METRICS[metric](labels, predictions)
    return with_average(scores) if AVERAGE in metrics else scores


def with_average(scores: dict[str, float]) -> dict[str, float]:
    """The scores and their mean, SuperGLUE's score of a task."""
    return scores | {AVERAGE: float(np.mean([*scores.values()]))}
