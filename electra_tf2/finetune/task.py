"""Interface of a fine-tuning task: files to examples to features, a head, and scores.

Subclass `Task` (or one of the subclasses in classification/, qa/, tagging/) in one file and register it
(finetune.task_classes); batching, the encoder, training, several tasks and trials, and result files come from
elsewhere.

    files --load--> Split --(batching, encoder, head)--> one prediction per feature --scores, answers--> results

A feature is one input of the encoder. Classification and tagging make one per example; question answering makes one
per window of the document.
"""

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.util.columnar import files_of, is_columnar
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import say

T = TypeVar("T")
# One feature's predictions: name -> the row of the head's output, without the batch axis.
Prediction = dict[str, np.ndarray]


class EmptyText(UserError):
    """There is no text to answer about."""


class Features(NamedTuple):
    """One input of the encoder.

    input_ids, segment_ids: int32 [length], special tokens included, no padding.
    labels: name -> scalar or, for a `Label` that is per token, array of at most `length` items.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    labels: dict[str, Any]


class Label(NamedTuple):
    """Type of a label: `per_token` labels are padded with 0 to the batch's length, others are `size` numbers or one."""

    dtype: str
    per_token: bool = False
    size: int | None = None


class Split(NamedTuple):
    """A file's content: what people see, and what the network sees.

    counts: number of each example's features, which lie together; None: one each.
    labelled: whether the examples have labels, so that predictions can be scored.
    """

    examples: Sequence[Any]
    features: list[Features]
    counts: Sequence[int] | None = None
    labelled: bool = True

    def only(self, chosen: Sequence[int]) -> "Split":
        """The examples of these numbers with their features."""
        counts = [1] * len(self.examples) if self.counts is None else self.counts
        ends = np.cumsum(counts)
        return self._replace(
            examples=[self.examples[i] for i in chosen],
            features=[feature for i in chosen for feature in self.features[ends[i] - counts[i] : ends[i]]],
            counts=self.counts and [counts[i] for i in chosen],
        )


class HeadInput(NamedTuple):
    """Input of a head. B batch, L length (differs between batches), H hidden.

    sequence: [B, L, H], the encoder's last layer, in the compute type.
    input_mask, segment_ids: int32 [B, L].
    labels: name -> [B] or [B, L]; zeros where there are none.
    input_ids: int32 [B, L], what the encoder read.
    """

    sequence: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor
    labels: dict[str, tf.Tensor]
    input_ids: tf.Tensor | None = None


class HeadOutput(NamedTuple):
    """Output of a head on a batch.

    losses: float32 [B], one per row; the rows of one example have equal parts of its loss.
    predictions: name -> [B, ...]; empty when training.
    """

    losses: tf.Tensor
    predictions: dict[str, tf.Tensor]


class Head(Layer):
    """Base of heads; variables under "task_specific/<task>" as in the original."""

    @property
    def frozen(self) -> Sequence[tf.Variable]:
        """Those of its variables that are loaded and kept, but not trained."""
        return ()

    def rewritten(self, input_ids: tf.Tensor, inputs: HeadInput) -> tf.Tensor:
        """int32 [B, L]: what the encoder is to read instead of `input_ids`; `inputs` without its output."""
        del inputs
        return input_ids

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """`seeds` of the dropout, None without it."""
        raise NotImplementedError


