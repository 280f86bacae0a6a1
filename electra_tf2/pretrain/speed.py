"""Measures training steps of a configuration on this machine, on records of random tokens: `electra plan --measure`."""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.packing import Examples
from electra_tf2.corpus.records import RecordEncoder, RecordFormat
from electra_tf2.corpus.vocabulary import SPECIAL_TOKENS
from electra_tf2.pretrain.flops import step_flops
from electra_tf2.pretrain.pretrain_data import find_records
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.training.distribution import make_strategy, wants_xla
from electra_tf2.training.loop import LoopSchedule, Trainer

_LEAST_RECORDS = 1024
_STEPS = 10


def flops_per_second(config: PretrainingConfig) -> float:
    """Trains ten steps in a temporary folder. Returns the FLOPs of a second."""
    with TemporaryDirectory() as folder:
        config = dataclasses.replace(config, vocab_file=f"{folder}/vocab.txt")
        write_vocabulary(config)
        write_random_records(config, Path(folder))
        records = find_records(f"{folder}/*.tfrecord", config, "pretrain_tfrecords")
        strategy = make_strategy(config)
        with strategy.scope():
            task = make_task(config, strategy, wants_xla(config), records, None)
        schedule = LoopSchedule(
            num_train_steps=config.num_train_steps,
            iterations_per_loop=1,
            save_checkpoints_steps=config.num_train_steps,
            keep_checkpoint_max=1,
            eval_every_steps=0,
            num_eval_steps=1,
            examples_per_step=config.train_batch_size,
        )
        _, seconds = Trainer(task, strategy, schedule, folder).time_steps(steps=_STEPS)
    return step_flops(config) / seconds


def write_vocabulary(config: PretrainingConfig) -> None:
    """Writes a vocabulary of the special tokens and of made-up names."""
    names = [f"token{index}" for index in range(config.vocab_size - len(SPECIAL_TOKENS))]
    Path(config.vocab_file).write_text("\n".join([*SPECIAL_TOKENS, *names]) + "\n", encoding="utf-8")


def write_random_records(config: PretrainingConfig, folder: Path) -> None:
    """Writes one file of full records whose tokens are drawn uniformly."""
    rows = max(_LEAST_RECORDS, config.train_batch_size)
    shape = [rows, config.max_seq_length]
    ids = np.random.default_rng(config.seed).integers(len(SPECIAL_TOKENS), config.vocab_size, shape)
    mask = np.ones(shape, np.uint8)
    segments = np.zeros(shape, np.uint8)
    encoder = RecordEncoder(RecordFormat(config.max_seq_length, config.vocab_size))
    with tf.io.TFRecordWriter(str(folder / "random.tfrecord")) as writer:
        for record in encoder.encode(Examples(ids, mask, segments)):
            writer.write(record)
