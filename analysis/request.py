"""What is asked of an analysis, and the models and sentences that several of them look at."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from electra_tf2.exchange.formats.folders import VOCABULARY, released
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from electra_tf2.analysis.pretrained import PretrainedModel


class Request(NamedTuple):
    """The choices of a command line.

    Fields:
      data_dir: folder of vocabulary, records, models and finetuning_data.
      names: models to compare, of <data_dir>/models.
      num_pairs: pairs of sentences, and held-out records, at most.
      perplexity: of t-SNE.
      seed: of random pairs and of t-SNE.
      metrics: that learning curves show; none: all that have a name for readers.
      over: what learning curves are drawn over: "steps", "examples" or "flops".
    """

    data_dir: Path
    names: tuple[str, ...]
    num_pairs: int
    perplexity: float
    seed: int
    metrics: tuple[str, ...] = ()
    over: str = "steps"

    def folder(self, name: str) -> Path:
        """Of a run that is named by its path, of the user's model of a name, or else of this repository's (models/)."""
        own = Path(name) if "/" in name else self.data_dir / "models" / name
        return own if own.is_dir() else Path(released(name) or own)


@functools.cache
def pretrained(request: Request, name: str) -> "PretrainedModel":
    """The model of a name, loaded once; with the records of the data folder where it has them, and its vocabulary where
    the model has none of its own."""
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
    from electra_tf2.finetune.classification.reading import read_rows
    from electra_tf2.finetune.classification.targets import Scale
    from electra_tf2.finetune.classification.tasks import TextTask
    from electra_tf2.finetune.task import find_file
    from electra_tf2.finetune.tasks.built_in import BUILT_IN

    data, spec = request.data_dir / "finetuning_data", BUILT_IN["sts"].spec
    assert spec is not None and spec.value_range is not None
    folders = [data / name for name in ("sts", *spec.folders)]
    scale, pairs = Scale(*spec.value_range), []
    for split in ("dev", "train"):
        path = find_file(folders, split, (), TextTask.endings)
        for row in read_rows(path, spec.columns, spec.json_columns):
            if scale.checked(row.label, f"{path}, line {row.line}") == scale.high:
                pairs.append(row.texts)
    pairs = pairs[: request.num_pairs]
    if len(pairs) < 2:
        raise UserError(f"{folders[0]} has {len(pairs)} pair(s) with the score {scale.high:g}; at least 2 are needed")
    return [first for first, _ in pairs], [second for _, second in pairs]


@functools.cache
def similar_states(request: Request, name: str) -> "tuple[np.ndarray, np.ndarray]":
    """float32 [N, H] twice: a model's [CLS] of the two sides of the similar sentences."""
    model = pretrained(request, name)
    first, second = similar_sentences(request)
    return model.sentence_states(first), model.sentence_states(second)
