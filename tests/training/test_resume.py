"""A run that is killed, anywhere, goes on as if nothing had happened; SIGTERM saves first; runs are never mixed."""

import json
import random
import signal

import numpy as np
import pytest

from electra_tf2.formats.weights import TensorFlowCheckpoint
from tests.support import training as support
from tests.support.programs import run_forked

STEPS = 24


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    return folder


OPTIMIZERS = {"adamw": {}, "muon": {"optimizer": "muon", "ema_decay": 0.9}}


def settings(data_dir, name, optimizer="adamw"):
    own = {"model_name": f"{name}_{optimizer}", "num_train_steps": STEPS, "save_checkpoints_steps": 5}
    return support.hparams(data_dir, **own, **OPTIMIZERS[optimizer])


def run(folder, name, optimizer, step=0, number=0):
    """A run, sent a signal when it reports a step, if one is given; its exit code and output."""
    words = ["run_pretraining.py", "--hparams", json.dumps(settings(folder, name, optimizer))]
    return run_forked(words, folder / "output", step, number)


@pytest.fixture(scope="module", params=OPTIMIZERS)
def uninterrupted(data_dir, request):
    """An optimizer and what a run with it logs."""
    code, output = run(data_dir, "uninterrupted", request.param)
    assert code == 0, output
    lines = support.logged(data_dir / "models" / f"uninterrupted_{request.param}")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    return request.param, lines


def test_killed_three_times_and_stopped_by_sigterm_which_saves_the_losses_are_the_same(data_dir, uninterrupted):
    optimizer, lines = uninterrupted
    signals = [(step, signal.SIGKILL) for step in random.Random(0).sample(range(2, STEPS), 3)]
    for step, number in sorted([*signals, (7, signal.SIGTERM)]):
        code, output = run(data_dir, "killed", optimizer, step, number)
        if number == signal.SIGKILL:
            assert code == -signal.SIGKILL, output
        else:
            assert code == 128 + signal.SIGTERM and "SIGTERM: saved" in output and "Traceback" not in output, output
    code, output = run(data_dir, "killed", optimizer)
    assert code == 0 and "resuming" in output, output
    killed, whole = (data_dir / "models" / f"{name}_{optimizer}" for name in ("killed", "uninterrupted"))
    assert support.logged(killed) == lines
    found, expected = (TensorFlowCheckpoint(str(folder / f"model.ckpt-{STEPS}")) for folder in (killed, whole))
    assert found.keys() == expected.keys()
    assert any(name.endswith("/average") for name in found) == (optimizer == "muon")
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
