"""A released encoder fine-tuned here and by transformers + PyTorch: same data, hyperparameters, head, seeds.

  python benchmarks/released_model.py --model DIRECTORY --data-dir data --tasks rte,mrpc --seeds 2 \\
      --peer-python PYTHON --output released.json

DIRECTORY is a Hugging Face directory; PYTHON has torch and transformers. The states of both encoders are compared
first. Then each task is fine-tuned with every seed by run_finetuning.py's machinery and by a plain PyTorch loop over
the same features: dropout and a linear layer on [CLS], AdamW with bias correction and decay 0.01 on kernels and
embeddings, warm-up over a tenth of the steps and linear decay, gradients clipped to 1, mean loss, batches of similar
length padded to their longest. Scores are those of our task, on the development data. A seed decides initial head,
order and dropout, which differ between the two programs: their spread is what a difference is measured against.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

_SETTINGS: dict[str, Any] = {
    "layerwise_lr_decay": 0.0,
    "adam_bias_correction": True,
    "loss_reduction": "mean",
    "lr_schedule": "separate",
    "max_seq_length": 128,
    "double_unordered": False,
    "keep_all_models": False,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--tasks", default="rte,mrpc,sts,cola")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--output", default="released.json")
    parser.add_argument("--peer", default="", help="folder of one task's features: be the peer (used by itself)")
    given = parser.parse_args()
    if given.peer:
        train_peer(given, Path(given.peer))
        return
    results: list[dict[str, Any]] = []
    for name in given.tasks.split(","):
        for seed in range(given.seeds):
            results.append(compare(given, name, seed))
            print(json.dumps(results[-1]), flush=True)
            Path(given.output).write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))


def compare(given: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """One task with one seed by both programs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ours = train_ours(given, name, seed, folder)
        command = [given.peer_python, __file__, "--peer", str(folder), "--peer-python", given.peer_python]
        for flag in ("model", "epochs", "learning_rate", "batch_size"):
            command += [f"--{flag.replace('_', '-')}", str(getattr(given, flag))]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
        subprocess.run([*command, "--seeds", str(seed)], check=True, env=environment)
        with np.load(folder / "peer.npz") as found:
            scores = ours.pop("score_of")(found["logits"])
            peer = {"score": scores, "examples_per_second": float(found["examples_per_second"])}
            difference = float(found["difference"])
    return {"task": name, "seed": seed, "ours": ours, "peer": peer, "states_differ_by": difference}


