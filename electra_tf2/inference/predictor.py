"""A fine-tuned model that answers: Python objects (electra_tf2), or a file whose rows come out with the answers.

Files are JSON lines, tables (csv, tsv) or plain text with an example a line; "-" is standard input and output. Columns
that the task does not read, such as ids, are kept.
"""

import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import refuse_single
from electra_tf2.corpus.file_tokenizer import tokenizer_for
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.classification.reading import objects_of
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.results import json_lines, table_of_rows
from electra_tf2.finetune.task import EmptyText, Prediction, Split, Task
from electra_tf2.finetune.task_classes import make_tasks
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.inference.network import assign, graph_of_any_shape
from electra_tf2.inference.stored_model import StoredModel, read_model
from electra_tf2.util import columnar
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import say, track
from electra_tf2.util.reading import read_text

_NO_TEXT = {"error": "an empty text"}
_TABLES = {".csv": ",", ".tsv": "\t"}


class Predictor:
    """Answers of the tasks that a model was fine-tuned on. Raises UserError: the model is not fine-tuned, or something
    of it is missing."""

    def __init__(self, source: StoredModel, tokenizer: WordpieceTokenizer) -> None:
        if not isinstance(source.config, FinetuningConfig) or source.task_states is None:
            raise UserError(f"{source.origin} is not fine-tuned: electra finetune makes models that predict")
        self.config = FinetuningConfig.from_dict({**vars(source.config), "do_train": False})
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
        number = names.index(name) if name else 0
        task = self.tasks[number]
        refuse_single(texts)
        if not len(texts):
            return []
        split = task.parse([self._row(task, text) for text in texts], "texts")
        return task.answers(split, self.predictions(number, split))

    def predictions(self, number: int, split: Split) -> list[Prediction]:
        """The predictions of the task of this number on all features of a split."""
        task, size = self.tasks[number], self.config.predict_batch_size
        features = TaskFeatures(task.name, split.features, task.labels)
        table = FeatureTable([features], self.config.max_seq_length, self.config.fixed_padding, task.predicted_choices)
        predictions: list[Prediction] = [{} for _ in split.features]
        for batch in track(table.plain_batches(size), f"batch of {size}", -(-table.examples // size)):
            output = {key: value.numpy() for key, value in self._graph(number, batch)(batch).items()}
            for i, row in enumerate(batch["row"]):
                predictions[row] = {key: value[i] for key, value in output.items()}
        return predictions

    def _graph(self, number: int, batch: dict[str, np.ndarray]) -> Any:
        """The predictions of the task of this number on batches such as this one, of any number of rows and length."""
        if number not in self._predict:
            shapes = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in batch.items()}
            self._predict[number] = graph_of_any_shape(
                lambda rows: self.model.predict(rows, number).predictions, [shapes]
            )
        return self._predict[number]

    def _row(self, task: Task, text: Any) -> dict[str, Any]:
        """A text or a pair as the object that the task's `parse` reads."""
        if isinstance(text, dict):
            return text
        if not isinstance(text, (str, tuple, list)):
            raise UserError(f"predict: a text, a tuple of texts, a list of words or an object, not {shown(text)}")
        kind = self.config.kind_of(task.name)
        if kind == "tagging":
            return {"text": text} if isinstance(text, str) else {"words": list(text)}
        parts = (text,) if isinstance(text, str) else tuple(text)
        columns: Sequence[Any] = ("question", "context")
        if kind == "embedding":
            columns = ("text",) if len(parts) == 1 else ("text1", "text2")
        elif kind != "qa":
            spec = getattr(task, "spec", None)
            if spec is None:
                raise UserError(f"predict: give objects as in the .jsonl files of {task.name}")
            columns = [column if isinstance(column, str) else column[0] for column in spec.json_columns.texts]
        if len(parts) != len(columns):
            raise UserError(
                f"predict: {task.name} needs {len(columns)} text(s) ({', '.join(columns)}), got {len(parts)}"
            )
        return dict(zip(columns, parts, strict=True))


def read_rows(source: str, task: Task) -> list[tuple[int, dict[str, Any]]]:
    """(1-based line, row as `task.parse` wants it) of a file. Raises UserError that names file and line."""
    if source == "-":
        text, where = _standard_input(), "standard input"
        suffix = ".jsonl" if text.lstrip().startswith("{") else ""
    elif columnar.is_columnar(source):
        return list(enumerate(columnar.read_rows(source), start=1))
    else:
        text, suffix, where = read_text(source, "--predict"), Path(source).suffix, source
    spec = getattr(task, "spec", None)
    rows = list(objects_of(text, suffix, where, task.row_of_line, task.columns_of_table, spec and spec.columns))
    if not rows:
        raise UserError(f"--predict: {where} is empty")
    return rows


def _standard_input() -> str:
    """Its text. Raises UserError for bytes that are none."""
    try:
        text = sys.stdin.read()
        text.encode()  # bytes that are no UTF-8 may have come as halves of surrogate pairs
    except UnicodeError:
        raise UserError("--predict: standard input is not UTF-8 text") from None
    return text.removeprefix("\ufeff")


def predict(config: FinetuningConfig, folder: Path, task_name: str, source: str, suffix: str = ".jsonl") -> str:
    """Labels a file with the model in a folder: every row with the task's answer, in a table if the suffix is one's."""
    tokenizer = tokenizer_for(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    predictor = Predictor(read_model(str(folder))._replace(config=config), tokenizer)
    number = config.task_names.index(task_name)
    task = predictor.tasks[number]
    numbered = read_rows(source, task)
    split, empty = _parse(task, numbered, source)
    found = task.answers(split, predictor.predictions(number, split)) if split else []
    answers, names = iter(found), found[0].keys() if found else set()
    if empty:
        more = f" (and of {len(empty) - 1:,} more)" if len(empty) > 1 else ""
        say(f"WARNING: {source}, line {min(empty)}{more}: an empty text, so no answer")
    rows = (_joined(row, names, _NO_TEXT if line in empty else next(answers)) for line, row in numbered)
    return table_of_rows(rows, _TABLES[suffix]) if suffix in _TABLES else json_lines(rows)


def _parse(task: Task, numbered: list[tuple[int, dict[str, Any]]], source: str) -> tuple[Split | None, set[int]]:
    """The rows as the task reads them, and the lines of those that have no text, which are left out. Raises UserError:
    with the line at which a bad row stands in the file."""
    try:
        return task.parse([row for _, row in numbered], source), set()
    except UserError:
        empty = set()
    for number, row in numbered:
        try:
            task.parse([row], source)
        except EmptyText:
            empty.add(number)
        except UserError as error:
            raise UserError(str(error).replace(f"{source}, line 1:", f"{source}, line {number}:", 1)) from None
    kept = [row for number, row in numbered if number not in empty]
    return task.parse(kept, source) if kept else None, empty


def _joined(row: dict[str, Any], names: Set[str], answer: dict[str, Any]) -> dict[str, Any]:
    """A row and its answer; other columns that have one of the answers' names, a gold label say, are "given_<name>"."""
    clashing = names - {"id", "words"}
    kept = {f"given_{name}" if name in clashing else name: value for name, value in row.items()}
    return kept | {name: value for name, value in answer.items() if name not in kept}
