"""Scores of the trials of a run: their statistics, and the table that shows them."""

import statistics
from collections.abc import Sequence
from typing import Any

# task -> split -> metric -> value
Scores = dict[str, dict[str, dict[str, float]]]


def summarise_trials(trials: list[Scores]) -> dict[str, Any]:
    """task -> split -> metric -> {median, mean, std, min, max} over the trials; std is that of a sample.

    Splits on which not every trial was scored, as when a file came later, are left out.
    """
    summary: dict[str, Any] = {}
    for task, splits in trials[0].items():
        for split, metrics in splits.items():
            if not all(split in trial[task] for trial in trials):
                continue
            summary.setdefault(task, {})[split] = {
                metric: _statistics([trial[task][split][metric] for trial in trials]) for metric in metrics
            }
    return summary


def _statistics(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def table(trials: list[Scores], majority: Scores) -> str:
    """One row per task, split and metric: every trial, then median, mean and standard deviation.

    Args:
      majority: scores of always predicting the commonest label; they have rows of their own.
    """
    shown_statistics = []
    if len(trials) > 1:
        shown_statistics = ["median", "mean", "std"]
    trial_names = [f"trial {number}" for number in range(1, len(trials) + 1)]
    rows = [["task", "split", "metric", *trial_names, *shown_statistics]]
    for task, splits in summarise_trials(trials).items():
        for split, metrics in splits.items():
            for metric, summary in metrics.items():
                numbers = [trial[task][split][metric] for trial in trials]
                numbers += [summary[name] for name in shown_statistics]
                rows.append([task, split, metric, *map(_figure, numbers)])
            for metric, value in majority.get(task, {}).get(split, {}).items():
                # The same in every trial, so it stands once.
                empty = [""] * (len(rows[0]) - 4)
                rows.append([task, split, f"{metric} of the commonest label", f"{value:.4g}", *empty])
    return aligned(rows, 3)


def _figure(number: float) -> str:
    """Four figures of a number, all figures of a large one."""
    if abs(number) >= 1000:
        return f"{number:.0f}"
    return f"{number:.4g}"


def aligned(rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Lines of a table, whose first `left` columns are aligned at their left and the others at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = ""
    for row in rows:
        cells = []
        for number, cell in enumerate(row):
            if number < left:
                cells.append(cell.ljust(widths[number]))
            else:
                cells.append(cell.rjust(widths[number]))
        text += "  ".join(cells).rstrip() + "\n"
    return text
