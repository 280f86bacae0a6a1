"""Analyses of what runs have logged: learning curves, COCO-LM's figure of copying, scores over a searched hparam.

A run's folder, of pre-training or fine-tuning, holds train_metrics.jsonl and eval/step-N.json; run_finetuning.py
--search leaves its results beside them (over `train_share` they are COCO-LM's figure 7).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from electra_tf2.analysis import figures
from electra_tf2.analysis.request import Request
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest
from electra_tf2.util.reading import is_file, read_json, read_json_lines

Line = dict[str, list[Any]]  # {"steps": [...], "values": [...]}
_NO_METRICS = ("step", "examples_per_second", "gradient_norm")
_AXES = {"steps": "training steps", "examples": "training sequences", "flops": "training FLOPs"}
_COPYING = [f"{what}_accuracy_{tokens}" for what in ("copy", "clm") for tokens in ("replaced", "original")]
_DETECTION = ("disc_recall", "disc_accuracy", "replaced_rate")


def curves(request: Request, figure: Path) -> dict[str, Any]:
    """Losses and metrics in training and on held-out records.

    Runs are names of models or paths of run folders; --over examples or flops compares runs whose steps differ.
    """
    report: dict[str, Any] = {}
    for name in request.names:
        folder = request.folder(name)
        training, held_out = lines(training_rows(folder)), lines(held_out_rows(folder))
        if not training and not held_out:
            raise UserError(f"{folder} has logged nothing: neither train_metrics.jsonl nor eval/step-*.json is there")
        report[name] = {"scale": _scale(request.over, folder), "training": training, "held_out": held_out}
        last = {metric: (held_out | training)[metric]["values"][-1] for metric in _shown(report, request, [name])}
        print(f"{name}: {', '.join(f'{metric} {value:.4g}' for metric, value in last.items())}")
    shown = _shown(report, request, request.names)
    logged = sorted({metric for kinds in report.values() for metric in (*kinds["training"], *kinds["held_out"])})
    for metric in {*request.metrics} - {*logged}:
        raise UserError(
            f"--metrics: {', '.join(request.names)} has logged no {metric!r}{closest(metric, logged)} "
            f"(there: {', '.join(logged)})"
        )
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


def copying(request: Request, figure: Path) -> dict[str, Any]:
    """Accuracy of copying and of the language model on replaced and on original tokens (COCO-LM, Figure 8).

    ELECTRA's discriminator stands beside copy heads: to call a token original is to copy it.
    """
    report: dict[str, Any] = {}
    for name in request.names:
        found = history(request.folder(name), [*_COPYING, *_DETECTION])
        lines = {metric: found[metric] for metric in _COPYING if metric in found} or _detection_as_copying(found)
        if not lines:
            print(f"{name}: left out, it has logged neither copying nor detection")
            continue
        report[name] = {"history": lines}
        last = [f"{figures.title(metric)} {line['values'][-1]:.3f}" for metric, line in lines.items()]
        print(f"{name}: {'; '.join(last)}")
    if not report:
        raise UserError(
            f"--analysis copying: none of {', '.join(request.names)} has logged {', '.join(_COPYING)} or "
            f"{', '.join(_DETECTION)}: that needs a run with a copy head or a discriminator, and --eval-every-steps "
            "for a language model's accuracy"
        )
    shown = [metric for metric in _COPYING if any(metric in values["history"] for values in report.values())]
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
    recall, accuracy, replaced = (np.array(found[metric]["values"]) for metric in _DETECTION)
    on_original = (accuracy - replaced * recall) / np.maximum(1 - replaced, 1e-9)
    values = {"replaced": recall, "original": on_original}
    steps = found["disc_recall"]["steps"]
    return {f"copy_accuracy_{of}": {"steps": steps, "values": line.tolist()} for of, line in values.items()}


def _draw(axis: Axes, metric: str, report: dict[str, Any]) -> None:
    drawn = []
    for number, values in enumerate(report.values()):
        for kind, draw_line in (("training", figures.smoothed_curve), ("held_out", figures.curve)):
            if line := values[kind].get(metric):
                draw_line(axis, [step * values["scale"] for step in line["steps"]], line["values"], number)
                drawn.append(line["values"])
    figures.cut_first_peak(axis, drawn)
    figures.keep_within(axis, metric)


def _shown(report: dict[str, Any], request: Request, names: Iterable[str]) -> list[str]:
    """Metrics that were asked for, or those with a title, as far as some of these runs has them."""
    logged = {metric for name in names for kind in ("training", "held_out") for metric in report[name][kind]}
    if request.metrics:
        return [metric for metric in request.metrics if metric in logged]
    if sum(metric.endswith("_loss") for metric in logged) == 1:
        logged.discard("loss")  # of one term: the same curve
    return [metric for metric in figures.TITLES if metric in logged] or sorted(logged)


def _scale(over: str, folder: Path) -> float:
    """Length of a step on the axis."""
    if over == "steps":
        return 1
    path = folder / "config.json"
    if not is_file(path):
        raise UserError(f"--over {over}: there is no {path} to say what a step holds")
    hparams = read_json(path, "configuration")
    phases, batch = hparams.get("phases", []), hparams.get("train_batch_size", 0)
    if not (isinstance(phases, list) and all(isinstance(phase, dict) for phase in phases) and isinstance(batch, int)):
        raise UserError(f"{path} is no configuration of a run: phases {shown(phases)}, train_batch_size {shown(batch)}")
    if any({"train_batch_size", "max_seq_length"} & phase.keys() for phase in phases):
        raise UserError(f"--over {over}: the steps of {folder} hold more in one phase than another: use --over steps")
    if over == "examples":
        return batch or 1
    if "task_names" in hparams:
        raise UserError(
            f"--over flops: {folder} is fine-tuned, and FLOPs are known of pre-training: use --over examples"
        )
    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.pretrain.flops import training_flops_per_example

    config = PretrainingConfig.from_dict(hparams)
    return config.train_batch_size * training_flops_per_example(config)


def training_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the lines of the metrics file in the order of their steps, without the prefix of training metrics."""
    path, rows = folder / "train_metrics.jsonl", []
    for number, line in read_json_lines(path, "metrics", cut=True) if is_file(path) else ():
        if type(line.get("step")) is not int:
            raise UserError(f"metrics {path}, line {number}: no step")
        rows.append({name.removeprefix("train_"): value for name, value in line.items()})
    return sorted(rows, key=lambda row: row["step"])


