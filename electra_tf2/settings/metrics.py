"""Metrics of classification and regression, by scikit-learn and scipy, in percent but for errors of numbers.

`measured` computes a task's metrics by their names: those in METRICS, and AVERAGE, the mean of the others, by which
benchmarks rank.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

# What the F1 of answers to questions counts; tasks.qa_scores.COMPARISONS has a function for each.
F1_OF = ("words", "characters", "chinese")


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    return 100.0 * float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """F1 of class 1."""
    return _sklearn_score("f1_score", labels, predictions, zero_division=0)


def macro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """The mean of the F1 of all classes that are labels or predictions here."""
    return _sklearn_score("f1_score", labels, predictions, average="macro", zero_division=0)


def mcc(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews' correlation; 0 for constant predictions."""
    return _sklearn_score("matthews_corrcoef", labels, predictions)


def _sklearn_score(function: str, gold: np.ndarray, predictions: np.ndarray, **settings: Any) -> float:
    from sklearn import metrics  # here, since it takes long to import and only evaluations need it

    score = getattr(metrics, function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a single label
        return 100.0 * float(score(gold, predictions, **settings))


def pearson(targets: np.ndarray, predictions: np.ndarray) -> float:
    """Pearson's correlation; 0 if it is not defined: constant predictions, or fewer than two examples."""
    return _correlation("pearsonr", targets, predictions)


def mae(targets: np.ndarray, predictions: np.ndarray) -> float:
    """Mean absolute error, in the unit of the numbers."""
    return float(np.mean(np.abs(np.asarray(targets) - np.asarray(predictions))))


def spearman(targets: np.ndarray, predictions: np.ndarray) -> float:
    """Spearman's correlation; 0 if it is not defined."""
    return _correlation("spearmanr", targets, predictions)


def _correlation(function: str, targets: np.ndarray, predictions: np.ndarray) -> float:
    from scipy import stats  # here, since it takes long to import and only evaluations need it

    if len(targets) < 2 or np.ptp(predictions) == 0 or np.ptp(targets) == 0:
        return 0.0
    correlation = getattr(stats, function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant input
        coefficient, _ = correlation(targets, predictions)
    return 100.0 * float(coefficient)


# By the names that tasks have for them.
CLASSIFICATION_METRICS = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "mcc": mcc}
REGRESSION_METRICS = {"pearson": pearson, "spearman": spearman}
METRICS = CLASSIFICATION_METRICS | REGRESSION_METRICS | {"mae": mae}
AVERAGE = "average"


def measured(metrics: Sequence[str], labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Computes metrics by their names."""
    scores = {}
    for metric in metrics:
        if metric != AVERAGE:
            scores[metric] = METRICS[metric](labels, predictions)
    if AVERAGE in metrics:
        return with_average(scores)
    return scores


def with_average(scores: dict[str, float]) -> dict[str, float]:
    """Adds the mean of the scores, SuperGLUE's score of a task."""
    average = float(np.mean(list(scores.values())))
    return scores | {AVERAGE: average}
