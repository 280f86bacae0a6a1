"""How many steps of pre-training fit into the demo's minutes, by what its first fine-tuning took on this machine.

Every other part of the demo is small and has a fixed size. The shares below are of the time of that first fine-tuning,
its start included, as processor time had them on an AMD EPYC (AVX2, float32); machines differ in them, but far less
than in speed.
"""

import json
from pathlib import Path

MINUTES = 6.0
MOST_STEPS = 600
FEWEST_STEPS = 300  # after fewer, a model hardly knows more than token frequencies
STEP = 1 / 350  # of a fine-tuning: a step of pre-training
REST = 1.6  # of a fine-tuning: everything but steps that comes after it, the second such fine-tuning first of all


def steps_that_fit(seconds_left: float, seconds_of_finetuning: float) -> int:
    """Steps of pre-training, in hundreds."""
    for_steps = seconds_left - REST * seconds_of_finetuning
    steps = for_steps / (STEP * seconds_of_finetuning)
    hundreds = int(steps // 100) * 100
    return min(MOST_STEPS, max(FEWEST_STEPS, hundreds))


def read_steps(path: Path) -> int | None:
    """The steps of a demo that was begun and goes on; None if there is none."""
    if not path.exists():
        return None
    return json.loads(path.read_text(encoding="utf-8"))["steps"]


def write_steps(path: Path, steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"steps": steps}) + "\n", encoding="utf-8")
