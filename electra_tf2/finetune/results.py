"""Scores of the trials of a run: their statistics, and the table that shows them."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from electra_tf2.settings.kinds import Kind
from electra_tf2.util.progress import counted

# task -> split -> metric -> value
Scores = dict[str, dict[str, dict[str, float]]]
_FEW = 50  # examples below which scores say little
_Z = 1.96  # standard deviations of a normal distribution within which 95 % lie


def summarise_trials(trials: list[Scores]) -> dict[str, Any]:
    """Computes median, mean, std (of a sample), min and max over the trials, by task, split and metric.

    Splits and metrics that not every trial has, as when a file came later, are left out.
    """
    summary: dict[str, Any] = {}
    for task, splits in trials[0].items():
        for split, metrics in splits.items():
            scores = [trial.get(task, {}).get(split, {}) for trial in trials]
            statistics_of_split = {}
            for metric in metrics:
                if all(metric in of_trial for of_trial in scores):
                    statistics_of_split[metric] = _statistics([of_trial[metric] for of_trial in scores])
            if statistics_of_split:
                summary.setdefault(task, {})[split] = statistics_of_split
    return summary


def _statistics(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def table(trials: list[Scores], majority: Scores, baselines: Mapping[str, str] = {}) -> str:
    """Makes a table with a row for each task, split and metric: every trial, median, mean and standard deviation.

    Args:
      majority: scores of a constant answer; they have rows of their own.
      baselines: that answer by task; default: the commonest label.
    """
    shown_statistics = []
    if len(trials) > 1:
        shown_statistics = ["median", "mean", "std"]
    trial_names = [f"trial {number}" for number in range(1, len(trials) + 1)]
    rows = [["task", "split", "metric", *trial_names, *shown_statistics]]
    for task, splits in summarise_trials(trials).items():
        for split, metrics in splits.items():
            for metric, summary in metrics.items():
                figures = []
                for trial in trials:
                    figures.append(figure_of(metric, trial[task][split][metric]))
                for name in shown_statistics:
                    figures.append(_figure(summary[name]))
                rows.append([task, split, metric, *figures])
            for metric, value in majority.get(task, {}).get(split, {}).items():
                # The same in every trial, so it stands once.
                empty = [""] * (len(rows[0]) - 4)
                baseline = baselines.get(task, Kind("").baseline)
                rows.append([task, split, f"{metric} of {baseline}", f"{value:.4g}", *empty])
    return aligned(rows, 3)


def figure_of(metric: str, value: float) -> str:
    """Writes a score with four figures, a threshold with all: rounded, it might give other answers."""
    if metric.endswith("_thresh"):
        return str(value).removesuffix(".0")
    return _figure(value)


def _figure(number: float) -> str:
    """Writes a number with four figures, a large one with all."""
    if abs(number) >= 1000:
        return f"{number:.0f}"
    return f"{number:.4g}"


def notes_on_few(
    scores: Scores, examples: Mapping[str, Mapping[str, int]], classified: Collection[str], majority: Scores
) -> list[str]:
    """Says of splits with few examples how little their scores tell, a line each.

    They are few, too, where the interval of an accuracy above the commonest label's holds that.

    Args:
      examples: by task and split, the number of examples that were scored.
      classified: tasks whose accuracy is a share of these examples, and not of words, say. They get an interval.
      majority: scores of the commonest label.
    """
    notes = []
    for task, splits in scores.items():
        for split, metrics in splits.items():
            number = examples.get(task, {}).get(split, 0)
            if not number:
                continue
            note = f"{task} {split}: scores of {counted(number, 'example')} say little"
            is_few = number < _FEW
            if task in classified and "accuracy" in metrics:
                accuracy = metrics["accuracy"]
                low, high = (100 * end for end in wilson_interval(accuracy / 100, number))
                note += f": accuracy {accuracy:.4g} has a 95 % interval of {low:.0f} to {high:.0f}"
                commonest = majority.get(task, {}).get(split, {}).get("accuracy", 100.0)
                if low <= commonest < accuracy:
                    is_few = True
                    note += f", in which the commonest label's {commonest:.4g} lies"
            if is_few:
                notes.append(note)
    return notes


def wilson_interval(share: float, number: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was observed among so many examples."""
    spread = _Z**2 / number
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / number + spread / (4 * number))
    return max(0.0, middle - half), min(1.0, middle + half)


def aligned(rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Makes the lines of a table. The first `left` columns are aligned on the left, the others on the right."""
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
