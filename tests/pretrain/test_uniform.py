"""Uniform draws: TensorFlow's own outside of XLA, and the same inside."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model.layers import fold_in
from electra_tf2.pretrain.masking import uniform


@pytest.mark.parametrize("shape", [[], [7], [33, 5, 2]])
def test_draws_are_the_same_with_and_without_xla(shape):
    seed = tf.constant([3, 7])
    expected = tf.random.stateless_uniform(shape, seed)
    np.testing.assert_array_equal(uniform(shape, seed), expected)
    compiled = tf.function(lambda seed: uniform(shape, seed), jit_compile=True, autograph=False)
    np.testing.assert_array_equal(compiled(seed), expected)


@pytest.mark.parametrize("seed", [[3, 7], [-506102758, 5], [2**31 - 1, -1]])
def test_seeds_are_the_same_with_and_without_xla(seed):
    expected = tf.random.experimental.stateless_fold_in(tf.constant(seed), 3)
    compiled = tf.function(lambda seed: fold_in(seed, 3), jit_compile=True, autograph=False)
    np.testing.assert_array_equal(fold_in(tf.constant(seed), 3), expected)
    np.testing.assert_array_equal(compiled(tf.constant(seed)), expected)
