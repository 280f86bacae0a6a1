"""Prediction heads on top of an encoder: over the vocabulary, over tokens, over sequences.

B batch, L length, N drawn positions, H hidden, E embedding, V vocabulary.
"""

import math

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.kernels import compilation, vocabulary
from electra_tf2.model.layers import (
    Dense,
    Layer,
    LayerNorm,
    SizedLayer,
    glorot_uniform,
    shape_of,
    truncated_normal,
    zeros,
)


class VocabularySoftmax:
    """softmax over the vocabulary: log-probabilities, first choices, entropies and samples of float32 logits [..., V].

    Where logits are products with the word table, kernels.vocabulary.FusedSoftmax has the same methods.
    """

    def __init__(self, logits: tf.Tensor) -> None:
        self.logits = logits

    def log_probs(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Log-probabilities float32 [...] of tokens int32 [...]."""
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids, self.logits)

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """bool [...]: the tokens are first choices."""
        return tf.equal(tf.argmax(self.logits, -1, tf.int32), token_ids)

    def entropies(self) -> tf.Tensor:
        """float32 [...], in nats; no gradient."""
        log_probs = tf.nn.log_softmax(tf.stop_gradient(self.logits))
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, -1)

    def sample(self, noise: tf.Tensor, temperature: float | tf.Tensor = 1.0) -> tf.Tensor:
        """Draws tokens int32 [...] from softmax(logits / temperature); noise float32 [..., 2], uniform in [0, 1)."""
        return sample_from_logits(tf.stop_gradient(self.logits / temperature), noise)


Softmax = VocabularySoftmax | vocabulary.FusedSoftmax


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
    block = math.isqrt(vocab_size - 1) + 1
    blocks = -(-vocab_size // block)
    probs = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
    probs = tf.pad(probs, [[0, 0], [0, 0], [0, blocks * block - vocab_size]])
    probs = tf.reshape(probs, [-1, logits.shape[1], blocks, block])
    chosen_block = vocabulary.invert_cumulative(tf.cumsum(tf.reduce_sum(probs, -1), axis=-1), noise[..., 0])
    within = tf.cumsum(tf.gather(probs, chosen_block, batch_dims=2), axis=-1)
    return tf.minimum(chosen_block * block + vocabulary.invert_cumulative(within, noise[..., 1]), vocab_size - 1)


def token_log_probs(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """float32 [T]: log softmax(states table^T + bias) at token_ids [T]; states [T, E] in the compute type."""
    if compilation.are_on():
        return vocabulary.chunked_log_probs(states, table, bias, token_ids)
    return VocabularySoftmax(tied_logits(states, table, bias)).log_probs(token_ids)


def tied_logits(hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """[..., E] -> float32 [..., V]: products with the word table [V, E], in the compute type, and the bias [V]."""
    flat = tf.reshape(hidden, [-1, hidden.shape[-1]])
    logits = tf.cast(tf.matmul(flat, tf.cast(table, flat.dtype), transpose_b=True), tf.float32) + bias
    return tf.reshape(logits, [-1, *shape_of(hidden)[1:-1], logits.shape[-1]])


class LanguageModelHead(Layer):
    """dense(E) + activation + layer norm, then a softmax tied to the word table (BERT; ELECTRA, equation 1).

    Args:
      input_size: width of the states it reads.
      embeddings: the block whose word table [V, E] is the output matrix.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, vocab_size=600, embedding_size=32)
    >>> head = LanguageModelHead("predictions", 64, sizes, Embeddings("embeddings", sizes))
    >>> head(tf.zeros([2, 3, 64])).shape
    TensorShape([2, 3, 600])
    """

    def __init__(
        self, scope: str, input_size: int, architecture: Architecture, embeddings: Embeddings, seed: int = 0
    ) -> None:
        super().__init__(scope, seed)
        size = embeddings.word_embeddings.shape[1]
        initializer = truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", input_size, size, initializer, seed, architecture.hidden_act)
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", size)
        self.embeddings = embeddings
        self.output_bias = self.weight("output_bias", [architecture.vocab_size], zeros, decay=False)

    def hidden(self, states: tf.Tensor) -> tf.Tensor:
        """[..., H] -> [..., E]: what is multiplied with the word table."""
        return self.layer_norm(self.dense(states))

    def softmax(self, states: tf.Tensor) -> Softmax:
        """Distributions over the vocabulary, from states [..., H]."""
        weights = (self.hidden(states), self.embeddings.word_embeddings, self.output_bias)
        return vocabulary.FusedSoftmax(*weights) if compilation.are_on() else VocabularySoftmax(tied_logits(*weights))

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[..., H] -> float32 logits [..., V]."""
        return tied_logits(self.hidden(states), self.embeddings.word_embeddings, self.output_bias)


