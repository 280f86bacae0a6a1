"""Task ids: a learned vector for the auxiliary task of a step, added to the inputs ("On Losses", use_task_ids).

Number k > 0 is the k-th of aux_tasks, 0 none: steps that train the main objective alone, generators, and everything
after pre-training, which knows nothing of this. Where the main objective has no steps of its own (alt+, cmtl+), a
network that was always told of a task would then miss what the vectors have in common, so their mean is taken away: to
be told of none is to be told of the middle.
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.layers import Layer, truncated_normal
from electra_tf2.pretrain.ramps import Ramped


def task_number(config: PretrainingConfig, ramped: Ramped) -> tf.Tensor:
    """int32 scalar: which task a step is about."""
    if not config.use_task_ids or ramped.active is None:
        return tf.zeros([], tf.int32)
    return tf.add_n([tf.cast(ramped.active[task], tf.int32) * k for k, task in enumerate(config.aux_tasks, start=1)])


class TaskVectors(Layer):
    """A vector of the embeddings' width for each of the run's tasks."""

    def __init__(self, config: PretrainingConfig) -> None:
        super().__init__("task_embeddings", config.seed)
        sizes = config.architecture
        self.table = self.weight(
            "table", [len(config.aux_tasks), sizes.embedding_size], truncated_normal(sizes.initializer_range)
        )
        self._centred = config.aux_combination.endswith("+")

    def call(self, task_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B] -> float32 [B, 1, E], to be added to the embeddings of every token; zeros for task 0."""
        vectors = self.table - tf.reduce_mean(self.table, 0) if self._centred else self.table
        return tf.tensordot(tf.one_hot(task_ids - 1, self.table.shape[0]), vectors, 1)[:, tf.newaxis]
