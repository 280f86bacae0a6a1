"""Local attention in tiles: the same as on whole arrays."""

from electra_tf2.model import attention, kernels
from electra_tf2.model.architecture import make_architecture
from electra_tf2.model.encoder import Encoder
from tests.support.encoder_reference import assert_alike, inputs, passes

SIZES = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
SIZES |= {"global_attn_every_n_layers": 2, "max_position_embeddings": 256}


def test_tiles_of_a_long_sequence_keep_to_a_wide_window(monkeypatch) -> None:
    """Long sequences have no array of all pairs, and see what a mask on whole arrays lets them see."""
    monkeypatch.setattr(attention, "LONG", 128)
    sizes = SIZES | {"relative_positions": "rotary", "local_attention": 120, "initializer_range": 0.3}
    network = Encoder("electra", make_architecture("small", sizes, 50, None))
    with kernels.off():
        expected = passes(network, inputs(192))
    assert_alike(passes(network, inputs(192)), expected)
