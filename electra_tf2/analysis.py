"""Figures of pre-training: learning curves of runs, and COCO-LM's figures of copying, contrast and sentence vectors.

Curves are read from what a run logged (train_metrics.jsonl, eval/step-N.json). Cosines and t-SNE are of [CLS] before
fine-tuning, of STS-B's pairs with the full score (similar sentences). run_analysis.py is the command.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.tasks.files import find_file
from electra_tf2.finetune.tasks.targets import Scale
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_files import read_texts
from electra_tf2.formats.folders import VOCABULARY, released
from electra_tf2.inference.model import load
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.settings.built_in import BUILT_IN
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.files import replacing
from electra_tf2.util.hparams import closest
from electra_tf2.util.reading import is_file, read_json, read_json_lines

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import EngFormatter
from sklearn.manifold import TSNE
from sklearn.metrics import roc_auc_score

Line = dict[str, list[Any]]  # {"steps": [...], "values": [...]}
_NO_METRICS = ("step", "examples_per_second", "gradient_norm")
_AXES = {"steps": "training steps", "examples": "training sequences", "flops": "training FLOPs"}
_COPYING = [f"{what}_accuracy_{tokens}" for what in ("copy", "clm") for tokens in ("replaced", "original")]
_DETECTION = ("disc_recall", "disc_accuracy", "replaced_rate")
_CONTRAST = ("positive_cosine", "negative_cosine")
_USUAL = ("loss", "lm_accuracy", "cloze_accuracy", "auc", "recall", *_COPYING, *_CONTRAST, "score")  # endings
_COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]  # Okabe and Ito 2008
_STYLE: Any = {"font.size": 8.5, "axes.titlesize": 9, "axes.grid": True, "grid.color": "0.9", "pdf.fonttype": 42}


class Request(NamedTuple):
    """Choices of a command line; run_analysis.py says what each is. names: of models or runs."""

    data_dir: Path
    names: tuple[str, ...]
    num_pairs: int = 1000
    perplexity: float = 30.0
    seed: int = 0
    metrics: tuple[str, ...] = ()
    over: str = "steps"

    def folder(self, name: str) -> Path:
        """Folder of a run, given by its path, by a name in <data_dir>/models, or by the name of a shipped model."""
        own = Path(name) if "/" in name else self.data_dir / "models" / name
        return own if own.is_dir() else Path(released(name) or own)


def curves(request: Request, figure: Path) -> dict[str, Any]:
    """Draws losses and metrics of several runs over steps, examples or FLOPs."""
    runs = read_runs(request)
    logged = [metric for run in runs.values() for metric in (*run["training"], *run["held_out"])]
    for metric in {*request.metrics} - {*logged}:
        raise UserError(
            f"--metrics: {', '.join(request.names)} has logged no {metric!r}{closest(metric, logged)} "
            f"(there: {', '.join(sorted({*logged}))})"
        )
    usual = [metric for metric in dict.fromkeys(logged) if metric.endswith(_USUAL)]
    return _draw_runs(runs, request.metrics or usual or sorted({*logged}), request.over, figure)


def copying(request: Request, figure: Path) -> dict[str, Any]:
    """Draws the accuracy of copying and of the language model, on replaced and on original tokens (COCO-LM, Figure 8).

    ELECTRA's detector stands beside copy heads: to call a token original is to copy it.
    """
    runs = read_runs(request)
    for run in runs.values():
        for kind in ("training", "held_out"):
            run[kind] |= _as_copying(run[kind])
    return _draw_runs(_having(runs, _COPYING, "--analysis copying"), _COPYING, request.over, figure)


def contrast(request: Request, figure: Path) -> dict[str, Any]:
    """Draws the cosines of a sequence and its crop, and of different sequences (COCO-LM, Figure 7)."""
    runs = read_runs(request)
    return _draw_runs(_having(runs, _CONTRAST, "--analysis contrast"), _CONTRAST, request.over, figure)


def cosine(request: Request, figure: Path) -> dict[str, Any]:
    """Draws the cosines of similar and of random sentences (COCO-LM, Figures 1 and 5)."""
    report, drawn = {}, {}
    for name in request.names:
        first, second = similar_vectors(request, name)
        others = (np.arange(len(first)) + np.random.default_rng(request.seed).integers(1, len(first))) % len(first)
        similar, random = np.sum(first * second, -1), np.sum(first * second[others], -1)
        auc = float(roc_auc_score(np.repeat([1, 0], len(first)), np.concatenate([similar, random])))
        means = {"similar": float(similar.mean()), "random": float(random.mean())}
        report[name] = {"pairs": len(first), **means, "auc": auc}  # auc: that a similar pair has the greater cosine
        drawn[f"{name} (AUC {auc:.2f})"] = {"similar sentences": similar, "random sentences": random}
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {auc:.3f}")
    with panels(figure, list(drawn)) as axes:
        for values, axis in zip(drawn.values(), axes, strict=True):
            edges = np.linspace(np.min([*values.values()]), np.max([*values.values()]) + 1e-3, 41).tolist()
            for color, (label, numbers) in zip(_COLORS, values.items(), strict=False):
                axis.hist(numbers, edges, density=True, alpha=0.5, color=color, label=label)
                axis.axvline(float(numbers.mean()), color=color, linestyle=":")
            axis.set(xlabel="cosine of [CLS]", yticks=[])
    return report


def tsne(request: Request, figure: Path) -> dict[str, Any]:
    """Draws similar sentences on a plane, a line between the two of a pair (COCO-LM, Figure 6)."""
    report: dict[str, Any] = {}
    for name in request.names:
        pair = similar_vectors(request, name)
        both = np.concatenate(pair)
        perplexity = min(request.perplexity, (len(both) - 1) / 3)
        flat = TSNE(perplexity=perplexity, init="pca", random_state=request.seed).fit_transform(both)
        first, second = np.split(flat, 2)
        mean = float(np.sum(pair[0] * pair[1], -1).mean())
        report[name] = {"mean_cosine": mean, "first": first.tolist(), "second": second.tolist()}
        print(f"{name}: {len(first)} similar pairs, mean cosine {mean:.3f}")
    with panels(figure, [f"{name} (mean cosine {found['mean_cosine']:.2f})" for name, found in report.items()]) as axes:
        for found, axis in zip(report.values(), axes, strict=True):
            places = {"a sentence": np.array(found["first"]), "its paraphrase": np.array(found["second"])}
            axis.add_collection(LineCollection(list(np.stack(list(places.values()), 1)), colors="0.75", linewidths=0.6))
            for color, (label, points) in zip(_COLORS, places.items(), strict=False):
                axis.scatter(points[:, 0], points[:, 1], s=7, color=color, label=label)
            axis.set(xticks=[], yticks=[])
    return report


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


def lines(rows: list[dict[str, Any]]) -> dict[str, Line]:
    """Steps and values of every number that the rows hold."""
    found: dict[str, Line] = {}
    for metric in dict.fromkeys(name for row in rows for name in row if name not in _NO_METRICS):
        having = [row for row in rows if type(row.get(metric)) in (int, float)]
        if having:
            found[metric] = {"steps": [row["step"] for row in having], "values": [row[metric] for row in having]}
    return found


def read_runs(request: Request) -> dict[str, Any]:
    """Logs of runs: name -> length of a step on the axis, and lines of training and of held-out records."""
    runs = {}
    for name in request.names:
        folder = request.folder(name)
        training, held_out = lines(training_rows(folder)), lines(held_out_rows(folder))
        if not training and not held_out:
            raise UserError(f"{folder} has logged nothing: neither train_metrics.jsonl nor eval/step-*.json is there")
        runs[name] = {"scale": _scale(request.over, folder), "training": training, "held_out": held_out}
    return runs


def similar_sentences(request: Request) -> list[tuple[str, ...]]:
    """STS-B's pairs with the full score, at most `num_pairs`."""
    data, sts = request.data_dir / "finetuning_data", BUILT_IN["sts"]
    assert sts.text is not None and sts.text.value_range is not None
    folders, scale = [data / name for name in ("sts", *sts.options["folders"])], Scale(*sts.text.value_range)
    pairs: list[tuple[str, ...]] = []
    for split in ("dev", "train"):
        path = find_file(folders, split, (), TextTask.endings)
        for row in read_texts(path, sts.text):
            pairs += [row.texts] if scale.checked(row.label, row.where) == scale.high else []
    if len(pairs) < 2:
        raise UserError(f"{folders[0]} has {len(pairs)} pair(s) with the score 5; at least 2 are needed")
    return pairs[: request.num_pairs]


