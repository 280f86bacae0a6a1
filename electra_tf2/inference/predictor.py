"""A fine-tuned model that answers: Python objects (electra_tf2), or a file whose rows come out with the answers.

Files are JSON lines, tables (csv, tsv) or plain text with an example a line; "-" is standard input and output. Columns
that the task does not read, such as ids, are kept.
"""

import functools
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import LongTexts, listed, warn_of_cut
from electra_tf2.corpus.tokenization import WordpieceTokenizer, tokenizer_for
from electra_tf2.files import tables
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import Table, TableRow
from electra_tf2.finetune.batching import prediction_table
from electra_tf2.finetune.data_report import strings_in
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.task import EmptyText, Prediction, Split, Task
from electra_tf2.finetune.tasks.text_files import open_texts
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import config_of
from electra_tf2.inference.labelled_file import labelled_lines, labelled_table
from electra_tf2.inference.network import assign, graph_of_any_shape
from electra_tf2.inference.unknown import UnknownTokens, unknown_tokens
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import track, warn

_NO_TEXT = {"error": "an empty text"}


class Predictor:
    """Answers of the tasks that a model was fine-tuned on. Raises UserError: the model is not fine-tuned, or something
    of it is missing."""

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
        self._predict: dict[int, Any] = {}  # number of a task -> its graph, for the life of the model

    def __call__(self, texts: Sequence[Any], name: str | None = None) -> list[dict[str, Any]]:
        """The answers, in the order of the texts."""
        names = [task.name for task in self.tasks]
        if name is not None and name not in names:
            raise UserError(f"predict: there is no task {name!r}; the model learned {', '.join(names)}")
        number = 0
        if name is not None:
            number = names.index(name)
        task = self.tasks[number]
        all_texts = listed(texts)
        if not all_texts:
            return []
        rows = [row_of(task, text) for text in all_texts]
        split = parse(task, rows, "texts")
        warn_of_cut(split.cut, split.longest_text or self.config.max_seq_length)
        unknown = unknown_in(task, split, rows)
        if unknown is not None:
            warnings.warn(unknown, stacklevel=3)
        return task.answers(split, self.predictions(number, split))

    def predictions(self, number: int, split: Split, run: Callable[[Any], Any] | None = None) -> list[Prediction]:
        """The predictions of the task of this number on all features of a split.

        Args:
          run: gives those on a batch, as arrays; default: this model's.
        """
        batch_size = self.config.predict_batch_size
        table = prediction_table(self.tasks[number], split)
        batch_count = math.ceil(table.examples / batch_size)
        predictions: list[Prediction] = [{} for _ in split.features]
        for batch in track(table.plain_batches(batch_size), f"batch of {batch_size}", batch_count):
            if run is None:
                graph = self._graph(number, batch)
                output = tf.nest.map_structure(np.asarray, graph(batch))
            else:
                output = run(batch)
            # Batches hold features of similar length; "row" is each one's place in the split.
            for place, row in enumerate(batch["row"]):
                predictions[row] = {key: value[place] for key, value in output.items()}
        return predictions

    def _graph(self, number: int, batch: dict[str, np.ndarray]) -> Any:
        """The predictions of the task of this number on batches such as this one, of any number of rows and length."""
        if number not in self._predict:

            def predict_rows(rows: Any) -> Any:
                return self.model.predict(rows, number).predictions

            specs = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in batch.items()}
            self._predict[number] = graph_of_any_shape(predict_rows, [specs])
        return self._predict[number]


def unknown_in(task: Task, split: Split, rows: Sequence[Mapping[str, Any]]) -> UnknownTokens | None:
    """The warning to give of a split with unknown tokens, which was made of rows; None if there are none."""
    text_keys: set[str] = set()
    for keys in task.text_keys:
        text_keys.update(keys)
    texts: list[str] = []
    for row in rows:
        values = [value for key, value in row.items() if key in text_keys]
        if not values:  # the columns of a file may have other names
            values = list(row.values())
        texts += strings_in(values)
    all_ids = np.concatenate([feature.input_ids for feature in split.features])
    return unknown_tokens(task.tokenizer, [all_ids], [texts])


# Texts as rows, the JSON objects that `Task.example` reads.


def parse(task: Task, rows: Sequence[dict[str, Any]], where: str) -> Split:
    """The examples of rows, of which number i is line i + 1 of the file `where`. Raises UserError, EmptyText."""
    examples = []
    for number, row in enumerate(rows):
        examples.append(task.example(row, f"{where}, line {number + 1}", number))
    return task.encode(examples, "new")


def row_of(task: Task, text: Any) -> dict[str, Any]:
    """The row of a text, several texts, a list of words or an object, from Python. Raises UserError."""
    if isinstance(text, dict):
        return text
    if not isinstance(text, (str, tuple, list)):
        raise UserError(f"predict: a text, a tuple of texts, a list of words or an object, not {shown(text)}")
    if isinstance(text, str):
        _refuse_half_a_pair(task, text)
        return _row_of_texts(task, [text], text)
    if task.list_key:
        return {task.list_key: list(text)}
    return _row_of_texts(task, list(text), text)


def _refuse_half_a_pair(task: Task, text: str) -> None:
    """Raises UserError for a text by itself where the task reads pairs alone: a pair may have been given as the list
    of all texts."""
    counts = {len(keys) for keys in task.text_keys}
    if counts == {2}:
        first, second = task.text_keys[0]
        raise UserError(
            f"predict: {task.name} reads pairs ({first}, {second}), got the text {shown(text)} alone: "
            f'pairs go in a list: [("{first}", "{second}")]'
        )


