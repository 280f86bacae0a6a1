"""The softmax over the vocabulary: what it says of a distribution, where words fill its blocks and where not."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from electra_tf2.model import vocabulary_loss
from electra_tf2.model.vocabulary_loss import VocabularySoftmax

DRAWS = 40_000
SIZES = [100, 128, 300]  # words: less than a block, one block, two blocks and 44 words
SIGNIFICANCE = 1e-4  # the seed is fixed, so the test passes or fails for good


def softmax(size, rows):
    """Some rows of the same logits, and these in float64."""
    logits = np.random.RandomState(size).normal(0, 1.5, size).astype(np.float32)
    bias = np.random.RandomState(size + 1).normal(0, 0.5, size).astype(np.float32)
    found = VocabularySoftmax(tf.ones([2, rows // 2, 1]), logits[:, np.newaxis], bias)
    return found, (logits + bias).astype(np.float64)


@pytest.mark.parametrize("size", SIZES)
def test_log_probs_entropies_and_first_choices_are_those_of_the_logits(size):
    found, logits = softmax(size, 2 * size)
    ids = tf.tile(tf.range(size)[tf.newaxis], [2, 1])
    log_probs = logits - np.log(np.exp(logits).sum())
    np.testing.assert_allclose(found.log_probs(ids), [log_probs] * 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.entropies(), np.full([2, size], -(np.exp(log_probs) * log_probs).sum()), rtol=1e-5)
    np.testing.assert_array_equal(found.are_likeliest(ids), [np.arange(size) == np.argmax(logits)] * 2)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("size", SIZES)
def test_words_are_drawn_as_often_as_they_are_likely(size, temperature):
    found, logits = softmax(size, DRAWS)
    noise = tf.random.stateless_uniform([2, DRAWS // 2, 2], [size, 3])
    counts = np.bincount(found.sample(noise, temperature).numpy().reshape(-1), minlength=size)
    shares = np.exp(logits / temperature)
    assert stats.chisquare(counts, shares / shares.sum() * DRAWS).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("chunk", [1024, 4])  # all ten tokens at once, or two and two
def test_gradients_are_those_of_the_dense_softmax_in_whatever_chunks_they_are_computed(monkeypatch, chunk):
    monkeypatch.setattr(vocabulary_loss, "CHUNK", chunk)
    random = np.random.RandomState(0)
    states, table, bias = (tf.constant(random.normal(size=shape), tf.float32) for shape in ([2, 5, 3], [300, 3], [300]))
    ids, upstream = tf.constant(random.randint(300, size=[2, 5]), tf.int32), tf.constant(random.rand(2, 5), tf.float32)
    found = []
    for log_probs in (
        lambda: VocabularySoftmax(states, table, bias).log_probs(ids),
        lambda: -tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.tensordot(states, table, [-1, -1]) + bias),
    ):
        with tf.GradientTape() as tape:
            tape.watch([states, table, bias])
            values = log_probs()
        found.append([values, *tape.gradient(values, [states, table, bias], output_gradients=upstream)])
    for value, exact in zip(*found, strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-4, atol=1e-5)
