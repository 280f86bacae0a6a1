"""Heads of auxiliary tasks, on the [CLS] state or on every state, and a learned vector for each task.

Aroca-Ouellette and Rudzicz 2020, "On Losses for Modern Language Models".
"""

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Dense, Layer, LayerNorm, activation


class PooledHead(Layer):
    """dense(H) + tanh on the [CLS] state, then C numbers, float32 [B, C].

    >>> PooledHead("pooled", make_architecture("small", {"hidden_size": 64}, 600, None), 3)(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 3])
    """

    def __init__(self, scope: str, architecture: Architecture, outputs: int, seed: int = 0) -> None:
        super().__init__(scope, seed)
        initializer = truncated_normal(architecture.initializer_range)
        width = architecture.hidden_size
        self.dense = Dense(f"{scope}/dense", width, width, initializer, seed)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 [B, C]."""
        return tf.cast(self.outputs(tf.tanh(self.dense(states[:, 0]))), tf.float32)


class StateHead(Layer):
    """dense(H) + gelu + layer norm, then C numbers of every state.

    Args:
      input_size: of the states, the network's width if not given.

    >>> StateHead("states", make_architecture("small", {"hidden_size": 64}, 600, None), 2)(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 7, 2])
    """

    def __init__(
        self, scope: str, architecture: Architecture, outputs: int, seed: int = 0, input_size: int | None = None
    ) -> None:
        super().__init__(scope, seed)
        initializer = truncated_normal(architecture.initializer_range)
        width = architecture.hidden_size
        self.dense = Dense(f"{scope}/dense", input_size or width, width, initializer, seed)
        self.activation = activation("gelu")
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", width)
        self.outputs = Dense(f"{scope}/outputs", width, outputs, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, S] -> float32 [B, L, C]."""
        inner = self.layer_norm(self.activation(self.dense.product(states), self.dense.bias))
        return tf.cast(self.outputs(inner), tf.float32)


class TaskVectors(Layer):
    """A learned vector of the embeddings' width for each task.

    Args:
      centred: take the vectors' mean away, so that no task (0) is the middle of all.
    """

    def __init__(self, architecture: Architecture, tasks: int, centred: bool, seed: int = 0) -> None:
        super().__init__("task_embeddings", seed)
        shape = [tasks, architecture.embedding_size]
        self.table = self.weight("table", shape, truncated_normal(architecture.initializer_range))
        self._centred = centred

    def call(self, task_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B] -> float32 [B, 1, E], to be added to the embeddings of every token; zeros for task 0."""
        vectors = self.table - tf.reduce_mean(self.table, 0) if self._centred else self.table
        return tf.tensordot(tf.one_hot(task_ids - 1, self.table.shape[0]), vectors, 1)[:, tf.newaxis]
