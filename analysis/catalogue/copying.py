"""Accuracy of copying and of the language model during training, on replaced and original tokens (COCO-LM, Figure 8).

ELECTRA's discriminator stands beside copy heads: to call a token original is to copy it.
"""

from pathlib import Path
from typing import Any

from electra_tf2.analysis import figures
from electra_tf2.analysis.histories import history
from electra_tf2.analysis.request import Request
from electra_tf2.util.errors import UserError

_METRICS = [f"{what}_accuracy_{tokens}" for what in ("copy", "clm") for tokens in ("replaced", "original")]
_DETECTION = ("disc_recall", "disc_accuracy", "replaced_rate")


def analyse(request: Request, figure: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name in request.names:
        found = history(request.folder(name), [*_METRICS, *_DETECTION])
        lines = {metric: found[metric] for metric in _METRICS if metric in found} or _detection_as_copying(found)
        if not lines:
            print(f"{name}: left out, it has logged neither copying nor detection")
            continue
        report[name] = {"history": lines}
        last = [f"{figures.title(metric)} {line['values'][-1]:.3f}" for metric, line in lines.items()]
        print(f"{name}: {'; '.join(last)}")
    if not report:
        raise UserError(
            f"--analysis copying: none of {', '.join(request.names)} has logged {', '.join(_METRICS)} or "
            f"{', '.join(_DETECTION)}: that needs a run with a copy head or a discriminator, and --eval-every-steps "
            "for a language model's accuracy"
        )
    shown = [metric for metric in _METRICS if any(metric in values["history"] for values in report.values())]
    with figures.panels(figure, list(map(figures.title, shown)), legend_below=True) as axes:
        for metric, axis in zip(shown, axes, strict=True):
            for number, (name, values) in enumerate(report.items()):
                if metric in values["history"]:
                    line = values["history"][metric]
                    figures.curve(axis, line["steps"], line["values"], number, name)
            figures.keep_within(axis, metric)
            figures.count_axis(axis, "training steps")
        axes[0].set_ylabel("accuracy")
    return report


def _detection_as_copying(found: dict[str, Any]) -> dict[str, Any]:
    """A discriminator's accuracy on replaced and on original tokens, from its recall and its accuracy on all."""
    if any(metric not in found for metric in _DETECTION):
        return {}
    recall, accuracy, replaced = (found[metric]["values"] for metric in _DETECTION)
    on_original = [
        (all_tokens - share * hit) / max(1 - share, 1e-9)
        for hit, all_tokens, share in zip(recall, accuracy, replaced, strict=True)
    ]
    steps = found["disc_recall"]["steps"]
    return {
        "copy_accuracy_replaced": {"steps": steps, "values": recall},
        "copy_accuracy_original": {"steps": steps, "values": on_original},
    }
