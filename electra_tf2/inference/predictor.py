"""Runs a fine-tuned model on texts from Python, or on a file whose rows are written again with the answers.

A file holds JSON lines, a table (csv, tsv) or plain text with an example on each line; "-" is standard input. Columns
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
from electra_tf2.corpus.encoding import LongTexts, text_list, warn_of_cut
from electra_tf2.corpus.tokenization import WordpieceTokenizer, tokenizer_for
from electra_tf2.corpus.unknown_tokens import UnknownTokens, unknown_tokens
from electra_tf2.files import tables
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import Table, TableRow
from electra_tf2.finetune.batching import prediction_table
from electra_tf2.finetune.data_report import strings_in
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import EmptyText, Prediction, Split, Task
from electra_tf2.finetune.tasks.text_files import open_texts
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.labelled_file import labelled
from electra_tf2.inference.model_config import config_of
from electra_tf2.inference.network import assign, graph_of_any_shape
from electra_tf2.inference.scores_of_file import Answered, report_on_file
from electra_tf2.settings.kinds import kind_named
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import track, warn

_NO_TEXT = {"error": "an empty text"}


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

    def __call__(self, texts: Sequence[Any], name: str | None = None) -> list[dict[str, Any]]:
        """The answers of a task, by default the first, in the order of the texts."""
        names = [task.name for task in self.tasks]
        if name is not None and name not in names:
            raise UserError(f"predict: there is no task {name!r}; the model learned {', '.join(names)}")
        task_index = 0
        if name is not None:
            task_index = names.index(name)
        task = self.tasks[task_index]
        all_texts = text_list(texts)
        if not all_texts:
            return []
        rows = [row_of(task, text) for text in all_texts]
        split = parse(task, rows, "texts")
        warn_of_cut(split.cut, *_limit_of_texts(task, split))
        unknown = unknown_in(task, split, rows)
        if unknown is not None:
            warnings.warn(unknown, stacklevel=3)
        return task.answers(split, self.predictions(task_index, split))

    def predictions(self, task_index: int, split: Split, run: Callable[[Any], Any] | None = None) -> list[Prediction]:
        """Predictions of a task for all features of a split.

        Args:
          run: from a batch to predictions, as arrays; default: this model.
        """
        batch_size = self.config.predict_batch_size
        table = prediction_table(self.tasks[task_index], split)
        batch_count = math.ceil(table.examples / batch_size)
        predictions: list[Prediction] = [{} for _ in split.features]
        for batch in track(table.plain_batches(batch_size), f"batch of {batch_size}", batch_count):
            if run is None:
                graph = self._graph(task_index, batch)
                output = tf.nest.map_structure(np.asarray, graph(batch))
            else:
                output = run(batch)
            # Batches hold features of similar length. "row" is the index of each in the split.
            for index_in_batch, row in enumerate(batch["row"]):
                predictions[row] = {key: value[index_in_batch] for key, value in output.items()}
        return predictions

    def _graph(self, task_index: int, batch: dict[str, np.ndarray]) -> Any:
        """A task's graph for batches with the same keys as this one, with any number of rows and any length."""
        if task_index not in self._predict:

            def predict_rows(rows: Any) -> Any:
                return self.model.predict(rows, task_index).predictions

            specs = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in batch.items()}
            self._predict[task_index] = graph_of_any_shape(predict_rows, [specs])
        return self._predict[task_index]


def _text_names(task: Task) -> set[str]:
    """Columns that hold the text itself. A row with further ones may hold labels."""
    names = {"text", "words", "tokens"}
    for keys in task.text_keys:
        names.update(keys)
    return names


def _limit_of_texts(task: Task, split: Split) -> tuple[int, str]:
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


# Rows: the JSON objects that `Task.example` reads.


def parse(task: Task, rows: Sequence[dict[str, Any]], where: str) -> Split:
    """Reads rows. Raises UserError or EmptyText with the index + 1 of the row as the line of `where`."""
    examples = []
    for index, row in enumerate(rows):
        examples.append(task.example(row, f"{where}, line {index + 1}", index))
    return task.encode(examples, "new")


