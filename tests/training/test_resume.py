"""A run that is killed, anywhere, goes on as if nothing had happened; SIGTERM saves first; runs are never mixed."""

import json
import signal

import numpy as np

from electra_tf2.formats.stored_weights import TensorFlowCheckpoint
from tests.support import training as support
from tests.support.programs import run_forked

STEPS = 12


def run(folder, name, step=0, number=0):
    """A run of BERT, sent a signal when it reports a step, if one is given; its exit code and output."""
    own = {"model_name": name, "num_train_steps": STEPS, "save_checkpoints_steps": 3, "electra_objective": False}
    hparams = support.hparams(folder, **own, optimizer="muon", ema_decay=0.9)  # AdamW updates what is no kernel
    return run_forked(["run_pretraining.py", "--hparams", json.dumps(hparams)], folder / "output", step, number)


def test_killed_and_stopped_by_sigterm_which_saves_the_losses_are_the_same(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords")
    for step, number in ((5, signal.SIGKILL), (8, signal.SIGTERM)):
        code, output = run(tmp_path, "killed", step, number)
        if number == signal.SIGKILL:
            assert code == -signal.SIGKILL, output
        else:
            assert code == 128 + signal.SIGTERM and "SIGTERM: saved" in output and "Traceback" not in output, output
    code, output = run(tmp_path, "killed")
    assert code == 0 and "resuming" in output, output
    code, output = run(tmp_path, "whole")
    assert code == 0, output
    killed, whole = (tmp_path / "models" / name for name in ("killed", "whole"))
    assert [line["step"] for line in support.logged(whole)] == list(range(1, STEPS + 1))
    assert support.logged(killed) == support.logged(whole)
    found, expected = (TensorFlowCheckpoint(str(folder / f"model.ckpt-{STEPS}")) for folder in (killed, whole))
    assert found.keys() == expected.keys()
    assert any(name.endswith("/average") for name in found)
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
