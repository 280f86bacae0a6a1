"""Embeddings, the input of an encoder: tables of words, positions and segments, which networks may share.

B batch, L length, V vocabulary, E width of the embeddings.
"""

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.initializers import truncated_normal, zeros
from electra_tf2.model.layers import Layer, LayerNorm, SeedStream, dropout, shape_of

DIFFERENCE = "_difference"  # ends the names of tables that another block's are added to


class Embeddings(Layer):
    """Word + position + segment tables, summed, normalised, dropped out (BERT, section 3).

    Args:
      words: a block whose word table is used instead of an own one.
      base: a block of the same sizes whose word and position tables are added, without gradient, to own ones that start
        at 0 (gradient-disentangled embedding sharing: DeBERTaV3, He et al. 2021, section 3.2).

    >>> block = Embeddings("embeddings", make_architecture("small", {"hidden_size": 64}, 600, 32))
    >>> block(tf.ones([2, 7], tf.int32), tf.zeros([2, 7], tf.int32), None).shape
    TensorShape([2, 7, 32])
    """

    def __init__(
        self,
        scope: str,
        architecture: Architecture,
        seed: int = 0,
        words: "Embeddings | None" = None,
        base: "Embeddings | None" = None,
    ) -> None:
        super().__init__(scope, seed)
        ending, table_initializer = "", truncated_normal(architecture.initializer_range)
        if base is not None:
            ending, table_initializer = DIFFERENCE, zeros
        self.base = base
        self._is_raw = architecture.embedding_norm == "after"  # then the encoder normalises, and drops
        size = architecture.embedding_size
        initializer = truncated_normal(architecture.initializer_range)
        self.dropout_rate = architecture.hidden_dropout_prob
        self._words = words
        if words is None:
            self._own_words = self.weight(
                f"word_embeddings{ending}", [architecture.vocab_size, size], table_initializer
            )
        self.token_type_embeddings = None
        if architecture.type_vocab_size:
            self.token_type_embeddings = self.weight(
                "token_type_embeddings", [architecture.type_vocab_size, size], initializer
            )
        self.position_embeddings = None
        if architecture.positions.embedded:
            self.position_embeddings = self.weight(
                f"position_embeddings{ending}", [architecture.max_position_embeddings, size], table_initializer
            )
        self.layer_norm = None
        if architecture.embedding_norm == "before":
            self.layer_norm = LayerNorm(f"{scope}/LayerNorm", size, architecture)

    @property
    def word_embeddings(self) -> tf.Tensor:
        """float32 [V, E]."""
        words = self._own_words if self._words is None else self._words.word_embeddings
        return words if self.base is None else words + tf.stop_gradient(self.base.word_embeddings)

    def lookup(self, input_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B, L] -> float32 [B, L, E], rows of the word table."""
        rows = tf.gather(self._own_words if self._words is None else self._words.word_embeddings, input_ids)
        if self.base is not None:  # added to the rows that are needed, not to the whole table
            rows += tf.stop_gradient(tf.gather(self.base.word_embeddings, input_ids))
        return rows

    def combine(self, words: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """Adds segments and positions, normalises and drops out: float32 [B, L, E], int32 [B, L] -> [B, L, E].

        Where there is one kind of segment (type_vocab_size 1, as in RoBERTa), both texts of a pair are that.
        """
        x, length = words, shape_of(words)[1]
        if self.token_type_embeddings is not None:
            types = self.token_type_embeddings.shape[0]
            segments = tf.one_hot(segment_ids if types > 1 else tf.zeros_like(segment_ids), types)
            x += tf.tensordot(segments, self.token_type_embeddings, 1)
        if self.position_embeddings is not None:
            x += self.position_embeddings[:length]
            if self.base is not None and self.base.position_embeddings is not None:
                x += tf.stop_gradient(self.base.position_embeddings[:length])
        if self._is_raw:
            return x
        return dropout(x if self.layer_norm is None else self.layer_norm(x), self.dropout_rate, seeds)

    def call(self, input_ids: tf.Tensor, segment_ids: tf.Tensor, seeds: SeedStream | None) -> tf.Tensor:
        """int32 [B, L], int32 [B, L] -> float32 [B, L, E]."""
        return self.combine(self.lookup(input_ids), segment_ids, seeds)
