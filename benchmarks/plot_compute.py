"""The picture of the README: scores after fine-tuning against what pre-training cost, the mean of STS-B and SST-2.

  python -m benchmarks.plot_compute docs/small_budgets.md docs/compute.png

reads ours, random weights, a bag of words and BERT-Mini from the page's table of fine-tuning.
"""

import re
from pathlib import Path

from matplotlib import pyplot

from benchmarks.common import parser_of
from electra_tf2.analysis.figures import panels
from electra_tf2.util.reading import read_text

TASKS = ("STS-B (Spearman)", "SST-2 (accuracy)")
# Row of the table -> FLOPs of pre-training from random weights on, label.
OURS = {
    "`electra_mini_t5`, the same settings": (8.0e14, "2 hours\nof a core"),
    "`electra_evening_4_layers`": (1.9e15, ""),
    "`electra_evening`": (6.2e15, "electra_evening\n9 hours of a core"),
}
TWENTY_MINUTES = (2.7e14, (73.9 + 81.7) / 2, "20 minutes\nof a core")  # of the page's "Twenty minutes of one core"
# google-research/electra's README: 1M steps on OpenWebText, development sets. FLOPs: recipe electra_small.
ELECTRA_SMALL = (1.1e18, (86.8 + 88.3) / 2, "ELECTRA-Small, 14 M, published")
LINES = {
    "random weights, the network of these models": "random weights, our network",
    "a bag of words (`benchmarks/bag_of_words.py`)": "a bag of words",
    "BERT-Mini as published, 11 M parameters, test sets, QNLI with all pairs": "BERT-Mini, 11 M, published (test sets)",
}
BERT_SMALL = ("BERT-Small, 29 M, published (test sets)", (77.0 + 89.7) / 2)  # Turc et al. 2019


def mean_scores(page: str) -> dict[str, float]:
    """First cell of a row of the table of fine-tuning -> the mean of both tasks, where it has both."""
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| |") and "SST-2" in line)
    columns = [cell.strip() for cell in lines[start].strip("|").split("|")]
    found: dict[str, float] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        numbers = [re.match(r"[\d.]+", cells[columns.index(task)]) for task in TASKS]
        if all(numbers):
            found[cells[0]] = sum(float(number[0]) for number in numbers if number) / len(TASKS)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("page", type=Path, help="docs/small_budgets.md")
    parser.add_argument("figure", type=Path, help="where it is written, as .png and .pdf")
    options = parser.parse_args()
    scores = mean_scores(read_text(options.page, "page"))
    with panels(options.figure.with_suffix(""), [""]) as (axis,):
        pyplot.gcf().set_size_inches(5.8, 3.2)
        lines = {label: scores[row] for row, label in LINES.items()} | {BERT_SMALL[0]: BERT_SMALL[1]}
        for label, score in lines.items():
            axis.axhline(score, color="0.6", linestyle="--", linewidth=0.9)
            axis.annotate(label, (9e18, score), (0, 2), textcoords="offset points", ha="right", fontsize=7)
        points = [TWENTY_MINUTES, *((flops, scores[row], label) for row, (flops, label) in OURS.items())]
        axis.plot([flops for flops, *_ in points], [score for _, score, _ in points], "o-", color="#D55E00")
        axis.plot(*ELECTRA_SMALL[:2], "s", color="#0072B2")
        axis.annotate(ELECTRA_SMALL[2], ELECTRA_SMALL[:2], (0, 6), textcoords="offset points", ha="center", fontsize=7)
        for flops, score, label in points:
            axis.annotate(label, (flops, score), (2, -19), textcoords="offset points", fontsize=7)
        axis.set_xscale("log")
        axis.set_xlim(1.5e14, 1e19)
        axis.set_ylim(45, 91)
        axis.set_xlabel("FLOPs of pre-training")
        axis.set_ylabel("mean of STS-B and SST-2")


if __name__ == "__main__":
    main()
