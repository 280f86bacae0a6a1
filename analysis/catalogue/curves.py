"""Learning curves of one or several runs: every loss and metric they logged, in training and on held-out records.

Runs are names of models or paths of run folders; --over examples or flops compares runs whose steps differ.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from electra_tf2.analysis import figures
from electra_tf2.analysis.histories import Line, held_out_rows, lines, training_rows
from electra_tf2.analysis.request import Request
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import closest
from electra_tf2.util.reading import is_file, read_json

_AXES = {"steps": "training steps", "examples": "training sequences", "flops": "training FLOPs"}


def analyse(request: Request, figure: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name in request.names:
        folder = request.folder(name)
        training, held_out = lines(training_rows(folder)), lines(held_out_rows(folder))
        if not training and not held_out:
            raise UserError(f"{folder} has logged nothing: neither train_metrics.jsonl nor eval/step-*.json is there")
        report[name] = {"scale": _scale(request.over, folder), "training": training, "held_out": held_out}
        last = [
            f"{metric} {(held_out | training)[metric]['values'][-1]:.4g}" for metric in _shown(report, request, [name])
        ]
        print(f"{name}: {', '.join(last)}")
    _check_metrics(report, request)
    shown = _shown(report, request, request.names)
    with figures.panels(figure, list(map(figures.title, shown)), share_x=True, legend_below=True) as axes:
        lowest = [axis for axis in axes if axis.xaxis.get_tick_params()["labelbottom"]]
        for metric, axis in zip(shown, axes, strict=True):
            _draw(axis, metric, report)
            figures.count_axis(axis, _AXES[request.over] if axis in lowest else "")
        for number, name in enumerate(report):
            axes[0].plot([], [], label=name, **figures.style_of(number))
        for kind, style in (("training", {"linewidth": 1.4}), ("held-out", {"marker": "o", "linewidth": 0.8})):
            if any(values[kind.replace("-", "_")] for values in report.values()):
                axes[0].plot([], [], color="0.4", markersize=3.5, label=kind, **style)
    return report


def _draw(axis: Any, metric: str, report: dict[str, Any]) -> None:
    drawn = []
    for number, values in enumerate(report.values()):
        for kind in ("training", "held_out"):
            line: Line | None = values[kind].get(metric)
            if line is None:
                continue
            x = [step * values["scale"] for step in line["steps"]]
            drawn.append(line["values"])
            if kind == "training":
                figures.smoothed_curve(axis, x, line["values"], number)
            else:
                figures.curve(axis, x, line["values"], number)
    figures.cut_first_peak(axis, drawn)
    figures.keep_within(axis, metric)


def _logged(report: dict[str, Any], names: Iterable[str]) -> set[str]:
    return {metric for name in names for kind in ("training", "held_out") for metric in report[name][kind]}


def _check_metrics(report: dict[str, Any], request: Request) -> None:
    """Raises UserError if a metric has been asked for that no run has."""
    logged = _logged(report, request.names)
    for metric in request.metrics:
        if metric not in logged:
            raise UserError(
                f"--metrics: {', '.join(request.names)} has logged no {metric!r}{closest(metric, logged)} "
                f"(there: {', '.join(sorted(logged))})"
            )


def _shown(report: dict[str, Any], request: Request, names: Iterable[str]) -> list[str]:
    """The metrics that have been asked for, or those with a name for readers; only what some of these runs has."""
    logged = _logged(report, names)
    if request.metrics:
        return [metric for metric in request.metrics if metric in logged]
    if sum(metric.endswith("_loss") for metric in logged) == 1:
        logged.discard("loss")  # of one term: the same curve
    return [metric for metric in figures.TITLES if metric in logged] or sorted(logged)


def _scale(over: str, folder: Path) -> float:
    """What a step counts on the axis."""
    if over == "steps":
        return 1
    path = folder / "config.json"
    if not is_file(path):
        raise UserError(f"--over {over}: there is no {path} to say what a step holds")
    hparams = read_json(path, "configuration")
    phases = [phase for phase in hparams.get("phases", []) if {"train_batch_size", "max_seq_length"} & phase.keys()]
    if phases:
        raise UserError(
            f"--over {over}: the steps of {folder} hold more in one phase than in another: use --over steps"
        )
    if over == "examples":
        return int(hparams.get("train_batch_size", 0)) or 1
    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.pretrain.flops import training_flops_per_example

    config = PretrainingConfig.from_dict(hparams)
    return config.train_batch_size * training_flops_per_example(config)
