"""Makes the papers' analyses of pre-trained models: numbers as JSON, figures as PNG and PDF.

  electra analyze --model electra_small,coco_lm_small --analysis curves,cosine

writes <output-dir>/<analysis>.json, .png and .pdf. --analysis:

  curves    losses and metrics that runs logged
  copying   accuracy of copying and of the language model (COCO-LM, Figure 8)
  contrast  cosines of a sequence and its crop, and of others (Figure 7)
  cosine    cosines of [CLS] of similar and of random sentences, before
            fine-tuning (Figures 1 and 5)
  tsne      t-SNE of [CLS] of similar sentences (Figure 6)

Similar sentences are the pairs of STS-B with the full score, in <data-dir>/finetuning_data/sts. Curves are read from
train_metrics.jsonl, eval/step-N.json and results/unsup_results.json of a run.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.files.reading import is_file, read_json, read_json_lines
from electra_tf2.files.writing import replacing, write_json
from electra_tf2.formats.folders import VOCABULARY, models, released
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.util.errors import UserError, closest, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES = {"steps": "training steps", "examples": "training sequences", "flops": "training FLOPs"}
_COPYING = (
    "copy_accuracy_replaced",
    "copy_accuracy_original",
    "clm_accuracy_replaced",
    "clm_accuracy_original",
)
_CONTRAST = ("positive_cosine", "negative_cosine")
# Endings of the metrics that are drawn if none are asked for.
_USUAL = ("loss", "lm_accuracy", "cloze_accuracy", "auc", "recall", *_COPYING, *_CONTRAST, "score")
_NO_METRICS = ("step", "examples_per_second", "gradient_norm")
_MASKED_LM_LOSSES = ("masked_lm_loss", "hidden_masked_lm_loss")
_MOST_PAIRS = 1000
_STYLE: Any = ["tableau-colorblind10", {"font.size": 8.5, "axes.grid": True, "grid.color": "0.9", "pdf.fonttype": 42}]

Curves = dict[str, dict[str, list[Any]]]  # metric -> {"steps": [...], "values": [...]}


class Request(NamedTuple):
    """Choices of a command line. names: of models or runs."""

    data_dir: Path
    names: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    over: str = "steps"
    seed: int = 0

    def folder(self, name: str) -> Path:
        """Folder of a run, given by its path, by a name in <data_dir>/models, or by the name of a shipped model."""
        folder = Path(name) if "/" in name else self.data_dir / "models" / name
        if folder.is_dir():
            return folder
        return Path(released(name) or folder)


class LoggedRun(NamedTuple):
    """Metrics that a run has logged while it trained, and on held-out records. scale: length of a step on the axis."""

    scale: float
    training: Curves
    held_out: Curves

    @property
    def metrics(self) -> list[str]:
        return list(self.training | self.held_out)

    def last(self, metric: str) -> float:
        """The newest value, of training where it is logged there, too."""
        curve = self.training.get(metric) or self.held_out[metric]
        return curve["values"][-1]


# Learning curves.


def curves(request: Request, figure: Path, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Draws losses and metrics of several runs over steps, examples or FLOPs, a panel for each.

    Args:
      metrics: of an analysis; () for those that are asked for, or the usual ones.

    Returns:
      Name -> {"scale": length of a step on the axis, "training" and "held_out": metric -> {"steps", "values"}}, of the
      runs that have logged some of the metrics.
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
    with _panels(figure, metrics) as axes:
        for metric, axis in zip(metrics, axes, strict=True):
            _draw_curves(axis, metric, drawn)
            axis.set_xlabel(_AXES[request.over])
    return {name: run._asdict() for name, run in drawn.items()}


def _chosen_metrics(request: Request, logged: list[str]) -> Sequence[str]:
    """The metrics that are asked for, else the usual ones, else all. Raises UserError for one that nobody logged."""
    for metric in request.metrics:
        if metric not in logged:
            listed = f"{closest(metric, logged)} (there: {', '.join(sorted(logged))})"
            raise UserError(f"--metrics: {', '.join(request.names)} has logged no {metric!r}{listed}")
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
    """The metrics of training, without their prefix."""
    path = folder / "train_metrics.jsonl"
    if not is_file(path):
        return []
    rows = []
    for number, line in read_json_lines(path, "metrics", cut=True):
        if type(line.get("step")) is not int:
            raise UserError(f"metrics {path}, line {number}: no step")
        rows.append({name.removeprefix("train_"): value for name, value in line.items()})
    return rows


def _held_out_rows(folder: Path) -> list[dict[str, Any]]:
    """The evaluations on held-out records: those during training, and the final one."""
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
    """Every metric of the rows, in the order of the steps."""
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
    """Length of a step on the axis."""
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
    """Draws a metric of several runs: training as lines, held-out records as dots, and beside the loss of a masked
    language model a dashed line at that of a model of token frequencies."""
    late: list[float] = []
    for number, (name, run) in enumerate(runs.items()):
        color = f"C{number}"
        if metric in run.training:
            curve = run.training[metric]
            steps = [step * run.scale for step in curve["steps"]]
            axis.plot(steps, curve["values"], linewidth=1, label=name, color=color)
            late += _late(curve["values"])
        if metric in run.held_out:
            curve = run.held_out[metric]
            steps = [step * run.scale for step in curve["steps"]]
            label = f"{name}, held out"
            axis.plot(steps, curve["values"], linestyle="none", marker="o", markersize=3.5, label=label, color=color)
            late += _late(curve["values"])
        if metric in _MASKED_LM_LOSSES and "unigram_entropy" in run.held_out:
            entropy = run.held_out["unigram_entropy"]["values"][-1]
            axis.axhline(entropy, linestyle="--", linewidth=0.8, label=f"{name}, token frequencies", color=color)
            late.append(entropy)
    # A loss starts far above where it stays, and that start would flatten the rest.
    low = min(late)
    high = max(late)
    if metric.endswith("loss") and high > low:
        axis.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))


def _late(values: list[float]) -> list[float]:
    """The values after the first twentieth of a run."""
    return values[len(values) // 20 :]


# Vectors of sentences.


def cosine(request: Request, figure: Path) -> dict[str, Any]:
    """Draws the cosines of similar and of random sentences (COCO-LM, Figures 1 and 5)."""
    report = {}
    histograms = {}
    for name in request.names:
        first, second = similar_vectors(request, name)
        count = len(first)
        similar = np.sum(first * second, -1)
        # Shifted by at least one and less than all, no sentence meets its own partner.
        shift = np.random.default_rng(request.seed).integers(1, count)
        random = np.sum(first * second[(np.arange(count) + shift) % count], -1)
        # The probability that a similar pair has the greater cosine.
        auc = float(np.mean(similar[:, None] > random))
        report[name] = {
            "pairs": count,
            "similar": float(similar.mean()),
            "random": float(random.mean()),
            "auc": auc,
        }
        histograms[f"{name} (AUC {auc:.2f})"] = {"similar sentences": similar, "random sentences": random}
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {auc:.3f}")
    with _panels(figure, list(histograms)) as axes:
        for groups, axis in zip(histograms.values(), axes, strict=True):
            _draw_histograms(axis, groups)
    return report


def _draw_histograms(axis: "Axes", groups: dict[str, np.ndarray]) -> None:
    """Draws a histogram for each group of cosines over the same bins, and a dotted line at its mean."""
    values = np.concatenate(list(groups.values()))
    edges = np.linspace(values.min(), values.max() + 1e-3, 41).tolist()
    for number, (label, cosines) in enumerate(groups.items()):
        color = f"C{number}"
        axis.hist(cosines, edges, density=True, alpha=0.5, color=color, label=label)
        axis.axvline(float(cosines.mean()), color=color, linestyle=":")
    axis.set(xlabel="cosine of [CLS]", yticks=[])


def tsne(request: Request, figure: Path) -> dict[str, Any]:
    """Draws similar sentences on a plane, a line between the two of a pair (COCO-LM, Figure 6)."""
    from sklearn.manifold import TSNE

    report: dict[str, Any] = {}
    for name in request.names:
        first, second = similar_vectors(request, name)
        vectors = np.concatenate([first, second])
        # scikit-learn wants it to be less than the number of vectors.
        perplexity = min(30, (len(vectors) - 1) / 3)
        points = TSNE(perplexity=perplexity, init="pca", random_state=request.seed).fit_transform(vectors)
        first_points, second_points = np.split(points, 2)
        mean = float(np.sum(first * second, -1).mean())
        report[name] = {"mean_cosine": mean, "first": first_points.tolist(), "second": second_points.tolist()}
        print(f"{name}: {len(first)} similar pairs, mean cosine {mean:.3f}")
    titles = [f"{name} (mean cosine {numbers['mean_cosine']:.2f})" for name, numbers in report.items()]
    with _panels(figure, titles) as axes:
        for numbers, axis in zip(report.values(), axes, strict=True):
            _draw_pairs(axis, np.array(numbers["first"]), np.array(numbers["second"]))
    return report


def _draw_pairs(axis: "Axes", first: np.ndarray, second: np.ndarray) -> None:
    """Draws points [N, 2] of two sentences each, and a line from one to the other."""
    x = np.stack([first[:, 0], second[:, 0]])
    y = np.stack([first[:, 1], second[:, 1]])
    axis.plot(x, y, color="0.75", linewidth=0.6)
    axis.scatter(first[:, 0], first[:, 1], s=7, label="a sentence")
    axis.scatter(second[:, 0], second[:, 1], s=7, label="its paraphrase")
    axis.set(xticks=[], yticks=[])


@functools.cache  # cosine and tsne look at the same vectors
def similar_vectors(request: Request, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors [N, H] of [CLS] of the two sides of STS-B's pairs with the full score.

    A run without a vocabulary of its own has that of the data folder.
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


# Figures.


@contextlib.contextmanager
def _panels(path: Path, titles: Sequence[str]) -> Iterator[list["Axes"]]:
    """Yields a panel for each title, to draw into, under one legend; writes `path`.png and `path`.pdf at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(titles), 3)
    rows = math.ceil(len(titles) / columns)
    with pyplot.style.context(_STYLE):
        size = (max(3.4 * columns, 4.2), 2.6 * rows + 0.3)
        figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        for axis in grid.flat[len(titles) :]:
            axis.set_axis_off()
        axes = list(grid.flat[: len(titles)])
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title.replace("_", " "))
        yield axes

        # What several panels have in common stands in the legend once.
        labels: dict[str, Any] = {}
        for axis in axes:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                labels[label] = handle
        figure.legend(labels.values(), labels, loc="outside lower center", ncols=min(len(labels), 6))
        for suffix in ("png", "pdf"):
            with replacing(path.with_name(f"{path.name}.{suffix}")) as temporary:
                figure.savefig(temporary, format=suffix, dpi=200)
        pyplot.close(figure)


