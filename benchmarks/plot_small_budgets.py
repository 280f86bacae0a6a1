"""The curves of docs/small_budgets.md.

  python -m benchmarks.plot_small_budgets benchmarks/small_budgets.json docs/small_budgets.png

draws the file's `curves`, and of its `rows` those in `SHOWN`, which compare_objectives.py measured.
"""

from pathlib import Path

from benchmarks.common import parser_of
from electra_tf2.analysis.figures import panels, style_of
from electra_tf2.util.reading import read_json

TITLES = ["Masked-LM loss at hidden tokens (training)", "One factor at a time, at equal compute"]
SHOWN = {
    "base": "base",
    "layers_2": "2 layers",
    "batch_32": "batch 32",
    "dropout": "dropout 0.1",
    "width_192": "width 192",
    "rate_5e-4": "rate 5e-4",
    "beta2_0.999": "adam_beta2 0.999",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("results", type=Path, help="benchmarks/small_budgets.json")
    parser.add_argument("figure", type=Path, help="where it is written, as .png and .pdf")
    options = parser.parse_args()
    found = read_json(options.results, "results")
    with panels(options.figure.with_suffix(""), TITLES) as (axis, factors):
        axis.axhline(found["unigram_entropy"], color="grey", linestyle=":", label="entropy of token frequencies")
        for number, (name, run) in enumerate(found["curves"].items()):
            steps, losses = zip(*run["curve"], strict=True)
            axis.plot(steps, losses, label=name, **style_of(number))
        axis.set_xlabel("steps of 64 sequences of 64 tokens")
        axis.set_ylim(4.0, 8.0)
        axis.legend(fontsize=7)
        rows = found["rows"]
        for number, (row, name) in enumerate(SHOWN.items()):
            run = rows[f"{row}, 600 steps, seed 0"]
            steps, losses = zip(*run["curve"], strict=True)
            factors.plot([step / run["steps"] for step in steps], losses, label=name, **style_of(number))
        factors.set_xlabel("share of the FLOPs of 600 steps of base")
        factors.set_ylim(5.4, 8.8)
        factors.legend(fontsize=7, ncols=2, loc="upper right")


if __name__ == "__main__":
    main()
