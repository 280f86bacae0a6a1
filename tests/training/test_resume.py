"""A run that is killed, anywhere, goes on as if nothing had happened; SIGTERM saves first; runs are never mixed."""

import json
import random
import signal

import pytest

from tests import training_support as support

STEPS = 24


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    return folder


def settings(data_dir, name):
    return support.hparams(data_dir, model_name=name, num_train_steps=STEPS, save_checkpoints_steps=5)


def stop_at(process, step, number):
    """Sends a signal when the process reports a step; returns its exit code and output."""
    output = []
    for line in process.stdout:
        output.append(line)
        if line.startswith(f"step {step}/"):
            process.send_signal(number)
            break
    rest, errors = process.communicate()
    return process.returncode, "".join(output) + rest + errors


@pytest.fixture(scope="module")
def uninterrupted(data_dir):
    process = support.start(**settings(data_dir, "uninterrupted"))
    output, errors = process.communicate()
    assert process.returncode == 0, output + errors
    lines = support.logged(data_dir / "models" / "uninterrupted")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    return lines


def test_killed_five_times_the_losses_are_the_same(data_dir, uninterrupted):
    steps = sorted(random.Random(0).sample(range(2, STEPS), 5))
    for step in steps:
        code, output = stop_at(support.start(**settings(data_dir, "killed")), step, signal.SIGKILL)
        assert code == -signal.SIGKILL, output
    process = support.start(**settings(data_dir, "killed"))
    output, errors = process.communicate()
    assert process.returncode == 0 and "resuming" in output, output + errors
    assert support.logged(data_dir / "models" / "killed") == uninterrupted


def test_sigterm_saves_and_the_run_goes_on(data_dir, uninterrupted):
    code, output = stop_at(support.start(**settings(data_dir, "stopped")), 7, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM and "SIGTERM: saved" in output and "Traceback" not in output
    process = support.start(**settings(data_dir, "stopped"))
    output, errors = process.communicate()
    assert process.returncode == 0 and "resuming" in output, output + errors
    assert support.logged(data_dir / "models" / "stopped") == uninterrupted


def test_other_hparams_are_refused_in_the_same_folder(data_dir, uninterrupted):
    process = support.start(**settings(data_dir, "uninterrupted") | {"learning_rate": 0.5})
    _, errors = process.communicate()
    assert process.returncode == 2 and "learning_rate was 0.002, is 0.5" in errors
    assert "Traceback" not in errors
    saved = json.loads((data_dir / "models" / "uninterrupted" / "config.json").read_text())
    assert saved["learning_rate"] == 0.002
