"""Figures for papers, as PNG and PDF: one look, axes that follow the data, titles in plain words.

Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart; a run keeps its colour in all panels.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from scipy.stats import gaussian_kde

from electra_tf2.util.files import replacing

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

_WIDTH, _HEIGHT, _COLUMNS = 3.4, 2.6, 3  # inches of a panel; panels in a row
_COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
_MARKERS = "osD^vPX"
_STYLE: Any = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "pdf.fonttype": 42,  # text stays text
}
# Titles of metrics, in the order in which learning curves show them.
TITLES = {
    "loss": "loss",
    "masked_lm_loss": "masked language model, loss",
    "cloze_loss": "two-tower language model, loss",
    "disc_loss": "discriminator, loss",
    "copy_loss": "copying, loss",
    "clm_loss": "corrective language model, loss",
    "scl_loss": "sequence contrast, loss",
    "replace_mlm_loss": "masked positions from replacements, loss",
    "all_tokens_mlm_loss": "all tokens, loss",
    "masked_lm_accuracy": "masked language model, accuracy",
    "cloze_accuracy": "two-tower language model, accuracy",
    "replace_mlm_accuracy": "masked positions from replacements, accuracy",
    "disc_auc": "discriminator, area under ROC",
    "disc_accuracy": "discriminator, accuracy",
    "disc_recall": "discriminator, recall of replaced tokens",
    "copy_accuracy_replaced": "copying, accuracy on replaced tokens",
    "copy_accuracy_original": "copying, accuracy on original tokens",
    "clm_accuracy_replaced": "language model, accuracy on replaced tokens",
    "clm_accuracy_original": "language model, accuracy on original tokens",
    "positive_cosine": "cosine of a sequence and its crop",
    "negative_cosine": "cosine of different sequences",
    "score": "score",
}


def title(metric: str) -> str:
    """Title of a metric."""
    return TITLES.get(metric, metric.replace("_", " "))


@contextlib.contextmanager
def panels(
    path: Path, titles: Sequence[str], share_x: bool = False, share_y: bool = False, legend_below: bool = False
) -> Iterator[list[Axes]]:
    """A figure of one panel per title, to draw into; it is written to `path`.png and `path`.pdf at the end.

    Args:
      legend_below: one legend for all panels, instead of each axis' own.
    """
    columns = min(len(titles), {4: 2}.get(len(titles), _COLUMNS if len(titles) < 10 else _COLUMNS + 1))
    rows = -(-len(titles) // columns)
    with pyplot.rc_context(_STYLE):
        figure, grid = pyplot.subplots(
            rows,
            columns,
            figsize=(max(_WIDTH * columns, 4.2), _HEIGHT * rows + 0.3),
            squeeze=False,
            sharex=share_x,
            sharey=share_y,
            layout="constrained",
        )
        axes = list(grid.flat)
        for spare in axes[len(titles) :]:
            spare.set_axis_off()
        axes = axes[: len(titles)]
        for axis in axes[-columns:]:  # the lowest of their columns, where x is shared
            axis.tick_params(labelbottom=True)
        for axis, text in zip(axes, titles, strict=True):
            axis.set_title(text)
        try:
            yield axes
            if legend_below:
                _legend_of_all(figure, axes)
            _save(figure, path)
        finally:
            pyplot.close(figure)


def _legend_of_all(figure: Any, axes: Sequence[Axes]) -> None:
    labelled: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        labelled |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in labelled}
    figure.legend(labelled.values(), labelled, loc="outside lower center", ncols=min(len(labelled), 6))


def _save(figure: Any, path: Path) -> None:
    for suffix in ("png", "pdf"):
        with replacing(path.with_name(f"{path.name}.{suffix}")) as temporary:
            figure.savefig(temporary, format=suffix, dpi=200)


def densities(axis: Axes, values: Mapping[str, np.ndarray]) -> None:
    """Draws histograms with kernel density estimates and means, over the range where the values lie."""
    every = np.concatenate(list(values.values()))
    low, high = np.percentile(every, [0.2, 99.8])
    edges = np.linspace(low, max(high, low + 1e-3), 41)
    for number, (name, numbers) in enumerate(values.items()):
        color, mean = _COLORS[number], float(np.mean(numbers))
        axis.hist(np.clip(numbers, edges[0], edges[-1]), bins=list(edges), density=True, alpha=0.3, color=color)
        axis.axvline(mean, ymax=0.78, color=color, linestyle=":", linewidth=1)
        if np.std(numbers) > 0.01 * (edges[-1] - edges[0]):
            points = np.linspace(edges[0], edges[-1], 400)
            axis.plot(points, gaussian_kde(numbers)(points), color=color, label=f"{name}, mean {mean:.3f}")
        else:  # all alike: an estimate of the density would be a spike
            axis.plot([], [], color=color, label=f"{name}, mean {mean:.3f}")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_yticks([])
    axis.margins(y=0.28)  # room for the legend
    axis.legend(loc="upper left")


def linked_points(axis: Axes, sets: Mapping[str, np.ndarray]) -> None:
    """Draws two sets of points [N, 2] by name, and a line between those of a row; places have no unit, so no ticks."""
    lines = LineCollection(list(np.stack(list(sets.values()), 1)), colors="0.75", linewidths=0.6, zorder=1)
    axis.add_collection(lines)
    for number, (name, points) in enumerate(sets.items()):
        x, y = points.T
        axis.scatter(x, y, s=7, linewidths=0, marker=_MARKERS[number], color=_COLORS[number], label=name)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_aspect("equal", adjustable="datalim")


def points_with_intervals(axis: Axes, points: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Draws points with error bars: name -> (value, low, high) of x and of y."""
    for number, (name, ((x, left, right), (y, low, high))) in enumerate(points.items()):
        errors = {"xerr": np.array([[x - left], [right - x]]), "yerr": np.array([[y - low], [high - y]])}
        style: Any = {"fmt": _MARKERS[number % len(_MARKERS)], "color": _COLORS[number % len(_COLORS)]}
        style |= {name: np.maximum(sizes, 0) for name, sizes in errors.items()}
        axis.errorbar(x, y, label=name, markersize=5, elinewidth=0.8, capsize=2, **style)
    axis.margins(0.2)
    axis.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))


