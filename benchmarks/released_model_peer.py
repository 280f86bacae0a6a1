"""The peer of benchmarks/released_model.py: transformers' encoder fine-tuned by a plain PyTorch loop.

  PYTHON -m benchmarks.released_model_peer FOLDER

FOLDER holds settings.json and features.npz, both written by released_model.py; peer.npz is left there. A head is one
linear layer: on [CLS] after dropout (classes, or one value), or on every token (start and end of an answer).
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModel

_DECAY, _DROPOUT, _EVALUATED = 0.01, 0.1, 64  # of weights; before the head; examples of a batch of evaluation
_FORBIDDEN = -1000.0  # logit of what cannot be an answer


class Row(NamedTuple):
    """An input and its label: a class, a value, or [start, end]."""

    ids: np.ndarray
    segments: np.ndarray
    label: Any


def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    torch.manual_seed(settings["seed"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))
    with np.load(folder / "features.npz") as stored:
        data = dict(stored)
    encoder = AutoModel.from_pretrained(settings["model"], add_pooling_layer=False)
    first = torch.tensor(data["dev/ids"][: data["dev/lengths"][0]])[None]
    with torch.no_grad():
        difference = np.abs(encoder.eval()(input_ids=first).last_hidden_state.numpy() - data["states"]).max()
    model = FineTuned(encoder, settings["head"], settings["outputs"])
    rate, seconds = train(model, rows_of(data, "train"), settings)
    np.savez(
        folder / "peer.npz",
        examples_per_second=rate,
        processor_seconds=seconds,
        difference=difference,
        allow_pickle=False,
        **predict(model, rows_of(data, "dev")),
    )


class FineTuned(torch.nn.Module):
    """An encoder with a linear head; `head` is "class", "value" or "span"."""

    def __init__(self, encoder: Any, head: str, outputs: int) -> None:
        super().__init__()
        self.encoder, self.kind = encoder, head
        self.head = torch.nn.Linear(encoder.config.hidden_size, outputs)
        torch.nn.init.xavier_uniform_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def logits(self, rows: list[Row]) -> "torch.Tensor":
        """float32 [B, classes], [B, 1], or [B, 2, L] of starts and ends."""
        padded = np.zeros([3, len(rows), max(len(row.ids) for row in rows)], np.int64)
        for number, (tokens, segments, _) in enumerate(rows):
            padded[:, number, : len(tokens)] = tokens, np.ones(len(tokens)), segments
        ids, mask, types = (torch.tensor(part) for part in padded)
        states = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        if self.kind != "span":
            return self.head(torch.nn.functional.dropout(states[:, 0], _DROPOUT, self.training))
        allowed = mask * types
        allowed[:, 0] = 1
        return self.head(states).transpose(1, 2) + _FORBIDDEN * (1 - allowed[:, None].float())

    def loss(self, rows: list[Row]) -> "torch.Tensor":
        logits, labels = self.logits(rows), torch.tensor(np.array([row.label for row in rows]))
        if self.kind == "value":
            return torch.nn.functional.mse_loss(logits[:, 0], labels.float())
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.long().flatten())


def train(model: FineTuned, rows: list[Row], settings: dict[str, Any]) -> tuple[float, float]:
    """Examples a second (the median of steps), and seconds of processor time."""
    named = list(model.named_parameters())
    plain = [p for n, p in named if n.endswith("bias") or "LayerNorm" in n]
    decayed = [p for n, p in named if not (n.endswith("bias") or "LayerNorm" in n)]
    groups = [{"params": decayed, "weight_decay": _DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["learning_rate"], eps=1e-6)
    size = settings["batch_size"]
    steps = int(len(rows) / size * settings["epochs"])
    warm_up = max(1, int(0.1 * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, max(0.0, (steps - step) / max(1, steps - warm_up)))
    )
    random, rates, step = np.random.RandomState(settings["seed"]), [], 0
    model.train()
    used = time.process_time()
    while step < steps:
        for batch in batches_of(rows, size, random)[: steps - step]:
            start = time.perf_counter()
            loss = model.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            rates.append(len(batch) / (time.perf_counter() - start))
    return statistics.median(rates), time.process_time() - used


def predict(model: FineTuned, rows: list[Row]) -> dict[str, np.ndarray]:
    """`logits` [rows, outputs]; of spans `starts` and `ends`, those of all rows one after another."""
    model.eval()
    with torch.no_grad():
        parts = [model.logits(rows[i : i + _EVALUATED]).numpy() for i in range(0, len(rows), _EVALUATED)]
    if model.kind != "span":
        return {"logits": np.concatenate(parts)}
    single = [logits for part in parts for logits in part]
    cut = [logits[:, : len(row.ids)] for logits, row in zip(single, rows, strict=True)]
    starts, ends = np.concatenate(cut, 1)
    return {"starts": starts, "ends": ends}


def rows_of(data: dict[str, np.ndarray], key: str) -> list[Row]:
    ends = np.cumsum(data[f"{key}/lengths"])[:-1]
    ids, segments = (np.split(data[f"{key}/{part}"], ends) for part in ("ids", "segments"))
    return [Row(*row) for row in zip(ids, segments, data[f"{key}/labels"], strict=True)]


def batches_of(rows: list[Row], size: int, random: np.random.RandomState) -> list[list[Row]]:
    """An epoch's full batches; rows of similar length lie together (sorted within pools of 50 batches)."""
    order = random.permutation(len(rows))
    batches = []
    for start in range(0, len(order), 50 * size):
        pool = sorted(order[start : start + 50 * size], key=lambda row: len(rows[row].ids))
        batches += [pool[i : i + size] for i in range(0, len(pool) - size + 1, size)]
    return [[rows[row] for row in batches[number]] for number in random.permutation(len(batches))]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
