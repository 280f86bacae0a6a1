"""Attention over long sequences in tiles of queries: no array of all pairs of positions is ever in memory.

A tile is some queries of a few rows with all of their keys. Only its output is kept, and its gradient computes the tile
again, as FlashAttention's does (Dao et al. 2022); on a processor its scores stay in the cache at any length that is
trained, so that no maximum has to be corrected on the way.
B rows, A heads, L length, D head size; in a tile b rows and T queries.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from electra_tf2.model.kernels.barriers import materialize
from electra_tf2.model.kernels.dtypes import to_float32
from electra_tf2.model.kernels.gradients import differentiable
from electra_tf2.model.kernels.loops import Parts, in_sequence
from electra_tf2.model.kernels.positions import Direction, between, reaches
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.kernels.switch import are_compiled_alone, are_on, are_one_program

Bias = Literal["none", "fixed", "learned"]

QUERIES = 256  # of a tile, at most
FEWEST = 32  # queries of a tile, whose number divides the length; where that would be fewer, nothing is cut
SCORES = 2**20  # of a tile, if it has more rows than one
SCORES_IN_PROGRAM = 2**18  # of a row and head in one program, whose tiles have all rows: memory counts, not the cache


class Tiling(NamedTuple):
    """Plan of the cuts, known when a step is traced: queries of a tile, direction, and what the bias is."""

    queries: int
    direction: Direction
    bias: Bias


def queries_of_tile(shape: tf.TensorShape) -> int | None:
    """Chooses how many queries a tile has for sequences [B, L]; None where attention is not cut."""
    length = shape[1]
    if not shape.is_fully_defined() or not are_on():
        return None
    most = QUERIES
    if are_one_program():
        most = max(QUERIES, SCORES_IN_PROGRAM // length)
    queries = _largest_divisor(length, most)
    if queries < FEWEST:
        return None
    return queries


def _rows_of_tile(batch: int, scores: int) -> int:
    """Chooses how many rows a tile has whose rows have so many scores each."""
    if not are_compiled_alone():  # one program on a GPU takes all rows at once
        return batch
    return _largest_divisor(batch, max(1, SCORES // scores))


def _largest_divisor(number: int, most: int) -> int:
    """Finds the largest divisor of a number that is no larger than `most`."""
    divisor = min(most, number)
    while number % divisor:
        divisor -= 1
    return divisor


def tiled_attention(
    attend: Callable[..., tf.Tensor],
    qkv: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    allowed: tf.Tensor,
    by_distance: tf.Tensor,
    seed: tf.Tensor,
    tiling: Tiling,
) -> tf.Tensor:
    """Attention of a formula of scores, [B, L, A, D] in the type of the queries.

    Args:
      attend: (scores [b, A, T, L], values [b, A, L, D], allowed, position bias, seed) -> [b, A, T, D], as
        `model.attention.attention`.
      qkv: queries, keys and values, [B, A, L, D] each; shapes are static.
      allowed: bool [B, 1, 1, L], keys that may be attended to, apart from the tiling's direction.
      by_distance: [A, 2L - 1], added to the scaled score of key position - query position, from 1 - L up; anything
        where the tiling has no bias.
      seed: int32 [2] of the dropout; every tile has one of its own.
      tiling: its number of queries divides L.
    """
    batch, heads, length, width = qkv[0].shape
    size = tiling.queries
    rows = _rows_of_tile(batch, heads * size * length)
    groups = batch // rows  # of rows
    tiles = length // size  # of a group

    def attended(
        index: tf.Tensor, seed: tf.Tensor, allowed: tf.Tensor, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, bias: tf.Tensor
    ) -> tf.Tensor:
        """Computes a tile [b, A, T, D] of its queries, of keys and values of its rows, and of its distances."""
        if tiling.direction != "both":
            first = index % tiles * size
            allowed &= reaches(tiling.direction, first + tf.range(size)[:, tf.newaxis], tf.range(length))
        if groups * tiles > 1:  # a single tile drops what attention on whole arrays drops
            seed = tf.random.experimental.stateless_fold_in(seed, index, alg="philox")
        if tiling.bias == "none":
            bias = tf.zeros([1, 1, 1, 1], bias.dtype)
        else:
            bias = between(bias, size)
        scores = matmul(q, k, transpose_b=True)
        return attend(scores, v, allowed, bias, seed)

    def in_groups(x: tf.Tensor, group: tf.Tensor) -> tf.Tensor:
        """Cuts [B, ...] to [b, ...]."""
        other_axes = len(x.shape) - 1
        return tf.slice(x, [group * rows] + [0] * other_axes, [rows, *x.shape[1:]])

    def in_tiles(x: tf.Tensor, tile: tf.Tensor) -> tf.Tensor:
        """Cuts [b, A, L, D] to [b, A, T, D]."""
        return tf.slice(x, [0, 0, tile * size, 0], [rows, heads, size, width])

    def distances(by_distance: tf.Tensor, tile: tf.Tensor) -> tf.Tensor:
        """Cuts [A, 2L - 1] to the distances of a tile, [A, L + T - 1]."""
        if tiling.bias == "none":
            return by_distance
        return tf.slice(by_distance, [0, length - size - tile * size], [heads, length + size - 1])

    @differentiable
    def compute(*arguments: tf.Tensor) -> Any:
        q, k, v, by_distance, allowed, seed = arguments

        def forward(index: tf.Tensor) -> Parts:
            group = index // tiles
            tile = index % tiles
            output = attended(
                index,
                seed,
                in_groups(allowed, group),
                in_tiles(in_groups(q, group), tile),
                in_groups(k, group),
                in_groups(v, group),
                distances(by_distance, tile),
            )
            return [output], []

        (output,), _ = in_sequence(forward, groups * tiles)
        output = tf.reshape(output, [groups, tiles, rows, heads, size, width])
        by_row = tf.transpose(output, [0, 2, 1, 4, 3, 5])  # groups, rows, tiles, queries, heads, width
        output = tf.reshape(by_row, [batch, length, heads, width])

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
            # The barrier keeps XLA from using scores of the forward pass, which would have to be kept, and from
            # computing them anew before this layer's turn, when those of several layers would be in memory.
            q, k, v, by_distance, allowed, seed, upstream = materialize(*arguments, upstream)
            upstream = tf.transpose(upstream, [0, 2, 1, 3])

            def gradient_of_group(group: tf.Tensor) -> Parts:
                allowed_keys = in_groups(allowed, group)
                queries = in_groups(q, group)
                keys = in_groups(k, group)
                values = in_groups(v, group)
                to_output = in_groups(upstream, group)

                def gradient_of_tile(tile: tf.Tensor) -> Parts:
                    tensors = [in_tiles(queries, tile), keys, values, distances(by_distance, tile)]
                    with tf.GradientTape() as tape:
                        tape.watch(tensors)
                        output = attended(group * tiles + tile, seed, allowed_keys, *tensors)
                    to_q, to_k, to_v, to_bias = tape.gradient(output, tensors, in_tiles(to_output, tile))
                    # Each query is in one tile, so tiles are stacked; keys and values are in all tiles of the group,
                    # so their gradients are added up.
                    stacked = [to_q]
                    if tiling.bias == "learned":
                        stacked.append(to_bias)
                    return stacked, [to_float32(to_k), to_float32(to_v)]

                (to_q, *to_bias), (to_k, to_v) = in_sequence(gradient_of_tile, tiles)
                to_q = tf.reshape(tf.transpose(to_q, [1, 2, 0, 3, 4]), queries.shape)
                return [to_q, tf.cast(to_k, q.dtype), tf.cast(to_v, q.dtype)], to_bias

            (to_q, to_k, to_v), to_distances = in_sequence(gradient_of_group, groups)
            to_bias = None
            if tiling.bias == "learned":
                padded = []
                for tile, to_its_distances in enumerate(tf.unstack(to_distances[0])):  # [A, L + T - 1] each
                    after = tile * size
                    before = length - size - after
                    padded.append(tf.pad(to_its_distances, [[0, 0], [before, after]]))
                to_bias = tf.add_n(padded)
            to_q = tf.reshape(to_q, q.shape)
            to_k = tf.reshape(to_k, q.shape)
            to_v = tf.reshape(to_v, q.shape)
            return to_q, to_k, to_v, to_bias, None, None

        return output, gradient

    return compute(*qkv, by_distance, allowed, seed)
