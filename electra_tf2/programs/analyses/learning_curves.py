"""Learning curves: losses and metrics that runs have logged, over steps, examples or FLOPs.

They are read from train_metrics.jsonl, eval/step-N.json and results/unsup_results.json of a run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.files.reading import is_file, read_json, read_json_lines
from electra_tf2.pretrain.diagnosis import ON_TRAINING_RECORDS
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.programs.analyses.figures import panels
from electra_tf2.programs.analyses.request import Request
from electra_tf2.util.errors import UserError, closest, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = {"steps": "training steps", "examples": "training sequences", "flops": "training FLOPs"}
COPYING = (
    "copy_accuracy_replaced",
    "copy_accuracy_original",
    "clm_accuracy_replaced",
    "clm_accuracy_original",
)
CONTRAST = ("positive_cosine", "negative_cosine")
# Metrics with these endings are drawn by default.
_USUAL = ("loss", "lm_accuracy", "cloze_accuracy", "auc", "recall", *COPYING, *CONTRAST, "score")
_NO_METRICS = ("step", "examples_per_second", "gradient_norm")
_MASKED_LM_LOSSES = ("masked_lm_loss", "hidden_masked_lm_loss")

Curves = dict[str, dict[str, list[Any]]]  # metric -> {"steps": [...], "values": [...]}


class LoggedRun(NamedTuple):
    """Metrics that a run has logged, in training and in evaluations, on held-out records where there are some.

    scale: length of a step on the x axis.
    """

    scale: float
    training: Curves
    held_out: Curves

    @property
    def metrics(self) -> list[str]:
        return list(self.training | self.held_out)

    @property
    def evaluated_on(self) -> str:
        return "on training records" if ON_TRAINING_RECORDS in self.held_out else "held out"

    def last(self, metric: str) -> float:
        """The newest value in training, or else on held-out records."""
        curve = self.training.get(metric) or self.held_out[metric]
        return curve["values"][-1]


def curves(request: Request, figure: Path, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Draws losses and metrics of several runs over steps, examples or FLOPs, a panel for each metric.

    Args:
      metrics: the analysis's own; () for those of --metrics, or the default ones.

    Returns:
      For each run that has logged some of the metrics: name -> {"scale": length of a step on the x axis, "training" and
      "held_out": metric -> {"steps", "values"}}.
    """
    runs = {name: _read_run(request, name) for name in request.names}
    logged: list[str] = []
    for run in runs.values():
        logged += run.metrics
    logged = list(dict.fromkeys(logged))

    if not metrics:
        metrics = _chosen_metrics(request, logged)
    drawn = {}
    for name, run in runs.items():
        values = [f"{metric} {run.last(metric):.4g}" for metric in metrics if metric in run.metrics]
        if values:
            drawn[name] = run
            print(f"{name}: {', '.join(values)}")
        else:
            print(f"{name}: left out, it has logged nothing of {', '.join(metrics)}")
    if not drawn:
        raise UserError(f"none of {', '.join(runs)} has logged {', '.join(metrics)}, as its objective would")

    metrics = [metric for metric in metrics if metric in logged]
    with panels(figure, metrics) as axes:
        for metric, axis in zip(metrics, axes, strict=True):
            _draw_curves(axis, metric, drawn)
            axis.set_xlabel(AXES[request.over])
    return {name: run._asdict() for name, run in drawn.items()}


def _chosen_metrics(request: Request, logged: list[str]) -> Sequence[str]:
    """The metrics of --metrics, or else the default ones, or else all. Raises UserError for one that no run logged."""
    for metric in request.metrics:
        if metric not in logged:
            hint = f"{closest(metric, logged)} (there: {', '.join(sorted(logged))})"
            raise UserError(f"--metrics: {', '.join(request.names)} has logged no {metric!r}{hint}")
    usual = [metric for metric in logged if metric.endswith(_USUAL)]
    return request.metrics or usual or sorted(logged)


def _read_run(request: Request, name: str) -> LoggedRun:
    folder = request.folder(name)
    training = _training_rows(folder)
    held_out = _held_out_rows(folder)
    if not training and not held_out:
        raise UserError(f"{folder} has logged nothing: neither train_metrics.jsonl nor eval/step-*.json is there")
    return LoggedRun(_scale(request.over, folder), _curves_of(training), _curves_of(held_out))


