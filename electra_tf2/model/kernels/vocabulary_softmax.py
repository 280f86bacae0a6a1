"""The softmax over the vocabulary in few passes over [T, V]: log-probabilities, their gradient, samples, entropies.

A step of a small model spends as long here as in its layers: logits are its largest array by far. They are stored once,
as the product leaves them, in the compute type and without the bias; log-probabilities and samples share the maxima and
the sums of exponentials, taken in blocks of words; the gradient is one pass that writes what three products read, in
chunks of tokens. Losses over every token store no logits at all: kernels.chunked_softmax. The plain formulas are
model.softmax.VocabularySoftmax.
Shapes: T tokens, E embedding, V vocabulary, K blocks of words (`_of_blocks`).
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.compilation import compiled
from electra_tf2.model.kernels.dtypes import cast_weight, to_compute_dtype, to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.loops import Parts, in_sequence
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.sums import bias_gradient
from electra_tf2.model.kernels.switch import are_compiled_alone

BLOCK = 128  # words
CHUNK = 1024  # tokens whose gradient exists at the same time
CHUNK_IN_PROGRAM = 8192  # the same where the whole step is one program: launches count for more than memory there

Gradients = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def _of_blocks(
    product: tf.Tensor,
    bias: tf.Tensor,
    of_logits: Callable[[tf.Tensor], tf.Tensor],
    join: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Joins a function of the logits of each block of words: [T, K].

    Block k of the first S = V / 128, rounded down, has the words k, k + S, k + 2 S, ...; the V - 128 S last words have
    a block each. So halves of rows are joined, in vectors and in one pass: a fifth of the time that XLA takes on CPUs
    for blocks of neighbouring words.
    """
    stride = product.shape[1] // BLOCK
    whole = stride * BLOCK
    joined = of_logits(to_float32(product[:, :whole]) + bias[:whole])
    while joined.shape[1] > stride:
        half = joined.shape[1] // 2
        joined = join(joined[:, :half], joined[:, half:])
    single = of_logits(to_float32(product[:, whole:]) + bias[whole:])
    return tf.concat([joined, single], 1)


