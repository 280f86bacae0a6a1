"""What a fine-tuned model's exported file answers, by the task's own `answers`, and what its card's program prints."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.exports.card_programs import FOLDER
from electra_tf2.exports.exportable import INPUTS, Exportable, IdsToOutputs
from electra_tf2.exports.self_check import distance
from electra_tf2.inference.predictor import Predictor
from tests.support.finetuning import parse

_IN_BATCH = dict(zip(INPUTS, ("input_ids", "input_mask", "segment_ids"), strict=True))


def answers_of(
    predictor: Predictor, number: int, rows: Sequence[dict[str, Any]], made: Exportable, run: IdsToOutputs | None = None
) -> list[dict[str, Any]]:
    """Answers of the task of this number to rows, by what a file says, or by the model itself."""
    task = predictor.tasks[number]
    split = parse(task, rows, "rows")

    def outputs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert run is not None
        given = {name: batch[_IN_BATCH[name]] for name in INPUTS}
        for name in made.inputs[len(INPUTS) :]:
            given[name] = batch.get(f"{task.name}/{name}", np.zeros_like(batch["input_ids"]))
        start = f"{task.name}."
        return {name.removeprefix(start): value for name, value in run(given).items() if name.startswith(start)}

    return task.answers(split, predictor.predictions(number, split, outputs if run else None))


def largest_difference(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> float:
    """The largest `distance` of numbers in answers; infinite for other texts, or another number of them."""
    differences = [0.0]
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        leaves = tf.nest.flatten(one), tf.nest.flatten(other)
        if len(leaves[0]) != len(leaves[1]):
            return np.inf
        for a, b in zip(*leaves, strict=True):
            is_number = isinstance(a, float) and isinstance(b, float)
            differences.append(distance(np.array(a), np.array(b)) if is_number else (0.0 if a == b else np.inf))
    return max(differences)


def program_of_card(folder: Path) -> str:
    """The program in a folder's card, with the folder's path."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    return program.replace(FOLDER, str(folder))


def printed_by_card(folder: Path, python: str = sys.executable, before: str = "") -> list[str]:
    """Runs the program in a folder's card, and returns the lines that it prints.

    Args:
      python: the interpreter. before: lines to run first.
    """
    program = before + program_of_card(folder)
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([python, "-c", program], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{program}\n{done.stderr}"
    return done.stdout.splitlines()