def held_out_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the evaluations during training in the order of their steps."""
    rows = []
    for path in folder.glob("eval/step-*.json"):
        step = path.stem.removeprefix("step-")
        if not step.isdecimal():
            raise UserError(f"{path} is no evaluation: its name holds no step")
        rows.append({"step": int(step)} | read_json(path, "evaluation"))
    return sorted(rows, key=lambda row: row["step"])


def lines(rows: list[dict[str, Any]], metrics: Iterable[str] | None = None) -> dict[str, Line]:
    """Steps and values of each metric; by default of every number that the rows hold."""
    found: dict[str, Line] = {}
    for metric in dict.fromkeys(name for row in rows for name in row) if metrics is None else metrics:
        having = [row for row in rows if type(row.get(metric)) in (int, float)]
        if having and metric not in _NO_METRICS:
            found[metric] = {"steps": [row["step"] for row in having], "values": [row[metric] for row in having]}
    return found


def history(folder: Path, metrics: Iterable[str]) -> dict[str, Line]:
    """Values on held-out records where the run evaluated them, or else on the training data."""
    metrics = list(metrics)
    return lines(training_rows(folder), metrics) | lines(held_out_rows(folder), metrics)


# task -> model -> [value, score, standard deviation over trials], by rising value
Curves = dict[str, dict[str, list[list[float]]]]


def search(request: Request, figure: Path) -> dict[str, Any]:
    """Scores of every search over the numbers of one hparam, by hparam."""
    curves: dict[str, Curves] = {}
    for name in request.names:
        for path in sorted((request.folder(name) / "results").glob("*_search_*.json")):
            results = read_results(path)
            if is_curve(results):
                of_hparam = curves.setdefault(results["searched"][0], {})
                of_hparam.setdefault(",".join(results["tasks"]), {})[name] = points(results)
    if not curves:
        raise UserError(f"no search over numbers of one hparam is among the results of {', '.join(request.names)}")
    for hparam, of_hparam in curves.items():  # the figure's own name where there is but one
        draw(hparam, of_hparam, figure if len(curves) == 1 else figure.with_name(f"{figure.name}_{hparam}"))
    return curves


def read_results(path: Path) -> dict[str, Any]:
    """Reads what a search wrote. Raises UserError for anything else."""
    results = read_json(path, "results of a search")
    try:
        names, _ = list(results["searched"]), ",".join(results["tasks"])
        for row in results["found"]:
            _ = [row["hparams"][name] for name in names], row["score"] is None or row["score"] + row["std"]
        if names:
            return results
    except (KeyError, TypeError, IndexError):
        pass
    raise UserError(f"{path} holds no results of electra finetune --search: move it elsewhere, or search again")


def is_curve(results: Mapping[str, Any]) -> bool:
    """True if one hparam was searched and its values are numbers."""
    names = results["searched"]
    values = [row["hparams"][names[0]] for row in results["found"]]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return len(names) == 1 and numbers and bool(points(results))


def points(results: Mapping[str, Any]) -> list[list[float]]:
    """[value, score, standard deviation] by rising value, without scores that were not finite."""
    name = results["searched"][0]
    found = [row for row in results["found"] if row["score"] is not None]
    return sorted([row["hparams"][name], row["score"], row["std"]] for row in found)


def draw(hparam: str, curves: Curves, figure: Path) -> None:
    """Draws a panel for each task with a line for each model; logarithmic where values span decades."""
    with figures.panels(figure, list(curves), legend_below=True) as axes:
        for axis, models in zip(axes, curves.values(), strict=True):
            for number, (name, rows) in enumerate(models.items()):
                x, y, error = zip(*rows, strict=True)
                figures.curve(axis, x, y, number, name)
                axis.errorbar(x, y, error, fmt="none", capsize=2, elinewidth=0.8, **figures.style_of(number))
            values = [value for rows in models.values() for value, _, _ in rows]
            if min(values) > 0 and max(values) >= 20 * min(values):
                axis.set_xscale("log")
            axis.set_xlabel(figures.title(hparam))