class TiedHead(Layer):
    """A softmax tied to the word table and a bias, without a transform.

    The word table must be as wide as the states.

    >>> sizes = make_architecture("small", {"hidden_size": 64}, vocab_size=600, embedding_size=64)
    >>> TiedHead("predictions", sizes, Embeddings("embeddings", sizes))(tf.zeros([2, 3, 64])).shape
    TensorShape([2, 3, 600])
    """

    def __init__(self, scope: str, architecture: Architecture, embeddings: Embeddings, seed: int = 0) -> None:
        super().__init__(scope, seed)
        self.embeddings = embeddings
        self.output_bias = self.weight("output_bias", [architecture.vocab_size], zeros, decay=False)

    def hidden(self, states: tf.Tensor) -> tf.Tensor:
        """Returns [B, N, H] as it is: what is multiplied with the word table."""
        return states

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, N, H] -> float32 logits [B, N, V]."""
        return tied_logits(states, self.embeddings.word_embeddings, self.output_bias)


class CopyHead(SizedLayer):
    """One linear unit per token; positive means that the token is the original.

    >>> CopyHead("copy", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 7])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        initializer = truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", architecture.hidden_size, 1, initializer, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 logits [B, L]."""
        return _unit(self.dense, states)


class ContrastHead(SizedLayer):
    """dense(H) + gelu + layer norm over states of whole sequences, which are then compared with one another.

    >>> ContrastHead("contrast", make_architecture("small", {"hidden_size": 64}, 600, None))(tf.zeros([2, 64])).shape
    TensorShape([2, 64])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        hidden, initializer = architecture.hidden_size, truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", hidden, hidden, initializer, seed, "gelu")
        self.layer_norm = LayerNorm(f"{scope}/LayerNorm", hidden)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, H] -> [B, H]."""
        return self.layer_norm(self.dense(states))


class ReplacedTokenHead(SizedLayer):
    """dense(H) + activation, then one logit per token; positive means replaced (ELECTRA, equation 2).

    >>> head = ReplacedTokenHead("replaced", make_architecture("small", {"hidden_size": 64}, 600, None))
    >>> head(tf.zeros([2, 7, 64])).shape
    TensorShape([2, 7])
    """

    def __init__(self, scope: str, architecture: Architecture, seed: int = 0) -> None:
        super().__init__(scope, architecture, seed)
        hidden, initializer = architecture.hidden_size, truncated_normal(architecture.initializer_range)
        self.dense = Dense(f"{scope}/dense", hidden, hidden, initializer, seed, architecture.hidden_act)
        self.logit = Dense(f"{scope}/dense_1", hidden, 1, glorot_uniform, seed)

    def call(self, states: tf.Tensor) -> tf.Tensor:
        """[B, L, H] -> float32 logits [B, L]."""
        return _unit(self.logit, self.dense(states))


def _unit(dense: Dense, states: tf.Tensor) -> tf.Tensor:
    """Applies a layer of one unit, its product in float32 as well: [B, L, H] -> float32 [B, L].

    Out of a bfloat16 product logits near 16, which energies reach, would come in steps of 0.06.
    """
    return tf.squeeze(dense(tf.cast(states, tf.float32)), -1)