class Task(abc.ABC):
    """One thing to learn, and how it is scored.

    Args:
      name: of the task; its files lie in `config.task_data_dir(name)`.
      files: split -> path of a file elsewhere, which counts from data_dir; with "train" among them, all that there are.
      held_out: share of the training data that are the development data where there is no file of those.
      folders: other names of the task's folder.
      file_names: split -> other names of its file, with or without an ending.
      submission: file name of the test split's predictions on the benchmark's server, of multiple choice.
    """

    primary_metric: str  # of `scores`: what trials are compared by, higher is better
    evaluation_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    outputs = "outputs"  # of a run's files in results_dir: the ending of their folder's name
    choices = 1  # features that make one example of a batch, each with a share of its loss: candidates that compete
    competes_in_training_only = False  # whether features are predicted one by one all the same, without a loss
    endings: tuple[str, ...] = ()  # of files' names, the first that is there
    predicts = "label"  # what people call a prediction
    prompts = False  # whether its head is the pre-trained language model's, as config.prompt asks for
    takes_share = False  # whether `load` itself leaves out training examples beyond config.train_share
    selection_splits: tuple[str, ...] = ()  # of evaluation_splits, those that choose the best checkpoint; (): all

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        files: Mapping[str, str] | None = None,
        held_out: float = 0.0,
        folders: Sequence[str] = (),
        file_names: Mapping[str, Sequence[str]] | None = None,
        submission: str = "",
    ) -> None:
        self.name, self.config, self.tokenizer = name, config, tokenizer
        self.data_dir = Path(config.task_data_dir(name))
        self.folders = [self.data_dir, *(self.data_dir.parent / folder for folder in folders)]
        self._given, self._names, self.held_out = files or {}, file_names or {}, held_out
        self.submission = submission

    def path(self, split: str) -> Path:
        """The file of a split: the one that was given, or the first in the task's folders by one of its names.

        Raises:
          UserError: there is none; says where it was looked for.
        """
        if split in self._given:
            places = [Path(self.config.data_dir, self._given[split]), Path(self._given[split])]
            path = next((one for one in places if one.is_file() or is_columnar(one)), None)
            if path is None:
                raise UserError(f"tasks: {self.name}: files: there is no file {places[0]}")
            return path
        if "train" in self._given:  # data that lie elsewhere have nothing to do with a folder of the task's name
            raise UserError(f"tasks: {self.name}: files names no file of split {split!r} beside that of train")
        try:
            return find_file(self.folders, split, self._names.get(split, ()), self.endings)
        except UserError as error:
            if split != "dev" or self.name not in self.config.tasks:
                raise
            raise UserError(
                f'{error}. "files" in its description names a file elsewhere; "held_out": 0.1 scores on a tenth '
                "of the training data"
            ) from None

    def exists(self, split: str) -> bool:
        """Tells whether there is a file of a split."""
        try:
            self.path(split)
        except UserError:
            return False
        return True

    @property
    def holds_out(self) -> bool:
        """Tells whether the development data are a part of the training data, which is not trained on."""
        return bool(self.held_out) and not self.exists("dev")

    def file_of(self, split: str) -> str:
        """The split whose file holds the examples of a split: with `holds_out` the training data have both."""
        return "train" if split == "dev" and self.holds_out else split

    def part_of(self, split: str, items: Sequence[T]) -> list[T]:
        """Picks those of a file's examples that belong to a split, in their order; all of them but with `holds_out`."""
        if split not in ("train", "dev") or not self.holds_out:
            return list(items)
        order = np.random.default_rng([self.config.seed, 3]).permutation(len(items))
        size = max(1, round(self.held_out * len(items)))
        kept = [items[i] for i in sorted(order[size:] if split == "train" else order[:size])]
        if not kept:
            raise UserError(f"{self.path('train')} holds too few examples to hold out {self.held_out:g} of them")
        if split == "dev":
            say(f"{self.name}: no dev file: {100 * self.held_out:.3g} % of train held out (seed {self.config.seed})")
        return kept

    def share(self, examples: int) -> list[int]:
        """The numbers of the training examples that are used, in their order; a larger share has those of a smaller."""
        kept = max(1, round(examples * self.config.train_share))
        return sorted(np.random.default_rng([self.config.seed, 2]).permutation(examples)[:kept].tolist())

    def files(self, split: str) -> list[Path]:
        """The files that `load` reads, for what a trial remembers of its data: the split's own or, of a task that reads
        others, all in its folder."""
        split = self.file_of(split)
        if self.exists(split):
            return files_of(self.path(split)) or [self.path(split)]
        return sorted(path for path in self.data_dir.rglob("*") if path.is_file())

    def has_labels(self, split: str) -> bool:
        """Tells whether there may be labelled data of one of `test_splits`, as far as its files tell."""
        return self.exists(split)

    @property
    @abc.abstractmethod
    def labels(self) -> dict[str, Label]:
        """Every label that `Features.labels` holds."""

    @abc.abstractmethod
    def load(self, split: str) -> Split:
        """Reads "train", one of `evaluation_splits` or one of `test_splits`, whose labels may be missing.

        Raises:
          UserError: a missing file, a wrong column count, an unknown label, ...: names file and line.
        """

    @abc.abstractmethod
    def parse(self, rows: Sequence[dict[str, Any]], where: str) -> Split:
        """Unlabelled examples from JSON objects, keyed as `{train,dev,test}.jsonl` is; for --predict.

        Args:
          where: the file, for error messages; row i is its line i + 1.
        """

    @property
    def predicted_choices(self) -> int:
        """`choices` where nothing is trained."""
        return 1 if self.competes_in_training_only else self.choices

    def row_of_line(self, line: str) -> dict[str, Any]:
        """A line of plain text as `parse` wants it; for --predict."""
        raise UserError(f"--predict: {self.name} cannot read plain text {shown(line)}: give JSON lines or a table")

    def columns_of_table(self, first: list[str]) -> tuple[list[str], bool]:
        """The keys of a table's cells for `parse`, and whether its first row is a header; for --predict."""
        return first, True

    @abc.abstractmethod
    def make_head(self, encoder: Encoder, seed: int) -> Head:
        """The layer on top of this encoder."""

    @abc.abstractmethod
    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        """Metrics, in percent where they are shares; predictions in the order of `split.features`.

        "loss" is added by the caller.
        """

    @abc.abstractmethod
    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """One JSON object per example: the predicted label, tags or text, and probabilities."""

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        """One JSON object per example, to stand before its answer: what was read, and `gold`, its label."""
        return [{} for _ in split.examples]

    def balance(self, split: Split) -> Mapping[str, float]:
        """Numbers of a split's labels by name, the commonest first; of numbers, floats that say how they lie."""
        del split
        return {}

    def majority(self, split: Split) -> dict[str, float]:
        """Scores of always predicting the commonest label; {} where there is no such thing."""
        del split
        return {}

    def complaint(self, split: Split, predictions: Sequence[Prediction]) -> str | None:
        """Complains of predictions that are the same for every example; None: nothing is wrong."""
        found = self.predicted(split, predictions)
        if len(found) < 2 or any(one != found[0] for one in found):
            return None
        same = f"the same {self.predicts}, {found[0]!r}, for all {len(found):,} examples"
        return f"collapsed: {same}; try another seed or a lower learning_rate"

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        """One of a few things for each example, for `complaint`; [] where they are not comparable."""
        del split, predictions
        return []

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """Writes and lists the files of a split that a benchmark's server or official script wants, if any."""
        del name, split, predictions, folder
        return []

    def state(self) -> dict[str, Any]:
        """Meaning of a fine-tuned checkpoint's outputs as JSON, such as label names; saved beside it."""
        return {}

    def check_state(self, saved: dict[str, Any]) -> None:
        """Adopts the saved state when nothing was loaded yet; refuses a checkpoint that means something else."""
        del saved

    def check_names(self, names: Sequence[str], saved: Sequence[str]) -> None:
        """Raises UserError if the labels of the data are not those of the saved state."""
        if list(names) != list(saved):
            raise UserError(
                f"{self.name}: the model was trained on the labels {', '.join(saved)}, but the data has "
                f"{', '.join(names)}"
            )


def find_file(folders: Sequence[Path], split: str, names: Sequence[str], endings: Sequence[str]) -> Path:
    """The file of a split, by its own name or one of the others; the first that exists.

    Raises:
      UserError: there is none; says where it was looked for.
    """
    files = [name if Path(name).suffix else f"{name}.{ending}" for name in (split, *names) for ending in endings]
    tried = [folder / file for folder in folders for file in dict.fromkeys(files)]
    for path in tried:
        if path.is_file():
            return path
    there = [str(path) for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())][:8]
    found = f"; there are {', '.join(there)}" if there else ""
    raise UserError(f"no file of split {split!r}: looked for {', '.join(map(str, tried))}{found}")
