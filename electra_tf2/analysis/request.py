"""Choices that all analyses share."""

from pathlib import Path
from typing import NamedTuple

from electra_tf2.formats.folders import released


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
