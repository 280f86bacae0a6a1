"""Replicas and micro-batches make no difference; a non-finite loss stops a run; evaluation counts every record once."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretrain_data import find_records
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.training.loop import LoopSchedule, Trainer
from electra_tf2.util.errors import UserError
from tests.support import training as support

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    support.write_records(folder / "pretrain_tfrecords", "dev_data", examples=21, shards=1)
    return folder


def trainer(data_dir, model_dir, strategy=None, **overrides):
    settings = support.hparams(data_dir, model_dir=str(model_dir), **{"sizes": NO_DROPOUT} | overrides)
    config = PretrainingConfig.from_dict(settings)
    strategy = strategy or tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = PretrainingTask(
            config,
            strategy,
            False,
            find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords"),
            find_records(config.eval_tfrecords, config, "eval_tfrecords"),
        )
    schedule = LoopSchedule(
        config.num_train_steps,
        config.iterations_per_loop,
        config.save_checkpoints_steps,
        config.keep_checkpoint_max,
        config.eval_every_steps,
        config.num_eval_steps,
        config.train_batch_size,
    )
    return Trainer(task, strategy, schedule, config.model_dir)


def losses(model_dir):
    return np.array([[line["loss"], line["masked_lm_loss"], line["disc_loss"]] for line in support.logged(model_dir)])


@pytest.fixture(scope="module")
def one_device(data_dir, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("one")
    runner = trainer(data_dir, model_dir, num_train_steps=12)
    assert runner.train() == 0
    return losses(model_dir), runner.evaluate()


def test_two_replicas_compute_what_one_does(data_dir, tmp_path, one_device):
    loop = {"num_train_steps": 12, "iterations_per_loop": 3, "save_checkpoints_steps": 12}
    runner = trainer(data_dir, tmp_path, support.two_replicas(), **loop)
    assert runner.train() == 0
    np.testing.assert_allclose(losses(tmp_path), one_device[0].reshape(4, 3, 3).mean(1), rtol=2e-4)
    metrics = runner.evaluate()
    assert metrics.keys() == one_device[1].keys()
    for name, value in metrics.items():
        assert value == pytest.approx(one_device[1][name], rel=2e-3, abs=2e-3), name


def test_micro_batches_compute_what_one_batch_does(data_dir, tmp_path, one_device):
    runner = trainer(data_dir, tmp_path, num_train_steps=12, gradient_accumulation_steps=4)
    assert runner.train() == 0
    np.testing.assert_allclose(losses(tmp_path), one_device[0], rtol=2e-4)


def test_micro_batches_on_two_replicas_compute_what_one_batch_does(data_dir, tmp_path, one_device):
    strategy = support.two_replicas()
    assert trainer(data_dir, tmp_path, strategy, num_train_steps=12, gradient_accumulation_steps=2).train() == 0
    np.testing.assert_allclose(losses(tmp_path), one_device[0], rtol=2e-4)


def test_float16_on_two_replicas_skips_overflows_and_learns(data_dir, tmp_path):
    strategy = support.two_replicas()
    runner = trainer(data_dir, tmp_path, strategy, num_train_steps=12, num_warmup_steps=1, precision="float16")
    before = [variable.numpy() for variable in runner.task.model.trainable_variables]
    runner.task.loss_scale.scale.assign(2.0**16)  # overflows here
    assert runner.train() == 0
    assert runner.task.loss_scale.scale < 2.0**16 and runner.current_step == 12
    changed = [(a != b.numpy()).any() for a, b in zip(before, runner.task.model.trainable_variables, strict=True)]
    assert all(changed) and np.isfinite(losses(tmp_path)).all()


def test_muon_computes_the_same_in_micro_batches_and_on_replicas(data_dir, tmp_path):
    settings = {"num_train_steps": 12, "optimizer": "muon", "muon_precision": "float32", "ema_decay": 0.9}
    split = {
        "parts": (None, {"gradient_accumulation_steps": 4}),
        "replicas": (support.two_replicas(), {"gradient_accumulation_steps": 2}),
    }
    whole = trainer(data_dir, tmp_path / "whole", **settings)
    assert whole.train() == 0
    metrics = whole.evaluate()
    with whole.task.optimizer.averaged():
        own = whole.evaluate()  # of the weights themselves: averages and weights are swapped twice
    assert own["loss"] != metrics["loss"]
    for name, (strategy, parts) in split.items():
        runner = trainer(data_dir, tmp_path / name, strategy, **settings, **parts)
        assert runner.train() == 0
        np.testing.assert_allclose(losses(tmp_path / name), losses(tmp_path / "whole"), rtol=2e-4, err_msg=name)
        assert runner.evaluate()["loss"] == pytest.approx(metrics["loss"], rel=2e-3), name


def test_a_longer_loop_changes_nothing_and_traces_a_step_once(data_dir, tmp_path, one_device, capsys):
    runner = trainer(data_dir, tmp_path, num_train_steps=12, iterations_per_loop=6, save_checkpoints_steps=12)
    step, traced = runner.task.train_step, []

    def counted(*inputs):
        traced.append(inputs)
        return step(*inputs)

    runner.task.train_step = counted
    assert runner.train() == 0
    assert len(traced) == 1
    np.testing.assert_allclose(losses(tmp_path), one_device[0].reshape(2, 6, 3).mean(1), rtol=1e-5)
    first = float(capsys.readouterr().out.split("initial loss")[1].split()[0])
    assert first == pytest.approx(one_device[0][0, 0], abs=0.01)


def test_training_learns(one_device):
    history, _ = one_device
    assert history[-3:, 0].mean() < history[:3, 0].mean()


def test_evaluation_counts_every_record_once_and_repeats_exactly(data_dir, tmp_path):
    runner = trainer(data_dir, tmp_path)  # 21 records in batches of 8: rows that fill up the last one do not count
    summarise, totals = runner.task.summarise, []

    def remembered(sums):
        totals.append(sums)
        return summarise(sums)

    runner.task.summarise = remembered
    first, second = runner.evaluate(), runner.evaluate()
    assert first == second
    assert first["majority_baseline"] == pytest.approx(1 - first["replaced_rate"])
    tokens = sum(int(tf.reduce_sum(batch["input_mask"])) for batch in runner.task.evaluation_data())
    counted = {name: int(totals[0]["metrics"][name][1]) for name in ("disc_loss", "replaced_rate")}
    assert counted == {"disc_loss": 21, "replaced_rate": tokens}
    whole = trainer(data_dir, tmp_path, eval_batch_size=21).evaluate()  # no padding rows
    assert whole["masked_lm_loss"] == pytest.approx(first["masked_lm_loss"], rel=0.02)


def test_evaluation_during_training_is_written(data_dir, tmp_path):
    runner = trainer(data_dir, tmp_path, num_train_steps=4, eval_every_steps=2)
    runner.train()
    early, late = (json.loads((tmp_path / "eval" / f"step-{step}.json").read_text()) for step in (2, 4))
    assert late == runner.evaluate() and early != late
    assert list((tmp_path / "events").glob("events*"))


def test_a_non_finite_loss_stops_with_step_term_and_checkpoint(data_dir, tmp_path):
    runner = trainer(data_dir, tmp_path, num_train_steps=8)
    runner.train()
    again = trainer(data_dir, tmp_path, num_train_steps=12)
    assert again.restore() == 8
    head = again.task.model.objectives[1].head.logit.bias
    head.assign([np.nan])
    with pytest.raises(UserError, match=r"not finite at step 9: loss, disc_loss, gradient_norm\.") as error:
        again.train()
    # The weights of step 8 are bad although they were finite when they were saved: an older checkpoint is the good one.
    assert f"{tmp_path / 'model.ckpt-4'}." in str(error.value)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-4")


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 255  # within the last record: its length still fits, its checksum does not
    path.write_bytes(content)


def add_a_foreign_record(path):
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in [*records[:-1], b"\x0a\xff no example"]:
            writer.write(record)


@pytest.mark.parametrize(
    ("damage", "message"),
    [(flip_a_byte, "is not as it was written"), (add_a_foreign_record, r"is no tf\.train\.Example")],
)
def test_a_bad_record_met_while_training_is_named(tmp_path, damage, message):
    support.write_records(tmp_path / "pretrain_tfrecords")
    support.write_records(tmp_path / "pretrain_tfrecords", "dev_data", examples=8, shards=1)
    path = sorted((tmp_path / "pretrain_tfrecords").glob("pretrain_data*"))[1]
    damage(path)
    runner = trainer(tmp_path, tmp_path / "model")
    # What reads records does not depend on what a step computes, which takes seconds to trace.
    runner.task.train_step = lambda batch, step: {"losses": {"loss": tf.zeros([])}, "watched": {}, "metrics": {}}
    with pytest.raises(UserError, match=f"{path.name}: record 30 {message}"):
        runner.train()
