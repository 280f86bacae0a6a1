"""Position schemes: the published buckets and slopes, every scheme against plain loops, learned biases."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels.positions import between
from electra_tf2.model.position_layers import POSITION_LAYERS
from electra_tf2.model.position_schemes import SCHEMES, coco_bucket, t5_bucket
from electra_tf2.model.relative_positions import LearnedBias, Rotations
from electra_tf2.util.errors import UserError
from tests.support import encoder_reference

SHORT = [-128, -64, -16, -9, -8, -1, 0, 1, 8, 9, 16, 64, 127, 128]
LONG = [-511, -100, -16, 0, 16, 100, 511]


@pytest.mark.parametrize(
    ("rule", "buckets", "max_distance", "distances", "expected"),
    [
        (coco_bucket, 32, 128, SHORT, [0, 1, 5, 6, 7, 14, 15, 16, 23, 24, 25, 29, 30, 30]),
        (t5_bucket, 32, 128, SHORT, [15, 14, 10, 8, 8, 1, 0, 17, 24, 24, 26, 30, 31, 31]),
        (coco_bucket, 64, 128, LONG, [0, 1, 15, 31, 47, 61, 62]),
        (coco_bucket, 128, 256, LONG, [0, 13, 47, 63, 79, 113, 126]),
    ],
)
def test_the_published_buckets(rule, buckets, max_distance, distances, expected):
    assert [rule(distance, buckets, max_distance) for distance in distances] == expected


def test_every_scheme_has_a_layer():
    assert POSITION_LAYERS.keys() == SCHEMES.keys()


@pytest.mark.parametrize("rule", ["t5", "coco"])
def test_a_local_start_looks_to_the_left_to_the_right_to_both_sides_and_everywhere(rule):
    architecture = dataclasses.replace(
        encoder(rule).architecture,
        num_attention_heads=5,
        max_position_embeddings=64,
        relative_position_buckets=32,
        relative_position_max_distance=128,
        relative_position_start="local",
    )
    bias = LearnedBias("test", architecture).bias(33).numpy()[:, 16:49]  # of the query at 16, [A, L]
    np.testing.assert_array_equal(bias[4], bias[0])
    assert bias[0].argmax() == 15 and bias[0, 17] < bias[0, 13]
    assert bias[1].argmax() == 17 and bias[1, 15] < bias[1, 19]
    np.testing.assert_array_equal(bias[2], bias[2, ::-1])
    assert bias[2].argmax() == 16 and bias[2, 12] < bias[2, 14]
    np.testing.assert_array_equal(bias[3], np.zeros(33))


def attention_of_the_middle(theta: float, local: bool) -> np.ndarray:
    """Attention [A, L] of the middle query of 65 that a layer's biases alone make, of queries and keys turned as rotary
    turns them."""
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "relative_positions": "rotary", "rope_theta": theta}
    start = "local" if local else "random"
    architecture = make_architecture("small", sizes | {"relative_position_start": start}, 50, None)
    positions = Rotations("test", architecture)
    biases = tf.reshape(positions.qkv_initializer(False)([384], [0, 0]), [3, 1, 4, 1, 32])
    assert not np.any(biases[2])
    q, k = (positions.rotation(65, False)(tf.tile(bias, [1, 1, 65, 1])) for bias in biases[:2])
    return tf.nn.softmax(tf.matmul(q, k, transpose_b=True)[0, :, 32] / 32**0.5).numpy()


@pytest.mark.parametrize("theta", [100.0, 160000.0])
def test_a_local_start_of_rotary_looks_to_the_left_to_the_right_to_both_sides_and_everywhere(theta):
    left, right, both, everywhere = attention_of_the_middle(theta, local=True)
    assert left.argmax() == 31 and left[29:32].sum() > max(0.25, 3 * left[33:36].sum())
    np.testing.assert_allclose(right, left[::-1], atol=1e-5)
    np.testing.assert_allclose(both, both[::-1], atol=1e-5)
    assert both.argmax() == 32 and both[28:37].sum() > 0.6
    np.testing.assert_allclose(everywhere, np.full(65, 1 / 65), rtol=1e-5)
    np.testing.assert_allclose(attention_of_the_middle(theta, local=False), 1 / 65, rtol=1e-5)


def test_local_layers_start_locally_by_their_own_angles():
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "relative_positions": "rotary", "local_attention": 8}
    thetas = {"rope_theta": 160000.0, "local_rope_theta": 100.0, "relative_position_start": "local"}
    architecture = make_architecture("small", sizes | thetas, 50, None)
    everywhere, near = (layer.attention.qkv.bias.numpy() for layer in Encoder("test", architecture).transformer_layers)
    for found, theta in ((everywhere, 160000.0), (near, 100.0)):
        plain = dataclasses.replace(architecture, local_attention=0, rope_theta=theta)
        expected = Encoder("test", plain).transformer_layers[0].attention.qkv.bias
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(everywhere, near)


def test_a_local_start_needs_a_bias():
    local = {"relative_position_start": "local"}
    needed = "relative_position_start local needs one of relative_positions t5, coco, rotary, got none"
    with pytest.raises(UserError, match=needed):
        PretrainingConfig.from_dict(local)
    with pytest.raises(UserError, match="biases of queries and keys, which attention_bias false leaves out"):
        PretrainingConfig.from_dict(local | {"model_hparam_overrides": {"architecture": "modernbert"}})


@pytest.mark.parametrize("norm_style", ["post", "pre"])
@pytest.mark.parametrize("positions", sorted(encoder_reference.SCHEMES))
def test_an_encoder_equals_its_definition(positions, norm_style):
    encoder_reference.compared_with(Encoder("electra", encoder_reference.sizes(positions, norm_style)))


@pytest.mark.parametrize(
    ("positions", "norm_style"),
    [  # compiling takes seconds: each scheme once, with the other order of norms among the slow tests
        pytest.param(name, norm, marks=[pytest.mark.slow] if (number + place) % 2 else [])
        for number, name in enumerate(sorted(encoder_reference.SCHEMES))
        for place, norm in enumerate(("post", "pre"))
    ],
)
def test_every_scheme_is_compiled_in_bfloat16(positions, norm_style):
    encoder_reference.compiled_in_bfloat16(
        Architecture(
            50, 8, 16, 1, 2, 32, max_position_embeddings=24, relative_positions=positions, norm_style=norm_style,
            initializer_range=0.3,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 7), (7, 7)])
def test_distances_are_spread_over_pairs_as_by_plain_loops(queries, keys):
    by_distance = np.random.RandomState(0).rand(2, queries + keys - 1)
    spread = [[row[queries - 1 - i :][:keys] for i in range(queries)] for row in by_distance]
    np.testing.assert_array_equal(between(tf.constant(by_distance), queries), [spread])


def test_without_position_embeddings_no_length_is_too_long():
    overrides = {"relative_positions": "rotary", "max_position_embeddings": 16}
    assert PretrainingConfig.from_dict({"max_seq_length": 64, "model_hparam_overrides": overrides})
    with pytest.raises(UserError, match="max_seq_length 64 exceeds 16 position embeddings"):
        PretrainingConfig.from_dict({"max_seq_length": 64, "max_position_embeddings": 16})


def test_what_a_scheme_cannot_work_with_is_refused():
    with pytest.raises(UserError, match=r"relative_positions is 'xi'; did you mean .* \(one of none, "):
        PretrainingConfig.from_dict({"relative_positions": "xi"})
    with pytest.raises(UserError, match="relative_positions rotary needs an even head size, got 5"):
        PretrainingConfig.from_dict({"hidden_size": 15, "num_attention_heads": 3, "relative_positions": "rotary"})
    with pytest.raises(UserError, match="relative_position_max_distance 9 must exceed a quarter of the 32 buckets"):
        PretrainingConfig.from_dict({"relative_positions": "t5", "relative_position_max_distance": 9})


def encoder(rule="coco"):
    architecture = Architecture(
        50, 16, 16, 2, 2, 32, max_position_embeddings=24, type_vocab_size=0, relative_positions=rule
    )
    return Encoder("electra", architecture)


def test_one_table_per_network_that_decays_and_is_trained():
    network = encoder()
    tables = [v for v in network.trainable_variables if "relative_attention" in v.name]
    assert [v.name for v in tables] == ["electra/encoder/relative_attention:0"]
    assert Encoder.decays(tables[0])
    ids = tf.constant(np.random.RandomState(0).randint(1, 50, [2, 10]), tf.int32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(ids, tf.ones_like(ids), tf.zeros_like(ids)).sequence[:, :, 0] ** 2)
    assert float(tf.reduce_sum(tf.abs(tape.gradient(loss, tables[0])))) > 0
