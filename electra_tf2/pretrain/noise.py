"""Noise for papers that sample more than ELECTRA does: too large for a masked batch, so drawn where it is used."""

import tensorflow as tf

from electra_tf2.pretrain.masking import uniform


def row_noise(draws: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """float32 [B, *shape], uniform in (0, 1), as a function of two draws of each row, float32 [B, 2]."""

    def of_row(seed: tf.Tensor) -> tf.Tensor:
        return uniform(shape, seed) + 1e-30  # never 0, whose logarithm is infinite

    seeds = tf.bitcast(draws, tf.int32)
    return tf.map_fn(of_row, seeds, fn_output_signature=tf.float32)
