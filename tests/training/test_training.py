"""Replicas and micro-batches make no difference; evaluation counts every record once; bad records are named."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretrain_data import find_records
from electra_tf2.pretrain.pretraining_task import PretrainingTask
from electra_tf2.training.loop import LoopSchedule, Trainer
from electra_tf2.util.errors import UserError
from tests.support import toy
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


STEPS = 8
# Muon updates the kernels of layers, AdamW all else; every weight has an average.
OPTIMIZER = {"num_train_steps": STEPS, "optimizer": "muon", "muon_precision": "float32", "ema_decay": 0.9}


class Whole(NamedTuple):
    """A run on one device, of whole batches."""

    folder: Path
    losses: np.ndarray
    metrics: dict[str, float]
    runner: Trainer


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("one")
    runner = trainer(data_dir, model_dir, **OPTIMIZER, eval_every_steps=STEPS // 2)
    assert runner.train() == 0
    return Whole(model_dir, losses(model_dir), runner.evaluate(), runner)


def test_micro_batches_on_two_replicas_compute_what_one_batch_does(data_dir, tmp_path, whole):
    loop = {"iterations_per_loop": 2, "save_checkpoints_steps": STEPS, "gradient_accumulation_steps": 2}
    runner = trainer(data_dir, tmp_path, support.two_replicas(), **OPTIMIZER, **loop)
    assert runner.train() == 0
    np.testing.assert_allclose(losses(tmp_path), whole.losses.reshape(-1, 2, 3).mean(1), rtol=2e-4)
    metrics = runner.evaluate()
    assert metrics.keys() == whole.metrics.keys()
    for name, value in metrics.items():
        assert value == pytest.approx(whole.metrics[name], rel=2e-3, abs=2e-3), name


def test_float16_on_two_replicas_skips_an_overflow_and_goes_on(tmp_path):
    runner = toy.trainer(tmp_path, bad_gradient_at=3, precision="float16", strategy=support.two_replicas())
    scale, weight = runner.task.loss_scale, runner.task.model.weight
    before = scale.scale.numpy()
    assert runner.train() == 0
    assert scale.scale.numpy() == before / 2 and scale.good_steps.numpy() == 17 and runner.current_step == 20
    assert np.isfinite(weight.numpy()).all() and weight.numpy().all()


def test_training_learns(whole):
    assert whole.losses[-3:, 0].mean() < whole.losses[:3, 0].mean()


def test_evaluation_during_training_is_written_and_that_of_averages(whole):
    early, late = (json.loads((whole.folder / "eval" / f"step-{n}.json").read_text()) for n in (STEPS // 2, STEPS))
    assert late == whole.metrics and early != late
    with whole.runner.task.optimizer.averaged():
        own = whole.runner.evaluate()  # of the weights themselves: averages and weights are swapped twice
    assert own["loss"] != late["loss"]
    assert list((whole.folder / "events").glob("events*"))


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
