"""Labelling new text with a fine-tuned model: a file in, its rows with the task's answers out, as JSON lines.

Files are JSON lines, tables (csv, tsv) or plain text with an example a line; "-" is standard input and output. Columns
that the task does not read, such as ids, are kept.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exchange.sources import read_model
from electra_tf2.finetune.classification.reading import table_lines
from electra_tf2.finetune.predictor import Predictor
from electra_tf2.finetune.results import json_lines
from electra_tf2.finetune.task import Split, Task
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import parse_json, read_text


def read_rows(source: str, task: Task) -> list[tuple[int, dict[str, Any]]]:
    """(1-based line, row as `task.parse` wants it) of a file. Raises UserError that names file and line."""
    if source == "-":
        text, where = _standard_input(), "standard input"
        suffix = ".jsonl" if text.lstrip().startswith("{") else ""
    else:
        text, suffix, where = read_text(source, "--predict"), Path(source).suffix, source
    if suffix in (".csv", ".tsv"):
        rows = list(_table_rows(text, suffix == ".csv", where, task))
    else:
        lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        is_json = suffix in (".jsonl", ".json")
        rows = [
            (number, parse_json(line, f"{where}, line {number}") if is_json else task.row_of_line(line))
            for number, line in lines
        ]
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


def _table_rows(text: str, comma: bool, where: str, task: Task) -> Iterator[tuple[int, dict[str, Any]]]:
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
        yield number, dict(zip(names, cells, strict=True))


def predict(config: FinetuningConfig, folder: Path, task_name: str, source: str) -> str:
    """Labels a file with the model in a folder: JSON lines, every row with the task's answer.

    Args:
      config: of the model.
      source: a file, or "-".
    """
    tokenizer = WordpieceTokenizer(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    predictor = Predictor(read_model(str(folder))._replace(config=config), tokenizer)
    number = config.task_names.index(task_name)
    task = predictor.tasks[number]
    numbered = read_rows(source, task)
    split = _parse(task, numbered, source)
    answers = task.answers(split, predictor.predictions(number, split))
    return json_lines(_joined(row, answer) for (_, row), answer in zip(numbered, answers, strict=True))


def _parse(task: Task, numbered: list[tuple[int, dict[str, Any]]], source: str) -> Split:
    """The rows as the task reads them. Raises UserError with the line at which a bad row stands in the file."""
    try:
        return task.parse([row for _, row in numbered], source)
    except UserError:
        for number, row in numbered:
            try:
                task.parse([row], source)
            except UserError as error:
                raise UserError(str(error).replace(f"{source}, line 1:", f"{source}, line {number}:", 1)) from None
        raise


def _joined(row: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """A row and its answer; other columns that have a name of the answer's, a gold label say, become "given_<name>"."""
    clashing = answer.keys() - {"id", "words"}
    kept = {f"given_{name}" if name in clashing else name: value for name, value in row.items()}
    return kept | {name: value for name, value in answer.items() if name not in kept}
