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
from matplotlib.ticker import EngFormatter, MaxNLocator

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
    size = max(_WIDTH * columns, 4.2), _HEIGHT * rows + 0.3
    shape: Any = {"squeeze": False, "sharex": share_x, "sharey": share_y, "layout": "constrained"}
    with pyplot.rc_context(_STYLE):
        figure, grid = pyplot.subplots(rows, columns, figsize=size, **shape)
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
                labelled: dict[str, Any] = {}
                for handles, labels in (axis.get_legend_handles_labels() for axis in axes):
                    labelled = dict(zip(labels, handles, strict=True)) | labelled
                figure.legend(labelled.values(), labelled, loc="outside lower center", ncols=min(len(labelled), 6))
            for suffix in ("png", "pdf"):
                with replacing(path.with_name(f"{path.name}.{suffix}")) as temporary:
                    figure.savefig(temporary, format=suffix, dpi=200)
        finally:
            pyplot.close(figure)


def densities(axis: Axes, values: Mapping[str, np.ndarray]) -> None:
    """Draws histograms with kernel density estimates and means, over the range where the values lie."""
    every = np.concatenate(list(values.values()))
    low, high = np.percentile(every, [0.2, 99.8])
    edges = np.linspace(low, max(high, low + 1e-3), 41)
    for number, (name, numbers) in enumerate(values.items()):
        color, mean = _COLORS[number], float(np.mean(numbers))
        axis.hist(np.clip(numbers, edges[0], edges[-1]), bins=list(edges), density=True, alpha=0.3, color=color)
        axis.axvline(mean, ymax=0.78, color=color, linestyle=":", linewidth=1)
        alike = np.std(numbers) <= 0.01 * (edges[-1] - edges[0])  # an estimate of the density would be a spike
        points = np.linspace(edges[0], edges[-1], 0 if alike else 400)
        density = points if alike else gaussian_kde(numbers)(points)
        axis.plot(points, density, color=color, label=f"{name}, mean {mean:.3f}")
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
    axis.set(xticks=[], yticks=[])
    axis.set_aspect("equal", adjustable="datalim")


def points_with_intervals(axis: Axes, points: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Draws points with error bars: name -> (value, low, high) of x and of y."""
    for number, (name, ((x, left, right), (y, low, high))) in enumerate(points.items()):
        errors = np.maximum([[[y - low], [high - y]], [[x - left], [right - x]]], 0)
        style: Any = {"fmt": _MARKERS[number % len(_MARKERS)], "color": _COLORS[number % len(_COLORS)]}
        axis.errorbar(x, y, *errors, label=name, markersize=5, elinewidth=0.8, capsize=2, **style)
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
    width, style = max(1, len(y) // 50), style_of(number)
    sums, counts = (np.convolve(values, np.ones(width))[: len(y)] for values in (y, np.ones(len(y))))
    if width > 1:
        axis.plot(x, y, linewidth=0.5, alpha=0.3, color=style["color"])
    axis.plot(x, sums / counts, **style)


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
    """Labels an x axis of steps, examples or FLOPs: 20k, 1.5M, 2P."""
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xlabel(label)
