"""Chooses the number of pre-training steps that fit into the demo's minutes, from the time of its first fine-tuning.

Every other part of the demo has a fixed size. Their times are proportional to that of the first fine-tuning, start
included. The ratios below are of processor time on an AMD EPYC (AVX2, float32); they differ far less between machines
than speeds do.
"""

import json
from pathlib import Path

MINUTES = 6.0
MOST_STEPS = 600
FEWEST_STEPS = 300  # after fewer, a model hardly knows more than token frequencies
# Times relative to that of the first fine-tuning.
STEP = 1 / 350  # a step of pre-training
REST = 1.6  # everything after it except these steps, mostly another such fine-tuning


def steps_that_fit(seconds_left: float, seconds_of_finetuning: float) -> int:
    """Number of pre-training steps, a multiple of 100."""
    seconds_for_steps = seconds_left - REST * seconds_of_finetuning
    steps = seconds_for_steps / (STEP * seconds_of_finetuning)
    rounded = int(steps // 100) * 100
    return min(MOST_STEPS, max(FEWEST_STEPS, rounded))


def read_steps(path: Path) -> int | None:
    """The number of steps that an interrupted demo chose; None if there is no such demo."""
    if not path.exists():
        return None
    return json.loads(path.read_text(encoding="utf-8"))["steps"]


def write_steps(path: Path, steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"steps": steps}) + "\n", encoding="utf-8")
