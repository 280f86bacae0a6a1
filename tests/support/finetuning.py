"""Shared by the tests of fine-tuning: configurations on the golden checkpoint's vocabulary and model."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.task import Split, Task
from tests.support import golden

TASKS = golden.GOLDEN / "tasks"
_SIZES = ("model_size", "model_hparam_overrides", "embedding_size", "vocab_size")


def config(*tasks: str, dropout: float = 0.0, **overrides: Any) -> FinetuningConfig:
    """The golden checkpoint's sizes and vocabulary, the golden tasks' files."""
    hparams = json.loads((golden.CHECKPOINT / "hparams.json").read_text())
    sizes: dict[str, Any] = {name: hparams[name] for name in _SIZES if name in hparams}
    sizes["model_hparam_overrides"] |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    defaults = {
        "task_names": list(tasks),
        "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
        "init_checkpoint": str(golden.CHECKPOINT),
        "raw_data_dir": str(TASKS),
        "max_seq_length": hparams.get("max_seq_length", 32),
        "classifier_dropout": dropout,
    }
    return configuration(sizes | defaults | overrides)


@functools.cache
def tokenizer() -> WordpieceTokenizer:
    """That of the golden checkpoint, built once: that takes a tenth of a second, and nothing changes it."""
    return WordpieceTokenizer(golden.CHECKPOINT / "vocab.txt")


def task(folder: Path | None, name: str, described: dict[str, Any] | None = None, **overrides: Any) -> Any:
    """The task of a name with its files in a folder (None: the golden ones), or one of one's own by its description."""
    hparams: dict[str, Any] = {}
    if described is not None:
        hparams["tasks"] = {name: described}
    if folder is not None:
        hparams["raw_data_dir"] = str(folder)
    tasks = make_tasks(config(name, **hparams, **overrides), tokenizer())
    return tasks[0]


def parse(task: Task, rows: Sequence[dict[str, Any]], where: str) -> Split:
    """Reads rows without labels, of which a line of `where` holds each. Raises UserError or EmptyText."""
    examples = []
    for index, row in enumerate(rows):
        examples.append(task.example(row, f"{where}, line {index + 1}", index))
    return task.encode(examples, "new")


def write_lines(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
