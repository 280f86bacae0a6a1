"""One vector for a text, from the states of its tokens. B batch, L length, H hidden."""

import tensorflow as tf

from electra_tf2.model.layers import Dense

POOLINGS = ("cls", "mean")


def mean_state(sequence: tf.Tensor, marks: tf.Tensor) -> tf.Tensor:
    """[B, H]: the mean of those states [B, L, H] whose mark, int32 [B, L], is 1; zeros in rows without a mark."""
    weights = tf.expand_dims(tf.cast(marks, tf.float32), 2)  # [B, L, 1]; LiteRT cannot slice by tf.newaxis here
    total = tf.reduce_sum(tf.cast(sequence, tf.float32) * weights, 1)  # [B, H]
    count = tf.maximum(tf.reduce_sum(weights, 1), 1.0)  # [B, 1]
    return tf.cast(total / count, sequence.dtype)


def text_state(sequence: tf.Tensor, input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """[B, H]: the state of [CLS] ("cls"), or the mean of all tokens' states, special ones too ("mean")."""
    if pooling == "mean":
        return mean_state(sequence, input_mask)
    return sequence[:, 0]


def orthogonal(shape: list[int], seed: list[int]) -> tf.Tensor:
    """A random matrix with orthonormal rows or columns, whichever are fewer.

    Vectors multiplied by it keep their cosines; on average only, if they get shorter.
    """
    rows, columns = shape
    tall = [max(shape), min(shape)]
    q, _ = tf.linalg.qr(tf.random.stateless_normal(tall, seed))  # q's columns are orthonormal
    if rows >= columns:
        return q
    return tf.transpose(q)


def text_vectors(
    sequence: tf.Tensor,
    input_mask: tf.Tensor,
    pooling: str,
    projection: Dense | None = None,
) -> tf.Tensor:
    """float32 unit vectors [B, H or width]: `text_state`, projected. The product of two is their cosine."""
    vectors = tf.cast(text_state(sequence, input_mask, pooling), tf.float32)
    if projection is not None:
        vectors = projection(vectors)
    return tf.math.l2_normalize(vectors, -1)
