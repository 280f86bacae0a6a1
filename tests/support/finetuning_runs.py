"""Shared by tests that run run_finetuning.py: small tasks on the golden checkpoint, and what a run says and writes."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.support import golden
from tests.support.programs import run_program

# Of which the texts of small tasks are put together: whole tokens of the golden checkpoint's vocabulary.
WORDS = ["the", "file", "is", "open", "read", "first", "line", "list", "of", "names", "value", "type", "object", "all"]
# Those whose files tests/finetune/conftest.py writes.
TASKS: dict[str, dict[str, Any]] = {
    "kind": {"type": "classification", "text_columns": ["text"]},
    "count": {"type": "regression", "text_columns": ["text"], "max": 2},
}
SIZES = json.loads((golden.CHECKPOINT / "hparams.json").read_text())
SIZES["model_hparam_overrides"]["num_hidden_layers"] = 1  # of two: a step is traced in half the time


def command(data_dir: Path, out: Path, *words: str, **hparams: Any) -> list[str]:
    """The words of a command line that trains the task `kind` for 80 steps, or what other hparams say."""
    base = {
        "model_hparam_overrides": SIZES["model_hparam_overrides"],
        "embedding_size": SIZES["embedding_size"],
        "vocab_size": SIZES["vocab_size"],
        "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
        "init_checkpoint": str(golden.CHECKPOINT),
        "data_dir": str(data_dir),
        "pretrained_model_dir": str(out),
        "tasks": TASKS,
        "task_names": ["kind"],
        "max_seq_length": 32,
        "train_batch_size": 8,
        "eval_batch_size": 16,
        "num_train_epochs": 2.0,
        "iterations_per_loop": 5,
        "learning_rate": 1e-3,
    }
    return [sys.executable, "run_finetuning.py", "--hparams", json.dumps(base | hparams), *words]


def run(data_dir, out, *words, expect=0, **hparams) -> str:
    """What that command says, in this process."""
    result = run_program(*command(data_dir, out, *words, **hparams)[1:])
    assert result.returncode == expect, result.stdout + result.stderr
    return result.stdout + result.stderr


def results(out: Path, tasks: str = "kind") -> dict[str, Any]:
    """What a run of these tasks wrote of all its trials."""
    return json.loads((out / "results" / f"{tasks}_results.json").read_text())


def first_scores(out: Path) -> dict[str, Any]:
    """The scores of the first trial by task."""
    return results(out)["trials"][0]["scores"]


def line_of(output: str) -> str:
    """Without the ends of lines that a terminal needs."""
    return " ".join(output.split())
