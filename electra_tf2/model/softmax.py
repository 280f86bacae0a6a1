"""The softmax over the vocabulary, whose logits are products with the word table: its formulas.

model.kernels.vocabulary_softmax computes the same in fewer passes over memory.

Shapes: B batch, N masked positions, T tokens, E embedding, V vocabulary, K blocks of the vocabulary.
"""

import math

import tensorflow as tf

from electra_tf2.model.kernels.chunked_softmax import chunked_log_probs
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.switch import are_on
from electra_tf2.model.kernels.vocabulary_softmax import FusedSoftmax, invert_cumulative
from electra_tf2.model.layers import shape_of


class VocabularySoftmax:
    """Distributions over the vocabulary, from float32 logits [..., V].

    kernels.vocabulary_softmax.FusedSoftmax has the same methods, for logits that are products with the word table.
    """

    def __init__(self, logits: tf.Tensor) -> None:
        self.logits = logits

    def log_probs(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Log-probabilities float32 [...] of tokens int32 [...]."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids, self.logits)

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """bool [...]: whether no token of the vocabulary is likelier than this one, int32 [...]."""
        return tf.equal(tf.argmax(self.logits, -1, tf.int32), token_ids)

    def entropies(self) -> tf.Tensor:
        """Entropies float32 [...], in nats; no gradient."""
        log_probs = tf.nn.log_softmax(tf.stop_gradient(self.logits))
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, -1)

    def sample(self, noise: tf.Tensor, temperature: float | tf.Tensor = 1.0) -> tf.Tensor:
        """Draws tokens int32 [...] from softmax(logits / temperature); noise float32 [..., 2], uniform in [0, 1)."""
        return sample_from_logits(tf.stop_gradient(self.logits / temperature), noise)


Softmax = VocabularySoftmax | FusedSoftmax
_FORBIDDEN = 1000.0  # subtracted from a token's logit, as in the original's disallow_correct


def without_tokens(softmax: Softmax, token_ids: tf.Tensor) -> VocabularySoftmax:
    """Distributions [B, N] that never choose the token of this id, int32 [B, N]."""
    logits = softmax.logits  # [B, N, V]
    forbidden = tf.range(logits.shape[-1]) == token_ids[..., tf.newaxis]  # [B, N, V]
    return VocabularySoftmax(tf.where(forbidden, logits - _FORBIDDEN, logits))


def sample_from_logits(logits: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Samples from softmax(logits) by inverting its cumulative distribution in two levels.

    The vocabulary is cut into about sqrt(V) blocks; the first draw chooses the block, the second the token within it.
    The original's argmax of logits + Gumbel noise has the same distribution and needs V draws for each sample. Two
    draws can be made for all rows of the global batch (pretrain.masking).

    Args:
      logits: float32 [B, N, V].
      noise: float32 [B, N, 2], uniform in [0, 1).

    Returns:
      int32 [B, N].
    """
    vocab_size = logits.shape[-1]
    block_size = math.isqrt(vocab_size - 1) + 1  # the root of V, rounded up
    blocks = -(-vocab_size // block_size)  # K
    maxima = tf.reduce_max(logits, -1, keepdims=True)
    weights = tf.exp(logits - maxima)  # proportional to the probabilities
    padding = blocks * block_size - vocab_size
    weights = tf.pad(weights, [[0, 0], [0, 0], [0, padding]])
    weights = tf.reshape(weights, [-1, logits.shape[1], blocks, block_size])  # [B, N, K, block_size]
    block_weights = tf.reduce_sum(weights, -1)  # [B, N, K]
    block = invert_cumulative(tf.cumsum(block_weights, axis=-1), noise[..., 0])  # [B, N]
    token_weights = tf.gather(weights, block, batch_dims=2)  # [B, N, block_size], of the chosen block
    within = invert_cumulative(tf.cumsum(token_weights, axis=-1), noise[..., 1])  # [B, N]
    return tf.minimum(block * block_size + within, vocab_size - 1)  # the padding of the last block is no token


def tied_logits(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """states table^T + bias: [..., E] -> float32 [..., V]; the product is in the compute type.

    Args:
      table: float32 [V, E].
      bias: float32 [V].
    """
    flat = tf.reshape(states, [-1, states.shape[-1]])  # [T, E]
    products = matmul(flat, tf.cast(table, flat.dtype), transpose_b=True)  # [T, V]
    logits = tf.cast(products, tf.float32) + bias
    inner_axes = shape_of(states)[1:-1]
    return tf.reshape(logits, [-1, *inner_axes, logits.shape[-1]])


def token_log_probs(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """float32 [T]: log softmax(states table^T + bias) at token_ids, int32 [T].

    The kernel never has the logits of all tokens in memory.
    """
    if are_on():
        return chunked_log_probs(states, table, bias, token_ids)
    return VocabularySoftmax(tied_logits(states, table, bias)).log_probs(token_ids)


def soft_losses(teacher: tf.Tensor, student: tf.Tensor, temperature: float) -> tf.Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)) over the last axis of float32 logits (Hinton et al. 2015).

    T^2 keeps the size of the gradient when T changes; with T = 1 the gradient is that of the cross-entropy.
    """
    teacher_log_probs = tf.nn.log_softmax(teacher / temperature)
    student_log_probs = tf.nn.log_softmax(student / temperature)
    differences = teacher_log_probs - student_log_probs
    divergence = tf.reduce_sum(tf.exp(teacher_log_probs) * differences, -1)
    return temperature**2 * divergence