def _training_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the metrics of training, and removes their prefix."""
    path = folder / "train_metrics.jsonl"
    if not is_file(path):
        return []
    rows = []
    for line_number, metrics in read_json_lines(path, "metrics", cut=True):
        if type(metrics.get("step")) is not int:
            raise UserError(f"metrics {path}, line {line_number}: no step")
        rows.append({name.removeprefix("train_"): value for name, value in metrics.items()})
    return rows


def _held_out_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the evaluations on held-out records: those during training, and the final one."""
    rows = []
    for path in folder.glob("eval/step-*.json"):
        step = path.stem.removeprefix("step-")
        if not step.isdecimal():
            raise UserError(f"{path} is no evaluation: its name holds no step")
        rows.append({"step": int(step)} | read_json(path, "evaluation"))

    path = folder / "results" / "unsup_results.json"
    if is_file(path):
        final = read_json(path, "evaluation")
        if type(final.get("step")) is not int:
            raise UserError(f"{path} is no evaluation: it holds no step")
        if final["step"] not in [row["step"] for row in rows]:
            rows.append(final)
    return rows


def _curves_of(rows: list[dict[str, Any]]) -> Curves:
    """Turns rows into a curve for each metric, in the order of the steps."""
    metric_curves: Curves = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        for metric, value in row.items():
            if metric in _NO_METRICS or type(value) not in (int, float):
                continue
            curve = metric_curves.setdefault(metric, {"steps": [], "values": []})
            curve["steps"].append(row["step"])
            curve["values"].append(value)
    return metric_curves


def _scale(over: str, folder: Path) -> float:
    """Length of a step on the x axis."""
    if over == "steps":
        return 1
    path = folder / "config.json"
    hparams = read_json(path, "configuration")
    phases = hparams.get("phases", [])
    batch = hparams.get("train_batch_size", 0)
    are_phases = isinstance(phases, list) and all(isinstance(phase, dict) for phase in phases)
    if not are_phases or not isinstance(batch, int):
        raise UserError(f"{path} is no configuration of a run: phases {shown(phases)}, train_batch_size {shown(batch)}")
    for phase in phases:
        if "train_batch_size" in phase or "max_seq_length" in phase:
            raise UserError(
                f"--over {over}: the steps of {folder} hold more in one phase than another: use --over steps"
            )

    examples = batch or 1
    if over == "examples":
        return examples
    if "task_names" in hparams:
        raise UserError(f"--over flops: {folder} is fine-tuned, FLOPs are known of pre-training: use --over examples")
    return examples * training_flops_per_example(PretrainingConfig.from_dict(hparams))


def _draw_curves(axis: "Axes", metric: str, runs: dict[str, LoggedRun]) -> None:
    """Draws a metric of several runs: training as lines, held-out records as dots.

    For a masked language model's loss, a dashed line shows the loss of a model that only knows token frequencies.
    """
    late: list[float] = []
    for index, (name, run) in enumerate(runs.items()):
        color = f"C{index}"
        if metric in run.training:
            curve = run.training[metric]
            steps = [step * run.scale for step in curve["steps"]]
            axis.plot(steps, curve["values"], linewidth=1, label=name, color=color)
            late += _late(curve["values"])
        if metric in run.held_out:
            curve = run.held_out[metric]
            steps = [step * run.scale for step in curve["steps"]]
            label = f"{name}, {run.evaluated_on}"
            axis.plot(steps, curve["values"], linestyle="none", marker="o", markersize=3.5, label=label, color=color)
            late += _late(curve["values"])
        if metric in _MASKED_LM_LOSSES and "unigram_entropy" in run.held_out:
            entropy = run.held_out["unigram_entropy"]["values"][-1]
            axis.axhline(entropy, linestyle="--", linewidth=0.8, label=f"{name}, token frequencies", color=color)
            late.append(entropy)
    # The axis follows the late values: the high loss at the start would flatten the rest.
    low = min(late)
    high = max(late)
    if metric.endswith("loss") and high > low:
        axis.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))


def _late(values: list[float]) -> list[float]:
    """The values after the first twentieth of a run."""
    return values[len(values) // 20 :]
