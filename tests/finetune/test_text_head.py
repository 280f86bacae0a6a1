"""Heads that classify a text read what classifier_pooling says, through the layer that classifier says."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.finetune.tasks.choice import ChoiceHead
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.finetune.tasks.text import ClassificationHead
from tests.support import finetuning as support

MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
SPANS = np.array([[[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]], [[0, 1, 1, 0, 0], [0, 0, 0, 1, 0]]], np.int32)  # span, row, token


@pytest.mark.parametrize(
    ("kind", "pooling", "classifier"),
    itertools.product(["classes", "spans", "choice"], ["cls", "mean"], ["linear", "tanh"]),
)
def test_every_head_pools_alike_and_reads_no_padding(kind, pooling, classifier):
    config = support.config("cola", classifier=classifier, classifier_pooling=pooling)
    make = ChoiceHead if kind == "choice" else functools.partial(ClassificationHead, spans=2 * (kind == "spans"))
    head: Any = make("task_specific/cola", 4, 2, config, 0)
    states = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    labels = {"label_ids": tf.constant([0, 1]), "right": tf.constant([1, 1])}  # of one question, or of each row
    labels |= {"span_1": tf.constant(SPANS[0]), "span_2": tf.constant(SPANS[1])}

    def output(states):
        return head(HeadInput(tf.constant(states), tf.constant(MASK), tf.zeros_like(MASK), labels), None, False)

    def predictions(states):
        return next(iter(output(states).predictions.values())).numpy()

    expected = states[:, 0] if pooling == "cls" else np.stack([states[0, :3].mean(0), states[1].mean(0)])
    if kind == "spans":
        first, second = np.stack([states[0, 1], 0 * states[0, 1]]), np.stack([states[0, 1:3].mean(0), states[1, 3]])
        expected = np.concatenate([expected, first, second], -1)
    if classifier == "tanh":
        expected = np.tanh(expected @ head.classifier.inner.kernel.numpy())
    expected = expected @ head.classifier.last.kernel.numpy()
    if kind == "choice":  # a softmax over the candidates, whose loss the rows share
        expected = (expected - np.log(np.exp(expected).sum()))[:, 0]
        np.testing.assert_allclose(output(states).losses, [-expected[1] / 2] * 2, atol=1e-5)
    np.testing.assert_allclose(predictions(states), expected, atol=1e-5)
    padded = states.copy()
    padded[0, 3:] = 9
    np.testing.assert_array_equal(predictions(padded), predictions(states))
