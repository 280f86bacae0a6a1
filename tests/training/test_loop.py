"""Signals, interrupted evaluations and non-finite losses: a run that goes on ends as one that was left alone."""

import json
import os
import re
import signal

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.training import loop, reporting, run_folder
from electra_tf2.training.device_loop import DeviceLoop
from electra_tf2.training.loop import LoopSchedule, Trainer
from electra_tf2.util.errors import UserError
from tests.support import toy
from tests.support.training import logged


def evaluator(runner_of):
    """A score that is best in the middle of the run, from the weights alone."""
    return lambda: {"score": -abs(float(runner_of[0].task.model.weight[0].numpy()) - 0.35)}


def scored(folder, evaluate=None, **schedule):
    """A trainer that evaluates every 4 steps and keeps the best."""
    found: list[Trainer] = []
    runner = toy.trainer(folder, evaluate or evaluator(found), eval_every_steps=4, **schedule)
    found.append(runner)
    return runner


@pytest.fixture(autouse=True)
def hangup_as_a_shell_leaves_it():
    """A SIGHUP ends a process, also where the tests themselves run under nohup."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, inherited)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert scored(folder).train() == 0
    return folder


def test_the_rate_that_is_logged_is_that_of_the_last_update(undisturbed):
    lines = logged(undisturbed)
    rates = [0.1 * (1 - (line["step"] - 1) / 100) for line in lines]  # the schedule of toy.py, counted from 0
    assert len(lines) > 1 and [line["learning_rate"] for line in lines] == pytest.approx(rates, rel=1e-6)


def contents(folder):
    """Lines that a run printed and files that it kept, but for the time that it took."""
    evaluations = {path.name: json.loads(path.read_text()) for path in (folder / "eval").iterdir()}
    best = json.loads((folder / "best" / "best.json").read_text())
    files = sorted(path.name for path in folder.glob("**/*") if path.is_file() and "events" not in path.name)
    return logged(folder), evaluations, best, files


def test_a_step_s_data_begins_where_earlier_phases_and_steps_have_stopped_reading():
    schedule = LoopSchedule(20, 5, 10, 3, eval_every_steps=0, num_eval_steps=1, examples_per_step=4)
    assert [schedule.position(step) for step in (0, 1, 7)] == [0, 4, 28]
    second_phase = schedule._replace(first_step=10, examples_before=80)
    assert [second_phase.position(step) for step in (10, 11, 17)] == [80, 84, 108]


def in_whole_intervals(lines, length):
    """Means over intervals of `length` steps, of lines that may hold a part of an interval each."""
    sums: dict[int, dict[str, float]] = {}
    before = 0
    for line in lines:
        end = -(-line["step"] // length) * length
        interval = sums.setdefault(end, {})
        for name, mean in line.items():
            interval[name] = interval.get(name, 0.0) + mean * (line["step"] - before)
        # The rate is that of the interval's last step, not a mean.
        interval |= {"step": line["step"], "learning_rate": line["learning_rate"]}
        before = line["step"]
    return list(sums.values())


@pytest.mark.parametrize(
    ("step", "number"),
    [(2, signal.SIGTERM), (10, signal.SIGINT), (13, signal.SIGUSR1), (20, signal.SIGTERM), (5, signal.SIGHUP)],
)
def test_a_signal_saves_within_a_long_loop_and_the_metrics_are_those_of_an_undisturbed_run(
    tmp_path, monkeypatch, capsys, step, number
):
    assert toy.trainer(tmp_path / "whole", iterations_per_loop=10).train() == 0
    monkeypatch.setattr(loop.Pace, "took", lambda pace, seconds: setattr(pace, "_calls", pace._calls + 1))  # by ones
    runner = toy.trainer(tmp_path / "stopped", iterations_per_loop=10)
    toy.before(runner, "_check_finite", toy.at_step(runner, step, lambda: os.kill(os.getpid(), number)))
    previous = signal.getsignal(number)
    assert runner.train() == 128 + number
    assert signal.getsignal(number) == previous
    told = capsys.readouterr().out
    assert f"{number.name}: saving step {step}\n" in told
    assert f"{number.name}: saved {tmp_path / 'stopped'} at step {step}. {run_folder.GO_ON}." in told
    again = toy.trainer(tmp_path / "stopped", iterations_per_loop=10)
    assert again.restore() == step and again.train() == 0
    expected = [pytest.approx(line, rel=1e-5) for line in in_whole_intervals(logged(tmp_path / "whole"), 10)]
    assert in_whole_intervals(logged(tmp_path / "stopped"), 10) == expected


def test_a_run_under_nohup_survives_its_terminal(tmp_path):
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        runner = toy.trainer(tmp_path)
        toy.before(runner, "_check_finite", toy.at_step(runner, 2, lambda: os.kill(os.getpid(), signal.SIGHUP)))
        assert runner.train() == 0
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_tensorboard_has_no_step_twice_after_a_kill(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = reporting.Reporter(tmp_path, chief=True)
    for step in (10, 20, 30):
        first._write_events(step, {"train/loss": float(step)})
    first.close()
    again = reporting.Reporter(tmp_path, chief=True)
    again.resume(20)
    again._write_events(30, {"train/loss": 1.0})
    again.close()
    events = accumulator.EventAccumulator(str(tmp_path / "events"), size_guidance={"tensors": 0})
    events.Reload()
    assert [event.step for event in events.Tensors("train/loss")] == [10, 20, 30]


def test_calls_of_the_device_are_as_long_as_a_signal_may_wait():
    pace = loop.Pace()
    lengths = []
    for seconds in (60.0, 0.1, 0.1, 0.1, 0.5, 3.0):  # the first one compiles
        pace.took(seconds)
        lengths.append(pace.steps)
    assert lengths == [1, 10, 20, 20, 4, 1]


def test_how_long_a_training_takes_is_told_early(tmp_path, capsys, monkeypatch):
    pace = loop.Pace()
    told = []
    for seconds in (60.0, 2.0, 30.0, 3.0, 4.0):  # the first one compiles, and the third, of another length
        pace.took(seconds)
        told.append(pace.first_seconds)
    assert told == [None, None, None, 3.0, None]
    monkeypatch.setattr(loop, "TOLD_SECONDS", 0.0)
    assert toy.trainer(tmp_path, iterations_per_loop=1).train() == 0
    output = capsys.readouterr().out
    assert re.findall(r"^time +about \d+ s for (\d+) more steps, without evaluations$", output, re.M) == ["16"]


def test_a_longer_loop_changes_nothing_and_traces_a_step_once(tmp_path, capsys):
    told: list[object] = []
    losses: list[list[float]] = []
    for length in (1, 5):
        runner = toy.trainer(tmp_path / str(length), iterations_per_loop=length)
        toy.before(runner.task, "train_step", lambda *_: told.append("traced"))
        assert runner.train() == 0
        losses.append([line["loss"] for line in logged(tmp_path / str(length))])
        told.append(float(capsys.readouterr().out.split("first loss")[1].split()[0]))
    assert told == ["traced", pytest.approx(losses[0][0], abs=0.01)] * 2
    assert losses[1] == pytest.approx(np.reshape(losses[0], [4, 5]).mean(1), rel=1e-5)


class Killed(BaseException):
    """As SIGKILL: nobody tidies up."""


def kill():
    raise Killed


@pytest.mark.parametrize("step", [4, 20])
def test_an_evaluation_that_a_kill_prevented_is_made_up_for(tmp_path, undisturbed, step):
    runner = scored(tmp_path, save_checkpoints_steps=4)
    toy.before(runner, "_evaluate", toy.at_step(runner, step, kill))
    with pytest.raises(Killed):
        runner.train()
    again = scored(tmp_path)
    assert again.restore() == step and again.train() == 0
    found, expected = contents(tmp_path), contents(undisturbed)
    assert found[1:3] == expected[1:3]
    assert again.checkpoints.restore_best() == expected[2]["step"]


def test_a_kill_between_the_best_checkpoint_and_the_evaluations_file_changes_nothing(tmp_path, undisturbed):
    runner = scored(tmp_path, save_checkpoints_steps=4)
    toy.before(runner.reporter, "evaluation", toy.at_step(runner, 8, kill))
    with pytest.raises(Killed):
        runner.train()
    again = scored(tmp_path)
    assert again.restore() == 8 and again.train() == 0
    assert contents(tmp_path)[1:3] == contents(undisturbed)[1:3]


def test_a_run_that_goes_on_makes_no_evaluation_a_second_time(tmp_path):
    evaluated: list[int] = []

    def train(steps):
        runner = scored(tmp_path, num_train_steps=steps, save_checkpoints_steps=4)
        toy.before(runner, "_evaluate", lambda: evaluated.append(runner.current_step))
        runner.restore()
        assert runner.train() == 0

    train(8)
    train(12)
    assert evaluated == [4, 8, 12]


def test_a_signal_during_an_evaluation_saves_the_weights_not_their_averages(tmp_path, undisturbed):
    whole, stopped = (scored(tmp_path / name, ema_decay=0.9) for name in ("whole", "stopped"))
    assert whole.train() == 0
    toy.before(stopped, "_evaluate", toy.at_step(stopped, 12, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert stopped.train() == 128 + signal.SIGTERM
    again = scored(tmp_path / "stopped", ema_decay=0.9)
    # The evaluation ends, and with it the call of steps that comes next.
    assert 12 < again.restore() <= 16 and again.train() == 0
    evaluations, best = contents(tmp_path / "stopped")[1:3]
    assert (evaluations, best) == contents(tmp_path / "whole")[1:3]
    assert evaluations != contents(undisturbed)[1]
    np.testing.assert_array_equal(again.task.model.weight.numpy(), whole.task.model.weight.numpy())
    step, average = again.checkpoints.restore_best(), again.task.model.weight.numpy()
    assert -abs(float(average[0]) - 0.35) == pytest.approx(evaluations[f"step-{step}.json"]["score"])


@pytest.mark.parametrize(
    ("bad", "every", "error", "goes_on_from"),
    [
        ({"bad_at": 13}, 10, r"step 13: loss\..*ckpt-10\. To go on from there", 10),
        ({"bad_gradient_at": 4, "iterations_per_loop": 1}, 2, r"step 4: gradient_norm\..*model\.ckpt-2\.", 2),
        # Although all is bad at the end of the loop.
        ({"bad_gradient_at": 3, "iterations_per_loop": 10}, 10, r"step 3: gradient_norm\. .*none was saved yet", 0),
    ],
)
def test_a_run_that_was_not_finite_goes_on_from_its_last_checkpoint(tmp_path, bad, every, error, goes_on_from):
    with pytest.raises(UserError, match=rf"not finite at {error}"):
        toy.trainer(tmp_path, **bad, save_checkpoints_steps=every).train()
    again = toy.trainer(tmp_path)
    assert again.restore() == goes_on_from and np.isfinite(again.task.model.weight).all() and again.train() == 0
    assert [line["step"] for line in logged(tmp_path)][-2:] == [15, 20]
    assert np.isfinite([line["loss"] for line in logged(tmp_path)]).all()


def test_a_checkpoint_whose_next_step_is_not_finite_may_be_ruined_and_the_message_names_the_way_out(tmp_path):
    with pytest.raises(UserError, match=r"not finite at step 11: .*ckpt-10\. .* delete \S*model\.ckpt-10\.\*, so that"):
        toy.trainer(tmp_path, bad_at=11, save_checkpoints_steps=5).train()
    for path in tmp_path.glob("model.ckpt-10.*"):
        path.unlink()
    assert toy.trainer(tmp_path).restore() == 5


def test_float16_that_overflows_at_the_smallest_scale_stops(tmp_path):
    runner = toy.trainer(tmp_path, bad_gradient_at=2, precision="float16")
    runner.task.loss_scale.scale.assign(1.0)
    with pytest.raises(UserError, match=r"not finite at step 2: gradient_norm\."):
        runner.train()


def test_a_lack_of_memory_says_what_to_lower(tmp_path, monkeypatch):
    def exhausted(*args):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    with pytest.raises(UserError, match="out of memory in an evaluation: lower eval_batch_size"):
        scored(tmp_path, exhausted).train()
    monkeypatch.setattr(DeviceLoop, "run", exhausted)
    with pytest.raises(UserError, match="lower train_batch_size"):
        toy.trainer(tmp_path).train()


def test_less_than_one_step_is_one_line(tmp_path):
    with pytest.raises(UserError, match="less than one step to train"):
        toy.trainer(tmp_path, num_train_steps=0).train()
    assert not list(tmp_path.iterdir())


def test_evaluations_are_in_tensorboard(undisturbed):
    from tensorflow.python.summary.summary_iterator import summary_iterator

    tags = {
        value.tag
        for path in (undisturbed / "events").iterdir()
        for event in summary_iterator(str(path))
        for value in event.summary.value
    }
    of_training = {"train/loss", "train/gradient_norm", "train/low", "learning_rate", "examples_per_second"}
    assert tags == of_training | {"eval/score"}


def test_of_losses_that_are_sums_the_mean_is_told(tmp_path, capsys):
    told, norms = {}, {}
    for examples in (1, 4):
        runner = toy.trainer(tmp_path / str(examples))
        runner.task.summed_examples = examples
        assert runner.train() == 0
        first = float(capsys.readouterr().out.split("first loss")[1].split()[0])
        told[examples] = [first, *(line["loss"] for line in logged(tmp_path / str(examples)))]
        norms[examples] = [line["gradient_norm"] for line in logged(tmp_path / str(examples))]
    assert told[1] == pytest.approx([4 * loss for loss in told[4]], abs=0.02)
    assert norms[1] == norms[4]


def test_an_evaluator_leaves_the_metrics_of_a_run_alone_and_a_resumed_run_trims_them(tmp_path):
    every = {"iterations_per_loop": 1, "save_checkpoints_steps": 4}
    toy.trainer(tmp_path, num_train_steps=4, **every).train()
    steps = [line["step"] for line in logged(tmp_path)]
    with open(tmp_path / "train_metrics.jsonl", "a") as file:  # of steps after the checkpoint; the last is half-written
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    whole = (tmp_path / "train_metrics.jsonl").read_text()
    evaluated = scored(tmp_path, num_train_steps=4)
    evaluated.restore()
    evaluated.evaluate()
    assert (tmp_path / "train_metrics.jsonl").read_text() == whole
    resumed = toy.trainer(tmp_path, num_train_steps=6, **every)
    resumed.restore()
    resumed.train()
    assert [line["step"] for line in logged(tmp_path)] == [*steps, 5, 6]


def test_timing_saves_nothing(tmp_path):
    loss, seconds = toy.trainer(tmp_path / "model").time_steps(1, 2)
    assert np.isfinite(loss) and seconds > 0
    assert not (tmp_path / "model").exists()


def test_the_loss_of_a_dry_run_is_the_mean_over_its_timed_steps(tmp_path):
    assert toy.trainer(tmp_path / "trained", num_train_steps=3, iterations_per_loop=1).train() == 0
    losses = [line["loss"] for line in logged(tmp_path / "trained")]
    loss, _ = toy.trainer(tmp_path / "timed").time_steps(warm_up=1, steps=2)
    assert len(losses) == 3 and loss == pytest.approx(np.mean(losses[1:]), rel=1e-5)


@pytest.mark.parametrize(("first", "then"), [("float32", "float16"), ("float16", "bfloat16")])
def test_a_run_goes_on_in_another_precision(tmp_path, first, then):
    assert toy.trainer(tmp_path, precision=first, num_train_steps=10).train() == 0
    again = toy.trainer(tmp_path, precision=then)
    assert again.restore() == 10 and again.train() == 0
    assert np.isfinite([line["loss"] for line in logged(tmp_path)]).all()
