"""Labelling new text: JSON lines in, the same lines with the task's answers out."""

import json
from pathlib import Path
from typing import Any

from finetune.results import write_json_lines
from finetune.trials import Trials, restore_weights
from util.errors import UserError


def read_json_lines(path: str) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file. Raises UserError that names the line."""
    rows = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--predict: {path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: a JSON object is needed, got {type(row).__name__}")
        rows.append(row)
    if not rows:
        raise UserError(f"{path} is empty")
    return rows


def predict_file(trials: Trials, trial: int, path: str, output: str | None) -> None:
    """Labels a file with the model of a trial; every line gains the task's answer.

    Args:
      output: where to; None: beside the file.
    """
    if len(trials.tasks) != 1:
        raise UserError("--predict labels with one task: name it with --task-names")
    task = trials.tasks[0]
    rows = read_json_lines(path)
    folder = trials.folder(trial)
    trials.check(trials.run_folder(trial))
    trained = trials.build(None, trial, folder)
    step = restore_weights(trained, folder)
    print(f"{folder}, step {step:,}")
    split = task.parse(rows, path)
    size = trials.config.predict_batch_size

    def show(done: int) -> None:
        if done % (size * 50) == 0:
            print(f"{done:,} of {len(split.features):,} inputs", flush=True)

    predictions, _ = trained.predict(0, trials.table_of(task, split), size, show)
    labelled = [row | answer for row, answer in zip(rows, task.answers(split, predictions), strict=True)]
    target = Path(output or f"{path}.predictions.jsonl")
    write_json_lines(target, labelled)
    print(f"labelled {len(labelled):,} lines: {target}")