def train_ours(given: argparse.Namespace, name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Fine-tunes here; leaves the features for the peer in the folder."""
    from util.environment import before_tensorflow

    before_tensorflow()
    import tensorflow as tf

    from configure_finetuning import FinetuningConfig
    from exchange.checkpoints import warm_start
    from finetune.trials import Trials
    from finetune.weights import build_trained
    from training.distribution import make_strategy

    config = FinetuningConfig.from_dict(
        _SETTINGS
        | {
            "data_dir": given.data_dir,
            "init_checkpoint": given.model,
            "task_names": [name],
            "num_train_epochs": given.epochs,
            "learning_rate": given.learning_rate,
            "train_batch_size": given.batch_size,
            "model_dir": str(folder / "model"),
            "results_dir": str(folder / "results"),
            "seed": seed,
        }
    )
    trials = Trials(config, make_strategy(config))
    [task] = trials.tasks
    _, [result] = trials.run()
    arrays: dict[str, np.ndarray] = {}
    for split in ("train", task.evaluation_splits[0]):
        features = trials.evaluation.load(task, split).features
        key = "train" if split == "train" else "dev"
        arrays[f"{key}/ids"] = np.concatenate([feature.input_ids for feature in features])
        arrays[f"{key}/segments"] = np.concatenate([feature.segment_ids for feature in features])
        arrays[f"{key}/lengths"] = np.array([len(feature.input_ids) for feature in features])
        arrays[f"{key}/labels"] = np.array([next(iter(feature.labels.values())) for feature in features])
    classes = task.target.num_classes if hasattr(task, "target") else None
    built = build_trained(config, trials.tasks, trials.strategy, Path(f"{config.model_dir}_1"))[0].model
    warm_start(built, given.model)
    row = arrays["dev/ids"][: arrays["dev/lengths"][0]][np.newaxis].astype(np.int32)
    states = built.encoder(tf.constant(row), tf.ones_like(row), tf.zeros_like(row)).sequence
    np.savez(folder / "features.npz", allow_pickle=False, classes=classes or 0, states=states.numpy(), **arrays)
    development = trials.evaluation.load(task, task.evaluation_splits[0])

    def score_of(logits: np.ndarray) -> float:
        predictions = [
            {"logits": row, "predictions": np.argmax(row)} if classes else {"predictions": row[0]} for row in logits
        ]
        return task.scores(development, predictions)[task.primary_metric]

    score = result["scores"][name][task.evaluation_splits[0]][task.primary_metric]
    rate = result["training"]["examples_per_second"]
    return {"score": score, "examples_per_second": rate, "metric": task.primary_metric, "score_of": score_of}


def train_peer(given: argparse.Namespace, folder: Path) -> None:
    """The same with PyTorch; runs in the peer's Python."""
    import torch
    from transformers import AutoModel

    torch.manual_seed(given.seeds)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with np.load(folder / "features.npz") as stored:
        data = dict(stored)
    encoder = AutoModel.from_pretrained(given.model, add_pooling_layer=False)
    classes = int(data["classes"])
    head = torch.nn.Linear(encoder.config.hidden_size, classes or 1)
    torch.nn.init.xavier_uniform_(head.weight)
    torch.nn.init.zeros_(head.bias)
    splits = {key: rows_of(data, key) for key in ("train", "dev")}
    ids = torch.tensor(splits["dev"][0][0])[None]
    with torch.no_grad():
        difference = np.abs(encoder.eval()(input_ids=ids).last_hidden_state.numpy() - data["states"]).max()

    def logits_of(rows: list[tuple[np.ndarray, np.ndarray, Any]]) -> "torch.Tensor":
        longest = max(len(row[0]) for row in rows)
        padded = np.zeros([3, len(rows), longest], np.int64)
        for number, (tokens, segments, _) in enumerate(rows):
            padded[:, number, : len(tokens)] = tokens, np.ones(len(tokens)), segments
        inputs, mask, types = (torch.tensor(part) for part in padded)
        states = encoder(input_ids=inputs, attention_mask=mask, token_type_ids=types).last_hidden_state[:, 0]
        return head(torch.nn.functional.dropout(states, 0.1, encoder.training))

    named = [*encoder.named_parameters(), *head.named_parameters()]
    plain = [p for n, p in named if n.endswith("bias") or "LayerNorm" in n]
    decayed = [p for n, p in named if not (n.endswith("bias") or "LayerNorm" in n)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=given.learning_rate, eps=1e-6)
    train, size = splits["train"], given.batch_size
    steps = int(len(train) / size * given.epochs)
    warm_up = max(1, int(0.1 * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, max(0.0, (steps - step) / max(1, steps - warm_up)))
    )
    random, seconds, step = np.random.RandomState(given.seeds), [], 0
    encoder.train()
    while step < steps:
        for batch in batches_of(train, size, random):
            if step == steps:
                break
            start = time.perf_counter()
            logits = logits_of(batch)
            labels = torch.tensor(np.array([row[2] for row in batch]))
            if classes:
                loss = torch.nn.functional.cross_entropy(logits, labels.long())
            else:
                loss = torch.nn.functional.mse_loss(logits[:, 0], labels.float())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for _, p in named], 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            seconds.append((time.perf_counter() - start) / len(batch))
    encoder.eval()
    with torch.no_grad():
        dev = splits["dev"]
        logits = torch.cat([logits_of(dev[i : i + 64]) for i in range(0, len(dev), 64)]).numpy()
    rate = 1 / statistics.mean(seconds)
    np.savez(folder / "peer.npz", logits=logits, examples_per_second=rate, difference=difference)


def rows_of(data: dict[str, np.ndarray], key: str) -> list[tuple[np.ndarray, np.ndarray, Any]]:
    ends = np.cumsum(data[f"{key}/lengths"])[:-1]
    ids, segments = (np.split(data[f"{key}/{part}"], ends) for part in ("ids", "segments"))
    return list(zip(ids, segments, data[f"{key}/labels"], strict=True))


def batches_of(rows: list[Any], size: int, random: np.random.RandomState) -> list[list[Any]]:
    """An epoch's full batches; rows of similar length lie together (sorted within pools of 50 batches)."""
    order = random.permutation(len(rows))
    batches = []
    for start in range(0, len(order), 50 * size):
        pool = sorted(order[start : start + 50 * size], key=lambda row: len(rows[row][0]))
        batches += [pool[i : i + size] for i in range(0, len(pool) - size + 1, size)]
    return [[rows[row] for row in batches[number]] for number in random.permutation(len(batches))]


def table(results: list[dict[str, Any]]) -> str:
    """Mean and spread of each task's scores, and the speeds."""
    lines = ["| task | metric | ours | transformers | examples/s ours | transformers |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(result["task"] for result in results):
        rows = [result for result in results if result["task"] == name]
        cells = []
        for side in ("ours", "peer"):
            scores = [row[side]["score"] for row in rows]
            spread = statistics.stdev(scores) if len(scores) > 1 else math.nan
            cells.append(f"{statistics.mean(scores):.1f} ± {spread:.1f}")
        rates = [
            f"{statistics.mean(row[side]['examples_per_second'] for row in rows):.1f}" for side in ("ours", "peer")
        ]
        lines.append(f"| {name} | {rows[0]['ours']['metric']} | {' | '.join(cells)} | {' | '.join(rates)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
