"""Relative positions: the published buckets, and a bias that depends on the distance only."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from model.architecture import Architecture
from model.encoder import Encoder
from model.relative_positions import RelativePositionBias, coco_buckets, t5_buckets

SHORT = [-128, -64, -16, -9, -8, -1, 0, 1, 8, 9, 16, 64, 127, 128]
LONG = [-511, -100, -16, 0, 16, 100, 511]


@pytest.mark.parametrize(
    ("rule", "buckets", "max_distance", "distances", "expected"),
    [
        (coco_buckets, 32, 128, SHORT, [0, 1, 5, 6, 7, 14, 15, 16, 23, 24, 25, 29, 30, 30]),
        (t5_buckets, 32, 128, SHORT, [15, 14, 10, 8, 8, 1, 0, 17, 24, 24, 26, 30, 31, 31]),
        (coco_buckets, 64, 128, LONG, [0, 1, 15, 31, 47, 61, 62]),
        (coco_buckets, 128, 256, LONG, [0, 13, 47, 63, 79, 113, 126]),
    ],
)
def test_the_published_buckets(rule, buckets, max_distance, distances, expected):
    np.testing.assert_array_equal(rule(np.array(distances), buckets, max_distance), expected)


@given(st.sampled_from([(32, 128), (64, 128), (128, 256)]), st.sampled_from([t5_buckets, coco_buckets]))
def test_buckets_grow_with_the_distance(sizes, rule):
    for sign in (1, -1):
        buckets = rule(sign * np.arange(1, 600), *sizes).astype(int)
        away = buckets if sign == 1 or rule is t5_buckets else -buckets
        assert (np.diff(away) >= 0).all()
        assert buckets.min() >= 0 and buckets.max() < sizes[0]


def test_rounding_does_not_depend_on_the_precision():
    distances = np.arange(-1023, 1024)
    for rule in (t5_buckets, coco_buckets):
        for sizes in ((32, 128), (64, 128), (128, 256)):
            single = rule(distances.astype(np.float32), *sizes)
            np.testing.assert_array_equal(single, rule(distances.astype(np.float64), *sizes))


@pytest.mark.parametrize("rule", ["t5", "coco"])
def test_the_bias_depends_on_the_distance_only(rule):
    bias = RelativePositionBias("test", rule, 32, 128, 3, 64, 0.02)(20).numpy()
    assert bias.shape == (1, 3, 20, 20)
    np.testing.assert_array_equal(bias[:, :, 1:, 1:], bias[:, :, :-1, :-1])
    assert len(np.unique(bias[0, 0, 5])) > 5


def encoder(rule="coco"):
    architecture = Architecture(
        50, 16, 16, 2, 2, 32, max_position_embeddings=24, type_vocab_size=0, relative_positions=rule
    )
    return Encoder("electra", architecture)


def test_attention_is_invariant_to_a_shift_without_absolute_positions():
    network = encoder()
    network.embeddings.position_embeddings.assign(tf.zeros_like(network.embeddings.position_embeddings))
    ids = np.random.RandomState(0).randint(1, 50, [2, 10])
    none = np.zeros([2, 20], np.int32)

    def states(offset):
        row, mask = none.copy(), none.copy()
        row[:, offset : offset + 10], mask[:, offset : offset + 10] = ids, 1
        return network(tf.constant(row), tf.constant(mask), tf.constant(none)).sequence[:, offset : offset + 10]

    np.testing.assert_allclose(states(0), states(7), atol=2e-6)


def test_one_table_per_network_that_decays_and_is_trained():
    from pretrain.pretraining_model import PretrainingModel

    network = encoder()
    tables = [v for v in network.trainable_variables if "relative_attention" in v.name]
    assert [v.name for v in tables] == ["electra/encoder/relative_attention:0"]
    assert PretrainingModel.decays(tables[0])
    ids = tf.constant(np.random.RandomState(0).randint(1, 50, [2, 10]), tf.int32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(ids, tf.ones_like(ids), tf.zeros_like(ids)).sequence[:, :, 0] ** 2)
    assert float(tf.reduce_sum(tf.abs(tape.gradient(loss, tables[0])))) > 0
    assert not any("token_type" in v.name for v in network.trainable_variables)
