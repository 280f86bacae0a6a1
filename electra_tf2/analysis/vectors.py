"""Analyses of the vector of [CLS] without fine-tuning: cosine, t-SNE, alignment and uniformity, sequence contrast.

Similar sentences are STS-B's pairs with the full score; random ones are drawn from the held-out records. N sentences, H
hidden.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.manifold import TSNE
from sklearn.metrics import roc_auc_score

from electra_tf2.analysis import figures
from electra_tf2.analysis.curves import history
from electra_tf2.analysis.pretrained import pretrained, similar_states
from electra_tf2.analysis.request import Request
from electra_tf2.util.errors import UserError

_CONTRAST_METRICS = ("positive_cosine", "negative_cosine")
_BINS = 40  # of a histogram
_SAMPLES = 200  # of pairs, drawn with replacement, for an interval


def cosine(request: Request, figure: Path) -> dict[str, Any]:
    """Cosines of similar and of random sentences (COCO-LM, Figures 1 and 5)."""
    report, drawn = {}, {}
    for name in request.names:
        similar = cosines(*similar_states(request, name))
        states, _ = pretrained(request, name).view_states(request.num_pairs)
        random = cosines(*random_pairs(states, states, request.num_pairs, request.seed))
        auc = separation(similar, random)
        report[name] = {"similar": distribution(similar), "random": distribution(random), "auc": auc}
        drawn[name] = {"similar sentences": similar, "random sentences": random}
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {auc:.3f}")
    titles = [f"{name} (AUC {report[name]['auc']:.2f})" for name in request.names]
    with figures.panels(figure, titles) as axes:
        for name, axis in zip(request.names, axes, strict=True):
            figures.densities(axis, drawn[name])
            axis.set_xlabel("cosine of [CLS]")
        axes[0].set_ylabel("density")
    return report


def tsne(request: Request, figure: Path) -> dict[str, Any]:
    """Places of similar sentences on a plane (COCO-LM, Figure 6)."""
    report: dict[str, Any] = {}
    for name in request.names:
        states = similar_states(request, name)
        both = normalised(np.concatenate(states))
        perplexity = min(request.perplexity, (len(both) - 1) / 3)
        flat = TSNE(perplexity=perplexity, init="pca", random_state=request.seed).fit_transform(both)
        first, second = (half.tolist() for half in np.split(flat, 2))
        report[name] = {"mean_cosine": float(cosines(*states).mean()), "first": first, "second": second}
        print(f"{name}: {len(first)} similar pairs, mean cosine {report[name]['mean_cosine']:.3f}")
    titles = [f"{name} (mean cosine {report[name]['mean_cosine']:.2f})" for name in request.names]
    with figures.panels(figure, titles, legend_below=True) as axes:
        for found, axis in zip(report.values(), axes, strict=True):
            places = {"a sentence": np.array(found["first"]), "its paraphrase": np.array(found["second"])}
            figures.linked_points(axis, places)
    return report


def uniformity(request: Request, figure: Path) -> dict[str, Any]:
    """Alignment of similar sentences and uniformity of all, with 95 % intervals (Wang and Isola 2020, Figure 6)."""
    report: dict[str, Any] = {}
    points = {}
    for name in request.names:
        similar = similar_states(request, name)
        random = random_pairs(*similar, request.num_pairs, request.seed)
        numbers = {"uniformity": (uniformity_loss, random), "alignment": (alignment_loss, similar)}
        report[name] = {of: loss(*pairs) for of, (loss, pairs) in numbers.items()}
        report[name] |= {f"{of}_interval": _interval(*found, request.seed) for of, found in numbers.items()}
        points[name] = [(report[name][of], *report[name][f"{of}_interval"]) for of in numbers]  # x and y
        print(f"{name}: alignment {report[name]['alignment']:.3f}, uniformity {report[name]['uniformity']:.3f}")
    with figures.panels(figure, ["[CLS] without fine-tuning"]) as (axis,):
        figures.points_with_intervals(axis, points)
        axis.set_xlabel("uniformity (left: more uniform)")
        axis.set_ylabel("alignment (below: closer)")
    return report


def contrast(request: Request, figure: Path) -> dict[str, Any]:
    """Cosines of positives and negatives of sequence contrast (COCO-LM, Figure 7).

    A run without sequence contrast has logged neither: those of its trained model are dashed lines.
    """
    report: dict[str, Any] = {}
    for name in request.names:
        model = pretrained(request, name)
        first, second = model.view_states(request.num_pairs)
        pairs = (first, second), random_pairs(first, second, request.num_pairs, request.seed)
        positive, negative = (float(cosines(*pair).mean()) for pair in pairs)
        trained = dict(zip(_CONTRAST_METRICS, (positive, negative), strict=True))
        logged = history(request.folder(name), _CONTRAST_METRICS)
        report[name] = {"history": logged, "trained": trained, "step": model.step}
        print(f"{name}: positives {positive:.3f}, negatives {negative:.3f}, difference {positive - negative:.3f}")
    with figures.panels(figure, list(map(figures.title, _CONTRAST_METRICS)), share_y=True, legend_below=True) as axes:
        for metric, axis in zip(_CONTRAST_METRICS, axes, strict=True):
            for number, (name, found) in enumerate(report.items()):
                line = found["history"].get(metric)
                if line is None:
                    figures.level(axis, found["trained"][metric], number, f"{name}, trained")
                else:
                    figures.curve(axis, line["steps"], line["values"], number, name)
            figures.count_axis(axis, "training steps")
        axes[0].set_ylabel("cosine of [CLS]")
    return report


def normalised(states: np.ndarray) -> np.ndarray:
    """float64 [N, H] unit vectors."""
    states = np.asarray(states, np.float64)
    return states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-12)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float64 [N], between the rows of two [N, H]."""
    return np.clip(np.sum(normalised(first) * normalised(second), axis=-1), -1.0, 1.0)


