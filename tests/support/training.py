"""Shared by the tests of training: a small corpus of records and a small configuration."""

import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.model.layers import Dense
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.contrast import Contrast, normalised
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.training.distribution import mirrored_strategy
from tests.support import golden

ROOT = Path(__file__).parents[2]
LENGTH = 16


def two_replicas() -> tf.distribute.Strategy:
    """MirroredStrategy over the two logical processors of conftest.py."""
    devices = tuple(device.name for device in tf.config.list_logical_devices("CPU"))
    assert len(devices) == 2
    return mirrored_strategy(devices)


def example(values: Mapping[str, Sequence[int]]) -> bytes:
    """A record as TensorFlow writes it."""
    lists = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=value)) for name, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()


def write_records(folder: Path, name: str = "pretrain_data", examples: int = 60, shards: int = 2) -> None:
    """Learnable records: every sequence counts up from a random token."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(0)
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"{name}.tfrecord-{shard}-of-{shards}")) as writer:
            for _ in range(examples // shards):
                size = random.randint(8, LENGTH + 1)
                padding = [0] * (LENGTH - size)
                words = (random.randint(100) + np.arange(size - 2)) % 100 + 20
                features = {
                    "input_ids": [2, *words, 3, *padding],  # [CLS] ... [SEP]
                    "input_mask": [1] * size + padding,
                    "segment_ids": [0] * LENGTH,
                }
                writer.write(example(features))


def masked_batch_of(**fields: tf.Tensor) -> MaskedBatch:
    """A masked batch of some fields, for functions that read no others."""
    nothing: dict[str, Any] = {field.name: None for field in dataclasses.fields(MaskedBatch)}
    return MaskedBatch(**nothing | fields)


def batch_of(rows: int = 8, seed: int = 0, last: int = 600, padding: int = 0) -> dict[str, tf.Tensor]:
    """Features of random records of tokens from 20 to `last`, with [CLS]; every other one ends in padding."""
    ids = np.random.RandomState(seed).randint(20, last, [rows, LENGTH]).astype(np.int32)
    ids[:, 0] = 2
    ids[::2, LENGTH - padding :] = 0
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.constant(np.int32(ids > 0)),
        "segment_ids": tf.zeros_like(ids),
    }


def hparams(data_dir: Path | str, **overrides: Any) -> dict[str, Any]:
    """A model of one layer on `write_records`' records in `data_dir`/pretrain_tfrecords."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2} | overrides.pop("sizes", {})
    return {
        "model_name": "test",
        "data_dir": str(data_dir),
        "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
        "vocab_size": 600,
        "model_hparam_overrides": sizes,
        "embedding_size": 16,
        "generator_hidden_size": 0.5,
        "max_seq_length": LENGTH,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "learning_rate": 2e-3,
        "num_train_steps": 20,
        "num_warmup_steps": 3,
        "iterations_per_loop": 1,
        "save_checkpoints_steps": 4,
    } | overrides


def start(*flags: str, **settings: Any) -> "subprocess.Popen[str]":
    """run_pretraining.py in a process of its own."""
    command = [sys.executable, str(ROOT / "run_pretraining.py"), "--hparams", json.dumps(settings), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def logged(model_dir: Path) -> list[dict[str, Any]]:
    """The lines of train_metrics.jsonl, timing left out."""
    lines = []
    for text in (model_dir / "train_metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        line.pop("examples_per_second", None)
        lines.append(line)
    return lines


def gathered_loss(objective: Contrast) -> tuple[float, np.ndarray, np.ndarray]:
    """The loss of six pairs of views [6, 8], and both views; two replicas must have its value and gradient."""
    inputs = np.random.RandomState(0).randn(2, 6, 4).astype(np.float32)
    strategy = two_replicas()
    with strategy.scope():
        layer = Dense("layer", 4, 8, lambda shape, seed: tf.random.stateless_normal(shape, seed))

    def loss_and_gradient(first: tf.Tensor, second: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            views = normalised(layer(first)), normalised(layer(second))
            loss = objective._loss(tf.stack(views, 1), tf.fill([first.shape[0]], True), None)
        return [loss, tape.gradient(loss, layer.kernel)]

    @functools.partial(tf.function, autograph=False)
    def distributed() -> list[tf.Tensor]:
        def replica() -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            first_row = context.replica_id_in_sync_group * 3
            views = tf.slice(tf.constant(inputs), [0, first_row, 0], [2, 3, 4])
            return context.all_reduce("sum", loss_and_gradient(views[0], views[1]))

        return strategy.run(replica)

    single = loss_and_gradient(tf.constant(inputs[0]), tf.constant(inputs[1]))
    loss, gradient = [strategy.experimental_local_results(value)[0] for value in distributed()]
    np.testing.assert_allclose(loss, single[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, single[1], rtol=1e-4, atol=1e-5)
    first, second = (normalised(layer(view)).numpy() for view in inputs)
    return float(single[0]), first, second


def train_two_steps(config: PretrainingConfig, graph: bool = False) -> None:
    """Two steps with finite losses, which change the weights; on records of two segments."""
    with kernels.off():
        task = make_task(config, tf.distribute.OneDeviceStrategy("CPU:0"))
        before = [variable.numpy() for variable in task.model.trained_variables]
        step = tf.function(task.train_step, autograph=False) if graph else task.train_step
        results = []
        for number in range(2):
            batch = batch_of(seed=number, last=60, padding=3)
            places = tf.range(LENGTH)
            batch["input_ids"] = tf.where(places == 7, 3, batch["input_ids"])
            batch["segment_ids"] = tf.where(places > 7, batch["input_mask"], 0)
            results.append(step(batch, tf.constant(number, tf.int64)))
    assert all(np.isfinite(float(loss)) for result in results for loss in result["losses"].values())
    assert all(np.isfinite(variable.numpy()).all() for variable in task.model.trainable_variables)
    after = [variable.numpy() for variable in task.model.trained_variables]
    if config.precision != "float16":  # whose loss scale starts too high and skips the first updates
        assert any((now != then).any() for now, then in zip(after, before, strict=True))
