"""Attention maps that MPA's encoder keeps."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model import attention
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels import tiles
from electra_tf2.papers.mpa.observed_encoder import ObservedEncoder
from tests.support import encoder_reference
from tests.support.encoder_reference import KeysOfDistances


@pytest.mark.parametrize("recompute", ["none", "layers"])
@pytest.mark.parametrize("positions", ["none", "t5", "rotary"])
def test_maps_are_those_of_the_definition(positions: str, recompute: str) -> None:
    observed = [(0, 1), (1, 0), (1, 1)]
    architecture = encoder_reference.sizes(positions)
    network = ObservedEncoder("electra", architecture, observed=observed, recompute=recompute)
    maps = encoder_reference.compared_with(network)
    assert sorted(network.maps) == observed
    biases = network.relative_positions.bias(20).numpy()
    padding = np.where(np.arange(20) < [[20], [13]], 0.0, -10000.0)[:, np.newaxis]
    for (layer, head), found in network.maps.items():
        np.testing.assert_allclose(found.probabilities, maps[layer][:, head], atol=2e-6)
        of_head = biases[min(head, len(biases) - 1)]
        by_pair = [[of_head[j - i + 19] for j in range(20)] for i in range(20)]
        np.testing.assert_allclose(tf.nn.softmax(found.scores + by_pair + padding), found.probabilities, atol=1e-6)


def test_positions_within_the_scores_are_kept() -> None:
    """Those of Transformer-XL have a class of attention of their own."""
    network = ObservedEncoder("electra", encoder_reference.sizes("xl"), observed=[(1, 0)])
    maps = encoder_reference.compared_with(network, KeysOfDistances())
    np.testing.assert_allclose(network.maps[1, 0].probabilities, maps[1][:, 0], atol=2e-6)


def test_only_observed_heads_are_kept_of_the_last_call() -> None:
    network = ObservedEncoder("electra", encoder_reference.sizes("none"), observed=[(1, 0)])
    for length in (5, 9):
        ids = tf.ones([1, length], tf.int32)
        network(ids, ids, tf.zeros_like(ids))
        assert [(place, found.scores.shape) for place, found in network.maps.items()] == [((1, 0), [1, length, length])]


def test_long_sequences_have_maps_of_whole_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attention that they are part of computes the same states as attention in tiles does, which keeps no map."""
    sizes, ids = (
        encoder_reference.sizes("coco"),
        tf.constant(np.random.RandomState(0).randint(1, 40, [2, 16]), tf.int32),
    )
    networks = Encoder("electra", sizes), ObservedEncoder("electra", sizes, observed=[(0, 0)])
    monkeypatch.setattr(attention, "LONG", 16)
    monkeypatch.setattr(tiles, "FEWEST_QUERIES", 4)
    monkeypatch.setattr(tiles, "MOST_QUERIES", 4)
    in_tiles, observed = (
        tf.function(lambda network=network: network(ids, tf.ones_like(ids), tf.zeros_like(ids)), autograph=False)()
        for network in networks
    )
    np.testing.assert_allclose(observed.sequence, in_tiles.sequence, rtol=1e-4, atol=1e-5)
    assert observed.attention[0, 0].scores.shape == [2, 16, 16]
