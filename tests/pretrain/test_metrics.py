"""The histogram AUC against Keras's and an exact one."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn.metrics import roc_auc_score

from electra_tf2.pretrain.evaluation_metrics import auc, logit_histogram, probability_histogram


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


@pytest.mark.parametrize("centre", [-12.0, 0.0, 9.0])
def test_thresholds_in_logits_tell_apart_what_is_near_0_or_1(centre):
    random = np.random.RandomState(1)
    labels = random.rand(20_000) < 0.1
    logits = (centre + 0.5 * random.standard_normal(20_000) + 0.5 * labels).astype(np.float32)
    weights = (random.rand(20_000) < 0.8).astype(np.float32)
    exact = roc_auc_score(labels, logits, sample_weight=weights)
    arguments = [tf.constant(x) for x in (logits, labels.astype(np.int32), weights)]
    assert auc(logit_histogram(*arguments).numpy()) == pytest.approx(exact, abs=1e-3)
    linear = auc(probability_histogram(tf.sigmoid(arguments[0]), *arguments[1:]).numpy())
    assert (abs(linear - exact) > 0.1) == (centre != 0.0)  # what the original's thresholds make of it


def test_probabilities_of_exactly_0_and_1_count_as_in_keras():
    """With compat every pad has probability 0: thresholds begin below it, or the curve would not begin at (1, 1)."""
    probs, labels, weights = data(size=2000)
    probs[:600], probs[600:650], labels[:590] = 0.0, 1.0, 0
    keras = tf_keras.metrics.AUC(num_thresholds=200)
    keras.update_state(labels, probs, weights)
    ours = auc(probability_histogram(*map(tf.constant, (probs, labels, weights))).numpy())
    assert ours == pytest.approx(float(keras.result()), abs=1e-5)
