"""The softmax over the vocabulary, its formulas and its kernel, where words fill the kernel's blocks and where not."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from electra_tf2.model import kernels
from electra_tf2.model.kernels import vocabulary_softmax
from electra_tf2.model.kernels.chunked_softmax import chunked_log_probs
from electra_tf2.model.kernels.vocabulary_softmax import FusedSoftmax
from electra_tf2.model.softmax import VocabularySoftmax, token_log_probs

DRAWS = 40_000
SIZES = [100, 128, 300]  # words: less than a block, one block, two blocks and 44 words
SIGNIFICANCE = 1e-4  # the seed is fixed, so the test passes or fails for good


def softmax(kind, size, rows):
    """Some rows of the same logits, and these in float64."""
    logits = np.random.RandomState(size).normal(0, 1.5, size).astype(np.float32)
    bias = np.random.RandomState(size + 1).normal(0, 0.5, size).astype(np.float32)
    fused = FusedSoftmax(tf.ones([2, rows // 2, 1]), logits[:, np.newaxis], bias)
    return fused if kind is FusedSoftmax else VocabularySoftmax(fused.logits), (logits + bias).astype(np.float64)


@pytest.mark.parametrize("kind", [FusedSoftmax, VocabularySoftmax])
@pytest.mark.parametrize("size", SIZES)
def test_log_probs_entropies_and_first_choices_are_those_of_the_logits(size, kind):
    found, logits = softmax(kind, size, 2 * size)
    ids = tf.tile(tf.range(size)[tf.newaxis], [2, 1])
    log_probs = logits - np.log(np.exp(logits).sum())
    np.testing.assert_allclose(found.logits, np.tile(logits, [2, size, 1]), rtol=1e-6)
    np.testing.assert_allclose(found.log_probs(ids), [log_probs] * 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.entropies(), np.full([2, size], -(np.exp(log_probs) * log_probs).sum()), rtol=1e-5)
    np.testing.assert_array_equal(found.are_likeliest(ids), [np.arange(size) == np.argmax(logits)] * 2)


@pytest.mark.parametrize("kind", [FusedSoftmax, VocabularySoftmax])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("size", SIZES)
def test_words_are_drawn_as_often_as_they_are_likely(size, temperature, kind):
    found, logits = softmax(kind, size, DRAWS)
    noise = tf.random.stateless_uniform([2, DRAWS // 2, 2], [size, 3])
    counts = np.bincount(found.sample(noise, temperature).numpy().reshape(-1), minlength=size)
    shares = np.exp(logits / temperature)
    assert stats.chisquare(counts, shares / shares.sum() * DRAWS).pvalue > SIGNIFICANCE


# All twelve tokens at once, or four and four.
@pytest.mark.parametrize(("chunk", "dtype", "tolerance"), [(1024, tf.bfloat16, 0.02), (4, tf.float32, 1e-5)])
def test_gradients_are_those_of_the_formula_in_whatever_chunks_they_are_computed(monkeypatch, chunk, dtype, tolerance):
    monkeypatch.setattr(vocabulary_softmax, "CHUNK", chunk)
    random = np.random.RandomState(0)
    states, table, bias = (tf.constant(random.normal(size=shape), tf.float32) for shape in ([12, 3], [300, 3], [300]))
    ids, upstream = tf.constant(random.randint(300, size=[12]), tf.int32), tf.constant(random.rand(12), tf.float32)
    states = tf.cast(states, dtype)

    def passes(log_probs):
        with tf.GradientTape() as tape:
            tape.watch([states, table, bias])
            values = log_probs(states, table, bias, ids)
        return [values, *tape.gradient(values, [states, table, bias], output_gradients=upstream)]

    with kernels.off():
        expected = passes(token_log_probs)
    in_chunks = functools.partial(chunked_log_probs, chunk=min(chunk, 5))  # the last chunk is padded
    for found in (passes(lambda *weights: FusedSoftmax(*weights[:3]).log_probs(ids)), passes(in_chunks)):
        for value, exact in zip(found, expected, strict=True):
            assert value.dtype == exact.dtype
            scale = float(tf.reduce_max(tf.abs(exact)))
            np.testing.assert_allclose(tf.cast(value, tf.float32), tf.cast(exact, tf.float32), atol=tolerance * scale)
