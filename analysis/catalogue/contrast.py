"""Cosine of positives and negatives of sequence contrast during training, and of the trained model (COCO-LM, Figure 7).

A run without sequence contrast has logged neither: what its trained model gives is a dashed line.
"""

from pathlib import Path
from typing import Any

from electra_tf2.analysis import figures, geometry
from electra_tf2.analysis.histories import history
from electra_tf2.analysis.request import Request, pretrained

_METRICS = ("positive_cosine", "negative_cosine")


def analyse(request: Request, figure: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name in request.names:
        model = pretrained(request, name)
        first, second = model.view_states(request.num_pairs)
        negatives = geometry.random_pairs(first, second, request.num_pairs, request.seed)
        pairs = ((first, second), negatives)
        trained = {key: float(geometry.cosines(*pair).mean()) for key, pair in zip(_METRICS, pairs, strict=True)}
        report[name] = {"history": history(request.folder(name), _METRICS), "trained": trained, "step": model.step}
        positive, negative = trained.values()
        print(f"{name}: positives {positive:.3f}, negatives {negative:.3f}, difference {positive - negative:.3f}")
    with figures.panels(figure, list(map(figures.title, _METRICS)), share_y=True, legend_below=True) as axes:
        for metric, axis in zip(_METRICS, axes, strict=True):
            for number, (name, found) in enumerate(report.items()):
                line = found["history"].get(metric)
                if line is None:
                    figures.level(axis, found["trained"][metric], number, f"{name}, trained")
                else:
                    figures.curve(axis, line["steps"], line["values"], number, name)
            figures.count_axis(axis, "training steps")
        axes[0].set_ylabel("cosine of [CLS]")
    return report
