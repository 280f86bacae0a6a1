"""A pre-training step as an XLA program, without records and without an accelerator."""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.records import RecordFormat
from electra_tf2.pretrain.masking import Batch
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.training.accelerators.compiling import lowered, tables_without_values


def task_to_lower(config: PretrainingConfig) -> PretrainingTask:
    """The task of a configuration on one device, compiled with XLA. Its weights have no values."""
    with tables_without_values():
        return PretrainingTask(config, tf.distribute.get_strategy(), jit_compile=True)


def empty_batch(config: PretrainingConfig, rows: int) -> Batch:
    """int32 [rows, max_seq_length] of ones for every field of a record that the configuration reads."""
    fields = RecordFormat(config.max_seq_length, config.vocab_size, config.extra_fields).fields
    return {name: tf.ones([rows, field.length], tf.int32) for name, field in fields.items()}


def training_program(config: PretrainingConfig, task: PretrainingTask | None = None) -> bytes:
    """HloModuleProto of a training step."""
    batch, task = empty_batch(config, config.train_batch_size), task or task_to_lower(config)
    return lowered(task.train_step, batch, tf.constant(0, tf.int64))
