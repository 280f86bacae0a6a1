"""The layer that computes ALiBi's bias."""

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.attention import Positions
from electra_tf2.papers.alibi.config import slopes


class LinearBias(Positions):
    """Minus slope x distance, in both directions alike (Press et al. 2022, section 3).

    >>> sizes = make_architecture("small", {"hidden_size": 128}, 600, None)
    >>> LinearBias("encoder", sizes).bias(7).shape  # of 2 heads
    TensorShape([2, 13])
    """

    bias_kind = "fixed"

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        self._slopes = np.array(slopes(architecture.num_attention_heads), np.float32)

    def bias(self, length: int | tf.Tensor) -> tf.Tensor:
        length = tf.cast(length, tf.float32)
        return -tf.constant(self._slopes)[:, tf.newaxis] * tf.abs(tf.range(1.0 - length, length))
