"""Analysis of searches: scores over the values of one hparam, such as shares of the training data or rates.

Reads what run_finetuning.py --search left in the results of each model; over `train_share` it is COCO-LM's figure 7.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra_tf2.analysis import figures
from electra_tf2.analysis.request import Request
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_json

# task -> model -> [value, score, standard deviation over trials], by rising value
Curves = dict[str, dict[str, list[list[float]]]]


def search(request: Request, figure: Path) -> dict[str, Any]:
    """Scores of every search over the numbers of one hparam, by hparam."""
    curves: dict[str, Curves] = {}
    for name in request.names:
        for path in sorted((request.folder(name) / "results").glob("*_search_*.json")):
            results = read_results(path)
            if is_curve(results):
                of_hparam = curves.setdefault(results["searched"][0], {})
                of_hparam.setdefault(",".join(results["tasks"]), {})[name] = points(results)
    if not curves:
        raise UserError(f"no search over numbers of one hparam is among the results of {', '.join(request.names)}")
    for hparam, of_hparam in curves.items():  # the figure's own name where there is but one
        draw(hparam, of_hparam, figure if len(curves) == 1 else figure.with_name(f"{figure.name}_{hparam}"))
    return curves


def read_results(path: Path) -> dict[str, Any]:
    """Reads what a search wrote. Raises UserError for anything else."""
    results = read_json(path, "results of a search")
    try:
        names, _ = list(results["searched"]), ",".join(results["tasks"])
        for row in results["found"]:
            _ = [row["hparams"][name] for name in names], row["score"] is None or row["score"] + row["std"]
        if names:
            return results
    except (KeyError, TypeError, IndexError):
        pass
    raise UserError(f"{path} holds no results of electra finetune --search: move it elsewhere, or search again")


def is_curve(results: Mapping[str, Any]) -> bool:
    """True if one hparam was searched and its values are numbers."""
    names = results["searched"]
    values = [row["hparams"][names[0]] for row in results["found"]]
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return len(names) == 1 and numbers and bool(points(results))


def points(results: Mapping[str, Any]) -> list[list[float]]:
    """[value, score, standard deviation] by rising value, without scores that were not finite."""
    name = results["searched"][0]
    found = [row for row in results["found"] if row["score"] is not None]
    return sorted([row["hparams"][name], row["score"], row["std"]] for row in found)


def draw(hparam: str, curves: Curves, figure: Path) -> None:
    """Draws a panel for each task with a line for each model; logarithmic where values span decades."""
    with figures.panels(figure, list(curves), legend_below=True) as axes:
        for axis, models in zip(axes, curves.values(), strict=True):
            for number, (name, rows) in enumerate(models.items()):
                x, y, error = zip(*rows, strict=True)
                figures.curve(axis, x, y, number, name)
                axis.errorbar(x, y, error, fmt="none", capsize=2, elinewidth=0.8, **figures.style_of(number))
            values = [value for rows in models.values() for value, _, _ in rows]
            if min(values) > 0 and max(values) >= 20 * min(values):
                axis.set_xscale("log")
            axis.set_xlabel(figures.title(hparam))
