"""Runs a fine-tuned model on texts from Python. `inference.labelling` runs it on a file."""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import text_list, warn_of_cut
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.unknown_tokens import UnknownTokens, unknown_tokens
from electra_tf2.finetune.batching import prediction_table
from electra_tf2.finetune.data_report import strings_in
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import Prediction, Split, Task
from electra_tf2.finetune.tasks.text_files import ADVICE_ON_COLUMNS
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.argument_names import with_arguments
from electra_tf2.inference.example_rows import (
    answers_of_word_rows,
    is_row_of_frame,
    read_examples,
    reads_pairs_only,
    row_of,
    sentences_of_rows,
)
from electra_tf2.inference.model_config import config_of
from electra_tf2.inference.network import assign, graph_of_any_shape
from electra_tf2.settings.kinds import kind_named
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import track


class Evaluated(NamedTuple):
    """Predictions of a split's features. losses: float32 [features]; None: the head has none in an evaluation."""

    predictions: list[Prediction]
    losses: np.ndarray | None


class Predictor:
    """Answers the tasks that a model was fine-tuned on.

    Raises:
      UserError: the model is not fine-tuned, or its files are incomplete.
    """

    def __init__(
        self, source: StoredModel, tokenizer: WordpieceTokenizer, config: FinetuningConfig | None = None
    ) -> None:
        trained = config_of(source) if config is None else config
        if not isinstance(trained, FinetuningConfig) or source.task_states is None:
            raise UserError(f"{source.origin} is not fine-tuned: electra finetune makes models that predict")
        if config is None:
            trained, _ = fitted_to_machine(trained, chosen=(), began={})
        self.config = FinetuningConfig.from_dict(vars(trained) | {"do_train": False})
        self.tasks = make_tasks(self.config, tokenizer)
        adopt_states(self.tasks, source.task_states, source.origin)
        self.model = FinetuningModel(self.config, self.tasks, self.config.seed)
        assign(self.model.trainable_variables, source.weights)
        self._predict: dict[int, Any] = {}  # index of a task -> its graph

    def __call__(
        self, texts: Sequence[Any], name: str | None = None, text_columns: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """The answers of a task, by default the first, in the order of the texts.

        Args:
          text_columns: columns of the texts of dicts; (): those of the training data.
        """
        task_index = self.index_of(name)
        task = self._task(task_index, text_columns)
        all_texts = text_list(texts)
        if not all_texts:
            return []
        if isinstance(task, TaggingTask):
            try:
                sentences = sentences_of_rows(task, all_texts)
            except UserError as error:
                raise UserError(f"predict: {error}") from None
            if sentences is not None:
                whole_answers = self([sentence.words for sentence in sentences], name)
                return answers_of_word_rows(sentences, whole_answers)
        places = [f"texts[{index}]" for index in range(len(all_texts))]
        rows = []
        for text, place in zip(all_texts, places, strict=True):
            rows.append(row_of(task, text, place, bool(text_columns)))
        try:
            read = read_examples(task, zip(places, rows, strict=True))
        except UserError as error:
            message = str(error).replace(ADVICE_ON_COLUMNS, "text_column names yours")
            raise UserError(f"predict: {message}") from None
        if read.warning:
            warnings.warn(read.warning, stacklevel=3)
        if read.split is None:
            return read.answers_of_all_rows([])
        if isinstance(task, TaggingTask) and _are_single_words(read.split):
            note = "each word is read as a text of its own: the words of one text are a list in a list, [[...]]"
            warnings.warn(f"predict: {note}, or rows with the number of their sentence", stacklevel=3)
        warn_of_cut(read.split.cut, *limit_of_texts(task, read.split))
        unknown = unknown_in(task, read.split, rows)
        if unknown is not None:
            warnings.warn(unknown, stacklevel=3)
        predictions = self.predictions(task_index, read.split)
        return read.answers_of_all_rows(task.answers(read.split, predictions))

    def reads_as_one(self, texts: Any, name: str | None = None, text_columns: Sequence[str] = ()) -> bool:
        """Tells whether this is the input of one answer: a text, a dict, or for a task that reads pairs one of them.

        A row of a data frame counts as a dict.
        """
        if is_row_of_frame(self._task(self.index_of(name), text_columns), texts):
            return True
        if isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(text, str) for text in texts):
            return reads_pairs_only(self.tasks[self.index_of(name)])
        return isinstance(texts, (str, dict))

    def _task(self, task_index: int, text_columns: Sequence[str]) -> Task:
        """A task, or a copy of it that reads its texts in the columns that a user named."""
        task = self.tasks[task_index]
        if text_columns:
            task = copy.copy(task)
            try:
                task.name_columns(text_columns)
            except UserError as error:
                raise UserError(f"predict: {with_arguments(str(error))}") from None
        return task

    def index_of(self, name: str | None, call: str = "predict") -> int:
        """The index of a task; None is the first. Raises UserError if there is none of this name.

        Args:
          call: the method that is called, for the message.
        """
        names = [task.name for task in self.tasks]
        if name is None:
            return 0
        if name not in names:
            learned = ", ".join(names)
            message = f"{call}: there is no task {shown(name)}; the model learned {learned}"
            raise UserError(f"{message}. Two texts of a pair are one tuple")
        return names.index(name)

    def predictions(self, task_index: int, split: Split, run: Callable[[Any], Any] | None = None) -> list[Prediction]:
        """Predictions of a task for all features of a split.

        Args:
          run: from a batch to predictions, as arrays; default: this model.
        """
        if run is None:
            return self.evaluated(task_index, split).predictions
        predictions: list[Prediction] = [{} for _ in split.features]
        for batch in self._batches(task_index, split):
            _take(predictions, batch, run(batch))
        return predictions

    def evaluated(self, task_index: int, split: Split) -> Evaluated:
        """Predictions of a task for all features of a split, and their losses, which mean nothing without labels."""
        predictions: list[Prediction] = [{} for _ in split.features]
        losses = np.zeros(len(split.features), np.float32)
        has_losses = True
        for batch in self._batches(task_index, split):
            output = tf.nest.map_structure(np.asarray, self._graph(task_index, batch)(batch))
            _take(predictions, batch, output["predictions"])
            has_losses = "losses" in output
            if has_losses:
                losses[batch["row"]] = output["losses"]
        return Evaluated(predictions, losses if has_losses else None)

    def _batches(self, task_index: int, split: Split) -> Iterable[dict[str, np.ndarray]]:
        """Batches of a split's features of similar length, with progress. "row" is the index of each in the split."""
        batch_size = self.config.predict_batch_size
        table = prediction_table(self.tasks[task_index], split)
        batch_count = math.ceil(table.examples / batch_size)
        return track(table.plain_batches(batch_size), f"batch of {batch_size}", batch_count)

    def _graph(self, task_index: int, batch: dict[str, np.ndarray]) -> Any:
        """A task's graph for batches with the same keys as this one, with any number of rows and any length."""
        if task_index not in self._predict:

            def predict_rows(rows: Any) -> Any:
                output = self.model.predict(rows, task_index)
                if output.losses is None:
                    return {"predictions": output.predictions}
                return {"predictions": output.predictions, "losses": output.losses}

            specs = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in batch.items()}
            self._predict[task_index] = graph_of_any_shape(predict_rows, [specs])
        return self._predict[task_index]


