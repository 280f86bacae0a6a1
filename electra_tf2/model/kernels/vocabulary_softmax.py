"""The softmax over the vocabulary in few passes over [T, V]: log-probabilities, their gradient, samples, entropies.

A step of a small model spends as long here as in its layers, because logits are its largest array by far. They are
stored once, as the product leaves them, in the compute type and without the bias. Log-probabilities and samples share
maxima and sums of exponentials, taken over blocks of words. The gradient is one pass over a chunk of tokens, which
writes what three products read.

The plain formulas are model.softmax.VocabularySoftmax. Losses over every token store no logits at all:
kernels.chunked_softmax.

Shapes: T tokens, E embedding, V vocabulary, K blocks of words (`_reduced_blocks`).
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

BLOCK = 128  # words of a block
CHUNK = 1024  # tokens whose gradient of the logits is in memory at the same time
CHUNK_IN_PROGRAM = 8192  # the same where the whole step is one program: launches cost more than memory there

# Gradients of states [T, E], table [V, E] and bias [V].
Gradients = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def _reduced_blocks(
    product: tf.Tensor,
    bias: tf.Tensor,
    function: Callable[[tf.Tensor], tf.Tensor],
    reduce_two: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Reduces a function of the logits over each block of words: [T, K].

    With S = V / 128, rounded down, block k < S has the words k, k + S, k + 2 S, ...; each of the V - 128 S last words
    is a block by itself. Then halves of rows can be reduced with one another, in vectors and in one pass: a fifth of
    the time that XLA takes on processors for blocks of neighbouring words.

    Args:
      product: [T, V], logits without the bias.
      reduce_two: tf.maximum or tf.add.
    """
    stride = product.shape[1] // BLOCK  # S
    whole = stride * BLOCK
    reduced = function(to_float32(product[:, :whole]) + bias[:whole])  # [T, 128 S]
    while reduced.shape[1] > stride:
        half = reduced.shape[1] // 2
        reduced = reduce_two(reduced[:, :half], reduced[:, half:])
    single = function(to_float32(product[:, whole:]) + bias[whole:])  # [T, V - 128 S]
    return tf.concat([reduced, single], 1)


