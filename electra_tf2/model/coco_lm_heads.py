"""Heads beside ELECTRA's: a softmax without a transform, copying, contrast of sequences.

Shapes: B batch, L length, N masked positions, H hidden, V vocabulary.
"""

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Embeddings, Encoder
from electra_tf2.model.heads import LanguageModelHead, one_unit
from electra_tf2.model.initializers import truncated_normal, zeros
from electra_tf2.model.layers import Dense, Layer, LayerNorm
from electra_tf2.model.softmax import tied_logits


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
        """[B, N, H] -> [B, N, H], the factor of the table in the logits: the states themselves."""
        return states

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, N, H] -> float32 logits [B, N, V]."""
        return tied_logits(states, self.table, self.output_bias)


def vocabulary_head(scope: str, encoder: Encoder, transform: bool, seed: int = 0) -> LanguageModelHead | TiedHead:
    """Makes the head of a language model on a network's states, with BERT's transform or without."""
    if transform:
        return LanguageModelHead(scope, encoder, seed)
    return TiedHead(scope, encoder.architecture, encoder.embeddings, seed)


class CopyHead(Layer):
    """One linear unit per token; positive means that the token is the original (COCO-LM, p_copy).

    >>> CopyHead("copy", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 7])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        initializer = truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", architecture.hidden_size, 1, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 logits [B, L]."""
        return one_unit(self.dense, states)


class ContrastHead(Layer):
    """dense(H) + gelu + layer norm on states of whole sequences, before they are compared with one another.

    >>> ContrastHead("contrast", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 64])).shape
    TensorShape([2, 64])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, seed)
        hidden = architecture.hidden_size
        initializer = truncated_normal(architecture.initializer_range)
        # gelu and the original's layer norm, whatever the architecture has.
        self.dense = Dense(f"{scope}/dense", hidden, hidden, initializer, seed, "gelu")
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", hidden)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, H] -> [B, H]."""
        return self.layer_norm(self.dense(states))