@functools.cache
def similar_vectors(request: Request, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors [N, H] of [CLS] of the two sides of the similar sentences.

    A run without a vocabulary of its own has that of the data folder.
    """
    folder, vocab = request.folder(name), request.data_dir / VOCABULARY
    own = (folder / VOCABULARY).is_file() or not vocab.is_file()
    model = load(folder, vocab_file=None if own else str(vocab))
    first, second = zip(*similar_sentences(request), strict=True)
    return model.embed(first, pooling="cls"), model.embed(second, pooling="cls")


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
    if over == "flops" and "task_names" in hparams:
        raise UserError(f"--over flops: {folder} is fine-tuned, FLOPs are known of pre-training: use --over examples")
    return (batch or 1) * (training_flops_per_example(PretrainingConfig.from_dict(hparams)) if over == "flops" else 1)


def _as_copying(logged: dict[str, Line]) -> dict[str, Line]:
    """A detector's accuracy on replaced and on original tokens, from its recall and its accuracy on all."""
    if any(metric not in logged for metric in _DETECTION):
        return {}
    recall, accuracy, replaced = (np.array(logged[metric]["values"]) for metric in _DETECTION)
    values = {"replaced": recall, "original": (accuracy - replaced * recall) / np.maximum(1 - replaced, 1e-9)}
    steps = logged["disc_recall"]["steps"]
    return {f"copy_accuracy_{of}": {"steps": steps, "values": line.tolist()} for of, line in values.items()}


def _having(runs: dict[str, Any], metrics: Sequence[str], flag: str) -> dict[str, Any]:
    """Runs that have logged some of the metrics; names the others."""
    having = {name: run for name, run in runs.items() if {*metrics} & {*run["training"], *run["held_out"]}}
    if not having:
        raise UserError(f"{flag}: none of {', '.join(runs)} has logged {', '.join(metrics)}, as its objective would")
    for name in runs.keys() - having.keys():
        print(f"{name}: left out, it has logged nothing of {', '.join(metrics)}")
    return having


def _draw_runs(runs: dict[str, Any], metrics: Sequence[str], over: str, figure: Path) -> dict[str, Any]:
    """Draws a panel for each metric that some run has: lines in training, dots on held-out records."""
    for name, run in runs.items():
        last = {metric: line["values"][-1] for metric, line in (run["held_out"] | run["training"]).items()}
        print(f"{name}: " + ", ".join(f"{metric} {last[metric]:.4g}" for metric in metrics if metric in last))
    metrics = [
        metric for metric in metrics if any(metric in run["training"] | run["held_out"] for run in runs.values())
    ]
    with panels(figure, metrics) as axes:
        for metric, axis in zip(metrics, axes, strict=True):
            late: list[float] = []
            for number, (name, run) in enumerate(runs.items()):
                for kind, marker in (("training", None), ("held_out", "o")):
                    if line := run[kind].get(metric):
                        x, y = [step * run["scale"] for step in line["steps"]], line["values"]
                        color = _COLORS[number % len(_COLORS)]
                        axis.plot(x, y, linewidth=1, marker=marker, markersize=3, label=name, color=color)
                        late += y[len(y) // 20 :]
            low, high = min(late), max(late)
            if metric.endswith("loss") and high > low:  # which starts far above where it stays
                axis.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
            axis.set_xlabel(_AXES[over])
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    return runs


@contextlib.contextmanager
def panels(path: Path, titles: Sequence[str]) -> Iterator[list[Axes]]:
    """Yields a panel for each title, to draw into, under one legend; writes `path`.png and `path`.pdf at the end."""
    columns = min(len(titles), 3)
    rows = -(-len(titles) // columns)
    with pyplot.rc_context(_STYLE):
        figure, grid = pyplot.subplots(
            rows, columns, figsize=(max(3.4 * columns, 4.2), 2.6 * rows + 0.3), squeeze=False, layout="constrained"
        )
        axes, spare = grid.flat[: len(titles)], grid.flat[len(titles) :]
        for axis in spare:
            axis.set_axis_off()
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title.replace("_", " "))
        yield list(axes)
        labels: dict[str, Any] = {}
        for handles, names in (axis.get_legend_handles_labels() for axis in axes):
            labels |= zip(names, handles, strict=True)
        figure.legend(labels.values(), labels, loc="outside lower center", ncols=min(len(labels), 6))
        for suffix in ("png", "pdf"):
            with replacing(path.with_name(f"{path.name}.{suffix}")) as temporary:
                figure.savefig(temporary, format=suffix, dpi=200)
        pyplot.close(figure)
