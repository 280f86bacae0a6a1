"""Fused blocks: values and gradients of the plain block, dropout's rate, independence and reproducibility."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from model import layers
from model.fusion import dropped_out, fused, random_bits

SEED = tf.constant([3, 4])


def normal(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 1])


def test_a_block_has_the_values_and_gradients_of_its_plain_form():
    def block(x, y, which, scale):
        return tf.where(which, x * tf.exp(y), x + y) * scale

    x, y, which = normal(3, 5), normal(5, seed=1), normal(3, 5, seed=2) > 0
    results = []
    for function in (block, fused(block)):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            value = function(x, y, which, scale=1.5)
        results.append([value, *tape.gradient(value, [x, y], normal(3, 5, seed=3))])
    for plain, compiled in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-6)


def test_gradients_reach_variables_through_graphs_and_unknown_lengths():
    norm = layers.LayerNorm("norm", 8)

    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, 8])])
    def gradients(x, y):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(norm.of_sum(x, y, 0.0, None) * x)
        return tape.gradient(value, [norm.gamma, norm.beta])

    for rows in (3, 6):
        x, y = normal(rows, 8), normal(rows, 8, seed=1)
        to_gamma, to_beta = gradients(x, y)
        total = (x + y).numpy()
        normed = (total - total.mean(-1, keepdims=True)) / total.std(-1, keepdims=True)
        np.testing.assert_allclose(to_gamma, (normed * x.numpy()).sum(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(to_beta, x.numpy().sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean_and_its_gradient_drops_the_same(rate):
    x = tf.ones([400, 500])
    seeds = layers.SeedStream(SEED)
    with tf.GradientTape() as tape:
        tape.watch(x)
        dropped = layers.dropout(x, rate, seeds)
    share = float(tf.reduce_mean(tf.cast(dropped == 0, tf.float32)))
    assert abs(share - rate) < 5 * (rate * (1 - rate) / 2e5) ** 0.5
    np.testing.assert_allclose(tf.unique(tf.reshape(dropped, [-1])).y.numpy().max(), 1 / (1 - rate), rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(dropped, x), dropped)


@settings(max_examples=25, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 2))
def test_draws_are_uniform_and_those_of_neighbouring_seeds_are_unrelated(first, second):
    size = 1 << 14
    draws = [
        random_bits(tf.constant([size]), tf.constant(seed)).numpy().astype(np.float64) / 2**32
        for seed in ([first, second], [first, second + 1], [first ^ 1, second])
    ]
    for draw in draws:
        counts = np.bincount((draw * 16).astype(int), minlength=16)
        assert ((counts - size / 16) ** 2 / (size / 16)).sum() < 60  # chi-square of 15 degrees: beyond 1 in 10^6
        assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 0.05
    for other in draws[1:]:
        assert abs(np.corrcoef(draws[0], other)[0, 1]) < 0.05


def test_a_rate_of_zero_is_the_identity():
    x = normal(4, 3)
    assert dropped_out(x, SEED, 0.0) is x and layers.dropout(x, 0.0, layers.SeedStream(SEED)) is x
    assert layers.dropout(x, 0.3, None) is x
