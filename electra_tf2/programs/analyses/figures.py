"""Draws figures of several panels with one legend, as PNG and PDF."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.files.writing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: Any = ["tableau-colorblind10", {"font.size": 8.5, "axes.grid": True, "grid.color": "0.9", "pdf.fonttype": 42}]


@contextlib.contextmanager
def panels(path: Path, titles: Sequence[str]) -> Iterator[list["Axes"]]:
    """Yields an empty panel for each title. After the caller has drawn, adds one legend, writes `path`.png and .pdf."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(titles), 3)
    rows = math.ceil(len(titles) / columns)
    with pyplot.style.context(_STYLE):
        size = (max(3.4 * columns, 4.2), 2.6 * rows + 0.3)
        figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        for axis in grid.flat[len(titles) :]:
            axis.set_axis_off()
        axes = list(grid.flat[: len(titles)])
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title.replace("_", " "))
        yield axes

        # A label that several panels have is in the legend once.
        labels: dict[str, Any] = {}
        for axis in axes:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                labels[label] = handle
        figure.legend(labels.values(), labels, loc="outside lower center", ncols=min(len(labels), 6))
        for suffix in ("png", "pdf"):
            with replacing(path.with_name(f"{path.name}.{suffix}")) as temporary:
                figure.savefig(temporary, format=suffix, dpi=200)
        pyplot.close(figure)
