"""Plans what the demo trains in its minutes on this machine: measured in two seconds, corrected once something has run.

The demo's parts were timed on two cores of an AMD EPYC (AVX2, float32) whose products of matrices were measured at the
same time. Their product is a part's work, in GFLOP of that measure; divided by another machine's speed it is the time
there, roughly: seconds of start-up and of reading depend on other things. So the plan is made anew from the time that
is left, once a model has been trained.
"""

import dataclasses
import json
import time
from pathlib import Path

import numpy as np

MINUTES = 6.0
MOST_EPOCHS, FEWEST_EPOCHS = 10, 6  # of fine-tuning: after two, even a good model is below the bag of words
MOST_STEPS, FEWEST_STEPS = 600, 100  # of pre-training
MOST_TEXT, LEAST_TEXT = 6_000_000, 2_000_000  # bytes
# Work, in GFLOP.
DATA = 2000.0  # of all text
EPOCH = 920.0  # of fine-tuning the shipped model's network
TINY_EPOCH = 115.0
STEP = 26.0  # of pre-training the small model
START = 800.0  # of a command that trains: imports, compilation, evaluation


@dataclasses.dataclass(frozen=True)
class Plan:
    """Amounts that the demo trains.

    epochs: of every fine-tuning, so that models are compared alike. steps: of pre-training. text: bytes of it.
    random_weights: whether the shipped model's network learns the task from random weights, too.
    """

    epochs: int
    steps: int
    text: int
    random_weights: bool

    def __str__(self) -> str:
        if self == FULL:
            return f"everything: {MOST_EPOCHS} epochs of fine-tuning, {MOST_STEPS} steps of pre-training"
        if dataclasses.replace(self, random_weights=True) == FULL:
            return "everything but the comparison with random weights"
        return (
            f"{self.epochs} epochs of fine-tuning in place of {MOST_EPOCHS}, {self.steps} steps of pre-training in "
            f"place of {MOST_STEPS}, on {self.text / 1e6:.1f} MB of text, without the comparison with random weights"
        )


FULL = Plan(MOST_EPOCHS, MOST_STEPS, MOST_TEXT, random_weights=True)


def measured_speed(seconds: float = 2.0) -> float:
    """Measures products of float32 on all cores, in GFLOP/s."""
    x, y = np.ones((2048, 256), np.float32), np.ones((256, 1024), np.float32)
    x @ y  # starts the threads
    products = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        x @ y
        products += 1
    flops = products * 2.0 * 2048 * 256 * 1024
    return flops / (time.monotonic() - start) / 1e9


def work_of(plan: Plan) -> float:
    """GFLOP of a whole demo: text and records, the shipped model and its network from random weights, the small one."""
    data = DATA * plan.text / MOST_TEXT
    shipped = START + EPOCH * plan.epochs
    if plan.random_weights:
        shipped *= 2
    small = 3 * START + STEP * plan.steps + TINY_EPOCH * plan.epochs
    return data + shipped + small


def what_fits(speed: float, seconds: float = 60 * MINUTES) -> Plan:
    """The largest share of everything that takes no more time; at least what is worth looking at."""
    if work_of(FULL) / speed <= seconds:
        return FULL
    for percent in range(100, 0, -1):
        plan = share_of_everything(percent / 100)
        if work_of(plan) / speed <= seconds:
            return plan
    return share_of_everything(0.0)


def share_of_everything(share: float) -> Plan:
    epochs = max(FEWEST_EPOCHS, round(share * MOST_EPOCHS))
    steps = max(FEWEST_STEPS, round(share * MOST_STEPS, -1))
    text = max(LEAST_TEXT, round(share * MOST_TEXT))
    return Plan(epochs, int(steps), text, random_weights=False)


def with_steps_for(plan: Plan, speed: float, seconds: float) -> Plan:
    """The plan with as many steps of pre-training as fit into the seconds that are left once the first model has been
    trained, at the speed that it had. Epochs stay, since models are compared."""
    rest = dataclasses.replace(plan, steps=0, text=0)
    work_left = work_of(rest) - START - EPOCH * plan.epochs
    steps = int((seconds * speed - work_left) / STEP)
    steps = min(MOST_STEPS, max(FEWEST_STEPS, steps // 10 * 10))
    return dataclasses.replace(plan, steps=steps)


def read_plan(path: Path) -> Plan | None:
    """The plan of a demo that was begun and goes on; None if there is none."""
    if not path.exists():
        return None
    return Plan(**json.loads(path.read_text(encoding="utf-8")))


def write_plan(path: Path, plan: Plan) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dataclasses.asdict(plan)) + "\n", encoding="utf-8")
