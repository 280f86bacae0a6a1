"""Interface of a fine-tuning task: files to examples to features, a head, and scores.

A task is a class with settings (electra_tf2.settings). All else comes from elsewhere: batching, the encoder, training,
several tasks and trials, result files and exports.

    files --load--> Split --(batching, encoder, head)--> one prediction per feature --scores, answers--> results
"""

import abc
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature
from electra_tf2.finetune.tasks.files import TaskFiles
from electra_tf2.finetune.tasks.heads import Head
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError

T = TypeVar("T")
Prediction = dict[str, np.ndarray]  # of a feature: name -> its row of the head's output


class EmptyText(UserError):
    """There is no text to answer about."""


class Features(NamedTuple):
    """One input of the encoder: an example, or a window of a long one.

    input_ids, segment_ids: int32 [length], special tokens included, no padding.
    labels: name -> scalar or, for a `Label` that is per token, array of at most `length` items.
    cut: tokens of its texts that did not fit.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    labels: dict[str, Any]
    cut: int = 0


class Label(NamedTuple):
    """Type of a label: one number, or with `per_token` one for each token, padded with 0 to the batch's length."""

    dtype: str
    per_token: bool = False


class Split(NamedTuple):
    """A file's content: what people see, and what the network sees.

    counts: number of each example's features, which lie together; None: one each.
    labelled: whether the examples have labels, so that predictions can be scored.
    """

    examples: Sequence[Any]
    features: list[Features]
    counts: Sequence[int] | None = None
    labelled: bool = True

    def by_example(self, of_features: Sequence[T]) -> list[Sequence[T]]:
        """Groups values of the features by example: those of one lie together, in the order of `examples`."""
        ends = np.cumsum([0, *(self.counts or [1] * len(self.examples))])
        return [of_features[start:end] for start, end in itertools.pairwise(ends)]

    @property
    def cut(self) -> list[int]:
        """Tokens that were left out of each example: of its inputs', the largest number."""
        return [max(feature.cut for feature in own) for own in self.by_example(self.features)]

    def only(self, chosen: Sequence[int]) -> "Split":
        """The examples of these numbers with their features."""
        features = self.by_example(self.features)
        return self._replace(
            examples=[self.examples[i] for i in chosen],
            features=[feature for i in chosen for feature in features[i]],
            counts=self.counts and [self.counts[i] for i in chosen],
        )


class Task(TaskFiles, abc.ABC):
    """One thing to learn, and how it is scored; `files` are arguments of tasks.files.TaskFiles."""

    primary_metric: str  # of `scores`: what trials are compared by, higher is better
    evaluation_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    outputs = "outputs"  # ending of the name of the folder that a run's files in results_dir have
    choices = 1  # features that make one example of a batch, each with a share of its loss: candidates that compete
    competes_in_training_only = False  # whether features are predicted one by one all the same, without a loss
    predicts = "label"  # what people call a prediction
    takes_share = False  # whether `load` itself leaves out training examples beyond config.train_share
    selection_splits: tuple[str, ...] = ()  # of evaluation_splits, those that choose the best checkpoint; (): all
    num_texts = 1  # of an example
    further_inputs: tuple[str, ...] = ()  # labels that tell a trained head something, too: int32 [B, L]
    prompts = False  # whether its head is the pre-trained language model's, as config.prompt asks for

    def __init__(self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, **files: Any) -> None:
        super().__init__(name, config, **files)
        self.tokenizer = tokenizer

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
    def example(self, row: dict[str, Any], where: str, number: int) -> Any:
        """An example without its label from a JSON object, keyed as in `{train,dev,test}.jsonl`; for --predict.

        Args:
          where: it stands, for messages. number: of the object, from 0 on, which is its id where it has none.

        Raises:
          UserError: a missing field, a value of the wrong type, ...; EmptyText.
        """

    @abc.abstractmethod
    def split_of(self, examples: Sequence[Any], split: str) -> Split:
        """The examples with what the network sees of them; `split` is "new" for --predict."""

    def parse(self, rows: Sequence[dict[str, Any]], where: str) -> Split:
        """The examples of JSON objects, of which number i is line i + 1 of the file `where`; errors of `example`."""
        return self.split_of([self.example(row, f"{where}, line {i + 1}", i) for i, row in enumerate(rows)], "new")

    @property
    def scope(self) -> str:
        """Name of the head's variables."""
        return f"task_specific/{self.name}"

    @property
    def longest_text(self) -> int:
        """Tokens beyond which a text is cut."""
        return self.config.max_seq_length

    @property
    def predicted_choices(self) -> int:
        """`choices` where nothing is trained."""
        return 1 if self.competes_in_training_only else self.choices

    # The head, and what it says.

    @abc.abstractmethod
    def make_head(self, encoder: Encoder, seed: int) -> Head:
        """The layer on top of this encoder."""

    @abc.abstractmethod
    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        """Metrics, in percent where they are shares, from predictions in the order of `split.features`."""

    @abc.abstractmethod
    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """One JSON object per example: the predicted label, tags or text, and probabilities."""

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        """One JSON object per example, to stand before its answer: text, and `gold`, its label."""
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
        one_class = split.labelled and len(self.balance(split)) == 1  # as it should be
        if len(found) < 2 or one_class or any(one != found[0] for one in found):
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

    # Files for other runtimes hold what heads predict; `answers` reads it. A SavedModel also takes strings.

    def facts(self) -> dict[str, Any]:
        """Describes the task in an exported file."""
        return {"kind": self.config.kind_of(self.name)} | self.state()

    def no_labels(self, input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Labels for a head that predicts: zeros, by name, for input_ids int32 [B, L]."""
        rows, length = tf.unstack(tf.shape(input_ids))
        found = {}
        for name, label in self.labels.items():
            found[name] = tf.zeros([rows, length] if label.per_token else [rows], label.dtype)
        return found

    def samples(self, texts: Sequence[tuple[str, str]]) -> Split:
        """The examples on which exported files are held against `answers`, one of each two texts. Raises EmptyText."""
        rows = [self.row_of(pair if self.num_texts == 2 else pair[0]) for pair in texts]
        return self.parse(rows, "samples")

    def of_batch(self, outputs: Prediction, batch: Mapping[str, np.ndarray]) -> Prediction:
        """The head's predictions on a batch (finetune.batching) from what an exported file says of its rows."""
        del batch
        return outputs

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """The function of a SavedModel, strings in and answers out. Raises UserError: a kind of task that has none."""
        raise UserError(f"{self.name}: a SavedModel cannot hold a task of this kind: try --format onnx")

    def served_numbers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Answers that `signature` must give for each example, by the names that both have; its check."""
        return self.answers(split, predictions)

    # What is saved beside a model.

    def state(self) -> dict[str, Any]:
        """Meaning of a fine-tuned checkpoint's outputs as JSON, such as label names; saved beside it."""
        return {}

    def check_state(self, saved: dict[str, Any]) -> None:
        """Adopts the saved state when nothing was loaded yet; refuses a checkpoint that means something else."""
        del saved

    def check_names(self, names: Sequence[str], saved: Sequence[str]) -> None:
        """Raises UserError if the labels of the data are not those of the saved state."""
        if list(names) != list(saved):
            before, now = ", ".join(saved), ", ".join(names)
            raise UserError(f"{self.name}: the model was trained on the labels {before}, but the data has {now}")
