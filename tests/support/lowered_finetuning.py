"""A fine-tuning step and a batch's predictions as XLA programs, without an accelerator."""

import tensorflow as tf

from benchmarks.compiled_step import lowered, tables_without_values
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import tokenizer_for
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.model import FinetuningTask
from electra_tf2.finetune.tasks import make_tasks


class Lowering:
    """The tasks of a configuration, whose labels are read from their data."""

    def __init__(self, config: FinetuningConfig) -> None:
        tokenizer = tokenizer_for(config.vocab_file, config.do_lower_case, config.do_strip_accents)
        self.tasks = make_tasks(config, tokenizer)
        parts = []
        for task in self.tasks:
            split = task.load("train")
            parts.append(TaskFeatures(task.name, split.features[: split.choices], task.labels))
        self._table = FeatureTable(parts, config.max_seq_length, choices=split.choices)

    def task(self, config: FinetuningConfig) -> FinetuningTask:
        """The task of the training loop on one device, compiled with XLA. Its weights have no values."""
        with tables_without_values():
            return FinetuningTask(config, self.tasks, tf.distribute.get_strategy(), True, self._table, config.seed)

    def empty_batch(self, config: FinetuningConfig, size: int) -> dict[str, tf.Tensor]:
        """Ones, as a batch of `size` examples of the greatest length."""
        spec, length = self._table.training_batches(size, seed=0).element_spec, config.max_seq_length
        return {
            name: tf.ones([length if axis is None else axis for axis in one.shape], one.dtype)
            for name, one in spec.items()
        }

    def training_program(self, config: FinetuningConfig, task: FinetuningTask | None = None) -> bytes:
        """HloModuleProto of a training step."""
        batch, task = self.empty_batch(config, config.train_batch_size), task or self.task(config)
        return lowered(task.train_step, batch, tf.constant(0, tf.int64))
