"""Analyses by name, and the choices that they share. Nothing of one is imported before it is asked for."""

from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.exchange.formats.folders import released

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


class Request(NamedTuple):
    """Choices of a command line.

    data_dir: folder of vocabulary, records, models and finetuning_data.
    names: models to compare, in <data_dir>/models.
    num_pairs: number of pairs of sentences, and of held-out records, at most.
    perplexity, seed: of t-SNE; the seed also of random pairs.
    metrics: those that learning curves show; by default all that have a title.
    over: unit of learning curves, "steps", "examples" or "flops".
    """

    data_dir: Path
    names: tuple[str, ...]
    num_pairs: int
    perplexity: float
    seed: int
    metrics: tuple[str, ...] = ()
    over: str = "steps"

    def folder(self, name: str) -> Path:
        """Folder of a run, given by its path, by a name in <data_dir>/models, or by the name of a shipped model."""
        own = Path(name) if "/" in name else self.data_dir / "models" / name
        return own if own.is_dir() else Path(released(name) or own)


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
    from electra_tf2.analysis import curves, search

    of_logs = {"copying": curves.copying, "curves": curves.curves, "search": search.search}
    if name in of_logs:
        return of_logs[name](request, figure)
    from electra_tf2.analysis import vectors  # and with it TensorFlow

    of_vectors = {"contrast": vectors.contrast, "cosine": vectors.cosine, "tsne": vectors.tsne,
                  "uniformity": vectors.uniformity}  # fmt: skip
    return of_vectors[name](request, figure)
