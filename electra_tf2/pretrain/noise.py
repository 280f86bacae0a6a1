"""Noise for papers that sample more than ELECTRA does: too large to be kept in a masked batch."""

import tensorflow as tf

from electra_tf2.pretrain.masking import uniform


def row_noise(draws: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """float32 [B, *shape], uniform in (0, 1): for each row a function of its two draws, float32 [B, 2]."""

    def draw_row(seed: tf.Tensor) -> tf.Tensor:
        return uniform(shape, seed) + 1e-30  # never 0, whose logarithm is infinite

    seeds = tf.bitcast(draws, tf.int32)  # [B, 2]
    return tf.map_fn(draw_row, seeds, fn_output_signature=tf.float32)
