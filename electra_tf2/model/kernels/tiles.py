"""Attention over long sequences in tiles of queries: no array of all pairs of positions is ever in memory.

`model.encoder` takes it for long sequences in place of the products of queries and keys and of its attention formula,
to which it is equal. With s_ij = scale q_i k_j + b_(j-i) and dropout as a mask m_ij,

  o_i = sum_j m_ij p_ij v_j,  p_ij = exp(s_ij - n_i),  n_i = log sum_j exp(s_ij).

Of a query its output o_i and n_i are kept. The gradient computes the scores of a tile again and, with do that of o, is

  d_ij = m_ij do_i v_j,  ds_ij = p_ij (d_ij - do_i o_i),
  dq = scale ds k,  dk = scale ds^T q,  dv = (m p)^T do,  db_(j-i) = sum of ds_ij

(Dao et al. 2022, "FlashAttention", appendix B). A tile is some queries of a few rows with all of their keys: its scores
stay in the processor's cache at any length that is trained, so that no maximum has to be corrected on the way. Dropout
draws what it draws on whole arrays.
Shapes: B rows, A heads, L length, D head size; in a tile b rows and T queries.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.compilation import (
    Parts,
    are_compiled_alone,
    are_on,
    are_one_program,
    compiled,
    differentiable,
    in_sequence,
    materialize,
    row_maxima,
    row_sums,
    to_compute_dtype,
    to_float32,
)
from electra_tf2.model.kernels.cpu import MASKED_SCORE, dropped_out
from electra_tf2.model.kernels.positions import Direction, between, reaches, summed_by_distance
from electra_tf2.model.kernels.xla import attention_again

Bias = Literal["none", "fixed", "learned"]

QUERIES = 256  # of a tile, at most
FEWEST = 32  # queries of a tile; a length without a divisor from here to QUERIES is not cut
SCORES = 2**20  # of a tile, if it has more rows than one
SCORES_IN_PROGRAM = 2**18  # of a row and head in one program, whose tiles have all rows: memory counts, not the cache


class Tiling(NamedTuple):
    """Plan of the cuts, known when a step is traced: queries of a tile, direction, and what the bias is."""

    queries: int
    direction: Direction
    bias: Bias


class Attention(NamedTuple):
    """Arguments of attention besides tensors: a tiling, the rows of a tile, the scale of scores, the dropout's rate."""

    tiling: Tiling
    rows: int
    scale: float
    rate: float


