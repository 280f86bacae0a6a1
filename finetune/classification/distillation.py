"""Learning from the outputs of a fine-tuned teacher: what `write_distill_outputs` wrote.

The original writes a teacher's logits on the training data (write_distill_outputs) and has no program that reads them.
Here they are <teacher>/predictions/<task>_train.jsonl, probabilities or numbers beside the texts, and the loss is that
of "BAM!" (Clark et al. 2019, section 3.2) with a fixed share for the teacher.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.finetune.classification.targets import Classes, Target
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_json_lines

TEACHER = "teacher"  # of Features.labels: float32 [C] log-probabilities, or [1] the number as it is learned
_LEAST = 1e-12


def outputs_file(folder: str, task: str) -> Path:
    """File of a fine-tuned model's outputs on the training data."""
    return Path(folder) / "predictions" / f"{task}_train.jsonl"


def read_outputs(folder: str, task: str, target: Target) -> dict[tuple[str, ...], np.ndarray]:
    """Texts -> what the teacher said of them, as `TEACHER` holds it.

    Raises:
      UserError: no such file, lines that are no outputs, other labels than the student's.
    """
    path = outputs_file(folder, task)
    if not path.is_file():
        raise UserError(f"distill_from: there is no {path}: fine-tune the teacher with write_distill_outputs")
    outputs = {}
    for number, row in read_json_lines(path, "distill_from"):
        where = f"{path}, line {number}"
        texts = tuple(row[name] for name in ("text", "text1", "text2") if name in row)
        try:
            outputs[texts] = _output(row, target, where)
        except UserError:
            raise
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{where}: these are no outputs of a fine-tuned model") from None
    return outputs


def _output(row: Mapping[str, Any], target: Target, where: str) -> np.ndarray:
    if not isinstance(target, Classes):
        return np.array([target.encoded(float(row["label"]))], np.float32)
    probabilities = row["probabilities"]
    if set(probabilities) != set(target.names):
        raise UserError(f"{where}: the teacher's labels are {', '.join(probabilities)}, not {', '.join(target.names)}")
    return np.log(np.maximum([probabilities[name] for name in target.names], _LEAST)).astype(np.float32)
