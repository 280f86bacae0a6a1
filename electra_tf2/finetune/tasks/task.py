"""Base class of tasks: a task reads files, encodes examples, makes a head, scores predictions and answers.

    files --read--> examples --sampling, encode--> Split --batching, encoder, head--> predictions --scores, answers-->

A task knows nothing of batches, training, trials, result files and exports. Each kind of task is a file of this folder;
settings.built_in has the table of tasks.
"""

import abc
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.files.tables import TableRow, names_of
from electra_tf2.finetune.tasks import sampling
from electra_tf2.finetune.tasks.files import TaskFiles
from electra_tf2.finetune.tasks.head import Head
from electra_tf2.finetune.tasks.kind_of_file import explained
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import warn

T = TypeVar("T")
Prediction = dict[str, np.ndarray]  # of a feature: name -> its row of the head's predictions


class EmptyText(UserError):
    """A row to be answered has no text."""


class Features(NamedTuple):
    """An input of the encoder: an example, or a window of a long one.

    input_ids, segment_ids: int32 [length], special tokens included, no padding.
    labels: by name, a number, or for a `Label` that is per token an array of at most `length` numbers.
    cut: number of tokens of its texts that did not fit.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    labels: dict[str, Any]
    cut: int = 0


class Label(NamedTuple):
    """Type of a label.

    per_token: whether it has a number for each token, padded with 0 to the batch's length, or one number in all.
    is_input: whether the head reads it when it predicts, too.
    """

    dtype: str
    per_token: bool = False
    is_input: bool = False


class Split(NamedTuple):
    """Examples, and what the network sees of them.

    counts: number of each example's features, which lie together; None: one each.
    labelled: whether the examples have labels, so that predictions can be scored.
    choices: number of features that stay together in a batch and share a loss, as the candidates of a question do.
    golds: labels, names or numbers, for the counts that the data report shows; empty if there is nothing to count.
    longest_text: number of tokens to which a text is cut; None: max_seq_length.
    """

    examples: Sequence[Any]
    features: list[Features]
    counts: Sequence[int] | None = None
    labelled: bool = True
    choices: int = 1
    golds: Sequence[str] | Sequence[float] = ()
    longest_text: int | None = None

    def by_example(self, values: Sequence[T]) -> list[Sequence[T]]:
        """Groups values of the features by example, in the order of `examples`."""
        counts = self.counts or [1] * len(self.examples)
        ends = np.cumsum([0, *counts])
        return [values[start:end] for start, end in itertools.pairwise(ends)]

    @property
    def cut(self) -> list[int]:
        """Number of tokens that were cut off each example: the most of any of its inputs."""
        return [max(feature.cut for feature in features) for features in self.by_example(self.features)]


class TaskData(NamedTuple):
    """All examples in the files of a split. target: what their labels mean, if these files say it."""

    examples: list[Any]
    target: Any = None


class Task(abc.ABC):
    """Something to learn.

    A subclass says what an example is, of any type. An example has `texts`, strings that must not occur both in
    held-out examples and in the others, and `label`, unless the subclass overrides `inputs`.

    Args:
      name: of the task and of its files' folder.
      files: further arguments of tasks.files.TaskFiles.
    """

    primary_metric: str  # of `scores`: what trials are compared by, higher is better
    settings: TextSettings | None = None  # of a task whose tables have columns of one or two texts
    # How a row to be answered is made of what comes without names: plain text, and lists from Python.
    text_keys: Sequence[tuple[str, ...]] = ()  # names of one text, or of two between which a line has a tab
    holds_tabs = False  # the last text of a line may hold tabs, too
    list_key = ""  # name of a list; "": a list holds the texts of `text_keys`
    target: Any = ()  # what labels mean; None: the training data will say it
    word_for_labels = "label"  # before each of `Split.golds` in the report on the data
    named_texts: Mapping[str, str] = {}  # name of a text -> its column in rows to be answered, where a user named it

    def __init__(self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, **files: Any) -> None:
        self.name = name
        self.config = config
        self.tokenizer = tokenizer
        self.scope = f"task_specific/{name}"  # of the head's variables
        self.files = TaskFiles(name, config, **files)
        self.evaluation_splits: tuple[str, ...] = ("dev",)
        self.test_splits: tuple[str, ...] = ("test",)
        self.training: list[Any] = []  # the training examples that are used, once they were loaded
        self._examples: dict[str, list[Any]] = {}  # all in a file, by the file's split
        self._splits: dict[str, Split] = {}  # those that were loaded

    def load(self, split: str) -> Split:
        """Reads, samples and encodes a split, the first time that it is asked for.

        Args:
          split: "train", one of `evaluation_splits` or one of `test_splits`, whose labels may be missing.

        Raises:
          UserError: a missing file, a wrong column count, an unknown label, ...: names file and line.
        """
        if split in self._splits:
            return self._splits[split]
        file = self.files.file_of(split)
        needed = [file]
        if self.target is None:
            needed.insert(0, "train")  # which says what labels mean
        for name in needed:
            if name not in self._examples:
                data = self._read(name)
                self._examples[name] = data.examples
                if data.target is not None:
                    self.target = data.target
        examples = sampling.used(self._examples[file], split, self.files, self.config, self.target)
        if split == "train":
            self.training = examples
        self._splits[split] = self.encode(examples, split)
        return self._splits[split]

    def _read(self, split: str) -> TaskData:
        """Reads a split. The error of a file that is for another kind of task says so."""
        try:
            return self.read(split)
        except UserError as error:
            paths: list[Path] = []
            if self.files.exists(split):
                paths = self.files.paths(split)
            raise explained(error, paths, self.config.kind_of(self.name)) from None

    def warn_of_no_labels(self, split: str) -> None:
        """Warns of a split without labels, unless it is a test split that is only to be answered."""
        if split in self.files.submission or self.config.write_test_outputs:
            return
        column = ""
        if self.settings is not None and self.settings.label is not None:
            column = f" (column {names_of(self.settings.label)[0]})"
        warn(f"{self.name}: the {split} data has no labels{column}, so it is not scored")

    # What a kind of task says.

    @property
    @abc.abstractmethod
    def labels(self) -> dict[str, Label]:
        """Every label that `Features.labels` holds."""

    @abc.abstractmethod
    def read(self, split: str) -> TaskData:
        """Reads all examples in the files of a split.

        While `target` is None, the split is "train", and the result has a target.

        Raises:
          UserError: names file and line.
        """

    @abc.abstractmethod
    def example(self, row: dict[str, Any], where: str, index: int) -> Any:
        """Makes an example without a label of a JSON object that is to be answered.

        Args:
          where: place of the object, for messages. index: of the object, its id if it has none.

        Raises:
          UserError: a missing field, a value of the wrong type, ...; EmptyText.
        """

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any], split: str) -> Split:
        """Encodes examples. The split is "new" for those that are to be answered."""

    @abc.abstractmethod
    def make_head(self, encoder: Encoder, seed: int) -> Head:
        """Makes the layer on top of an encoder."""

    @abc.abstractmethod
    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        """Computes metrics of predictions in the order of `split.features`; shares are in percent."""

    @abc.abstractmethod
    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Makes a JSON object of each example's predictions: label, tags or text, and probabilities."""

    # What it may say besides.

    def rows_of_text(self, text: str, name: str) -> list[TableRow] | None:
        """Reads the rows of a file to be answered that has the form of the task's training files.

        Args:
          text: content of the file. name: of the file, for messages.

        Returns:
          None for a file of another form: a table, JSON lines, or a text a line.

        Raises:
          UserError: the file cannot be read.
        """
        del text, name
        return None

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        """Makes a JSON object of each example, to stand before its answer: its texts and, if there is one, `gold`."""
        rows = []
        for example in split.examples:
            row: dict[str, Any] = {"text": example.texts[0]}
            if len(example.texts) > 1:
                row = {f"text{number}": text for number, text in enumerate(example.texts, start=1)}
            if split.labelled:
                row["gold"] = example.label
            rows.append(row)
        return rows

    def num_scored(self, split: Split) -> int:
        """Counts the examples of a labelled split that `scores` counts."""
        return len(split.examples)

    def majority(self, split: Split) -> dict[str, float]:
        """Computes the scores of a constant answer, the commonest label where there are labels; {}: there is none."""
        del split
        return {}

    def write_submission(self, name: str, split: Split, answers: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        """Writes the files that a benchmark's server or official script reads, if there are such, and lists them."""
        del name, split, answers, folder
        return []

    def files_of(self, split: str) -> list[Path]:
        """The files of a split, whose content a trial remembers."""
        return self.files.remembered(split)

    def name_columns(self, texts: Sequence[str], label: str = "") -> None:
        """Names the columns of rows to be answered or scored, if they are others than those of the training data.

        Args:
          texts: the columns of the texts, in their order; (): as in training.
          label: the column of the labels; "": as in training.

        Raises:
          UserError: the task reads another number of texts, or its columns cannot be named.
        """
        if label:
            raise UserError(f"--label-column: the column of labels of task {self.name} cannot be named")
        if texts:
            self.named_texts = dict(zip(self.keys_of_texts(len(texts)), texts, strict=True))

    def keys_of_texts(self, count: int) -> tuple[str, ...]:
        """The names of so many texts among `text_keys`. Raises UserError: the task reads another number."""
        for keys in self.text_keys:
            if len(keys) == count:
                return keys
        counts = {len(keys) for keys in self.text_keys}
        readable = "one text" if counts == {1} else "two texts"
        if not counts:
            readable = "columns with names of their own, not texts,"
        raise UserError(f"--text-column: task {self.name} reads {readable} of each row, got {count}")

    @property
    def text_names(self) -> set[str]:
        """Names that the columns of texts, or lists of words, may have."""
        names = {"text", "words", "tokens", *self.named_texts.values(), self.list_key} - {""}
        for keys in self.text_keys:
            names.update(keys)
        if self.settings is not None:
            for column in self.settings.texts:
                names.update(names_of(column))
        return names

    @property
    def label_columns(self) -> set[str]:
        """Names that a table's column of labels may have; none if they are not known."""
        if self.settings is None or self.settings.label is None:
            return set()
        return set(names_of(self.settings.label))

    def scores_of_answers(
        self, split: Split, answered: Split, answers: Sequence[Mapping[str, Any]]
    ) -> dict[str, float] | None:
        """Scores answers to texts that were read as other inputs than those of the labelled split.

        Args:
          split: the labelled texts. answered, answers: the same texts, perhaps more, and the answers to them.

        Returns:
          None if this task's answers can only be compared where the inputs are the same.
        """
        del split, answered, answers
        return None

    def state(self) -> dict[str, Any]:
        """Meaning of the head's outputs as JSON, such as label names, to be saved beside the weights."""
        return {}

    def check_state(self, saved: dict[str, Any]) -> None:
        """Adopts a saved state if no training data said what labels mean. Raises UserError if they said otherwise."""
        del saved
