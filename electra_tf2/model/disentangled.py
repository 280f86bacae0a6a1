"""Gradient-disentangled embedding sharing (DeBERTaV3, He et al. 2021, section 3.2)."""

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Embeddings
from electra_tf2.model.initializers import Initializer, zeros
from electra_tf2.model.layers import shape_of

DIFFERENCE = "_difference"  # ends the names of tables that another block's are added to


class DisentangledEmbeddings(Embeddings):
    """Embeddings whose word and position tables start at 0 and are added to another block's, which get no gradient.

    Args:
      base: the other block, of the same sizes.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, 600, 32)
    >>> block = DisentangledEmbeddings("electra/embeddings", sizes, Embeddings("generator/embeddings", sizes))
    >>> block(tf.ones([2, 7], tf.int32), tf.zeros([2, 7], tf.int32), None).shape
    TensorShape([2, 7, 32])
    """

    def __init__(self, scope: str, architecture: Architecture, base: Embeddings, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        self.base, norm = base, self.layer_norm
        del self.layer_norm  # the base's variables come before it in checkpoints
        self.layer_norm = norm

    def weight(self, name: str, shape: list[int], initializer: Initializer, decay: bool = True) -> tf.Variable:
        if name != "token_type_embeddings":
            name, initializer = name + DIFFERENCE, zeros
        return super().weight(name, shape, initializer, decay)

    @property
    def word_embeddings(self) -> tf.Tensor:
        return self._own_words + tf.stop_gradient(self.base.word_embeddings)

    def lookup(self, input_ids: tf.Tensor) -> tf.Tensor:
        # Added up are the rows that are needed, not the whole tables.
        return tf.gather(self._own_words, input_ids) + tf.stop_gradient(tf.gather(self.base.word_embeddings, input_ids))

    def summed(self, words: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        x, table = super().summed(words, segment_ids), self.base.position_embeddings
        return x if table is None else x + tf.stop_gradient(table[: shape_of(words)[1]])
