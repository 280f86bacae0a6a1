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

_NO_METRICS = ("step", "examples_per_second", "gradient_norm")
_AXES = {"steps": "training steps", "examples": "training sequences", "flops": "training FLOPs"}
_COPYING = tuple(f"{what}_accuracy_{tokens}" for what in ("copy", "clm") for tokens in ("replaced", "original"))
_CONTRAST = ("positive_cosine", "negative_cosine")
_USUAL = ("loss", "lm_accuracy", "cloze_accuracy", "auc", "recall", *_COPYING, *_CONTRAST, "score")  # endings
_MASKED_LM_LOSSES = ("masked_lm_loss", "hidden_masked_lm_loss")
_MOST_PAIRS = 1000
_STYLE: Any = ["tableau-colorblind10", {"font.size": 8.5, "axes.grid": True, "grid.color": "0.9", "pdf.fonttype": 42}]


class Request(NamedTuple):
    """Choices of a command line. names: of models or runs."""

    data_dir: Path
    names: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    over: str = "steps"
    seed: int = 0

    def folder(self, name: str) -> Path:
        """Folder of a run, given by its path, by a name in <data_dir>/models, or by the name of a shipped model."""
        own = Path(name) if "/" in name else self.data_dir / "models" / name
        return own if own.is_dir() else Path(released(name) or own)


