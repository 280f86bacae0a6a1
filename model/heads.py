"""Prediction heads on top of an encoder: the (masked) language-model head and the replaced-token head."""

import tensorflow as tf

from model.architecture import Architecture
from model.encoder import Embeddings
from model.layers import Dense, Layer, LayerNorm, activation, glorot_uniform, truncated_normal, zeros


class LanguageModelHead(Layer):
    """dense(E) + activation + layer norm, then a softmax tied to the word table (BERT; ELECTRA, equation 1).

    Args:
      input_size: width of the states it reads.
      embeddings: the block whose word table [V, E] is the output matrix.
    """

    def __init__(
        self, scope: str, input_size: int, architecture: Architecture, embeddings: Embeddings, seed: int = 0
    ) -> None:
        super().__init__(scope, seed)
        size = embeddings.word_embeddings.shape[1]
        self.dense = Dense(f"{scope}/dense", input_size, size, truncated_normal(architecture.initializer_range), seed)
        self.activation = activation(architecture.hidden_act)
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", size)
        self.embeddings = embeddings
        self.output_bias = self.weight("output_bias", [architecture.vocab_size], zeros)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, N, H] -> float32 logits [B, N, V]."""
        hidden = self.layer_norm(self.activation(self.dense(states)))
        flat = tf.reshape(hidden, [-1, hidden.shape[-1]])
        logits = tf.matmul(flat, tf.cast(self.embeddings.word_embeddings, flat.dtype), transpose_b=True)
        logits = tf.cast(logits, tf.float32) + self.output_bias
        return tf.reshape(logits, [-1, states.shape[1], logits.shape[-1]])


class ReplacedTokenHead(Layer):
    """dense(H) + activation, then one logit per token; positive means replaced (ELECTRA, equation 2)."""

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        hidden = architecture.hidden_size
        self.dense = Dense(f"{scope}/dense", hidden, hidden, truncated_normal(architecture.initializer_range), seed)
        self.activation = activation(architecture.hidden_act)
        self.logit = Dense(f"{scope}/dense_1", hidden, 1, glorot_uniform, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 logits [B, L]."""
        logits = self.logit(self.activation(self.dense(states)))
        return tf.cast(tf.squeeze(logits, -1), tf.float32)
