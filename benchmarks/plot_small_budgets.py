"""The curves of docs/small_budgets.md: python benchmarks/plot_small_budgets.py benchmarks/small_budgets.json OUT.png"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analysis.figures import panels, style_of


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with panels(Path(sys.argv[2]).with_suffix(""), ["Masked-LM loss at hidden tokens (training)"]) as (axis,):
        axis.axhline(found["unigram_entropy"], color="grey", linestyle=":", label="entropy of token frequencies")
        for number, (name, run) in enumerate(found["curves"].items()):
            steps, losses = zip(*run["curve"], strict=True)
            axis.plot(steps, losses, label=name, **style_of(number))
        axis.set_xlabel("steps of 64 sequences of 64 tokens")
        axis.set_ylim(4.0, 8.0)
        axis.legend(fontsize=7)


if __name__ == "__main__":
    main()
