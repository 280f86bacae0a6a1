"""Cosine of [CLS] of similar and of random sentences, without fine-tuning (COCO-LM, Figures 1 and 5).

Similar sentences are STS-B's pairs with the full score; random ones are drawn from the held-out records.
"""

from pathlib import Path
from typing import Any

from electra_tf2.analysis import figures, geometry
from electra_tf2.analysis.request import Request, pretrained, similar_states


def analyse(request: Request, figure: Path) -> dict[str, Any]:
    report, cosines = {}, {}
    for name in request.names:
        similar = geometry.cosines(*similar_states(request, name))
        states, _ = pretrained(request, name).view_states(request.num_pairs)
        random = geometry.cosines(*geometry.random_pairs(states, states, request.num_pairs, request.seed))
        report[name] = {
            "similar": geometry.distribution(similar),
            "random": geometry.distribution(random),
            "auc": geometry.separation(similar, random),
        }
        cosines[name] = {"similar sentences": similar, "random sentences": random}
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {report[name]['auc']:.3f}")
    titles = [f"{name} (AUC {report[name]['auc']:.2f})" for name in request.names]
    with figures.panels(figure, titles) as axes:
        for name, axis in zip(request.names, axes, strict=True):
            figures.densities(axis, cosines[name])
            axis.set_xlabel("cosine of [CLS]")
        axes[0].set_ylabel("density")
    return report
