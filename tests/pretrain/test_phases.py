"""Phases: what may change in the course of a run, and a run whose sequences become longer."""

import json

import pytest

from electra_tf2.configure_pretraining import PretrainingConfig, phases_of
from electra_tf2.model import kernels
from electra_tf2.pretrain.flops import training_flops, training_flops_per_example
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.support.programs import run_program


@pytest.fixture(autouse=True)
def plain():
    """Formulas run themselves: nothing is compiled for seconds."""
    with kernels.off():
        yield


def config(tmp_path, **overrides):
    return PretrainingConfig.from_dict(support.hparams(tmp_path, num_train_steps=100, **overrides))


def test_changes_add_up_and_everything_else_goes_on(tmp_path):
    changes = [{"from": 0.5, "hidden_dropout_prob": 0.05}, {"from": 0.9, "max_seq_length": 64, "train_batch_size": 4}]
    whole = config(tmp_path, phases=changes)
    first, second, third = phases_of(whole)
    assert [(phase.start, phase.end) for phase in (first, second, third)] == [(0, 50), (50, 90), (90, 100)]
    assert first.config == whole and second.config.max_seq_length == support.LENGTH
    assert second.config.architecture.hidden_dropout_prob == third.config.architecture.hidden_dropout_prob == 0.05
    assert second.config.architecture.hidden_size == whole.architecture.hidden_size
    assert third.config.max_predictions_per_seq == int(0.155 * 64) > whole.max_predictions_per_seq
    assert third.config.train_batch_size == 4 and third.config.num_train_steps == 100
    assert [phase.config for phase in phases_of(config(tmp_path))] == [config(tmp_path)]
    assert [phase.examples_before for phase in (first, second, third)] == [0, 50 * 8, 90 * 8]
    growing = [{"from": 0.2, "train_batch_size": 4}, {"from": 0.6, "train_batch_size": 16}]
    counted = [phase.examples_before for phase in phases_of(config(tmp_path, phases=growing))]
    assert counted == [0, 20 * 8, 20 * 8 + 40 * 4]
    of_each = [training_flops_per_example(phase.config) for phase in (first, third)]
    assert training_flops(whole) == 90 * 8 * of_each[0] + 10 * 4 * of_each[1]


def test_a_number_of_predictions_that_was_given_stays(tmp_path):
    changes = [{"from": 0.5, "hidden_dropout_prob": 0.05}, {"from": 0.9, "max_seq_length": 64}]
    phases = phases_of(config(tmp_path, phases=changes, max_predictions_per_seq=5))
    assert [phase.config.max_predictions_per_seq for phase in phases] == [5, 5, 5]
    changes[1]["max_predictions_per_seq"] = 7
    assert [phase.config.max_predictions_per_seq for phase in phases_of(config(tmp_path, phases=changes))] == [2, 2, 7]


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([{"max_seq_length": 64}], 'objects with a share "from"'),
        ([{"from": 0.5, "learning_rate": 1.0}], "learning_rate cannot change"),
        ([{"from": 0.5, "max_seq_len": 64}], "did you mean 'max_seq_length'"),
        ([{"from": 0.9}, {"from": 0.5}], '"from" must rise between 0 and 1, got 0.5'),
        ([{"from": 1.5}], "must rise"),
        ([{"from": 0.5, "max_seq_length": 4096}], "4096"),
    ],
)
def test_what_cannot_change_is_refused(tmp_path, phases, message):
    with pytest.raises(UserError, match=message):
        config(tmp_path, phases=phases)


def run(settings, *words):
    return run_program("run_pretraining.py", "--hparams", json.dumps(settings), *words)


def test_sequences_become_longer(tmp_path, monkeypatch):
    support.write_records(tmp_path / "pretrain_tfrecords")
    short = support.hparams(tmp_path, num_train_steps=4, save_checkpoints_steps=10, electra_objective=False)
    with monkeypatch.context() as patched:
        patched.setattr(support, "LENGTH", 24)
        support.write_records(tmp_path / "long")
    long = {"from": 0.5, "max_seq_length": 24, "pretrain_tfrecords": str(tmp_path / "long" / "pretrain_data*")}
    long |= {"hidden_dropout_prob": 0.0, "eval_tfrecords": str(tmp_path / "long" / "pretrain_data*")}
    settings = short | {"phases": [long]}
    dry = run(settings, "--dry-run")
    assert dry.stdout.count("2 steps would take") == 2, dry.stdout + dry.stderr
    done = run(settings, "--do-eval")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "phase 1 of 2: steps 0 to 2" in done.stdout and "phase 2 of 2: steps 2 to 4" in done.stdout
    assert "sequences of 16 tokens" in done.stdout and "sequences of 24 tokens" in done.stdout
    folder = tmp_path / "models" / "test"
    assert [row["step"] for row in support.logged(folder)] == [1, 2, 3, 4]
    assert json.loads((folder / "config.json").read_text())["max_seq_length"] == 16
    assert json.loads((folder / "results" / "unsup_results.json").read_text())["step"] == 4
    longer = run(settings | {"num_train_steps": 8})
    assert longer.returncode == 2 and "num_train_steps was 4, is 8" in longer.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pretrain_tfrecords": "/nowhere/*"}, "no file matches '/nowhere/*'"),
        ({"max_seq_length": 24}, "record 1 has length 16, but max_seq_length is 24"),
        ({"gradient_accumulation_steps": 4, "train_batch_size": 6}, "train_batch_size 6 is not divisible"),
        ({"eval_tfrecords": "{run}/dev*"}, "--overwrite would rename eval_tfrecords"),
    ],
)
def test_a_later_phase_is_checked_before_the_first_begins(tmp_path, change, message):
    support.write_records(tmp_path / "pretrain_tfrecords")
    folder = tmp_path / "models" / "test"
    change = {name: value.format(run=folder) if isinstance(value, str) else value for name, value in change.items()}
    done = run(support.hparams(tmp_path, num_train_steps=4, phases=[{"from": 0.5} | change], overwrite=True))
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not folder.exists()


def test_a_phase_goes_on_where_the_last_ended_and_after_a_bad_checkpoint_at_the_border(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords")
    folder = tmp_path / "models" / "test"
    settings = support.hparams(tmp_path, electra_objective=False, num_train_steps=6, save_checkpoints_steps=1)
    settings["phases"] = [{"from": 0.5, "train_batch_size": 4}]

    def trained(*words):
        done = run(settings, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr, support.logged(folder)

    def killed_after(last):
        for step in range(last + 1, 7):
            for path in folder.glob(f"model.ckpt-{step}.*"):
                path.unlink()

    _, whole = trained()
    killed_after(4)  # in the second phase
    output, rows = trained()
    assert rows == whole and "phase 1" not in output and "at step 4" in output
    killed_after(3)
    output, _ = trained("--no-do-train", "--do-eval")
    assert "phase 1 of 2" in output and "evaluation at step 3" in output and "phase 2" not in output
    data = folder / "model.ckpt-3.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:50])
    output, rows = trained()
    assert rows == whole and "phase 1 of 2" in output and "Going on from step 2" in output
