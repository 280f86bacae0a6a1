"""Analyses by name. Nothing of one is imported before it is asked for."""

from pathlib import Path
from typing import Any

from electra_tf2.analysis.request import Request

# Name -> what --help says of it.
ANALYSES = {
    "contrast": "Cosines of positives and negatives during training and after it (COCO-LM, Figure 7).",
    "copying": "Accuracy of copying and of the language model during training (COCO-LM, Figure 8).",
    "cosine": "Cosine of [CLS] of similar and of random sentences, without fine-tuning (COCO-LM, Figures 1 and 5).",
    "curves": "Learning curves of one or several runs: every loss and metric that they logged.",
    "search": "Scores over the values of one hparam that was searched (over train_share: COCO-LM, Figure 7).",
    "tsne": "t-SNE of [CLS] of similar sentences, a line between the two of a pair (COCO-LM, Figure 6).",
    "uniformity": "Alignment and uniformity of [CLS], with 95 % intervals (Wang and Isola 2020, Figure 6).",
}


def descriptions() -> str:
    """A line for each analysis, for --help."""
    return "\n".join(f"  {name:11} {text}" for name, text in ANALYSES.items())


def analyse(name: str, request: Request, figure: Path) -> dict[str, Any]:
    """Makes one of `ANALYSES`.

    Args:
      figure: path of the figure without its suffix; it is drawn as PNG and PDF.

    Returns:
      The numbers, which run_analysis.py writes as JSON.
    """
    from electra_tf2.analysis import curves

    of_logs = {"copying": curves.copying, "curves": curves.curves, "search": curves.search}
    if name in of_logs:
        return of_logs[name](request, figure)
    from electra_tf2.analysis import vectors  # and with it TensorFlow

    of_vectors = (vectors.contrast, vectors.cosine, vectors.tsne, vectors.uniformity)
    return {function.__name__: function for function in of_vectors}[name](request, figure)