def queries_of_tile(shape: tf.TensorShape) -> int | None:
    """Chooses how many queries a tile has for sequences [B, L]; None where attention is not cut."""
    length = shape[1]
    if not shape.is_fully_defined() or not are_on():
        return None
    most = max(QUERIES, SCORES_IN_PROGRAM // length) if are_one_program() else QUERIES
    return next((size for size in range(most, FEWEST - 1, -1) if length % size == 0), None)


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes one graph for all calls alike, as a tile is many operations; keyword arguments are Python values."""
    graphs = {alone: tf.function(function, autograph=False) for alone in (True, False)}

    @functools.wraps(function)
    def call(*tensors: Any, **static: Any) -> Any:
        return graphs[are_compiled_alone()](*tensors, **static)

    return call


# Kernels of a tile. `place`, int32 [2], is its first row and its first query.


def _biased(
    scores: tf.Tensor, allowed: tf.Tensor, bias: tf.Tensor, place: tf.Tensor, attention: Attention
) -> tf.Tensor:
    queries, keys = scores.shape[2:]
    direction = attention.tiling.direction
    if direction != "both":
        allowed &= reaches(direction, place[1] + tf.range(queries)[:, tf.newaxis], tf.range(keys))
    biased = to_float32(scores) * attention.scale + to_float32(bias)
    return biased + tf.where(allowed, tf.zeros([], biased.dtype), MASKED_SCORE)


def _dropped_out(x: tf.Tensor, seed: tf.Tensor, place: tf.Tensor, attention: Attention) -> tf.Tensor:
    """Dropout by the places of a tile [b, A, T, L] in [B, A, L, L], modulo 2^32."""
    if not attention.rate:
        return x
    rows, heads, queries, keys = (tf.bitcast(tf.range(size), tf.uint32) for size in x.shape)
    first_row, first_query = tf.unstack(tf.bitcast(place, tf.uint32))
    _, head_count, _, length = (tf.constant(size, tf.uint32) for size in x.shape)
    places = [
        (first_row + rows[:, tf.newaxis, tf.newaxis, tf.newaxis]) * (head_count * length * length),
        heads[:, tf.newaxis, tf.newaxis] * (length * length),
        (first_query + queries[:, tf.newaxis]) * length,
        keys,
    ]
    return dropped_out(x, seed, attention.rate, places)


@compiled
def _exponentials(
    scores: tf.Tensor,
    allowed: tf.Tensor,
    bias: tf.Tensor,
    place: tf.Tensor,
    seed: tf.Tensor,
    attention: Attention,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """exp(s - max s) after dropout [b, A, T, L], in the type of the scores; its sums without it, and n [b, A, T, 1]."""
    biased = _biased(scores, allowed, bias, place, attention)
    maxima = row_maxima(biased)
    exponentials = tf.exp(biased - maxima)
    sums = row_sums(exponentials)
    dropped = to_compute_dtype(_dropped_out(exponentials, seed, place, attention), scores.dtype)
    return dropped, sums, maxima + tf.math.log(sums)


@compiled
def _gradients_of_tile(
    scores: tf.Tensor,
    to_dropped: tf.Tensor,
    output: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    keys: tuple[tf.Tensor, tf.Tensor],
    place: tf.Tensor,
    seed: tf.Tensor,
    attention: Attention,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes m p and scale ds [b, A, T, L] from do v^T, (o, do, n) and (allowed, bias)."""
    values, upstream, normalizers = output
    p = tf.exp(_biased(scores, *keys, place, attention) - normalizers)
    inner = row_sums(to_float32(upstream) * to_float32(values))
    to_scores = attention.scale * p * (_dropped_out(to_float32(to_dropped), seed, place, attention) - inner)
    return to_compute_dtype(_dropped_out(p, seed, place, attention), scores.dtype), to_compute_dtype(
        to_scores, scores.dtype
    )


class _Tiles:
    """Cuts the arguments of attention; tiles are numbered queries first."""

    def __init__(self, q: tf.Tensor, allowed: tf.Tensor, by_distance: tf.Tensor, attention: Attention) -> None:
        self.batch, self.heads, self.length, self.width = q.shape
        self.attention, self._allowed, self._by_distance = attention, allowed, by_distance
        self.rows, self.queries = attention.rows, attention.tiling.queries
        self.count_of_rows, self.count_of_queries = self.batch // self.rows, self.length // self.queries

    def place(self, index: tf.Tensor) -> tf.Tensor:
        return tf.stack([index // self.count_of_queries * self.rows, index % self.count_of_queries * self.queries])

    def some_rows(self, x: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Cuts [B, ...] to [b, ...]."""
        return tf.slice(x, [place[0]] + [0] * (len(x.shape) - 1), [self.rows, *x.shape[1:]])

    def some_queries(self, x: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Cuts [B, A, L, D] to [b, A, T, D]."""
        return tf.slice(x, [place[0], 0, place[1], 0], [self.rows, self.heads, self.queries, self.width])

    def heads_first(self, x: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Cuts and transposes [B, L, A, D] to [b, A, T, D]."""
        x = tf.slice(x, [place[0], place[1], 0, 0], [self.rows, self.queries, self.heads, self.width])
        return tf.transpose(x, [0, 2, 1, 3])

    def keys(self, place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts out `allowed` and bias of a tile."""
        bias = tf.zeros([1, 1, 1, 1], self._by_distance.dtype)
        if self.attention.tiling.bias != "none":
            count = self.length + self.queries - 1
            first = self.length - place[1] - self.queries
            bias = between(tf.slice(self._by_distance, [0, first], [self.heads, count]), self.queries)
        return self.some_rows(self._allowed, place), bias

    def to_by_distance(self, of_tiles: tf.Tensor) -> tf.Tensor:
        """Joins [tiles of queries, A, L + T - 1] to [A, 2L - 1]."""
        parts = []
        for number in range(self.count_of_queries):
            after = number * self.queries
            parts.append(tf.pad(of_tiles[number], [[0, 0], [self.length - after - self.queries, after]]))
        return tf.add_n(parts)


@traced_once
def _forward(
    q: tf.Tensor,
    k: tf.Tensor,
    v: tf.Tensor,
    allowed: tf.Tensor,
    by_distance: tf.Tensor,
    seed: tf.Tensor,
    attention: Attention,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes o [B, L, A, D] and n of every tile [tiles, b, A, T, 1]."""
    tiles = _Tiles(q, allowed, by_distance, attention)

    def part(index: tf.Tensor) -> Parts:
        place = tiles.place(index)
        scores = tf.matmul(tiles.some_queries(q, place), tiles.some_rows(k, place), transpose_b=True)
        dropped, sums, normalizers = _exponentials(scores, *tiles.keys(place), place, seed, attention=attention)
        output = to_float32(tf.matmul(dropped, tiles.some_rows(v, place))) / sums
        return [tf.transpose(tf.cast(output, q.dtype), [0, 2, 1, 3]), normalizers], []

    (output, normalizers), _ = in_sequence(part, tiles.count_of_rows * tiles.count_of_queries)
    output = tf.reshape(output, [tiles.count_of_rows, tiles.count_of_queries, tiles.rows, *output.shape[2:]])
    output = tf.transpose(output, [0, 2, 1, 3, 4, 5])
    return tf.reshape(output, [tiles.batch, tiles.length, tiles.heads, tiles.width]), normalizers


@traced_once
def _gradient(
    upstream: tf.Tensor,
    output: tuple[tf.Tensor, tf.Tensor],
    arguments: tuple[tf.Tensor, ...],
    attention: Attention,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Gradients of q, k, v and `by_distance`."""
    q, k, v, allowed, by_distance, seed = arguments
    values, normalizers = output
    tiles = _Tiles(q, allowed, by_distance, attention)
    learned = attention.tiling.bias == "learned"

    def gradients_of_rows(number: tf.Tensor) -> Parts:
        def part(index: tf.Tensor) -> Parts:
            index += number * tiles.count_of_queries
            place = tiles.place(index)
            queries, to_output = tiles.some_queries(q, place), tiles.heads_first(upstream, place)
            output = (tiles.heads_first(values, place), to_output, normalizers[index])
            scores = tf.matmul(queries, row_keys, transpose_b=True)
            to_dropped = tf.matmul(to_output, row_values, transpose_b=True)
            dropped, to_scores = _gradients_of_tile(
                scores, to_dropped, output, tiles.keys(place), place, seed, attention=attention
            )
            to_q = tf.matmul(to_scores, row_keys)
            to_keys = to_float32(tf.matmul(to_scores, queries, transpose_a=True))
            to_values = to_float32(tf.matmul(dropped, to_output, transpose_a=True))
            if not learned:
                return [to_q], [to_keys, to_values]
            of_pairs = tf.reduce_sum(to_float32(to_scores), 0, keepdims=True) / attention.scale
            return [to_q, summed_by_distance(of_pairs)], [to_keys, to_values]

        place = tiles.place(number * tiles.count_of_queries)
        row_keys, row_values = tiles.some_rows(k, place), tiles.some_rows(v, place)
        (to_q, *to_bias), to_keys_and_values = in_sequence(part, tiles.count_of_queries)
        to_q = tf.reshape(tf.transpose(to_q, [1, 2, 0, 3, 4]), row_keys.shape)
        return [to_q, *(tf.cast(x, q.dtype) for x in to_keys_and_values)], to_bias

    to_products, to_bias = in_sequence(gradients_of_rows, tiles.count_of_rows)
    to_q, to_k, to_v = (tf.reshape(x, q.shape) for x in to_products)
    return to_q, to_k, to_v, tiles.to_by_distance(to_bias[0]) if learned else None


@differentiable
def _attend(*arguments: tf.Tensor, attention: Attention) -> Any:
    output, normalizers = _forward(*arguments, attention=attention)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        barred = tuple(materialize(*arguments))  # else the scores would be kept
        *to_products, to_bias = _gradient(upstream, (output, normalizers), barred, attention=attention)
        return *to_products, None, to_bias, None

    return output, gradient


def tiled_attention(
    qkv: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    allowed: tf.Tensor,
    by_distance: tf.Tensor,
    seed: tf.Tensor,
    tiling: Tiling,
    scale: float,
    rate: float,
) -> tf.Tensor:
    """softmax(scale q k^T + bias) v with dropout of the probabilities, [B, L, A, D] in the type of `q`.

    Args:
      qkv: queries, keys and values, [B, A, L, D] each; shapes are static.
      allowed: bool [B, 1, 1, L], keys that may be attended to, apart from the tiling's direction.
      by_distance: [A, 2L - 1], added to the scaled score of key position - query position, from 1 - L up; anything
        where the tiling has no bias.
      seed: int32 [2]; rate: of the dropout.
      tiling: its number of queries divides L.
    """
    batch, heads, length, _ = qkv[0].shape
    if are_one_program() and tiling.queries == length:
        if tiling.direction != "both":
            allowed &= reaches(tiling.direction, tf.range(length)[:, tf.newaxis], tf.range(length))
        bias = tf.zeros([1, 1, 1, 1]) if tiling.bias == "none" else between(by_distance, length)
        return tf.transpose(attention_again(*qkv, allowed, bias, seed, scale=scale, rate=rate), [0, 2, 1, 3])
    rows = batch
    if are_compiled_alone():  # a tile should fit the processor's cache; one program on a GPU takes all rows at once
        most = max(1, SCORES // (heads * tiling.queries * length))
        rows = next(size for size in range(min(most, batch), 0, -1) if batch % size == 0)
    attention = Attention(tiling, rows, scale, rate)
    return _attend(*qkv, allowed, by_distance, seed, attention=attention)
