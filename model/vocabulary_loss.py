"""Log-probabilities of given tokens under a softmax over the vocabulary, without logits of all tokens at once.

Losses over every token (All-Tokens MLM) would need [B, L, V] logits: at batch 128, length 128 and 30,522 words 2 GB.
Here chunks of tokens are projected one after the other, and projected again for the gradient.
"""

from typing import Any

import tensorflow as tf


def chunked_log_probs(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor, chunk: int = 1024
) -> tf.Tensor:
    """log softmax(states table^T + bias) at token_ids.

    Args:
      states: [T, E], in the compute type.
      table: float32 [V, E]. bias: float32 [V].
      token_ids: int32 [T].
      chunk: tokens whose logits exist at the same time.

    Returns:
      float32 [T].
    """
    tokens, width = states.shape[0], states.shape[-1]
    if tokens is None:
        raise ValueError("chunked_log_probs needs a static number of tokens")
    chunk = min(chunk, tokens)
    chunks = -(-tokens // chunk)
    padding = chunks * chunk - tokens

    @tf.custom_gradient
    def compute(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> Any:
        padded = tf.reshape(tf.pad(states, [[0, padding], [0, 0]]), [chunks, chunk, width])
        ids = tf.reshape(tf.pad(token_ids, [[0, padding]]), [chunks, chunk])
        words = tf.cast(table, states.dtype)

        def logits_of(index: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.matmul(padded[index], words, transpose_b=True), tf.float32) + bias

        def forward(index: tf.Tensor, out: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[index], logits_of(index))
            return index + 1, out.write(index, -losses)

        out = tf.TensorArray(tf.float32, chunks, element_shape=[chunk])
        _, out = tf.while_loop(lambda index, _: index < chunks, forward, (tf.constant(0), out), parallel_iterations=1)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            weights = tf.reshape(tf.pad(upstream, [[0, padding]]), [chunks, chunk])

            def backward(index: tf.Tensor, total_table: tf.Tensor, total_bias: tf.Tensor, out: tf.TensorArray) -> Any:
                # d log p[x] / d logits = onehot(x) - softmax; the one-hot part is a gather and a scatter.
                weight = weights[index][:, tf.newaxis]
                dense = tf.cast(tf.nn.softmax(logits_of(index)) * weight, states.dtype)
                to_states = weight * tf.gather(table, ids[index])
                to_states -= tf.cast(tf.matmul(dense, words), tf.float32)
                weighted = weight * tf.cast(padded[index], tf.float32)
                total_table -= tf.cast(tf.matmul(dense, padded[index], transpose_a=True), tf.float32)
                total_table = tf.tensor_scatter_nd_add(total_table, ids[index][:, tf.newaxis], weighted)
                total_bias -= tf.cast(tf.reduce_sum(tf.cast(dense, tf.float32), 0), tf.float32)
                total_bias = tf.tensor_scatter_nd_add(total_bias, ids[index][:, tf.newaxis], weight[:, 0])
                return index + 1, total_table, total_bias, out.write(index, to_states)

            start = (
                tf.constant(0),
                tf.zeros(table.shape),
                tf.zeros(bias.shape),
                tf.TensorArray(tf.float32, chunks, element_shape=[chunk, width]),
            )
            _, to_table, to_bias, parts = tf.while_loop(
                lambda index, *_: index < chunks, backward, start, parallel_iterations=1
            )
            to_states = tf.reshape(parts.stack(), [-1, width])[:tokens]
            return tf.cast(to_states, states.dtype), to_table, to_bias

        return tf.reshape(out.stack(), [-1])[:tokens], gradient

    return compute(states, tf.convert_to_tensor(table), tf.convert_to_tensor(bias))
