"""The histogram AUC against Keras's and an exact one."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn.metrics import roc_auc_score

from pretrain.metrics import auc, probability_histogram


def data(seed=0, size=20_000):
    random = np.random.RandomState(seed)
    labels = random.rand(size) < 0.1
    probs = 1 / (1 + np.exp(-(random.standard_normal(size) + 1.5 * labels - 1)))
    weights = (random.rand(size) < 0.8).astype(np.float32)
    return probs.astype(np.float32), labels.astype(np.int32), weights


def test_equals_keras_with_200_thresholds():
    probs, labels, weights = data()
    keras = tf_keras.metrics.AUC(num_thresholds=200)
    keras.update_state(labels, probs, weights)
    ours = auc(probability_histogram(*map(tf.constant, (probs, labels, weights))).numpy())
    assert ours == pytest.approx(float(keras.result()), abs=1e-5)
    assert ours == pytest.approx(roc_auc_score(labels, probs, sample_weight=weights), abs=2e-3)


def test_histograms_add_up():
    probs, labels, weights = (tf.constant(x) for x in data())
    whole = probability_histogram(probs, labels, weights)
    halves = [probability_histogram(probs[s], labels[s], weights[s]) for s in (slice(0, 7000), slice(7000, None))]
    np.testing.assert_allclose(whole, halves[0] + halves[1])


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_edges_are_counted(edge):
    histogram = probability_histogram(tf.constant([edge]), tf.constant([1]), tf.constant([1.0])).numpy()
    assert histogram.sum() == 1
