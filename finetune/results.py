"""Results of a run: scores of all trials as JSON and as a table, predictions as JSON lines."""

import csv
import io
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.util.files import write_atomically

# task -> split -> metric -> value
Scores = dict[str, dict[str, dict[str, float]]]


def summarise_trials(trials: list[Scores]) -> dict[str, Any]:
    """task -> split -> metric -> {median, mean, std, min, max} over the trials; std is that of a sample.

    Splits on which not every trial was scored, as when a file came later, are left out.
    """
    summary: dict[str, Any] = {}
    for task, splits in trials[0].items():
        for split, metrics in splits.items():
            for metric in metrics:
                values = [trial[task][split][metric] for trial in trials if split in trial[task]]
                if len(values) < len(trials):
                    continue
                summary.setdefault(task, {}).setdefault(split, {})[metric] = {
                    "median": statistics.median(values),
                    "mean": statistics.fmean(values),
                    "std": statistics.stdev(values) if len(values) > 1 else 0.0,
                    "min": min(values),
                    "max": max(values),
                }
    return summary


def table(trials: list[Scores], majority: Scores) -> str:
    """One row per task, split and metric: every trial, then median, mean and standard deviation.

    Args:
      majority: scores of always predicting the commonest label; they have rows of their own.
    """
    several = len(trials) > 1
    header = ["task", "split", "metric", *(f"trial {i + 1}" for i in range(len(trials)))]
    rows = [header + (["median", "mean", "std"] if several else [])]
    for task, splits in summarise_trials(trials).items():
        for split, metrics in splits.items():
            for metric, values in metrics.items():
                cells = [f"{trial[task][split][metric]:.4g}" for trial in trials]
                over_all = [f"{values[name]:.4g}" for name in ("median", "mean", "std")] if several else []
                rows.append([task, split, metric, *cells, *over_all])
            for metric, value in majority.get(task, {}).get(split, {}).items():
                rows.append(
                    [task, split, f"{metric} of the commonest label", f"{value:.4g}", *[""] * (len(rows[0]) - 4)]
                )
    return aligned(rows, 3)


def aligned(rows: Sequence[Sequence[str]], names: int = 0) -> str:
    """Lines of a table; so many first columns begin at their left, the others end at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        [
            cell.ljust(width) if i < names else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    return "".join("  ".join(line).rstrip() + "\n" for line in lines)


def json_lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table_of_rows(rows: Iterable[dict[str, Any]], delimiter: str) -> str:
    """A table with a header for rows that may hold objects and lists: an object's values have columns of their own, as
    probability_<label> for "probabilities"; a list's are in one cell, with blanks between them."""
    flat = [_flat(row) for row in rows]
    written = io.StringIO(newline="")
    columns = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(written, list(columns), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return written.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            single = "probability" if name == "probabilities" else name
            found |= {f"{single}_{key}": inner for key, inner in value.items()}
        else:
            found[name] = " ".join(map(str, value)) if isinstance(value, list) else value
    return found


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    write_atomically(path, json_lines(rows))
