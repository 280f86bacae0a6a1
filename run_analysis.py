"""Analyses of pre-trained models, after the papers: each writes <output-dir>/<analysis>.json and .png.

  python run_analysis.py --analysis cosine --data-dir data --model-names electra_small,coco_lm_small

  cosine      cosine similarity of [CLS] of similar and of random sentences, without fine-tuning (COCO-LM, Figures 1, 5)
  tsne        t-SNE of [CLS] of similar sentences (COCO-LM, Figure 6)
  uniformity  alignment and uniformity of [CLS] (Wang and Isola 2020)
  contrast    cosine of positives and negatives during training, and of the trained model (COCO-LM, Figure 7)
  copying     accuracy of copying and of the language model during training (COCO-LM, Figure 8)

Similar sentences are the pairs of STS-B with the full score, in <data-dir>/finetuning_data/sts; random ones are drawn
from the held-out records.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from util import flags as util_flags
from util.errors import UserError
from util.files import write_json
from util.hparams import closest

_FULL_SCORE = 5.0


@functools.cache
def pretrained(name: str) -> Any:
    """The model of a name, its vocabulary and records taken from --data-dir; loaded once for all analyses."""
    from analysis.pretrained import PretrainedModel

    data = Path(flags.FLAGS.data_dir)
    vocab, records = data / "vocab.txt", data / "pretrain_tfrecords"
    return PretrainedModel(
        str(data / "models" / name),
        str(vocab) if vocab.is_file() else None,
        str(records / "dev_data.tfrecord*") if records.is_dir() else None,
    )


def similar_sentences() -> tuple[list[str], list[str]]:
    """The two sides of STS-B's pairs with the full score, at most --num-pairs."""
    from finetune.built_in import BUILT_IN
    from finetune.classification.reading import find_file, read_rows

    data, spec = Path(flags.FLAGS.data_dir) / "finetuning_data", BUILT_IN["sts"].options["spec"]
    folders = [data / name for name in ("sts", *spec.folders)]
    rows = []
    for split in ("dev", "train"):
        rows += read_rows(find_file(folders, split), spec.columns, spec.json_columns)
    pairs = [row.texts for row in rows if float(row.label) == _FULL_SCORE][: flags.FLAGS.num_pairs]
    if len(pairs) < 2:
        raise UserError(f"{folders[0]} has {len(pairs)} pair(s) with the score {_FULL_SCORE:g}; at least 2 are needed")
    return [first for first, _ in pairs], [second for _, second in pairs]


@functools.cache
def similar_states(name: str) -> tuple[np.ndarray, np.ndarray]:
    """float32 [N, H] twice: a model's [CLS] of the two sides of the similar sentences."""
    model = pretrained(name)
    first, second = similar_sentences()
    return model.sentence_states(first), model.sentence_states(second)


def cosine(names: Sequence[str], png: Path) -> dict[str, Any]:
    from analysis import figures, geometry

    figure, axes = figures.grid(names)
    report = {}
    for name, axis in zip(names, axes, strict=True):
        similar = geometry.cosines(*similar_states(name))
        states, _ = pretrained(name).view_states(flags.FLAGS.num_pairs)
        random = geometry.cosines(*geometry.random_pairs(states, states, flags.FLAGS.num_pairs, flags.FLAGS.seed))
        report[name] = {
            "similar": geometry.distribution(similar),
            "random": geometry.distribution(random),
            "auc": geometry.separation(similar, random),
        }
        print(f"{name}: similar {similar.mean():.3f}, random {random.mean():.3f}, AUC {report[name]['auc']:.3f}")
        figures.densities(axis, {"similar": similar, "random": random}, "cosine of [CLS]")
    figures.save(figure, png)
    return report


def tsne(names: Sequence[str], png: Path) -> dict[str, Any]:
    from sklearn.manifold import TSNE

    from analysis import figures, geometry

    figure, axes = figures.grid(names)
    report = {}
    for name, axis in zip(names, axes, strict=True):
        states = similar_states(name)
        mean = float(geometry.cosines(*states).mean())
        both = geometry.normalised(np.concatenate(states))
        perplexity = min(flags.FLAGS.perplexity, (len(both) - 1) / 3)
        places = TSNE(perplexity=perplexity, init="pca", random_state=flags.FLAGS.seed).fit_transform(both)
        left, right = np.split(places, 2)
        report[name] = {"mean_cosine": mean, "first": left.tolist(), "second": right.tolist()}
        print(f"{name}: {len(left)} similar pairs, mean cosine {mean:.3f}")
        pairs = np.stack([left, right])
        axis.plot(pairs[..., 0], pairs[..., 1], color="lightgray", linewidth=0.8, zorder=1)
        for side in (left, right):
            axis.scatter(side[:, 0], side[:, 1], s=6)
        axis.set_xticks([])
        axis.set_yticks([])
    figures.save(figure, png)
    return report


def uniformity(names: Sequence[str], png: Path) -> dict[str, Any]:
    from analysis import figures, geometry

    figure, (axis,) = figures.grid(["[CLS] without fine-tuning"])
    report = {}
    for name in names:
        states = similar_states(name)
        pairs = geometry.random_pairs(*states, flags.FLAGS.num_pairs, flags.FLAGS.seed)
        report[name] = {"alignment": geometry.alignment(*states), "uniformity": geometry.uniformity(*pairs)}
        print(f"{name}: alignment {report[name]['alignment']:.3f}, uniformity {report[name]['uniformity']:.3f}")
        axis.scatter(report[name]["uniformity"], report[name]["alignment"], label=name)
    axis.set_xlabel("uniformity (lower: more uniform)")
    axis.set_ylabel("alignment (lower: closer)")
    axis.legend()
    figures.save(figure, png)
    return report


