"""Attention over long sequences in tiles of queries: no array of all pairs of positions is ever in memory.

A tile is some queries of a few rows, with all keys of these rows. Only its output is kept; its gradient computes the
tile again, as in FlashAttention (Dao et al. 2022). Unlike there a tile holds whole rows of scores, so the softmax needs
no correction of its maximum; on a processor they fit into the cache at any length that is trained.

Tiles are cut in two steps: the B rows of the batch into groups of b rows, the L queries of a group into tiles of T.

Shapes: B rows, A heads, L length, D head size; in a tile b rows and T queries.
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

MOST_QUERIES = 256  # of a tile
FEWEST_QUERIES = 32  # of a tile; attention is not cut where the length has no divisor between these two
MOST_SCORES = 2**20  # of a tile of several rows, for the cache of a processor
MOST_SCORES_IN_PROGRAM = 2**18  # of a tile's row and head; tiles then have all rows, and memory counts, not the cache


class Tiling(NamedTuple):
    """Plan of the tiles, made when a step is traced.

    queries: of a tile, T; it divides L.
    direction: of attention.
    bias: whether the position bias is "none", "fixed" or "learned".
    """

    queries: int
    direction: Direction
    bias: Bias


def queries_of_tile(shape: tf.TensorShape) -> int | None:
    """Chooses how many queries a tile has for sequences [B, L]; None: attention is not cut."""
    length = shape[1]
    if not shape.is_fully_defined() or not are_on():
        return None
    most = MOST_QUERIES
    if are_one_program():
        most = max(MOST_QUERIES, MOST_SCORES_IN_PROGRAM // length)
    queries = _largest_divisor(length, most)
    if queries < FEWEST_QUERIES:
        return None
    return queries


def _rows_of_tile(batch: int, scores_of_row: int) -> int:
    """Chooses how many rows a tile has."""
    if not are_compiled_alone():  # one program on a GPU takes all rows at once
        return batch
    return _largest_divisor(batch, max(1, MOST_SCORES // scores_of_row))


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above `most`."""
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
    """Attention, cut into tiles: [B, L, A, D] in the type of the queries.

    Args:
      attend: (scores [b, A, T, L], values [b, A, L, D], allowed, position bias, seed) -> [b, A, T, D], as
        `model.attention.attention`.
      qkv: queries, keys and values, [B, A, L, D] each; shapes are static.
      allowed: bool [B, 1, 1, L], keys that may be attended to, whatever the direction.
      by_distance: [A, 2L - 1], added to scaled scores, by distance (key - query position) from 1 - L up; not read where
        the tiling has no bias.
      seed: int32 [2] of the dropout, from which each tile derives one.
    """
    batch, heads, length, width = qkv[0].shape
    size = tiling.queries  # T
    rows = _rows_of_tile(batch, heads * size * length)  # b
    groups = batch // rows
    tiles = length // size  # of a group

    def attended_tile(
        index: tf.Tensor,
        seed: tf.Tensor,
        allowed: tf.Tensor,
        q: tf.Tensor,
        k: tf.Tensor,
        v: tf.Tensor,
        bias: tf.Tensor,
    ) -> tf.Tensor:
        """Computes a tile, [b, A, T, D].

        Args:
          index: of the tile among all tiles of all groups.
          allowed: [b, 1, 1, L].
          q: [b, A, T, D], its queries.
          k, v: [b, A, L, D], keys and values of its rows.
          bias: [A, L + T - 1], by the distances of its queries and keys.
        """
        if tiling.direction != "both":
            first_query = index % tiles * size
            query_positions = first_query + tf.range(size)[:, tf.newaxis]
            allowed &= reaches(tiling.direction, query_positions, tf.range(length))  # [b, 1, T, L]
        if groups * tiles > 1:
            # Else the seed stays, so that a single tile drops what attention on whole arrays drops.
            seed = tf.random.experimental.stateless_fold_in(seed, index, alg="philox")
        if tiling.bias == "none":
            bias = tf.zeros([1, 1, 1, 1], bias.dtype)
        else:
            bias = between(bias, size)  # [1, A, T, L]
        scores = matmul(q, k, transpose_b=True)  # [b, A, T, L]
        return attend(scores, v, allowed, bias, seed)

    def cut_group(x: tf.Tensor, group: tf.Tensor) -> tf.Tensor:
        """[B, ...] -> [b, ...]."""
        other_axes = len(x.shape) - 1
        return tf.slice(x, [group * rows] + [0] * other_axes, [rows, *x.shape[1:]])

    def cut_tile(x: tf.Tensor, tile: tf.Tensor) -> tf.Tensor:
        """[b, A, L, D] -> [b, A, T, D]."""
        return tf.slice(x, [0, 0, tile * size, 0], [rows, heads, size, width])

    def cut_distances(by_distance: tf.Tensor, tile: tf.Tensor) -> tf.Tensor:
        """[A, 2L - 1] -> [A, L + T - 1], the distances of a tile."""
        if tiling.bias == "none":
            return by_distance
        return tf.slice(by_distance, [0, length - size - tile * size], [heads, length + size - 1])

    def joined_distances(gradients: list[tf.Tensor]) -> tf.Tensor:
        """Gradient of all distances, [A, 2L - 1], from those of each tile's, [A, L + T - 1]."""
        padded = []
        for tile, to_distances in enumerate(gradients):
            # The places from which `cut_distances` has cut them.
            after = tile * size
            before = length - size - after
            padded.append(tf.pad(to_distances, [[0, 0], [before, after]]))
        return tf.add_n(padded)

    @differentiable
    def compute(*arguments: tf.Tensor) -> Any:
        q, k, v, by_distance, allowed, seed = arguments

        def forward(index: tf.Tensor) -> Parts:
            group = index // tiles
            tile = index % tiles
            output = attended_tile(
                index,
                seed,
                cut_group(allowed, group),
                cut_tile(cut_group(q, group), tile),
                cut_group(k, group),
                cut_group(v, group),
                cut_distances(by_distance, tile),
            )
            return [output], []

        (output,), _ = in_sequence(forward, groups * tiles)  # [groups x tiles, b, A, T, D]
        output = tf.reshape(output, [groups, tiles, rows, heads, size, width])
        by_row = tf.transpose(output, [0, 2, 1, 4, 3, 5])  # [groups, b, tiles, T, A, D]
        output = tf.reshape(by_row, [batch, length, heads, width])

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
            # Behind a barrier, so that XLA neither keeps scores of the forward pass for this, nor computes them again
            # before this layer has its turn, when those of several layers would be in memory.
            q, k, v, by_distance, allowed, seed, upstream = materialize(*arguments, upstream)
            upstream = tf.transpose(upstream, [0, 2, 1, 3])  # [B, A, L, D]

            def gradient_of_group(group: tf.Tensor) -> Parts:
                allowed_keys = cut_group(allowed, group)
                queries = cut_group(q, group)
                keys = cut_group(k, group)
                values = cut_group(v, group)
                to_output = cut_group(upstream, group)

                def gradient_of_tile(tile: tf.Tensor) -> Parts:
                    tensors = [cut_tile(queries, tile), keys, values, cut_distances(by_distance, tile)]
                    with tf.GradientTape() as tape:
                        tape.watch(tensors)
                        output = attended_tile(group * tiles + tile, seed, allowed_keys, *tensors)
                    to_q, to_k, to_v, to_bias = tape.gradient(output, tensors, cut_tile(to_output, tile))
                    # A query is in one tile, so the tiles' gradients are stacked. Keys and values are in all tiles of
                    # the group, so their gradients are added up.
                    stacked = [to_q]
                    if tiling.bias == "learned":
                        stacked.append(to_bias)
                    return stacked, [to_float32(to_k), to_float32(to_v)]

                (to_q, *to_bias), (to_k, to_v) = in_sequence(gradient_of_tile, tiles)
                to_q = tf.transpose(to_q, [1, 2, 0, 3, 4])  # [b, A, tiles, T, D]
                to_q = tf.reshape(to_q, queries.shape)  # [b, A, L, D]
                return [to_q, tf.cast(to_k, q.dtype), tf.cast(to_v, q.dtype)], to_bias

            (to_q, to_k, to_v), to_distances = in_sequence(gradient_of_group, groups)
            to_bias = None
            if tiling.bias == "learned":
                to_bias = joined_distances(tf.unstack(to_distances[0]))
            to_q = tf.reshape(to_q, q.shape)
            to_k = tf.reshape(to_k, q.shape)
            to_v = tf.reshape(to_v, q.shape)
            return to_q, to_k, to_v, to_bias, None, None

        return output, gradient

    return compute(*qkv, by_distance, allowed, seed)
