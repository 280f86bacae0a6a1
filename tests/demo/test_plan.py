"""What of the demo fits into its minutes, on machines of any speed."""

import dataclasses

import pytest

from demo import plan


def test_a_fast_machine_trains_everything_and_a_slow_one_what_is_worth_looking_at():
    assert plan.what_fits(speed=1000.0) == plan.FULL
    least = plan.Plan(plan.FEWEST_EPOCHS, plan.FEWEST_STEPS, plan.LEAST_TEXT, random_weights=False)
    assert plan.what_fits(speed=1.0) == least


@pytest.mark.parametrize("speed", [40.0, 60.0, 90.0, 120.0])
def test_what_fits_takes_no_more_than_the_minutes_and_a_tenth_more_takes_longer(speed):
    fits = plan.what_fits(speed)
    more = dataclasses.replace(fits, epochs=fits.epochs + 1, steps=fits.steps + plan.MOST_STEPS // 10)
    assert plan.work_of(fits) / speed <= 60 * plan.MINUTES < plan.work_of(more) / speed


def test_a_machine_that_turns_out_slower_takes_fewer_steps_and_keeps_the_epochs():
    fits = plan.what_fits(60.0)
    as_planned = plan.with_steps_for(fits, 60.0, seconds=200.0)
    slower = plan.with_steps_for(fits, 50.0, seconds=200.0)
    assert slower.steps < as_planned.steps <= plan.MOST_STEPS and slower.epochs == fits.epochs
    assert plan.with_steps_for(fits, 1.0, seconds=0.0).steps == plan.FEWEST_STEPS


def test_a_demo_that_goes_on_keeps_its_plan(tmp_path):
    path = tmp_path / "demo_data" / "plan.json"
    assert plan.read_plan(path) is None
    fits = plan.what_fits(60.0)
    plan.write_plan(path, fits)
    assert plan.read_plan(path) == fits


def test_a_speed_is_measured():
    assert plan.measured_speed(seconds=0.01) > 0


def test_a_plan_says_what_it_leaves_out():
    assert "everything" in str(plan.FULL)
    assert str(plan.what_fits(70.0)).endswith("without the comparison with random weights")