def history(name: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Logged values of a run: metric -> {"steps", "values"}; on held-out records where the run evaluated them."""
    folder = Path(flags.FLAGS.data_dir) / "models" / name
    evaluated = [
        {"step": int(path.stem.removeprefix("step-"))} | json.loads(path.read_text(encoding="utf-8"))
        for path in (folder / "eval").glob("step-*.json")
    ]
    log = folder / "train_metrics.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    trained = [{key.removeprefix("train_"): value for key, value in json.loads(line).items()} for line in lines]
    found: dict[str, Any] = {}
    for metric in metrics:
        rows = [row for row in evaluated if metric in row] or [row for row in trained if metric in row]
        rows.sort(key=lambda row: row["step"])
        if rows:
            found[metric] = {"steps": [row["step"] for row in rows], "values": [row[metric] for row in rows]}
    return found


def draw_history(report: dict[str, Any], metrics: Sequence[str], png: Path) -> None:
    """A panel for each metric, a line for each model."""
    from analysis import figures

    figure, axes = figures.grid(metrics)
    for axis, metric in zip(axes, metrics, strict=True):
        lines = {
            name: (values["history"][metric]["steps"], values["history"][metric]["values"])
            for name, values in report.items()
            if metric in values["history"]
        }
        figures.curves(axis, lines, metric)
    figures.save(figure, png)


def contrast(names: Sequence[str], png: Path) -> dict[str, Any]:
    from analysis import geometry

    metrics = ("positive_cosine", "negative_cosine")
    report: dict[str, Any] = {}
    for name in names:
        model = pretrained(name)
        first, second = model.view_states(flags.FLAGS.num_pairs)
        positive = float(geometry.cosines(first, second).mean())
        negatives = geometry.random_pairs(first, second, flags.FLAGS.num_pairs, flags.FLAGS.seed)
        negative = float(geometry.cosines(*negatives).mean())
        trained = {"positive_cosine": positive, "negative_cosine": negative}
        # A run without sequence contrast has logged neither: its trained model is a point in the figure.
        points = {metric: {"steps": [model.step], "values": [value]} for metric, value in trained.items()}
        report[name] = {"history": points | history(name, metrics), "trained": trained}
        print(f"{name}: positives {positive:.3f}, negatives {negative:.3f}, difference {positive - negative:.3f}")
    draw_history(report, metrics, png)
    return report


def copying(names: Sequence[str], png: Path) -> dict[str, Any]:
    metrics = [f"{what}_accuracy_{tokens}" for what in ("copy", "clm") for tokens in ("replaced", "original")]
    report: dict[str, Any] = {name: {"history": history(name, metrics)} for name in names}
    for name, values in report.items():
        if not values["history"]:
            raise UserError(
                f"{Path(flags.FLAGS.data_dir) / 'models' / name} has logged none of {', '.join(metrics)}: that needs a "
                "run with corrective_lm_objective, and --eval-every-steps for the language model's accuracy"
            )
        last = {metric: line["values"][-1] for metric, line in values["history"].items()}
        print(f"{name}: {', '.join(f'{metric} {value:.3f}' for metric, value in last.items())}")
    draw_history(report, metrics, png)
    return report


ANALYSES = {
    "cosine": cosine,
    "tsne": tsne,
    "uniformity": uniformity,
    "contrast": contrast,
    "copying": copying,
}


def main() -> int:
    names = flags.FLAGS.model_names
    for analysis in flags.FLAGS.analysis:
        if analysis not in ANALYSES:
            raise UserError(
                f"--analysis: unknown {analysis!r}{closest(analysis, ANALYSES)} (one of {', '.join(ANALYSES)})"
            )
    for name in names:
        folder = Path(flags.FLAGS.data_dir) / "models" / name
        if not folder.is_dir():
            raise UserError(f"--model-names: there is no {folder}")
    target = Path(flags.FLAGS.output_dir or Path(flags.FLAGS.data_dir) / "analysis")
    for analysis in flags.FLAGS.analysis:
        print(f"{analysis}:")
        write_json(target / f"{analysis}.json", ANALYSES[analysis](names, target / f"{analysis}.png"))
        print(f"wrote {target / analysis}.json and .png")
    return 0


flags.DEFINE_list("analysis", ["cosine"], f"which, separated by commas: {', '.join(ANALYSES)}")
flags.DEFINE_string("data_dir", "data", "folder of vocabulary, records, models and finetuning_data")
flags.DEFINE_list("model_names", ["electra_small"], "pre-trained models to compare: <data-dir>/models/<name>")
flags.DEFINE_string("output_dir", None, "where to; default <data-dir>/analysis")
flags.DEFINE_integer("num_pairs", 1000, "pairs of sentences, and held-out records, at most", lower_bound=2)
flags.DEFINE_float("perplexity", 30.0, "of t-SNE", lower_bound=1.0)
flags.DEFINE_integer("seed", 0, "of random pairs and of t-SNE")

if __name__ == "__main__":
    util_flags.run(main, __doc__)