@compiled
def _block_maxima(product: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Maxima of the logits, [T, K]."""
    return _of_blocks(product, bias, tf.identity, tf.maximum)


@compiled
def _block_sums(
    product: tf.Tensor, bias: tf.Tensor, block_maxima: tf.Tensor, temperature: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Maximum [T, 1] of each token's logits, and sums [T, K] of exp((logit - maximum) / temperature)."""
    maximum = tf.reduce_max(block_maxima, -1, keepdims=True)
    inverse = 1.0 / temperature

    def exponentials(logits: tf.Tensor) -> tf.Tensor:
        return tf.exp((logits - maximum) * inverse)

    return maximum, _of_blocks(product, bias, exponentials, tf.add)


@compiled
def _weighted_sums(product: tf.Tensor, bias: tf.Tensor, maximum: tf.Tensor) -> tf.Tensor:
    """Sums [T, K] of d exp(d), d = logit - maximum."""

    def weighted(logits: tf.Tensor) -> tf.Tensor:
        return (logits - maximum) * tf.exp(logits - maximum)

    return _of_blocks(product, bias, weighted, tf.add)


@compiled
def _weighted_probabilities(
    weights: tf.Tensor, product: tf.Tensor, bias: tf.Tensor, log_normalizer: tf.Tensor
) -> tf.Tensor:
    """Weights x softmax, [T, V] in the compute type; weights and log_normalizer are [T]."""
    logits = to_float32(product) + bias
    probabilities = tf.exp(logits - log_normalizer[:, tf.newaxis])
    return to_compute_dtype(weights[:, tf.newaxis] * probabilities, product.dtype)


class FusedSoftmax:
    """softmax(states table^T + bias) of some tokens; equals model.softmax.VocabularySoftmax of these logits.

    Args:
      states: [..., E], in the compute type; all axes but the last are those of the tokens.
      table: float32 [V, E]. bias: float32 [V].
    """

    def __init__(self, states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> None:
        self._axes = tf.shape(states)[:-1]
        self._states = tf.reshape(states, [-1, states.shape[-1]])
        self._table = tf.convert_to_tensor(table)
        self._bias = tf.convert_to_tensor(bias)
        self._words = cast_weight(self._table, states.dtype)
        self._wide_product = matmul(self._states, self._padded_words, transpose_b=True)
        self._product = self._wide_product
        if self._padding:
            (self._wide_product,) = materialize(self._wide_product)
            self._product = self._wide_product[:, : self._table.shape[0]]
        self._block_maxima = _block_maxima(self._product, self._bias)
        self._maximum, self._sums = self._blocks(tf.constant(1.0))
        self._log_normalizer = tf.squeeze(self._maximum, 1) + tf.math.log(tf.reduce_sum(self._sums, 1))

    @property
    def _padding(self) -> int:
        """Rows of zeros below the word table, where GPUs multiply whole eights only and XLA would copy all logits."""
        if are_compiled_alone():
            return 0
        return -self._table.shape[0] % 8

    @property
    def _padded_words(self) -> tf.Tensor:
        if not self._padding:
            return self._words
        return tf.pad(self._words, [[0, self._padding], [0, 0]])

    def _blocks(self, temperature: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _block_sums(self._product, self._bias, self._block_maxima, temperature)

    def log_probs(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Log-probabilities float32 [...] of tokens int32 [...]."""
        ids = tf.reshape(token_ids, [-1])

        @differentiable
        def compute(*variables: tf.Tensor) -> Any:
            # The product was made of these; they are arguments, so that a gradient is asked for.
            del variables

            def gradient(upstream: tf.Tensor) -> Gradients:
                return self.gradients(upstream, ids)

            return self._logits_of(ids) - self._log_normalizer, gradient

        return tf.reshape(compute(self._states, self._table, self._bias), self._axes)

    def _logits_of(self, ids: tf.Tensor) -> tf.Tensor:
        """Logits, float32, of words int32 [T] or [T, n]."""
        products = tf.gather(self._wide_product, ids, batch_dims=1)
        return to_float32(products) + tf.gather(self._bias, ids)

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Tells where no word is likelier than the given one: bool [...]."""
        ids = tf.reshape(token_ids, [-1])
        return tf.reshape(self._logits_of(ids) >= tf.squeeze(self._maximum, 1), self._axes)

    def entropies(self) -> tf.Tensor:
        """Entropies float32 [...], in nats; no gradient."""
        # With d = logit - maximum and S = sum(exp(d)): -sum(p log p) = log S - sum(d exp(d)) / S.
        sums = tf.reduce_sum(self._sums, 1)
        weighted_sums = tf.reduce_sum(_weighted_sums(self._product, self._bias, self._maximum), 1)
        entropies = tf.math.log(sums) - weighted_sums / sums
        return tf.reshape(tf.stop_gradient(entropies), self._axes)

    def gradients(self, upstream: tf.Tensor, token_ids: tf.Tensor) -> Gradients:
        """Gradients of states, table and bias, given that of `log_probs(token_ids)`, all of T tokens.

        The logits' is upstream x (onehot - softmax); the one-hot part is a gather and two scatters.
        """
        tokens = self._states.shape[0]
        chunks = _number_of_chunks(tokens)

        def part(index: tf.Tensor) -> Gradients:
            def in_chunk(x: tf.Tensor) -> tf.Tensor:
                """Cuts [T, ...] to the rows of this chunk."""
                if chunks == 1:
                    return x
                size = tokens // chunks
                other_axes = len(x.shape) - 1
                return tf.slice(x, [index * size] + [0] * other_axes, [size, *x.shape[1:]])

            weights = in_chunk(upstream)
            ids = in_chunk(token_ids)
            states = in_chunk(self._states)
            product = in_chunk(self._wide_product)
            if self._padding:
                product = product[:, : self._product.shape[1]]
            dense = _weighted_probabilities(-weights, product, self._bias, in_chunk(self._log_normalizer))
            places = ids[:, tf.newaxis]
            column = weights[:, tf.newaxis]
            # Each is a product with the dense part, -softmax, and what the one-hot part adds.
            to_states = to_float32(matmul(dense, self._words))
            to_states += column * to_float32(tf.gather(self._words, ids))
            to_table = to_float32(matmul(dense, states, transpose_a=True))
            to_table = tf.tensor_scatter_nd_add(to_table, places, column * to_float32(states))
            to_bias = tf.tensor_scatter_nd_add(bias_gradient(dense), places, weights)
            return tf.cast(to_states, states.dtype), to_table, to_bias

        return in_chunks(part, chunks)

    def sample(self, noise: tf.Tensor, temperature: float | tf.Tensor = 1.0) -> tf.Tensor:
        """Draws a token each by inverting the cumulative distribution in two levels; no gradient.

        The first draw chooses the block of words, the second the word within. The distribution is that of the
        original's Gumbel-argmax, for two uniform draws per sample instead of V, so no noise of the vocabulary's size
        exists and the draws can belong to rows of the global batch.

        Args:
          noise: float32 [..., 2], uniform in [0, 1).
          temperature: that logits are divided by.

        Returns:
          int32 [...].
        """
        noise = tf.reshape(noise, [-1, 2])
        is_one = isinstance(temperature, float) and temperature == 1.0
        sums = self._sums  # at temperature 1
        if not is_one:
            _, sums = self._blocks(tf.convert_to_tensor(temperature))
        block = invert_cumulative(tf.cumsum(sums, axis=1), noise[:, 0])

        # Blocks as in `_of_blocks`: word i of block k < stride is k + i stride; the later ones have one word each, and
        # what is computed of their others counts nothing.
        vocab_size = self._product.shape[1]
        stride = vocab_size // BLOCK
        place = tf.range(BLOCK)
        is_single = block >= stride
        first = tf.where(is_single, block + stride * (BLOCK - 1), block)
        exists = (place == 0) | ~is_single[:, tf.newaxis]
        words = tf.minimum(first[:, tf.newaxis] + stride * place, vocab_size - 1)
        weights = tf.where(exists, tf.exp((self._logits_of(words) - self._maximum) / temperature), 0.0)
        within = invert_cumulative(tf.cumsum(weights, axis=1), noise[:, 1])
        chosen = tf.minimum(first + stride * within, vocab_size - 1)
        return tf.reshape(tf.stop_gradient(chosen), self._axes)

    @property
    def logits(self) -> tf.Tensor:
        """float32 [..., V], made only where they are asked for."""
        logits = to_float32(self._product) + self._bias
        return tf.reshape(logits, tf.concat([self._axes, [logits.shape[1]]], 0))


def _number_of_chunks(tokens: int | None) -> int:
    """Chooses in how many chunks of equal size a gradient is computed; one where the number of tokens is not static."""
    if tokens is None:
        return 1
    most = CHUNK if are_compiled_alone() else CHUNK_IN_PROGRAM
    chunks = -(-tokens // most)
    while tokens % chunks:
        chunks += 1
    return chunks


def invert_cumulative(cumulative: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Finds the first index whose cumulative weight exceeds uniform x total: int32 [...] from [..., K], [...]."""
    target = uniform[..., tf.newaxis] * cumulative[..., -1:]
    index = tf.reduce_sum(tf.cast(cumulative <= target, tf.int32), -1)
    return tf.minimum(index, cumulative.shape[-1] - 1)


def in_chunks(part: Callable[[tf.Tensor], Gradients], chunks: int) -> Gradients:
    """Gradients of states [T, E], of which `part` computes a chunk, and of table and bias, which add up."""

    def split(index: tf.Tensor) -> Parts:
        to_states, *totals = part(index)
        return [to_states], totals

    (to_states,), (to_table, to_bias) = in_sequence(split, chunks)
    return tf.reshape(to_states, [-1, to_states.shape[-1]]), to_table, to_bias