def row_of(task: Task, text: Any) -> dict[str, Any]:
    """Makes a row from Python's text, tuple of texts, list of words or dict. Raises UserError for anything else."""
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
    """Raises UserError for a single text if the task reads pairs only.

    The user may have passed one pair where a list of pairs is expected.
    """
    counts = {len(keys) for keys in task.text_keys}
    if counts == {2}:
        first, second = task.text_keys[0]
        raise UserError(
            f"predict: {task.name} reads pairs ({first}, {second}), got the text {shown(text)} alone: "
            f'pairs go in a list: [("{first}", "{second}")]'
        )


def row_of_line(task: Task, line: str) -> dict[str, Any]:
    """Makes a row from a line of plain text, with tabs between its texts."""
    texts = line.split("\t")
    if task.holds_tabs:
        most_texts = max(len(keys) for keys in task.text_keys)
        texts = line.split("\t", most_texts - 1)
    return _row_of_texts(task, texts, line, " a line, a tab between")


def _row_of_texts(task: Task, texts: Sequence[str], unsplit: Any, between: str = "") -> dict[str, Any]:
    """Makes a row from a task's texts. Raises UserError if the task reads another number of texts.

    Args:
      unsplit: the user's input, for messages. between: what separates texts in it, for messages.
    """
    for keys in task.text_keys:
        if len(keys) == len(texts):
            return dict(zip(keys, texts, strict=True))
    if not task.text_keys:
        raise UserError(f"predict: {task.name} cannot read plain text {shown(unsplit)}: give JSON objects or a table")
    choices = [f"{len(keys)} text(s){between} ({', '.join(keys)})" for keys in task.text_keys]
    raise UserError(f"predict: {task.name} has {' or '.join(choices)}; got {len(texts)}: {shown(unsplit)}")


# Files of rows.


def open_rows(source: str, task: Task) -> Table:
    """Opens a file, or standard input ("-"), as a table of rows. Raises UserError with file and line."""
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
        return tables.open_table(name, "predict", content=content, parse_line=read_line)
    return open_texts(Path(name), settings, content, "predict", parse_line=read_line)


def _standard_input() -> str:
    """Reads standard input. Raises UserError if it is no UTF-8."""
    try:
        text = sys.stdin.read()
        text.encode()  # Python may have read invalid bytes as lone surrogates, which cannot be encoded
    except UnicodeError:
        raise UserError("predict: standard input is not UTF-8 text") from None
    return text.removeprefix("\ufeff")  # a byte order mark, which some editors write


def read_rows(
    task: Task, table: Table, text_columns: Sequence[str] = ()
) -> tuple[list[TableRow], Split | None, set[int]]:
    """Reads all rows of a table. Arguments as of `named_rows`.

    Returns:
      All rows; the examples of the rows with a text, or None if no row has one; the lines of the rows without a text.

    Raises:
      UserError: a row cannot be read; names its line.
    """
    rows: list[TableRow] = []
    examples: list[Any] = []
    empty: set[int] = set()
    for row, named in named_rows(task, table, text_columns):
        rows.append(row)
        try:
            examples.append(task.example(named, table.where(row.line), len(rows) - 1))
        except EmptyText:
            empty.add(row.line)
    split = None
    if examples:
        split = task.encode(examples, "new")
    return rows, split, empty


