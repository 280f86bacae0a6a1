"""What runs have logged: train_metrics.jsonl and eval/step-N.json of a run's folder, of pre-training or fine-tuning."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import is_file, read_json, read_json_lines

_NO_METRICS = ("step", "examples_per_second", "gradient_norm")
Line = dict[str, list[Any]]  # {"steps": [...], "values": [...]}


def training_rows(folder: Path) -> list[dict[str, Any]]:
    """The lines of the metrics file, in the order of their steps; the prefix of training metrics is left out."""
    path = folder / "train_metrics.jsonl"
    if not is_file(path):
        return []
    rows = []
    for number, line in read_json_lines(path, "metrics", cut=True):
        if type(line.get("step")) is not int:
            raise UserError(f"metrics {path}, line {number}: no step")
        rows.append({name.removeprefix("train_"): value for name, value in line.items()})
    return sorted(rows, key=lambda row: row["step"])


def held_out_rows(folder: Path) -> list[dict[str, Any]]:
    """The evaluations during training, in the order of their steps."""
    rows = []
    for path in folder.glob("eval/step-*.json"):
        step = path.stem.removeprefix("step-")
        if not step.isdecimal():
            raise UserError(f"{path} is no evaluation: its name holds no step")
        rows.append({"step": int(step)} | read_json(path, "evaluation"))
    return sorted(rows, key=lambda row: row["step"])


def lines(rows: list[dict[str, Any]], metrics: Iterable[str] | None = None) -> dict[str, Line]:
    """metric -> its steps and values; None: every number that the rows hold."""
    wanted = list(dict.fromkeys(name for row in rows for name in row)) if metrics is None else metrics
    found: dict[str, Line] = {}
    for metric in wanted:
        having = [row for row in rows if type(row.get(metric)) in (int, float)]
        if having and metric not in _NO_METRICS:
            found[metric] = {"steps": [row["step"] for row in having], "values": [row[metric] for row in having]}
    return found


def history(folder: Path, metrics: Iterable[str]) -> dict[str, Line]:
    """Logged values; on held-out records where the run evaluated them, or else on the training data."""
    metrics = list(metrics)
    return lines(training_rows(folder), metrics) | lines(held_out_rows(folder), metrics)
