"""How many steps of pre-training fit into the demo's minutes, on machines of any speed."""

from pathlib import Path

import pytest

from demo import plan


def test_a_fast_machine_takes_all_steps_and_a_slow_one_as_many_as_are_worth_looking_at() -> None:
    assert plan.steps_that_fit(seconds_left=300, seconds_of_finetuning=20) == plan.MOST_STEPS
    assert plan.steps_that_fit(seconds_left=-100, seconds_of_finetuning=400) == plan.FEWEST_STEPS


@pytest.mark.parametrize("seconds_left", [195, 200, 205])
def test_steps_take_no_more_than_is_left_and_a_hundred_more_would(seconds_left: float) -> None:
    finetuning = 70.0
    steps = plan.steps_that_fit(seconds_left, finetuning)
    assert plan.FEWEST_STEPS < steps < plan.MOST_STEPS
    needed = finetuning * (plan.REST + plan.STEP * steps)
    assert needed <= seconds_left < needed + 100 * finetuning * plan.STEP


def test_a_demo_that_goes_on_keeps_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "demo_data" / "plan.json"
    assert plan.read_steps(path) is None
    plan.write_steps(path, 400)
    assert plan.read_steps(path) == 400