def row_of_line(task: Task, line: str) -> dict[str, Any]:
    """The row of a line of plain text, with tabs between several texts."""
    texts = line.split("\t")
    if task.holds_tabs:
        most_texts = max(len(keys) for keys in task.text_keys)
        texts = line.split("\t", most_texts - 1)
    return _row_of_texts(task, texts, line, " a line, a tab between")


def _row_of_texts(task: Task, texts: Sequence[str], unsplit: Any, between: str = "") -> dict[str, Any]:
    """The row of a task's texts, as many as it reads; `unsplit`, the user's input, and `between`, what stands between
    its texts, are for the messages."""
    for keys in task.text_keys:
        if len(keys) == len(texts):
            return dict(zip(keys, texts, strict=True))
    if not task.text_keys:
        raise UserError(f"predict: {task.name} cannot read plain text {shown(unsplit)}: give JSON objects or a table")
    choices = [f"{len(keys)} text(s){between} ({', '.join(keys)})" for keys in task.text_keys]
    raise UserError(f"predict: {task.name} has {' or '.join(choices)}; got {len(texts)}: {shown(unsplit)}")


# Files of rows.


def open_rows(source: str, task: Task) -> Table:
    """The rows of a file, or of standard input ("-"). Raises UserError that names file and line."""
    name = source
    content = None
    if source == "-":
        name = "standard input"
        content = _standard_input()
    elif format_of(source) != "columnar":
        content = read_text(source, "predict")
    if content is not None:
        rows = task.rows_of_text(content, name)
        if rows is not None:
            return Table(name, "row", itertools.starmap(TableRow, enumerate(rows, start=1)))
    read_line = functools.partial(row_of_line, task)
    settings = task.settings
    if settings is None:
        return tables.open_table(name, "predict", content=content, of_line=read_line)
    return open_texts(Path(name), settings, content, "predict", of_line=read_line)


def _standard_input() -> str:
    """The text of standard input. Raises UserError for bytes that are none."""
    try:
        text = sys.stdin.read()
        text.encode()  # bytes that are no UTF-8 may have come as halves of surrogate pairs
    except UnicodeError:
        raise UserError("predict: standard input is not UTF-8 text") from None
    return text.removeprefix("\ufeff")  # the mark that some editors put before UTF-8


def read_rows(task: Task, table: Table) -> tuple[list[TableRow], Split | None, set[int]]:
    """Reads all rows of a table.

    Returns:
      The rows; the examples of those that have a text, or None if none has; the lines of those that have none.

    Raises:
      UserError: a row that cannot be read, with its line.
    """
    rows: list[TableRow] = []
    examples: list[Any] = []
    empty: set[int] = set()
    for row, named in named_rows(task, table):
        rows.append(row)
        try:
            examples.append(task.example(named, table.where(row.line), len(examples)))
        except EmptyText:
            empty.add(row.line)
    split = None
    if examples:
        split = task.encode(examples, "new")
    return rows, split, empty


def named_rows(task: Task, table: Table) -> Iterator[tuple[TableRow, dict[str, Any]]]:
    """The rows of a table as they are, and with their texts under the names that the task reads."""
    settings = task.settings
    names_in_table = None
    if settings is not None and settings.texts:
        names_in_table = tables.place(table, settings.texts)
    if settings is None or names_in_table is None:  # rows that have the task's names already, such as JSON objects
        for line, values in table.readable():
            yield TableRow(line, values), values
        return
    keys = [tables.names_of(column)[0] for column in settings.texts]
    for line, values in table.readable():
        texts = {key: values[name] for key, name in zip(keys, names_in_table, strict=True)}
        yield TableRow(line, values), values | texts


def predict(config: FinetuningConfig, folder: Path, task_name: str, source: str, delimiter: str = "") -> str:
    """Labels a file with the model in a folder: every row with the task's answer, as a table with a delimiter between
    its cells, or as JSON lines."""
    tokenizer = tokenizer_for(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    predictor = Predictor(read_model(folder), tokenizer, config)
    number = config.task_names.index(task_name)
    task = predictor.tasks[number]
    table = open_rows(source, task)
    rows, split, empty = read_rows(task, table)
    if not rows:
        raise UserError(f"predict: {table.name} is empty")
    answers: list[dict[str, Any]] = []
    if split is not None:  # None where all texts are empty
        cut = LongTexts.from_cut(split.cut, split.longest_text or config.max_seq_length)
        if cut:
            warn(cut)
        unknown = unknown_in(task, split, [row.values for row in rows])
        if unknown is not None:
            warn(f"{table.name}: {unknown}")
        answers = task.answers(split, predictor.predictions(number, split))
    if empty:
        more = ""
        if len(empty) > 1:
            more = f" (and of {len(empty) - 1:,} more)"
        warn(f"{table.where(min(empty))}{more}: an empty text, so no answer")
    # Answers are those of the rows with a text, in their order.
    next_answer = iter(answers)
    pairs = []
    for row in rows:
        answer = _NO_TEXT if row.line in empty else next(next_answer)
        pairs.append((row.values, answer))
    if delimiter:
        return labelled_table(pairs, delimiter)
    return labelled_lines(pairs)