def named_rows(task: Task, table: Table, text_columns: Sequence[str] = ()) -> Iterator[tuple[TableRow, dict[str, Any]]]:
    """Yields each row of a table twice: as it is, and with its texts under the names that the task reads.

    Args:
      text_columns: columns of the texts; () for those of the training data.

    Raises:
      UserError: the task reads another number of texts, or a row lacks a column.
    """
    if text_columns:
        yield from _rows_of_columns(task, table, text_columns)
        return
    settings = task.settings
    names_in_table = None
    if settings is not None and settings.texts:
        names_in_table = tables.find_columns(table, settings.texts)
    if settings is None or names_in_table is None:  # rows have the task's names already, such as JSON objects
        for line, values in table.readable():
            yield TableRow(line, values), values
        return
    keys = [tables.names_of(column)[0] for column in settings.texts]
    for line, values in table.readable():
        texts = {key: values[name] for key, name in zip(keys, names_in_table, strict=True)}
        yield TableRow(line, values), values | texts


def _rows_of_columns(
    task: Task, table: Table, text_columns: Sequence[str]
) -> Iterator[tuple[TableRow, dict[str, Any]]]:
    """Yields the rows of `named_rows` with the texts in columns that the user named."""
    keys_of_texts = [keys for keys in task.text_keys if len(keys) == len(text_columns)]
    if not keys_of_texts:
        counts = " or ".join(str(len(keys)) for keys in task.text_keys)
        raise UserError(f"--text-column: {task.name} reads {counts} texts, got {', '.join(text_columns)}")
    for line, values in table.readable():
        missing = [column for column in text_columns if column not in values]
        if missing:
            raise UserError(f"{table.where(line)}: no column {missing[0]!r}; it has {shown(', '.join(values))}")
        texts = {key: values[column] for key, column in zip(keys_of_texts[0], text_columns, strict=True)}
        yield TableRow(line, values), values | texts


def predict(
    config: FinetuningConfig,
    folder: Path,
    task_name: str,
    source: str,
    row_format: str = "jsonl",
    text_columns: Sequence[str] = (),
) -> str:
    """Labels a file with the model in a folder. Prints scores if the file has the right labels, too.

    Args:
      source: path of the file; "-": standard input.
      row_format: of the returned text, one of those of `files.writing.row_format`.
      text_columns: columns of the file's texts, if their names are others than the training data's.

    Returns:
      Every row with the task's answer, as text.
    """
    tokenizer = tokenizer_for(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    predictor = Predictor(read_model(folder), tokenizer, config)
    task_index = config.task_names.index(task_name)
    task = predictor.tasks[task_index]
    if row_format == "conll" and not isinstance(task, TaggingTask):
        raise UserError(f"--output: a .conll file holds tagged words, and {task_name} is no tagging task: give a .csv")
    table = open_rows(source, task)
    rows, split, empty = read_rows(task, table, text_columns)
    if not rows:
        raise UserError(f"predict: {table.name} is empty")
    answers: list[dict[str, Any]] = []
    if split is not None:  # not all texts are empty
        cut = LongTexts.from_cut(split.cut, *_limit_of_texts(task, split))
        if cut:
            warn(cut)
        unknown = unknown_in(task, split, [row.values for row in rows])
        if unknown is not None:
            warn(f"{table.name}: {unknown}")
        predictions = predictor.predictions(task_index, split)
        answers = task.answers(split, predictions)
        columns = set(itertools.chain(*(row.values for row in rows)))
        holds_more = bool(columns - _text_names(task))
        has_labels = bool(tables.columns_named(columns, sorted(task.label_columns)))
        may_have_labels = has_labels or (holds_more and not task.label_columns)
        if may_have_labels and Path(source).is_file():  # no pipe, which cannot be read again
            predict_split = functools.partial(predictor.predictions, task_index)
            report = report_on_file(task, source, Answered(split, predictions), predict_split, has_labels)
            if report:
                print(report, end="")
    if empty:
        more = ""
        if len(empty) > 1:
            more = f" (and of {len(empty) - 1:,} more)"
        warn(f"{table.where(min(empty))}{more}: an empty text, so no answer")
    # There is an answer for each row with a text, in their order.
    remaining_answers = iter(answers)
    pairs = []
    for row in rows:
        answer = _NO_TEXT if row.line in empty else next(remaining_answers)
        pairs.append((row.values, answer))
    return labelled(pairs, row_format)
