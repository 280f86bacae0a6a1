"""Labelling new text with a fine-tuned model: a file in, its rows with the task's answers out, as JSON lines.

Files are JSON lines, tables (csv, tsv) or plain text with an example a line; "-" is standard input and output. Columns
that the task does not read, such as ids, are kept.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from configure_finetuning import FinetuningConfig
from corpus.tokenization import WordpieceTokenizer
from finetune.batching import FeatureTable, TaskFeatures
from finetune.classification.reading import table_lines
from finetune.results import json_lines
from finetune.task import Task, make_tasks
from finetune.weights import build_trained
from util.errors import UserError, shown
from util.progress import Progress
from util.reading import parse_json, read_text


def read_rows(source: str, task: Task) -> list[dict[str, Any]]:
    """The rows of a file as `task.parse` wants them. Raises UserError that names file and line."""
    if source == "-":
        text, suffix, where = sys.stdin.read(), "", "standard input"
        if text.lstrip().startswith("{"):
            suffix = ".jsonl"
    else:
        text, suffix, where = read_text(source, "--predict"), Path(source).suffix, source
    if suffix == ".jsonl":
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        rows = [parse_json(line, f"{where}, line {number}") for number, line in lines]
    elif suffix in (".csv", ".tsv"):
        rows = list(_table_rows(text, suffix == ".csv", where, task))
    else:
        rows = [task.row_of_line(line.rstrip("\r")) for line in text.split("\n") if line.strip()]
    if not rows:
        raise UserError(f"--predict: {where} is empty")
    return rows


def _table_rows(text: str, comma: bool, where: str, task: Task) -> Iterator[dict[str, Any]]:
    names: list[str] = []
    for number, cells in table_lines(text, comma, where):
        if not names:
            names, header = task.columns_of_table(cells)
            if header:
                continue
        if len(cells) != len(names):
            raise UserError(
                f"{where}, line {number}: {len(cells)} columns, but {len(names)} are expected: {shown(cells)}"
            )
        yield dict(zip(names, cells, strict=True))


def predict(
    config: FinetuningConfig, folder: Path, task_name: str, source: str, strategy: tf.distribute.Strategy
) -> str:
    """Labels a file with the model in a folder: JSON lines, every row with the task's answer.

    Args:
      config: of the model.
      source: a file, or "-".
    """
    tokenizer = WordpieceTokenizer(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    tasks = make_tasks(config, tokenizer)
    number = config.task_names.index(task_name)
    task = tasks[number]
    rows = read_rows(source, task)
    model, step = build_trained(config, tasks, strategy, folder)
    print(f"{folder}, step {step:,}", flush=True)
    split = task.parse(rows, source)
    features = TaskFeatures(task.name, split.features, task.labels)
    table = FeatureTable([features], config.max_seq_length, config.fixed_padding)
    with Progress("input", len(table), unit="inputs") as progress:
        predictions, _ = model.predict(number, table, config.predict_batch_size, progress.update)
    return json_lines(_joined(row, answer) for row, answer in zip(rows, task.answers(split, predictions), strict=True))


def _joined(row: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """A row and its answer; other columns that have a name of the answer's, a gold label say, become "given_<name>"."""
    clashing = answer.keys() - {"id", "words"}
    kept = {f"given_{name}" if name in clashing else name: value for name, value in row.items()}
    return kept | {name: value for name, value in answer.items() if name not in kept}
