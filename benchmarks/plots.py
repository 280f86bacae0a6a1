"""The pictures of the README and of docs/small_budgets.md.

  python -m benchmarks.plots --page docs/experiments.md --results benchmarks/small_budgets.json --folder docs

compute.png and .pdf have scores after fine-tuning against what pre-training cost, the mean of STS-B and SST-2 in the
page's table of fine-tuning; small_budgets.png and .pdf the `curves` of the results and those of its rows in `FACTORS`,
which compare_objectives.py measured.
"""

import re
from pathlib import Path

from matplotlib import pyplot

from benchmarks.common import parser_of
from electra_tf2.analysis.figures import panels, style_of
from electra_tf2.util.reading import read_json, read_text

TASKS = ("STS-B (Spearman)", "SST-2 (accuracy)")
# FLOPs of pre-training from random weights on, row of the table or its mean score, label.
POINTS: list[tuple[float, str | float, str]] = [
    (2.7e14, (73.9 + 81.7) / 2, "20 minutes\nof a core"),  # of the page's "Twenty minutes of one core"
    (8.0e14, "`electra_mini_t5`, the same settings", "2 hours\nof a core"),
    (1.9e15, "`electra_evening_4_layers`", ""),
    (7.2e15, "`electra_evening`", "11 hours of a core"),
    (2.4e16, "`electra_deep`", "electra_deep\n6 minutes of an H100"),
]
# google-research/electra's README: 1M steps on OpenWebText, development sets. FLOPs: recipe electra_small.
ELECTRA_SMALL = (1.1e18, (86.8 + 88.3) / 2, "ELECTRA-Small, 14 M, published")
LINES: dict[str, str | float] = {
    "random weights, our network": "random weights, the network of these models",
    "a bag of words": "a bag of words (`benchmarks/bag_of_words.py`)",
    "BERT-Mini, 11 M, published (test sets)": "BERT-Mini as published, 11 M parameters, test sets, QNLI with all pairs",
    "BERT-Small, 29 M, published (test sets)": (77.0 + 89.7) / 2,  # Turc et al. 2019
}
FACTORS = {
    "base": "base",
    "layers_2": "2 layers",
    "batch_32": "batch 32",
    "dropout": "dropout 0.1",
    "width_192": "width 192",
    "rate_5e-4": "rate 5e-4",
    "beta2_0.999": "adam_beta2 0.999",
}


def score(page: str, row: str | float) -> float:
    """The mean of both tasks in a row of the table of fine-tuning; a number as it is."""
    if isinstance(row, float):
        return row
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    start = next(number for number, cells in enumerate(rows) if not cells[0] and TASKS[1] in cells)
    cells = next(cells for cells in rows[start:] if cells[0] == row)
    numbers = [re.match(r"[\d.]+", cells[rows[start].index(task)]) for task in TASKS]
    return sum(float(number[0]) for number in numbers if number) / len(TASKS)


def draw_compute(page: str, figure: Path) -> None:
    with panels(figure, [""]) as (axis,):
        pyplot.gcf().set_size_inches(5.8, 3.2)
        for label, row in LINES.items():
            axis.axhline(score(page, row), color="0.6", linestyle="--", linewidth=0.9)
            place = (9e18, score(page, row))
            axis.annotate(label, place, (0, 2), textcoords="offset points", ha="right", fontsize=7)
        points = [(flops, score(page, row), label) for flops, row, label in POINTS]
        axis.plot([flops for flops, *_ in points], [found for _, found, _ in points], "o-", color="#D55E00")
        axis.plot(*ELECTRA_SMALL[:2], "s", color="#0072B2")
        axis.annotate(ELECTRA_SMALL[2], ELECTRA_SMALL[:2], (0, 6), textcoords="offset points", ha="center", fontsize=7)
        for point in points:
            lines = 1 + point[2].count("\n")
            height = 6 if point is points[-1] else -3 - 8 * lines  # a dashed line runs below the last
            axis.annotate(point[2], point[:2], (2, height), textcoords="offset points", fontsize=7)
        axis.set_xscale("log")
        axis.set(xlim=(1.5e14, 1e19), ylim=(45, 91), xlabel="FLOPs of pre-training", ylabel="mean of STS-B and SST-2")


def draw_curves(results: Path, figure: Path) -> None:
    found = read_json(results, "results")
    titles = ["Masked-LM loss at hidden tokens (training)", "One factor at a time, at equal compute"]
    with panels(figure, titles) as (axis, factors):
        axis.axhline(found["unigram_entropy"], color="grey", linestyle=":", label="entropy of token frequencies")
        for number, (name, run) in enumerate(found["curves"].items()):
            axis.plot(*zip(*run["curve"], strict=True), label=name, **style_of(number))
        axis.set(xlabel="steps of 64 sequences of 64 tokens", ylim=(4.0, 8.0))
        axis.legend(fontsize=7)
        for number, (row, name) in enumerate(FACTORS.items()):
            run = found["rows"][f"{row}, 600 steps, seed 0"]
            steps, losses = zip(*run["curve"], strict=True)
            factors.plot([step / run["steps"] for step in steps], losses, label=name, **style_of(number))
        factors.set(xlabel="share of the FLOPs of 600 steps of base", ylim=(5.4, 8.8))
        factors.legend(fontsize=7, ncols=2, loc="upper right")


def main() -> None:
    options = parser_of(__doc__, page=Path, results=Path, folder=Path).parse_args()
    draw_compute(read_text(options.page, "page"), options.folder / "compute")
    draw_curves(options.results, options.folder / "small_budgets")


if __name__ == "__main__":
    main()