@compiled
def _block_maxima(product: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """[T, K], the largest logit of each block."""
    return _reduced_blocks(product, bias, tf.identity, tf.maximum)


@compiled
def _block_sums(
    product: tf.Tensor,
    bias: tf.Tensor,
    block_maxima: tf.Tensor,
    temperature: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """[T, 1], the largest logit of each token; [T, K], sums of exp((logit - maximum) / temperature) over each block."""
    maximum = tf.reduce_max(block_maxima, -1, keepdims=True)
    inverse = 1.0 / temperature

    def exponentials(logits: tf.Tensor) -> tf.Tensor:
        return tf.exp((logits - maximum) * inverse)

    return maximum, _reduced_blocks(product, bias, exponentials, tf.add)


@compiled
def _weighted_sums(product: tf.Tensor, bias: tf.Tensor, maximum: tf.Tensor) -> tf.Tensor:
    """[T, K], sums of d exp(d) over each block, with d = logit - maximum."""

    def weighted(logits: tf.Tensor) -> tf.Tensor:
        return (logits - maximum) * tf.exp(logits - maximum)

    return _reduced_blocks(product, bias, weighted, tf.add)


@compiled
def _weighted_probabilities(
    weights: tf.Tensor,
    product: tf.Tensor,
    bias: tf.Tensor,
    log_normalizer: tf.Tensor,
) -> tf.Tensor:
    """weights x softmax, [T, V] in the compute type; weights and log_normalizer are [T]."""
    logits = to_float32(product) + bias
    probabilities = tf.exp(logits - log_normalizer[:, tf.newaxis])
    return to_compute_dtype(weights[:, tf.newaxis] * probabilities, product.dtype)


class FusedSoftmax:
    """softmax(states table^T + bias) for some tokens; equals model.softmax.VocabularySoftmax of these logits.

    Args:
      states: [..., E], in the compute type; the axes before the last are those of the tokens.
      table: float32 [V, E].
      bias: float32 [V].
    """

    def __init__(self, states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> None:
        self._axes = tf.shape(states)[:-1]
        self._states = tf.reshape(states, [-1, states.shape[-1]])  # [T, E]
        self._table = tf.convert_to_tensor(table)
        self._bias = tf.convert_to_tensor(bias)
        self._words = cast_weight(self._table, states.dtype)  # [V, E], in the compute type
        self._wide_product = matmul(self._states, self._padded_words, transpose_b=True)  # [T, V + padding]
        self._product = self._wide_product  # [T, V]
        if self._padding:
            (self._wide_product,) = materialize(self._wide_product)
            self._product = self._wide_product[:, : self._table.shape[0]]
        self._block_maxima = _block_maxima(self._product, self._bias)  # [T, K]
        self._maximum, self._sums = self._maximum_and_sums(tf.constant(1.0))  # [T, 1], [T, K]
        self._log_normalizer = tf.squeeze(self._maximum, 1) + tf.math.log(tf.reduce_sum(self._sums, 1))  # [T]

    @property
    def _padding(self) -> int:
        """Rows of zeros below the word table, up to a multiple of 8. For other sizes XLA copies all logits on GPUs."""
        if are_compiled_alone():
            return 0
        return -self._table.shape[0] % 8

    @property
    def _padded_words(self) -> tf.Tensor:
        if not self._padding:
            return self._words
        return tf.pad(self._words, [[0, self._padding], [0, 0]])

    def _maximum_and_sums(self, temperature: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _block_sums(self._product, self._bias, self._block_maxima, temperature)

    def log_probs(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Log-probabilities float32 [...] of tokens int32 [...]."""
        ids = tf.reshape(token_ids, [-1])

        @differentiable
        def compute(*variables: tf.Tensor) -> Any:
            # The product is made of these already. They are arguments so that tapes ask for their gradients.
            del variables

            def gradient(upstream: tf.Tensor) -> Gradients:
                return self.gradients(upstream, ids)

            return self._logits_of(ids) - self._log_normalizer, gradient

        return tf.reshape(compute(self._states, self._table, self._bias), self._axes)

    def _logits_of(self, ids: tf.Tensor) -> tf.Tensor:
        """float32 logits of words, int32 [T] or [T, n]."""
        products = tf.gather(self._wide_product, ids, batch_dims=1)
        return to_float32(products) + tf.gather(self._bias, ids)

    def are_likeliest(self, token_ids: tf.Tensor) -> tf.Tensor:
        """bool [...]: whether no token of the vocabulary is likelier than this one, int32 [...]."""
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
        """Gradients of states, table and bias.

        The gradient of the logits is upstream x (onehot - softmax). Its one-hot part is a gather and two scatters.

        Args:
          upstream: float32 [T], the gradient of `log_probs(token_ids)`.
          token_ids: int32 [T].
        """
        tokens = self._states.shape[0]
        chunks = _chunk_count(tokens)

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
            # The dense part, -weights x softmax, [chunk, V].
            dense = _weighted_probabilities(-weights, product, self._bias, in_chunk(self._log_normalizer))
            places = ids[:, tf.newaxis]
            column = weights[:, tf.newaxis]
            # Each gradient is a product with the dense part, and what the one-hot part adds.
            to_states = to_float32(matmul(dense, self._words))
            to_states += column * to_float32(tf.gather(self._words, ids))
            to_table = to_float32(matmul(dense, states, transpose_a=True))
            to_table = tf.tensor_scatter_nd_add(to_table, places, column * to_float32(states))
            to_bias = tf.tensor_scatter_nd_add(bias_gradient(dense), places, weights)
            return tf.cast(to_states, states.dtype), to_table, to_bias

        return in_chunks(part, chunks)

    def sample(self, noise: tf.Tensor, temperature: float | tf.Tensor = 1.0) -> tf.Tensor:
        """Draws a token of each distribution by inverting the cumulative distribution in two levels; no gradient.

        The first draw chooses a block of words, the second a word within it. The original's argmax of logits + Gumbel
        noise has the same distribution and needs V draws for each sample. Two draws can be made for all rows of the
        global batch (pretrain.masking).

        Args:
          noise: float32 [..., 2], uniform in [0, 1).
          temperature: divides the logits.

        Returns:
          int32 [...].
        """
        noise = tf.reshape(noise, [-1, 2])
        is_one = isinstance(temperature, float) and temperature == 1.0
        sums = self._sums  # at temperature 1
        if not is_one:
            _, sums = self._maximum_and_sums(tf.convert_to_tensor(temperature))
        block = invert_cumulative(tf.cumsum(sums, axis=1), noise[:, 0])  # [T]

        # Blocks as in `_reduced_blocks`: word i of block k < stride is k + i stride. Later blocks have one word; their
        # other 127 places are computed like any, with weight 0.
        vocab_size = self._product.shape[1]
        stride = vocab_size // BLOCK
        place = tf.range(BLOCK)
        is_single = block >= stride  # [T]
        first = tf.where(is_single, block + stride * (BLOCK - 1), block)
        exists = (place == 0) | ~is_single[:, tf.newaxis]  # [T, 128]
        words = tf.minimum(first[:, tf.newaxis] + stride * place, vocab_size - 1)  # [T, 128]
        weights = tf.where(exists, tf.exp((self._logits_of(words) - self._maximum) / temperature), 0.0)
        within = invert_cumulative(tf.cumsum(weights, axis=1), noise[:, 1])  # [T]
        chosen = tf.minimum(first + stride * within, vocab_size - 1)
        return tf.reshape(tf.stop_gradient(chosen), self._axes)

    @property
    def logits(self) -> tf.Tensor:
        """float32 [..., V], computed only where they are asked for."""
        logits = to_float32(self._product) + self._bias
        return tf.reshape(logits, tf.concat([self._axes, [logits.shape[1]]], 0))


def _chunk_count(tokens: int | None) -> int:
    """Chooses into how many chunks of equal size a gradient is cut; 1 if it is not known how many tokens there are."""
    if tokens is None:
        return 1
    most = CHUNK if are_compiled_alone() else CHUNK_IN_PROGRAM
    chunks = -(-tokens // most)
    while tokens % chunks:
        chunks += 1
    return chunks


def invert_cumulative(cumulative: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """int32 [...]: the first index whose cumulative weight, [..., K], exceeds uniform [...] x total."""
    target = uniform[..., tf.newaxis] * cumulative[..., -1:]
    index = tf.reduce_sum(tf.cast(cumulative <= target, tf.int32), -1)
    return tf.minimum(index, cumulative.shape[-1] - 1)


def in_chunks(part: Callable[[tf.Tensor], Gradients], chunks: int) -> Gradients:
    """Gradients of all chunks: those of states are put together, those of table and bias added up.

    Args:
      part: index of a chunk -> gradients of its states, and of table and bias.
    """

    def split(index: tf.Tensor) -> Parts:
        to_states, *totals = part(index)
        return [to_states], totals

    (to_states,), (to_table, to_bias) = in_sequence(split, chunks)
    return tf.reshape(to_states, [-1, to_states.shape[-1]]), to_table, to_bias
