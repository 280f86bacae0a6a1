"""A released encoder fine-tuned here and by transformers + PyTorch: same data, hyperparameters, head, seeds.

  python -m benchmarks.released_model --model DIRECTORY --data-dir data --peer-python PYTHON --output released.json \\
      --tasks rte,mrpc,sst:4000,squadv1:1000 --seeds 3

DIRECTORY is a Hugging Face directory, or a folder of ours (without a peer); PYTHON has torch and transformers; without
it only this program trains. `task:N` takes N rows or questions, evenly spaced, of the training data, and as many of
SQuAD's development data, whose max_seq_length is --qa-length. The states of both encoders are compared first. Then each
task is fine-tuned with every seed by run_finetuning.py's machinery and by a plain PyTorch loop over the same features
(released_model_peer.py): dropout and a linear layer on [CLS] (SQuAD: a linear layer on every token), AdamW with bias
correction and decay 0.01 on kernels and embeddings, warm-up over a tenth of the steps and linear decay, gradients
clipped to 1, mean loss, batches of similar length padded to their longest. Scores are those of our task, on the
development data. A seed decides initial head, order and dropout, which differ between the two programs: their spread is
what a difference is measured against.

Results are saved after every run, and the same command goes on with those that are missing. OMP_NUM_THREADS=1 and
TF_NUM_INTRAOP_THREADS=1 keep both to one core.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, parser_of
from electra_tf2.util.files import write_json

_SETTINGS: dict[str, Any] = {
    "layerwise_lr_decay": 0.0,
    "adam_bias_correction": True,
    "loss_reduction": "mean",
    "lr_schedule": "separate",
    "double_unordered": False,
    "joint_prediction": False,
    "answerable_classifier": False,
    "iterations_per_loop": 10,
}
_COMPARED = ("model", "epochs", "learning_rate", "batch_size", "max_seq_length", "qa_length")


def compare(given: argparse.Namespace, name: str, examples: int, seed: int) -> dict[str, Any]:
    """One task with one seed by both programs."""
    result: dict[str, Any] = {"task": name, "examples": examples, "seed": seed}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lay_out(Path(given.data_dir) / "finetuning_data" / name, folder / "data" / name, examples)
        result["ours"], score_of = train_ours(given, name, seed, folder)
        if given.peer_python:
            environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
            words = [given.peer_python, "-m", "benchmarks.released_model_peer", str(folder)]
            subprocess.run(words, check=True, env=environment | {"PYTHONPATH": str(ROOT)})
            with np.load(folder / "peer.npz") as stored:
                peer = dict(stored)
            numbers = {key: float(peer[key]) for key in ("examples_per_second", "processor_seconds")}
            result["peer"] = {"score": score_of(peer)} | numbers
            result["states_differ_by"] = float(peer["difference"])
    return result


def lay_out(source: Path, target: Path, examples: int) -> None:
    """A task's files, of the training data (and of SQuAD's development data) `examples` evenly spaced; 0: all."""

    def evenly(items: list[Any], count: int) -> list[Any]:
        return items if count >= len(items) else [items[i * len(items) // count] for i in range(count)]

    target.mkdir(parents=True)
    for path in source.iterdir():
        if examples and path.suffix == ".json":
            content = json.loads(path.read_text(encoding="utf-8"))
            paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
            questions = sum(len(paragraph["qas"]) for paragraph in paragraphs)
            kept = evenly(paragraphs, round(len(paragraphs) * examples / questions))
            (target / path.name).write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": kept}]}))
        elif examples and path.stem == "train":
            first, *rest = path.read_bytes().splitlines(keepends=True)  # a heading, or one row more
            (target / path.name).write_bytes(b"".join([first, *evenly(rest, examples)]))
        else:
            shutil.copy(path, target)


def train_ours(
    given: argparse.Namespace, name: str, seed: int, folder: Path
) -> tuple[dict[str, Any], Callable[[dict[str, np.ndarray]], float]]:
    """Fine-tunes here; leaves features and settings for the peer in the folder.

    Returns:
      Score and speed, and what scores the peer's logits.
    """
    from electra_tf2.util.environment import before_tensorflow

    before_tensorflow()
    import tensorflow as tf

    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.finetune.trials import Trials
    from electra_tf2.finetune.weights import build_trained
    from electra_tf2.formats.checkpoints import warm_start
    from electra_tf2.training.distribution import make_strategy

    spans = name.startswith("squad")
    hparams = {"data_dir": given.data_dir, "raw_data_dir": str(folder / "data"), "init_checkpoint": given.model}
    hparams |= {"task_names": [name], "num_train_epochs": given.epochs, "learning_rate": given.learning_rate}
    hparams |= {"max_seq_length": given.qa_length if spans else given.max_seq_length, "seed": seed}
    hparams |= {"model_dir": str(folder / "model"), "results_dir": str(folder / "results")}
    config = FinetuningConfig.from_dict(_SETTINGS | hparams | {"train_batch_size": given.batch_size})
    trials = Trials(config, make_strategy(config))
    [task] = trials.tasks
    [split] = task.evaluation_splits
    used = time.process_time()
    _, [result] = trials.run()
    used = time.process_time() - used
    development = trials.evaluation.load(task, split)
    classes = getattr(getattr(task, "target", None), "num_classes", None)
    built = build_trained(config, trials.tasks, trials.strategy, Path(f"{config.model_dir}_1"))[0].model
    warm_start(built, given.model)
    row = tf.constant([development.features[0].input_ids], tf.int32)
    arrays = {"states": built.encoder(row, tf.ones_like(row), tf.zeros_like(row)).sequence.numpy()}
    for key, features in (("train", trials.evaluation.load(task, "train").features), ("dev", development.features)):
        arrays[f"{key}/ids"] = np.concatenate([feature.input_ids for feature in features])
        arrays[f"{key}/segments"] = np.concatenate([feature.segment_ids for feature in features])
        arrays[f"{key}/lengths"] = np.array([len(feature.input_ids) for feature in features])
        labels = [list(feature.labels.values())[: 2 if spans else 1] for feature in features]
        arrays[f"{key}/labels"] = np.array(labels if spans else [label for (label,) in labels])
    np.savez(folder / "features.npz", allow_pickle=False, **arrays)
    kind, outputs = ("span", 2) if spans else ("class", classes) if classes else ("value", 1)
    same = {key: getattr(given, key) for key in ("model", "epochs", "learning_rate", "batch_size")}
    write_json(folder / "settings.json", same | {"head": kind, "outputs": outputs, "seed": seed})

    def score_of(peer: dict[str, np.ndarray]) -> float:
        predictions: list[dict[str, Any]]
        if spans:
            ends = np.cumsum(arrays["dev/lengths"])[:-1]
            pairs = zip(np.split(peer["starts"], ends), np.split(peer["ends"], ends), strict=True)
            predictions = [{"start_logits": s, "end_logits": e, "answerable_logit": 0.0} for s, e in pairs]
        elif classes:
            predictions = [{"logits": row, "predictions": np.argmax(row)} for row in peer["logits"]]
        else:
            predictions = [{"predictions": row[0]} for row in peer["logits"]]
        return task.scores(development, predictions)[task.primary_metric]

    ours = {"score": result["scores"][name][split][task.primary_metric], "metric": task.primary_metric}
    speed = {"processor_seconds": used, "examples_per_second": result["training"]["examples_per_second"]}
    return ours | speed, score_of


def table(runs: list[dict[str, Any]]) -> str:
    """Mean and spread of each task's scores, and the speeds."""

    def mean(values: list[float], spread: bool = False) -> str:
        deviation = f" ± {statistics.stdev(values):.1f}" if spread and len(values) > 1 else ""
        return f"{statistics.mean(values):.1f}{deviation}" if values else ""

    lines = ["| task | metric | ours | transformers | examples/s ours | transformers |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(run["task"] for run in runs):
        rows = [run for run in runs if run["task"] == name]
        sides = [[row[side] for row in rows if side in row] for side in ("ours", "peer")]
        scores = [mean([one["score"] for one in side], spread=True) for side in sides]
        rates = [mean([one["examples_per_second"] for one in side]) for side in sides]
        lines.append(f"| {name} | {rows[0]['ours']['metric']} | {' | '.join([*scores, *rates])} |")
    return "\n".join(lines)


def main() -> None:
    flags = {"data_dir": "data", "output": "released.json", "tasks": "rte,mrpc,sts,cola", "seeds": 2, "epochs": 3.0}
    flags |= {"learning_rate": 5e-5, "batch_size": 32, "max_seq_length": 128, "qa_length": 192, "peer_python": ""}
    given = parser_of(__doc__, model=str, **flags).parse_args()
    settings, output, runs = {name: getattr(given, name) for name in _COMPARED}, Path(given.output), []
    if output.exists():
        found = json.loads(output.read_text())
        if found["settings"] != settings:
            sys.exit(f"error: {output} holds other settings, {found['settings']}: give another --output")
        runs = found["runs"]
    done = {(run["task"], run["examples"], run["seed"]) for run in runs}
    asked = [entry.partition(":") for entry in given.tasks.split(",")]
    for one in [(name, int(number or 0), seed) for seed in range(given.seeds) for name, _, number in asked]:
        if one not in done:
            runs.append(compare(given, *one))
            print(json.dumps(runs[-1]), flush=True)
            write_json(output, {"settings": settings, "runs": runs})
    print(table(runs))


if __name__ == "__main__":
    main()
