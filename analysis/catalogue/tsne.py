"""t-SNE of [CLS] of similar sentences, a line between the two of a pair (COCO-LM, Figure 6)."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.manifold import TSNE

from electra_tf2.analysis import figures, geometry
from electra_tf2.analysis.request import Request, similar_states


def analyse(request: Request, figure: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    places: dict[str, list[np.ndarray]] = {}
    for name in request.names:
        states = similar_states(request, name)
        mean = float(geometry.cosines(*states).mean())
        both = geometry.normalised(np.concatenate(states))
        perplexity = min(request.perplexity, (len(both) - 1) / 3)
        flat = TSNE(perplexity=perplexity, init="pca", random_state=request.seed).fit_transform(both)
        left, right = places[name] = list(np.split(flat, 2))
        report[name] = {"mean_cosine": mean, "first": left.tolist(), "second": right.tolist()}
        print(f"{name}: {len(left)} similar pairs, mean cosine {mean:.3f}")
    titles = [f"{name} (mean cosine {report[name]['mean_cosine']:.2f})" for name in request.names]
    with figures.panels(figure, titles, legend_below=True) as axes:
        for name, axis in zip(request.names, axes, strict=True):
            first, second = places[name]
            figures.linked_points(axis, first, second, ("a sentence", "its paraphrase"))
    return report