def curves(request: Request, figure: Path, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Draws losses and metrics of several runs over steps, examples or FLOPs, a panel for each.

    Args:
      metrics: those of an analysis; () for those that are asked for, or the usual ones.

    Returns:
      Name -> {"scale": length of a step on the axis, "training" and "held_out": metric -> {"steps", "values"}}, of the
      runs that have logged some of the metrics.
    """
    runs: dict[str, dict[str, Any]] = {}
    for name in request.names:
        folder = request.folder(name)
        training, held_out = map(_lines, _rows(folder))
        if not training and not held_out:
            raise UserError(f"{folder} has logged nothing: neither train_metrics.jsonl nor eval/step-*.json is there")
        runs[name] = {"scale": _scale(request.over, folder), "training": training, "held_out": held_out}
    logged = {name: run["held_out"] | run["training"] for name, run in runs.items()}
    there = list(dict.fromkeys(metric for run in runs.values() for metric in (*run["training"], *run["held_out"])))
    if not metrics:
        for metric in {*request.metrics}.difference(there):
            listed = f"{closest(metric, there)} (there: {', '.join(sorted(there))})"
            raise UserError(f"--metrics: {', '.join(runs)} has logged no {metric!r}{listed}")
        metrics = request.metrics or [one for one in there if one.endswith(_USUAL)] or sorted(there)
    for name, run in logged.items():
        last = ", ".join(f"{metric} {run[metric]['values'][-1]:.4g}" for metric in metrics if metric in run)
        print(f"{name}: {last or 'left out, it has logged nothing of ' + ', '.join(metrics)}")
    having = {name: run for name, run in runs.items() if {*metrics} & logged[name].keys()}
    if not having:
        raise UserError(f"none of {', '.join(runs)} has logged {', '.join(metrics)}, as its objective would")
    metrics = [metric for metric in metrics if metric in there]
    with _panels(figure, metrics) as axes:
        for metric, axis in zip(metrics, axes, strict=True):
            _draw_curves(axis, metric, having)
            axis.set_xlabel(_AXES[request.over])
    return having


def _draw_curves(axis: "Axes", metric: str, runs: dict[str, dict[str, Any]]) -> None:
    """Draws a metric of several runs: training as lines, held-out records as dots, and beside the loss of a masked
    language model a dashed line at that of a model of token frequencies."""
    late: list[float] = []
    for number, (name, run) in enumerate(runs.items()):
        color = f"C{number}"
        for kind in ("training", "held_out"):
            line = run[kind].get(metric)
            if line is None:
                continue
            x = [step * run["scale"] for step in line["steps"]]
            y = line["values"]
            if kind == "training":
                axis.plot(x, y, linewidth=1, label=name, color=color)
            else:
                axis.plot(x, y, linestyle="none", marker="o", markersize=3.5, label=f"{name}, held out", color=color)
            late += y[len(y) // 20 :]
        entropy = run["held_out"].get("unigram_entropy")
        if metric in _MASKED_LM_LOSSES and entropy is not None:
            value = entropy["values"][-1]
            axis.axhline(value, linestyle="--", linewidth=0.8, label=f"{name}, token frequencies", color=color)
            late.append(value)
    low, high = min(late), max(late)
    if metric.endswith("loss") and high > low:  # which starts far above where it stays
        axis.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))


def cosine(request: Request, figure: Path) -> dict[str, Any]:
    """Draws the cosines of similar and of random sentences (COCO-LM, Figures 1 and 5)."""
    report, drawn = {}, {}
    for name in request.names:
        first, second = similar_vectors(request, name)
        others = (np.arange(len(first)) + np.random.default_rng(request.seed).integers(1, len(first))) % len(first)
        similar, random = np.sum(first * second, -1), np.sum(first * second[others], -1)
        auc = float(np.mean(similar[:, None] > random))  # probability that a similar pair has the greater cosine
        report[name] = {
            "pairs": len(first),
            "similar": float(similar.mean()),
            "random": float(random.mean()),
            "auc": auc,
        }
        drawn[f"{name} (AUC {auc:.2f})"] = {"similar sentences": similar, "random sentences": random}
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {auc:.3f}")
    with _panels(figure, list(drawn)) as axes:
        for values, axis in zip(drawn.values(), axes, strict=True):
            edges = np.linspace(np.min([*values.values()]), np.max([*values.values()]) + 1e-3, 41).tolist()
            for number, (label, numbers) in enumerate(values.items()):
                axis.hist(numbers, edges, density=True, alpha=0.5, color=f"C{number}", label=label)
                axis.axvline(float(numbers.mean()), color=f"C{number}", linestyle=":")
            axis.set(xlabel="cosine of [CLS]", yticks=[])
    return report


def tsne(request: Request, figure: Path) -> dict[str, Any]:
    """Draws similar sentences on a plane, a line between the two of a pair (COCO-LM, Figure 6)."""
    from sklearn.manifold import TSNE

    report: dict[str, Any] = {}
    for name in request.names:
        pair = similar_vectors(request, name)
        both = np.concatenate(pair)
        perplexity = min(30, (len(both) - 1) / 3)
        flat = TSNE(perplexity=perplexity, init="pca", random_state=request.seed).fit_transform(both)
        first, second = np.split(flat, 2)
        mean = float(np.sum(pair[0] * pair[1], -1).mean())
        report[name] = {"mean_cosine": mean, "first": first.tolist(), "second": second.tolist()}
        print(f"{name}: {len(first)} similar pairs, mean cosine {mean:.3f}")
    titles = [f"{name} (mean cosine {found['mean_cosine']:.2f})" for name, found in report.items()]
    with _panels(figure, titles) as axes:
        for found, axis in zip(report.values(), axes, strict=True):
            places = {"a sentence": np.array(found["first"]), "its paraphrase": np.array(found["second"])}
            axis.plot(*np.stack(list(places.values())).transpose(2, 0, 1), color="0.75", linewidth=0.6)
            for label, points in places.items():
                axis.scatter(points[:, 0], points[:, 1], s=7, label=label)
            axis.set(xticks=[], yticks=[])
    return report


def _rows(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The metrics of training, without their prefix, and the evaluations on held-out records of a run."""
    path, training, held_out = folder / "train_metrics.jsonl", [], []
    for number, line in read_json_lines(path, "metrics", cut=True) if is_file(path) else ():
        if type(line.get("step")) is not int:
            raise UserError(f"metrics {path}, line {number}: no step")
        training.append({name.removeprefix("train_"): value for name, value in line.items()})
    for path in folder.glob("eval/step-*.json"):
        if not path.stem[5:].isdecimal():
            raise UserError(f"{path} is no evaluation: its name holds no step")
        held_out.append({"step": int(path.stem[5:])} | read_json(path, "evaluation"))
    path = folder / "results" / "unsup_results.json"
    if is_file(path):
        final = read_json(path, "evaluation")
        if type(final.get("step")) is not int:
            raise UserError(f"{path} is no evaluation: it holds no step")
        if final["step"] not in [row["step"] for row in held_out]:
            held_out.append(final)
    return training, held_out


def _lines(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Metric -> {"steps", "values"} of every number that the rows hold, in the order of the steps."""
    found: dict[str, dict[str, list[Any]]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        for metric, value in row.items():
            if metric not in _NO_METRICS and type(value) in (int, float):
                line = found.setdefault(metric, {"steps": [], "values": []})
                line["steps"].append(row["step"])
                line["values"].append(value)
    return found


@functools.cache  # of what cosine and tsne both look at
def similar_vectors(request: Request, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors [N, H] of [CLS] of the two sides of STS-B's pairs with the full score.

    A run without a vocabulary of its own has that of the data folder.
    """
    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.finetune.tasks import make_task
    from electra_tf2.inference.model import load

    config = FinetuningConfig.from_dict({"data_dir": str(request.data_dir), "task_names": ["sts"]})
    task: Any = make_task("sts", config, None)  # type: ignore[arg-type]  # nothing is tokenised
    pairs = [example.texts for split in ("dev", "train") for example in task.read(split) if example.label == 5]
    if len(pairs) < 2:
        raise UserError(f"{config.data_dir}: sts has {len(pairs)} pair(s) with the score 5; at least 2 are needed")
    folder, vocab = request.folder(name), request.data_dir / VOCABULARY
    own = (folder / VOCABULARY).is_file() or not vocab.is_file()
    model = load(folder, vocab_file=None if own else str(vocab))
    first, second = zip(*pairs[:_MOST_PAIRS], strict=True)
    return model.embed(first, pooling="cls"), model.embed(second, pooling="cls")


def _scale(over: str, folder: Path) -> float:
    """Length of a step on the axis."""
    if over == "steps":
        return 1
    path = folder / "config.json"
    hparams = read_json(path, "configuration")
    phases, batch = hparams.get("phases", []), hparams.get("train_batch_size", 0)
    if not (isinstance(phases, list) and all(isinstance(phase, dict) for phase in phases) and isinstance(batch, int)):
        raise UserError(f"{path} is no configuration of a run: phases {shown(phases)}, train_batch_size {shown(batch)}")
    if any({"train_batch_size", "max_seq_length"} & phase.keys() for phase in phases):
        raise UserError(f"--over {over}: the steps of {folder} hold more in one phase than another: use --over steps")
    if over == "flops" and "task_names" in hparams:
        raise UserError(f"--over flops: {folder} is fine-tuned, FLOPs are known of pre-training: use --over examples")
    return (batch or 1) * (training_flops_per_example(PretrainingConfig.from_dict(hparams)) if over == "flops" else 1)


@contextlib.contextmanager
def _panels(path: Path, titles: Sequence[str]) -> Iterator[list["Axes"]]:
    """Yields a panel for each title, to draw into, under one legend; writes `path`.png and `path`.pdf at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(titles), 3)
    rows = -(-len(titles) // columns)
    with pyplot.style.context(_STYLE):
        size = (max(3.4 * columns, 4.2), 2.6 * rows + 0.3)
        figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        for axis in grid.flat[len(titles) :]:
            axis.set_axis_off()
        axes = list(grid.flat[: len(titles)])
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title.replace("_", " "))
        yield axes
        labels: dict[str, Any] = {}
        for handles, names in (axis.get_legend_handles_labels() for axis in axes):
            labels |= zip(names, handles, strict=True)
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
        if not request.folder(name).is_dir():
            raise UserError(f"--model: there is no {request.folder(name)}{closest(name, models())}")
    target = Path(values.output_dir or request.data_dir / "analysis")
    for analysis in values.analysis:
        print(f"{analysis}:", flush=True)
        write_json(target / f"{analysis}.json", ANALYSES[analysis](request, target / analysis))
        print(f"wrote {target / analysis}.json, and figures beside it (.png, .pdf)")
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