def random_pairs(first: np.ndarray, second: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws `count` rows of one [N, H], each with another's row of the other [N, H], with replacement.

    Raises:
      UserError: N is 1.
    """
    if len(second) < 2:
        raise UserError("random pairs need two texts or records at least, and there is one")
    random = np.random.default_rng(seed)
    rows = random.integers(len(first), size=count)
    others = (rows + random.integers(1, len(second), size=count)) % len(second)
    return first[rows], second[others]


def distribution(values: np.ndarray) -> dict[str, Any]:
    """Count, mean, standard deviation and a histogram over [-1, 1]."""
    counts, edges = np.histogram(values, _BINS, (-1.0, 1.0))
    numbers = {"pairs": len(values), "mean": float(np.mean(values)), "std": float(np.std(values))}
    return numbers | {"histogram": counts.tolist(), "edges": np.round(edges, 6).tolist()}


def separation(similar: np.ndarray, random: np.ndarray) -> float:
    """Probability that a similar pair has a greater cosine than a random one (area under the ROC curve)."""
    labels = np.repeat([1, 0], [len(similar), len(random)])
    return float(roc_auc_score(labels, np.concatenate([similar, random])))


def alignment_loss(first: np.ndarray, second: np.ndarray) -> float:
    """E |f - f+|^2 over similar pairs [N, H] (Wang and Isola 2020, equation 1 with alpha 2)."""
    return float(np.mean(2.0 - 2.0 * cosines(first, second)))


def uniformity_loss(first: np.ndarray, second: np.ndarray) -> float:
    """log E exp(-2 |f - f'|^2) over independent pairs [N, H] (Wang and Isola 2020, equation 2 with t = 2)."""
    exponents = -2.0 * (2.0 - 2.0 * cosines(first, second))
    return float(np.logaddexp.reduce(exponents) - np.log(len(exponents)))


def _interval(statistic: Callable[..., float], pairs: tuple[np.ndarray, np.ndarray], seed: int) -> tuple[float, float]:
    """The middle 95 % of a statistic of pairs over samples of them."""
    first, second = pairs
    samples = np.random.default_rng(seed).integers(len(first), size=[_SAMPLES, len(first)])
    low, high = np.percentile([statistic(first[rows], second[rows]) for rows in samples], [2.5, 97.5])
    return float(low), float(high)