ANALYSES: dict[str, Callable[[Request, Path], dict[str, Any]]] = {
    "curves": curves,
    "copying": functools.partial(curves, metrics=_COPYING),
    "contrast": functools.partial(curves, metrics=_CONTRAST),
    "cosine": cosine,
    "tsne": tsne,
}


def main() -> int:
    values = flags.FLAGS
    for analysis in values.analysis:
        if analysis not in ANALYSES:
            raise UserError(f"--analysis: no {analysis!r}{closest(analysis, ANALYSES)} (one of {', '.join(ANALYSES)})")
    names = tuple(values.model or values.runs or values.model_names)
    request = Request(Path(values.data_dir), names, tuple(values.metrics), values.over, values.seed)
    for name in names:
        folder = request.folder(name)
        if not folder.is_dir():
            raise UserError(f"--model: there is no {folder}{closest(name, models())}")

    output_dir = Path(values.output_dir or request.data_dir / "analysis")
    for analysis in values.analysis:
        print(f"{analysis}:", flush=True)
        analyse = ANALYSES[analysis]
        report = analyse(request, output_dir / analysis)
        write_json(output_dir / f"{analysis}.json", report)
        print(f"wrote {output_dir / analysis}.json, and figures beside it (.png, .pdf)")
    return 0


def command() -> None:
    flags.DEFINE_list("analysis", ["cosine"], "analyses to make, separated by commas (see above)")
    flags.DEFINE_string("data_dir", "data", "folder of vocabulary, records, models and finetuning_data")
    models_text = "models to compare: names of runs in <data-dir>/models or of shipped models, or paths of folders"
    flags.DEFINE_list("model", [], f"{models_text} [electra_small]")
    flags.DEFINE_list("model_names", ["electra_small"], "the same as --model")
    flags.DEFINE_list("runs", [], "the same as --model")
    util_flags.hide("model_names", "runs")
    flags.DEFINE_list("metrics", [], "metrics that learning curves show; default: losses and the usual metrics")
    flags.DEFINE_enum("over", "steps", ["steps", "examples", "flops"], "what learning curves are drawn over")
    flags.DEFINE_string("output_dir", None, "folder of the results; default <data-dir>/analysis")
    flags.DEFINE_integer("seed", 0, "seed of random pairs and of t-SNE", lower_bound=0)
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
