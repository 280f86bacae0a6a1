"""Log-probabilities at every token of a batch, without the logits of all tokens at once.

At batch 128, length 128 and 30,522 words they would be 2 GB. Chunks of tokens are projected one after another, and
projected again for the gradient.

Shapes: T tokens, E embedding, V vocabulary.
"""

from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.loops import Parts, in_sequence
from electra_tf2.model.kernels.switch import are_compiled_alone
from electra_tf2.model.kernels.vocabulary_softmax import CHUNK, CHUNK_IN_PROGRAM, FusedSoftmax, Gradients, in_chunks


def chunked_log_probs(
    states: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    token_ids: tf.Tensor,
    chunk: int = 0,
) -> tf.Tensor:
    """log softmax(states table^T + bias) at token_ids.

    Args:
      states: [T, E], in the compute type.
      table: float32 [V, E].
      bias: float32 [V].
      token_ids: int32 [T].
      chunk: how many tokens' logits are in memory at the same time; 0: CHUNK or CHUNK_IN_PROGRAM.

    Returns:
      float32 [T].
    """
    if states.shape[0] is None:
        raise ValueError("chunked_log_probs needs a static number of tokens")
    tokens = states.shape[0]
    if not chunk:
        chunk = CHUNK if are_compiled_alone() else CHUNK_IN_PROGRAM
    chunk = min(chunk, tokens)
    padding = -tokens % chunk  # so that all chunks have the same size
    chunks = (tokens + padding) // chunk
    states = tf.pad(states, [[0, padding], [0, 0]])
    token_ids = tf.pad(token_ids, [[0, padding]])

    @differentiable
    def compute(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> Any:
        def rows(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
            """[T, ...] -> [chunk, ...]."""
            # Not the slice [index * chunk : ...]: with a tensor in the bounds XLA would not know its size.
            return tf.reshape(x, [chunks, chunk, *x.shape[1:]])[index]

        def softmax(index: tf.Tensor) -> FusedSoftmax:
            return FusedSoftmax(rows(states, index), table, bias)

        def log_probs_of_chunk(index: tf.Tensor) -> Parts:
            log_probs = softmax(index).log_probs(rows(token_ids, index))
            return [log_probs], []

        def gradient(upstream: tf.Tensor) -> Gradients:
            def gradients_of_chunk(index: tf.Tensor) -> Gradients:
                return softmax(index).gradients(rows(upstream, index), rows(token_ids, index))

            return in_chunks(gradients_of_chunk, chunks)

        (log_probs,), _ = in_sequence(log_probs_of_chunk, chunks)
        return tf.reshape(log_probs, [-1]), gradient

    return compute(states, table, bias)[:tokens]
