"""Relative positions of Transformer-XL: an encoder against its definition, distances, lengths that are not known."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.transformer_xl import shifted
from electra_tf2.util.errors import UserError
from tests.support import encoder_reference
from tests.support.encoder_reference import KeysOfDistances


@pytest.mark.parametrize("norm_style", ["post", "pre"])
def test_an_encoder_equals_its_definition(norm_style: str) -> None:
    network = Encoder("electra", encoder_reference.sizes("xl", norm_style))
    encoder_reference.compared_with(network, KeysOfDistances())


def test_it_is_compiled_in_bfloat16() -> None:
    encoder_reference.compiled_in_bfloat16(encoder_reference.sizes("xl"))


@pytest.mark.parametrize("recompute", ["none", "layers"])
def test_it_reads_any_length(recompute: str) -> None:
    encoder_reference.any_length(Encoder("electra", encoder_reference.sizes("xl"), recompute=recompute))


def test_rows_of_distances_are_shifted_as_by_plain_loops() -> None:
    scores = np.random.RandomState(0).rand(2, 3, 7, 13).astype(np.float32)
    expected = [[[[row[i, j - i + 6] for j in range(7)] for i in range(7)] for row in heads] for heads in scores]
    np.testing.assert_array_equal(shifted(tf.constant(scores)), expected)
    assert shifted(tf.ones([1, 1, 1, 1])).shape == [1, 1, 1, 1]


def test_its_limits() -> None:
    overrides = {"relative_positions": "xl", "max_position_embeddings": 16}
    assert PretrainingConfig.from_dict({"max_seq_length": 64, "model_hparam_overrides": overrides})
    with pytest.raises(UserError, match="relative_positions xl needs an even hidden size, got 15"):
        PretrainingConfig.from_dict({"hidden_size": 15, "num_attention_heads": 3, "relative_positions": "xl"})
    with pytest.raises(UserError, match="local_attention does not work with relative_positions xl"):
        PretrainingConfig.from_dict({"relative_positions": "xl", "local_attention": 8})
