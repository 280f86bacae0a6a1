"""Heads of other objectives than ELECTRA's: a softmax without transform, comparison and classification of sequences,
classification of single states; and vectors of tasks."""

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.heads import LanguageModelHead
from electra_tf2.model.layers import Dense, Layer, LayerNorm, SizedLayer, activation, truncated_normal, zeros
from electra_tf2.model.vocabulary import tied_logits


class TiedHead(Layer):
    """A softmax tied to the word table and a bias, without a transform.

    The word table must be as wide as the states.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, vocab_size=600, embedding_size=64)
    >>> TiedHead("predictions", sizes, Embeddings("embeddings", sizes))(tf.zeros([2, 3, 64])).shape
    TensorShape([2, 3, 600])
    """

    def __init__(self, scope: str, architecture: Architecture, embeddings: Embeddings, seed: int = 0) -> None:
        super().__init__(scope, seed)
        self.embeddings = embeddings
        self.output_bias = self.weight("output_bias", [architecture.vocab_size], zeros, decay=False)

    @property
    def table(self) -> tf.Tensor:
        """float32 [V, H]."""
        return self.embeddings.word_embeddings

    def hidden(self, states: tf.Tensor) -> tf.Tensor:
        """Returns [B, N, H] as it is: what is multiplied with the word table."""
        return states

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, N, H] -> float32 logits [B, N, V]."""
        return tied_logits(states, self.embeddings.word_embeddings, self.output_bias)


def vocabulary_head(scope: str, encoder: Encoder, transform: bool, seed: int = 0) -> LanguageModelHead | TiedHead:
    """The head of a language model on a network's states, with BERT's transform or without."""
    if transform:
        return LanguageModelHead(scope, encoder, seed)
    return TiedHead(scope, encoder.architecture, encoder.embeddings, seed)


class ContrastHead(SizedLayer):
    """dense(H) + gelu + layer norm over states of whole sequences, which are then compared with one another.

    >>> ContrastHead("contrast", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 64])).shape
    TensorShape([2, 64])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        hidden, initializer = architecture.hidden_size, truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", hidden, hidden, initializer, seed, "gelu")
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", hidden)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, H] -> [B, H]."""
        return self.layer_norm(self.dense(states))


class PredictionHead(Layer):
    """dense(H) + activation + layer norm, which head_style modernbert has before every last layer.

    Args:
      input_size: of the states, the network's width if not given.

    >>> PredictionHead("head", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 64])).shape
    TensorShape([2, 64])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0, input_size: int | None = None) -> None:
        super().__init__(scope, seed)
        a, initializer = architecture, truncated_normal(architecture.initializer_range)
        size = a.hidden_size
        self.dense = Dense(f"{scope}/dense", input_size or size, size, initializer, seed, a.hidden_act)
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", size, a)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[..., S] -> [..., H]."""
        return self.layer_norm(self.dense(states))


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
