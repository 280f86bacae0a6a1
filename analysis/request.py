"""Choices of a command line of run_analysis.py, and the models and sentences that several analyses look at."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from electra_tf2.exchange.formats.folders import VOCABULARY, released
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from electra_tf2.analysis.pretrained import PretrainedModel


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


@functools.cache
def pretrained(request: Request, name: str) -> "PretrainedModel":
    """Loads a model, once.

    Its held-out records are those of the data folder, if there are any, and so is its vocabulary if it has none.
    """
    from electra_tf2.analysis.pretrained import PretrainedModel

    folder, records = request.folder(name), request.data_dir / "pretrain_tfrecords"
    own, vocab = folder / VOCABULARY, request.data_dir / VOCABULARY
    return PretrainedModel(
        str(folder),
        str(vocab) if vocab.is_file() and not own.is_file() else None,
        str(records / "dev_data.tfrecord*") if records.is_dir() else None,
    )


@functools.cache
def similar_sentences(request: Request) -> tuple[list[str], list[str]]:
    """The two sides of STS-B's pairs with the full score, at most `num_pairs`."""
    from electra_tf2.finetune.classification.reading import find_file, read_rows
    from electra_tf2.finetune.classification.targets import Scale
    from electra_tf2.finetune.tasks.built_in import BUILT_IN

    data, spec = request.data_dir / "finetuning_data", BUILT_IN["sts"].options["spec"]
    folders = [data / name for name in ("sts", *spec.folders)]
    scale, pairs = Scale(*spec.value_range), []
    for split in ("dev", "train"):
        path = find_file(folders, split)
        for row in read_rows(path, spec.columns, spec.json_columns):
            if scale.checked(row.label, f"{path}, line {row.line}") == scale.high:
                pairs.append(row.texts)
    pairs = pairs[: request.num_pairs]
    if len(pairs) < 2:
        raise UserError(f"{folders[0]} has {len(pairs)} pair(s) with the score {scale.high:g}; at least 2 are needed")
    return [first for first, _ in pairs], [second for _, second in pairs]


@functools.cache
def similar_states(request: Request, name: str) -> "tuple[np.ndarray, np.ndarray]":
    """float32 [N, H] twice, vectors of [CLS] of the two sides of the similar sentences."""
    model = pretrained(request, name)
    first, second = similar_sentences(request)
    return model.sentence_states(first), model.sentence_states(second)