def style_of(number: int) -> dict[str, Any]:
    """Colour of a run; once the colours are used up, another kind of line."""
    return {"color": _COLORS[number % len(_COLORS)], "linestyle": ["-", "--", ":"][number // len(_COLORS) % 3]}


def curve(axis: Axes, x: Sequence[float], y: Sequence[float], number: int, label: str | None = None) -> None:
    """Draws a line, with a marker at each value where they are few."""
    marker = _MARKERS[number % len(_MARKERS)] if len(x) <= 30 else None
    axis.plot(x, y, marker=marker, markersize=3.5, label=label, **style_of(number))


def smoothed_curve(axis: Axes, x: Sequence[float], y: Sequence[float], number: int) -> None:
    """Draws the mean over a fiftieth of the values at a time, and the values themselves in a light tone."""
    values, width = np.asarray(y, np.float64), max(1, len(y) // 50)
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    style = style_of(number)
    if width > 1:
        axis.plot(x, values, linewidth=0.5, alpha=0.3, color=style["color"])
    axis.plot(x, (sums[ends] - sums[starts]) / (ends - starts), **style)


def level(axis: Axes, value: float, number: int, label: str) -> None:
    """Draws a value that belongs to no step, as a dashed line."""
    axis.axhline(value, linewidth=1, label=label, **style_of(number) | {"linestyle": "--"})


def cut_first_peak(axis: Axes, values: Sequence[Sequence[float]]) -> None:
    """Lets what follows the first twentieth of each line fill the height: a loss starts far above where it stays."""
    late = np.concatenate([np.asarray(line)[len(line) // 20 :] for line in values])
    low, high = float(np.min(late)), float(np.max(late))
    if max(max(line) for line in values) > high + 0.5 * (high - low) > low:
        axis.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))


def keep_within(axis: Axes, metric: str) -> None:
    """Cuts the axis of a share at 0 and 1."""
    if metric.rpartition("_")[2] in ("auc", "recall", "precision", "rate") or "accuracy" in metric:
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, -0.03), min(high, 1.03))


def count_axis(axis: Axes, label: str) -> None:
    """Labels an x axis of steps, examples or FLOPs: 20k, 1.5M, 1e+15."""

    def short(value: float, position: int | None = None) -> str:
        del position
        for size, letter in ((1e12, ""), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:g}{letter}" if letter else f"{value:.3g}"
        return f"{value:g}"

    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(FuncFormatter(short))
    axis.set_xlabel(label)
