"""Figures as PNG files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from scipy.stats import gaussian_kde

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 5.0, 3.6


def grid(titles: Sequence[str]) -> tuple[Any, list[Axes]]:
    """A figure with one panel per title, side by side."""
    figure, axes = pyplot.subplots(1, len(titles), figsize=(_WIDTH * len(titles), _HEIGHT), squeeze=False)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title)
    return figure, list(axes[0])


def save(figure: Any, path: Path) -> None:
    """Writes the PNG under a temporary name and renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format="png", dpi=120)
    pyplot.close(figure)
    os.replace(temporary, path)


def densities(axis: Axes, values: Mapping[str, np.ndarray], label: str) -> None:
    """Histograms with kernel density estimates, one colour a name."""
    for number, (name, numbers) in enumerate(values.items()):
        color = f"C{number}"
        axis.hist(numbers, bins=40, range=(-1.0, 1.0), density=True, alpha=0.4, label=name, color=color)
        if np.std(numbers) > 1e-3:
            points = np.linspace(-1.0, 1.0, 400)
            axis.plot(points, gaussian_kde(numbers)(points), color=color)
    axis.set_xlabel(label)
    axis.set_ylabel("density")
    axis.legend()


def curves(axis: Axes, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str) -> None:
    """Lines over training steps."""
    for name, (steps, values) in lines.items():
        axis.plot(steps, values, marker=".", label=name)
    axis.set_xlabel("step")
    axis.set_ylabel(label)
    if lines:
        axis.legend()
