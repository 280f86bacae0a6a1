"""A run that is killed, anywhere, goes on as if nothing had happened; SIGTERM saves first; runs are never mixed."""

import json
import random
import signal

import pytest

from tests import training_support as support
from tests.programs import run_forked, run_program

STEPS = 24


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    return folder


def settings(data_dir, name):
    return support.hparams(data_dir, model_name=name, num_train_steps=STEPS, save_checkpoints_steps=5)


def run(folder, name, step=0, number=0):
    """A run, sent a signal when it reports a step, if one is given; its exit code and output."""
    words = ["run_pretraining.py", "--hparams", json.dumps(settings(folder, name))]
    return run_forked(words, folder / "output", step, number)


@pytest.fixture(scope="module")
def uninterrupted(data_dir):
    code, output = run(data_dir, "uninterrupted")
    assert code == 0, output
    lines = support.logged(data_dir / "models" / "uninterrupted")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    return lines


def test_killed_three_times_and_stopped_by_sigterm_which_saves_the_losses_are_the_same(data_dir, uninterrupted):
    signals = [(step, signal.SIGKILL) for step in random.Random(0).sample(range(2, STEPS), 3)]
    for step, number in sorted([*signals, (7, signal.SIGTERM)]):
        code, output = run(data_dir, "killed", step, number)
        if number == signal.SIGKILL:
            assert code == -signal.SIGKILL, output
        else:
            assert code == 128 + signal.SIGTERM and "SIGTERM: saved" in output and "Traceback" not in output, output
    code, output = run(data_dir, "killed")
    assert code == 0 and "resuming" in output, output
    assert support.logged(data_dir / "models" / "killed") == uninterrupted


def test_other_hparams_are_refused_in_the_same_folder(data_dir, uninterrupted):
    changed = settings(data_dir, "uninterrupted") | {"learning_rate": 0.5}
    code, _, errors = run_program("run_pretraining.py", "--hparams", json.dumps(changed))
    assert code == 2 and "learning_rate was 0.002, is 0.5" in errors
    saved = json.loads((data_dir / "models" / "uninterrupted" / "config.json").read_text())
    assert saved["learning_rate"] == 0.002
