"""The softmax over the vocabulary, whose logits are products with the word table: its formulas.

model.kernels.vocabulary_softmax computes the same in fewer passes over memory. B batch, N masked positions, T tokens, E
embedding, V vocabulary.
"""

import math

import tensorflow as tf

from electra_tf2.model.kernels.chunked_softmax import chunked_log_probs
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.switch import are_on
from electra_tf2.model.kernels.vocabulary_softmax import FusedSoftmax, invert_cumulative
from electra_tf2.model.layers import shape_of


class VocabularySoftmax:
    """softmax over the vocabulary of float32 logits [..., V]: log-probabilities, first choices, entropies, samples.

    Where logits are products with the word table, kernels.vocabulary_softmax.FusedSoftmax has the same methods.
    """

    def __init__(self, logits: tf.Tensor) -> None:
        self.logits = logits

    def log_probs(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Log-probabilities float32 [...] of tokens int32 [...]."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids, self.logits)

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """bool [...]: whether no token is likelier."""
        return tf.equal(tf.argmax(self.logits, -1, tf.int32), token_ids)

    def entropies(self) -> tf.Tensor:
        """float32 [...], in nats; no gradient."""
        log_probs = tf.nn.log_softmax(tf.stop_gradient(self.logits))
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, -1)

    def sample(self, noise: tf.Tensor, temperature: float | tf.Tensor = 1.0) -> tf.Tensor:
        """Draws tokens int32 [...] from softmax(logits / temperature); noise float32 [..., 2], uniform in [0, 1)."""
        return sample_from_logits(tf.stop_gradient(self.logits / temperature), noise)


Softmax = VocabularySoftmax | FusedSoftmax
_FORBIDDEN = 1000.0  # subtracted from a token's logit, as in the original's disallow_correct


def without_tokens(softmax: Softmax, token_ids: tf.Tensor) -> VocabularySoftmax:
    """Distributions [B, N] over all tokens but one each, whose id is given, int32 [B, N]."""
    forbidden = tf.range(softmax.logits.shape[-1]) == token_ids[..., tf.newaxis]
    return VocabularySoftmax(tf.where(forbidden, softmax.logits - _FORBIDDEN, softmax.logits))


def sample_from_logits(logits: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Samples from softmax(logits) by inverting its cumulative distribution in two levels.

    The vocabulary is cut into about sqrt(V) blocks; the first draw chooses the block, the second the token within.
    The distribution is that of the original's Gumbel-argmax, for two uniform draws per sample instead of V, so no
    noise of the vocabulary's size exists and the draws can belong to rows of the global batch.

    Args:
      logits: float32 [B, N, V].
      noise: float32 [B, N, 2], uniform in [0, 1).

    Returns:
      int32 [B, N].
    """
    vocab_size = logits.shape[-1]
    block_size = math.isqrt(vocab_size - 1) + 1  # the root of V, rounded up
    blocks = -(-vocab_size // block_size)
    weights = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))  # in proportion to the probabilities
    weights = tf.pad(weights, [[0, 0], [0, 0], [0, blocks * block_size - vocab_size]])
    weights = tf.reshape(weights, [-1, logits.shape[1], blocks, block_size])
    block_weights = tf.reduce_sum(weights, -1)
    block = invert_cumulative(tf.cumsum(block_weights, axis=-1), noise[..., 0])
    token_weights = tf.gather(weights, block, batch_dims=2)  # of the chosen block
    within = invert_cumulative(tf.cumsum(token_weights, axis=-1), noise[..., 1])
    return tf.minimum(block * block_size + within, vocab_size - 1)  # what pads the last block is no token


def tied_logits(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """[..., E] -> float32 [..., V]: products with the word table [V, E], in the compute type, and the bias [V]."""
    flat = tf.reshape(states, [-1, states.shape[-1]])
    products = matmul(flat, tf.cast(table, flat.dtype), transpose_b=True)
    logits = tf.cast(products, tf.float32) + bias
    inner_axes = shape_of(states)[1:-1]
    return tf.reshape(logits, [-1, *inner_axes, logits.shape[-1]])


def token_log_probs(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """float32 [T]: log softmax(states table^T + bias) at token_ids [T]; with kernels no logits of all tokens exist."""
    if are_on():
        return chunked_log_probs(states, table, bias, token_ids)
    return VocabularySoftmax(tied_logits(states, table, bias)).log_probs(token_ids)


def soft_losses(teacher: tf.Tensor, student: tf.Tensor, temperature: float) -> tf.Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)) over the last axis of float32 logits (Hinton et al. 2015).

    T^2 keeps the size of the gradient when T changes; with T = 1 it is that of the cross-entropy.
    """
    wanted = tf.nn.log_softmax(teacher / temperature)
    learned = tf.nn.log_softmax(student / temperature)
    divergence = tf.reduce_sum(tf.exp(wanted) * (wanted - learned), -1)
    return temperature**2 * divergence
