"""Attention in tiles against attention on whole arrays: values, gradients, dropout; encoders that use either."""

import functools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model import attention, kernels
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels import tiles
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.model.kernels.positions import between, reaches
from electra_tf2.model.kernels.tiles import Tiling
from electra_tf2.model.layers import SeedStream, fold_in
from tests.support.encoder_reference import assert_alike, in_a_graph, inputs, passes

ROWS, HEADS, LENGTH, WIDTH, QUERIES = 4, 2, 12, 4, 4
SEED = tf.constant([5, 6])


def normal(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 2], dtype=tf.float64)


def attend(rate):
    return functools.partial(attention.attention, scale=WIDTH**-0.5, rate=rate)


def whole(q, k, v, by_distance, allowed, direction, rate, rows):
    """The same, cut out of [B, A, L, L] arrays; every tile drops out by a seed of its own."""
    places = tf.range(LENGTH)
    allowed = tf.tile(allowed, [1, 1, LENGTH, 1])
    if direction != "both":
        allowed &= reaches(direction, places[:, tf.newaxis], places)
    scores, bias, outputs = tf.matmul(q, k, transpose_b=True), between(by_distance, LENGTH), []
    for index, (row, first) in enumerate((r, i) for r in range(0, ROWS, rows) for i in range(0, LENGTH, QUERIES)):
        some, queries = slice(row, row + rows), slice(first, first + QUERIES)
        arguments = scores[some, :, queries], v[some], allowed[some, :, queries], bias[:, :, queries]
        outputs.append(attend(rate)(*arguments, fold_in(SEED, index)))
    per_row = LENGTH // QUERIES
    output = tf.concat([tf.concat(outputs[i : i + per_row], 2) for i in range(0, len(outputs), per_row)], 0)
    return tf.transpose(output, [0, 2, 1, 3])


UPSTREAM = normal(ROWS, LENGTH, HEADS, WIDTH, seed=9)


def with_gradients(function, *tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = function(*tensors)
        loss = tf.reduce_sum(tf.square(output) * UPSTREAM)
    return [output, *tape.gradient(loss, tensors)]


@pytest.mark.parametrize(
    ("direction", "bias", "rate", "rows", "compiled"),
    [
        ("both", "none", 0.0, 1, "blocks"),
        ("left_to_right", "learned", 0.3, 2, "blocks"),
        ("right_to_left", "fixed", 0.3, ROWS, "program"),
    ],
)
def test_tiles_compute_what_whole_arrays_do(monkeypatch, direction, bias, rate, rows, compiled):
    monkeypatch.setattr(tiles, "MOST_SCORES", rows * HEADS * QUERIES * LENGTH)
    allowed = tf.sequence_mask([LENGTH, 7, 10, LENGTH], LENGTH)[:, tf.newaxis, tf.newaxis]
    tensors = [normal(ROWS, HEADS, LENGTH, WIDTH, seed=i) for i in range(3)]
    tensors.append(tf.zeros([HEADS, 2 * LENGTH - 1], tf.float64) if bias == "none" else normal(HEADS, 2 * LENGTH - 1))

    def tiled(q, k, v, by_distance):
        tiling = Tiling(QUERIES, direction, bias)
        return tiles.tiled_attention(attend(rate), (q, k, v), allowed, by_distance, SEED, tiling)

    compile_as = one_program if compiled == "program" else lambda f: tf.function(f, autograph=False)
    found = compile_as(lambda *tensors: with_gradients(tiled, *tensors))(*tensors)
    with kernels.off():
        expected = with_gradients(lambda q, k, v, bias: whole(q, k, v, bias, allowed, direction, rate, rows), *tensors)
    for number, (value, exact) in enumerate(zip(found, expected, strict=True)):
        if number == 4 and bias != "learned":
            assert value is None
        else:
            np.testing.assert_allclose(value, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("positions", ["coco", "none"])
def test_an_encoder_of_long_sequences_computes_the_same_in_tiles(monkeypatch, positions):
    """In float32, with dropout, but of probabilities."""
    architecture = Architecture(
        50, 8, 8, 1, 2, 16, max_position_embeddings=16, relative_positions=positions, relative_position_buckets=8,
        relative_position_max_distance=8, initializer_range=0.3, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    network = Encoder("electra", architecture, direction="left_to_right")

    def step():
        return passes(network, inputs(16), SeedStream(SEED))

    expected = in_a_graph(step)
    monkeypatch.setattr(attention, "LONG", 16)
    monkeypatch.setattr(tiles, "FEWEST_QUERIES", 4)
    monkeypatch.setattr(tiles, "MOST_QUERIES", 4)
    monkeypatch.setattr(attention, "attention", attended := mock.Mock(wraps=attention.attention))
    assert_alike(in_a_graph(step), expected)
    assert {call.args[0].shape for call in attended.call_args_list} == {(2, 2, 4, 16)}


def test_lengths_that_have_no_good_divisor_are_not_cut():
    shapes = {2048: 256, 4096: 256, 3000: 250, 2080: 208, 2096: 131, 2 * 1033: None}
    found = {length: tiles.queries_of_tile(tf.TensorShape([2, length])) for length in shapes}
    assert found == shapes
    assert tiles.queries_of_tile(tf.TensorShape([None, 2048])) is None
    with kernels.off():
        assert tiles.queries_of_tile(tf.TensorShape([2, 2048])) is None