def _take(predictions: list[Prediction], batch: Mapping[str, np.ndarray], output: Mapping[str, np.ndarray]) -> None:
    """Puts the predictions of a batch's rows where they stand in the split."""
    for index_in_batch, row in enumerate(batch["row"]):
        predictions[row] = {key: value[index_in_batch] for key, value in output.items()}


def _are_single_words(split: Split) -> bool:
    """Tells whether a split of several texts to be tagged has one word in each."""
    return len(split.examples) > 1 and all(len(sentence.words) == 1 for sentence in split.examples)


def limit_of_texts(task: Task, split: Split) -> tuple[int, str]:
    """Number of tokens to which texts are cut, and what these texts are: of questions the question itself."""
    if split.longest_text is None:
        return task.config.max_seq_length, "text"
    return split.longest_text, kind_named(task.config.kind_of(task.name)).example


def unknown_in(task: Task, split: Split, rows: Sequence[Mapping[str, Any]]) -> UnknownTokens | None:
    """Makes a warning if a split, which was made from these rows, has unknown tokens, or else None."""
    text_keys: set[str] = set()
    for keys in task.text_keys:
        text_keys.update(keys)
    texts: list[str] = []
    for row in rows:
        values = [value for key, value in row.items() if key in text_keys]
        if not values:  # a file's columns may have other names
            values = list(row.values())
        texts += strings_in(values)
    all_ids = np.concatenate([feature.input_ids for feature in split.features])
    return unknown_tokens(task.tokenizer, [all_ids], [texts])
