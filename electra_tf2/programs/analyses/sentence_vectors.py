"""Vectors of sentences before fine-tuning: cosines and t-SNE of [CLS] of similar sentences."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf2.formats.folders import VOCABULARY
from electra_tf2.programs.analyses.figures import panels
from electra_tf2.programs.analyses.request import Request
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PAIRS = 1000


def cosine(request: Request, figure: Path) -> dict[str, Any]:
    """Draws the cosines of similar and of random sentences (COCO-LM, Figures 1 and 5)."""
    report = {}
    histograms = {}
    for name in request.names:
        first, second = similar_vectors(request, name)
        count = len(first)
        similar = np.sum(first * second, -1)
        # For random pairs the second sentences are shifted by 1 to count - 1, so that none meets its own partner.
        shift = np.random.default_rng(request.seed).integers(1, count)
        random = np.sum(first * second[(np.arange(count) + shift) % count], -1)
        # AUC: the probability that a similar pair has the greater cosine.
        auc = float(np.mean(similar[:, None] > random))
        report[name] = {
            "pairs": count,
            "similar": float(similar.mean()),
            "random": float(random.mean()),
            "auc": auc,
        }
        histograms[f"{name} (AUC {auc:.2f})"] = {"similar sentences": similar, "random sentences": random}
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {auc:.3f}")
    with panels(figure, list(histograms)) as axes:
        for groups, axis in zip(histograms.values(), axes, strict=True):
            _draw_histograms(axis, groups)
    return report


def _draw_histograms(axis: "Axes", groups: dict[str, np.ndarray]) -> None:
    """Draws a histogram for each group of cosines over the same bins, and a dotted line at its mean."""
    values = np.concatenate(list(groups.values()))
    edges = np.linspace(values.min(), values.max() + 1e-3, 41).tolist()
    for index, (label, cosines) in enumerate(groups.items()):
        color = f"C{index}"
        axis.hist(cosines, edges, density=True, alpha=0.5, color=color, label=label)
        axis.axvline(float(cosines.mean()), color=color, linestyle=":")
    axis.set(xlabel="cosine of [CLS]", yticks=[])


def tsne(request: Request, figure: Path) -> dict[str, Any]:
    """Draws similar sentences as points of a plane, with a line between those of a pair (COCO-LM, Figure 6)."""
    from sklearn.manifold import TSNE

    report: dict[str, Any] = {}
    for name in request.names:
        first, second = similar_vectors(request, name)
        vectors = np.concatenate([first, second])
        # scikit-learn requires a perplexity below the number of vectors.
        perplexity = min(30, (len(vectors) - 1) / 3)
        points = TSNE(perplexity=perplexity, init="pca", random_state=request.seed).fit_transform(vectors)
        first_points, second_points = np.split(points, 2)
        mean = float(np.sum(first * second, -1).mean())
        report[name] = {"mean_cosine": mean, "first": first_points.tolist(), "second": second_points.tolist()}
        print(f"{name}: {len(first)} similar pairs, mean cosine {mean:.3f}")
    titles = [f"{name} (mean cosine {result['mean_cosine']:.2f})" for name, result in report.items()]
    with panels(figure, titles) as axes:
        for result, axis in zip(report.values(), axes, strict=True):
            _draw_pairs(axis, np.array(result["first"]), np.array(result["second"]))
    return report


def _draw_pairs(axis: "Axes", first: np.ndarray, second: np.ndarray) -> None:
    """Draws the points [N, 2] of both sentences, and a line between those of a pair."""
    x = np.stack([first[:, 0], second[:, 0]])
    y = np.stack([first[:, 1], second[:, 1]])
    axis.plot(x, y, color="0.75", linewidth=0.6)
    axis.scatter(first[:, 0], first[:, 1], s=7, label="a sentence")
    axis.scatter(second[:, 0], second[:, 1], s=7, label="its paraphrase")
    axis.set(xticks=[], yticks=[])


@functools.cache  # cosine and tsne use the same vectors
def similar_vectors(request: Request, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors [N, H] of [CLS] for both sentences of STS-B's pairs with the full score.

    If the model's folder has no vocabulary, that of the data folder is used.
    """
    from electra_tf2.finetune.starts import configuration
    from electra_tf2.finetune.tasks import make_task
    from electra_tf2.inference.model import load

    config = configuration({"data_dir": str(request.data_dir), "task_names": ["sts"]})
    task: Any = make_task("sts", config, None)  # type: ignore[arg-type]  # nothing is tokenised
    pairs = []
    for split in ("dev", "train"):
        pairs += [example.texts for example in task.read(split).examples if example.label == 5]
    if len(pairs) < 2:
        raise UserError(f"{config.data_dir}: sts has {len(pairs)} pair(s) with the score 5; at least 2 are needed")
    first, second = zip(*pairs[:_MOST_PAIRS], strict=True)

    folder = request.folder(name)
    vocab_file = None
    shared_vocabulary = request.data_dir / VOCABULARY
    if not (folder / VOCABULARY).is_file() and shared_vocabulary.is_file():
        vocab_file = str(shared_vocabulary)
    model = load(folder, vocab_file=vocab_file)
    return model.embed(first, pooling="cls"), model.embed(second, pooling="cls")
