"""Alignment and uniformity of [CLS] of similar sentences, with 95 % intervals (Wang and Isola 2020, Figure 6).

The intervals are of 200 samples of pairs, drawn with replacement.
"""

from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.analysis import figures, geometry
from electra_tf2.analysis.request import Request, similar_states

_SAMPLES = 200


def analyse(request: Request, figure: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    points = {}
    for name in request.names:
        states = similar_states(request, name)
        pairs = geometry.random_pairs(*states, request.num_pairs, request.seed)
        values = {"uniformity": geometry.uniformity(*pairs), "alignment": geometry.alignment(*states)}
        intervals = {
            "uniformity": _interval(geometry.uniformity, *pairs, seed=request.seed),
            "alignment": _interval(geometry.alignment, *states, seed=request.seed),
        }
        report[name] = values | {f"{of}_interval": list(interval) for of, interval in intervals.items()}
        points[name] = [(values[of], *intervals[of]) for of in ("uniformity", "alignment")]  # x and y
        print(f"{name}: alignment {values['alignment']:.3f}, uniformity {values['uniformity']:.3f}")
    with figures.panels(figure, ["[CLS] without fine-tuning"]) as (axis,):
        figures.points_with_intervals(axis, points)
        axis.set_xlabel("uniformity (left: more uniform)")
        axis.set_ylabel("alignment (below: closer)")
    return report


def _interval(statistic: Any, first: np.ndarray, second: np.ndarray, seed: int) -> tuple[float, float]:
    """The middle 95 % of a statistic of pairs over samples of them."""
    random = np.random.default_rng(seed)
    samples = [random.integers(len(first), size=len(first)) for _ in range(_SAMPLES)]
    low, high = np.percentile([statistic(first[rows], second[rows]) for rows in samples], [2.5, 97.5])
    return float(low), float(high)
