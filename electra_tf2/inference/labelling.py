"""Labels a file: its rows are written again with the answers of a fine-tuned model.

A file holds JSON lines, a table (csv, tsv) or plain text with an example on each line; "-" is standard input. Columns
that the task does not read, such as ids, are kept.
"""

import codecs
import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import LongTexts
from electra_tf2.corpus.tokenization import tokenizer_for
from electra_tf2.files import tables
from electra_tf2.files.cells import is_no_label
from electra_tf2.files.content import plain_name
from electra_tf2.files.delimited import csv_delimiter
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import Table, TableRow
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.task import Split, Task
from electra_tf2.finetune.tasks.text_files import open_texts
from electra_tf2.finetune.tasks.word_rows import column_of_numbers
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.example_rows import Examples, read_examples, row_of_line
from electra_tf2.inference.labelled_file import Labelled, labelled, rows_of_words
from electra_tf2.inference.predictor import Predictor, limit_of_texts, unknown_in
from electra_tf2.inference.scores_of_file import Answered, Predict, report_on_file
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import warn


def label_file(
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
        raise UserError(
            f"--output: files called .conll and .txt hold tagged words, and {task_name} is no tagging task: give a .csv"
        )
    task.name_columns(text_columns)
    table = open_rows(source, task)
    rows, read = read_rows(task, table)
    if not rows:
        raise UserError(f"predict: {table.name} is empty")
    answers: list[dict[str, Any]] = []
    if read.split is not None:
        _warn_of_texts(task, table.name, rows, read.split)
        predictions = predictor.predictions(task_index, read.split)
        answers = task.answers(read.split, predictions)
        if Path(source).is_file():  # no pipe, which cannot be read again
            predict = functools.partial(predictor.predictions, task_index)
            answered = Answered(read.split, predictions)
            print(_scores(task, source, rows, answered, predict, text_columns), end="")
    if read.warning:
        in_lines = " and no lines in the file" if row_format == "conll" else ""
        warn(f"{read.warning}{in_lines}")
    delimiter = ","
    if row_format == "csv":
        delimiter = _csv_delimiter(source, task)
    is_table = row_format in ("csv", "tsv")
    rows_and_answers = _beside_answers(task, rows, read.answers_of_all_rows(answers), is_table)
    text = labelled(rows_and_answers, row_format, delimiter)
    if is_table and _has_byte_order_mark(source):
        return f"\ufeff{text}"
    return text


def _beside_answers(
    task: Task, rows: Sequence[TableRow], answers: Sequence[dict[str, Any]], is_table: bool
) -> Labelled:
    """Puts each row beside its answer. A table with a word in each row has an answer for each word."""
    if not is_table or not isinstance(task, TaggingTask) or not all(row.parts for row in rows):
        return [(row.values, answer) for row, answer in zip(rows, answers, strict=True)]
    sentences = [row.parts for row in rows]
    values = [word_row.values for word_row in itertools.chain(*sentences)]
    return rows_of_words(sentences, answers, column_of_numbers(values, task.columns) is not None)


def _has_byte_order_mark(source: str) -> bool:
    """Tells whether a file begins with the mark by which Excel knows UTF-8."""
    if not Path(source).is_file():
        return False
    with Path(source).open("rb") as file:
        return file.read(3) == codecs.BOM_UTF8


def _csv_delimiter(source: str, task: Task) -> str:
    """The delimiter of a csv that is labelled, with which it is written again; a comma for any other source."""
    if Path(plain_name(source)).suffix != ".csv" or not Path(source).is_file():
        return ","
    if task.settings is not None and task.settings.delimiter:
        return task.settings.delimiter
    return csv_delimiter(read_text(source, "predict"))


def _warn_of_texts(task: Task, name: str, rows: Sequence[TableRow], split: Split) -> None:
    """Warns of texts that were cut, and of tokens that the model does not know."""
    cut = LongTexts.from_cut(split.cut, *limit_of_texts(task, split))
    if cut:
        warn(cut)
    unknown = unknown_in(task, split, [row.values for row in rows])
    if unknown is not None:
        warn(f"{name}: {unknown}")


def _scores(
    task: Task,
    source: str,
    rows: Sequence[TableRow],
    answered: Answered,
    predict: Predict,
    text_columns: Sequence[str],
) -> str:
    """Makes a report of scores; "" for a file without labels."""
    columns = set(itertools.chain(*(row.values for row in rows)))
    has_labels = False
    for column in tables.columns_named(columns, sorted(task.label_columns)):
        if not all(is_no_label(row.values.get(column)) for row in rows):
            has_labels = True
    # The labels of some tasks stand in columns of any name.
    may_have_labels = has_labels or (not task.label_columns and bool(columns - task.text_names))
    if not may_have_labels:
        return ""
    return report_on_file(task, source, answered, predict, has_labels, text_columns)


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
            return Table(name, "row", iter(rows))
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


def read_rows(task: Task, table: Table) -> tuple[list[TableRow], Examples]:
    """Reads all rows of a table, and makes their examples. Arguments and errors as of `named_rows`."""
    rows = []
    placed_rows = []
    for row, named in named_rows(task, table):
        rows.append(row)
        placed_rows.append((table.where(row.line), named))
    return rows, read_examples(task, placed_rows)


def named_rows(task: Task, table: Table) -> Iterator[tuple[TableRow, dict[str, Any]]]:
    """Yields each row of a table, with its values in which the texts have the names that the task reads.

    Raises:
      UserError: a row lacks a column.
    """
    settings = task.settings
    names_in_table = None
    if settings is not None and settings.texts:
        names_in_table = tables.find_columns(table, settings.texts)
    if settings is None or names_in_table is None:  # rows have the task's names already, such as JSON objects
        for row in table.checked():
            yield row, row.values
        return
    keys = [tables.names_of(column)[0] for column in settings.texts]
    for row in table.checked():
        texts = {key: row.values[name] for key, name in zip(keys, names_in_table, strict=True)}
        yield row, row.values | texts
