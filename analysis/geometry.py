"""Numbers about unit vectors: cosines of pairs, alignment, uniformity. No TensorFlow.

Shapes: N sentences, H hidden.
"""

from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

_BINS = 40


def normalised(states: np.ndarray) -> np.ndarray:
    """float64 [N, H] unit vectors."""
    states = np.asarray(states, np.float64)
    return states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-12)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float64 [N]: of the rows of two [N, H]."""
    return np.clip(np.sum(normalised(first) * normalised(second), axis=-1), -1.0, 1.0)


def random_pairs(first: np.ndarray, second: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` rows of one [N, H], each with another's row of the other [N, H], drawn with replacement."""
    random = np.random.default_rng(seed)
    rows = random.integers(len(first), size=count)
    others = (rows + random.integers(1, len(second), size=count)) % len(second)
    return first[rows], second[others]


def distribution(values: np.ndarray) -> dict[str, Any]:
    """Count, mean, standard deviation and a histogram over [-1, 1]."""
    counts, edges = np.histogram(values, _BINS, (-1.0, 1.0))
    return {
        "pairs": len(values),
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "histogram": counts.tolist(),
        "edges": np.round(edges, 6).tolist(),
    }


def separation(similar: np.ndarray, random: np.ndarray) -> float:
    """Probability that a similar pair has a greater cosine than a random one (area under the ROC curve)."""
    labels = np.concatenate([np.ones(len(similar)), np.zeros(len(random))])
    return float(roc_auc_score(labels, np.concatenate([similar, random])))


def alignment(first: np.ndarray, second: np.ndarray) -> float:
    """E |f - f+|^2 over similar pairs [N, H] (Wang and Isola 2020, equation 1 with alpha 2)."""
    return float(np.mean(2.0 - 2.0 * cosines(first, second)))


def uniformity(first: np.ndarray, second: np.ndarray) -> float:
    """log E exp(-2 |f - f'|^2) over independent pairs [N, H] (Wang and Isola 2020, equation 2 with t = 2)."""
    exponents = -2.0 * (2.0 - 2.0 * cosines(first, second))
    return float(np.logaddexp.reduce(exponents) - np.log(len(exponents)))
