"""Local attention in blocks: the same as on whole arrays with a mask, at its window's cost."""

import pytest
import tensorflow as tf

from electra_tf2.model import attention, flops, kernels
from electra_tf2.model.architecture import make_architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.model.layers import SeedStream
from electra_tf2.model.positions import Blocks, blocks_of
from tests.model.encoder_reference import assert_alike, in_a_graph, inputs, passes

SIZES = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
SIZES |= {"local_attention": 40, "global_attn_every_n_layers": 2, "max_position_embeddings": 256}


@pytest.mark.parametrize(("positions", "length"), [("rotary", 200), ("t5", 192)])
def test_blocks_compute_what_a_mask_on_whole_arrays_does(monkeypatch, positions: str, length: int) -> None:
    """Lengths that blocks of 32 divide, and others; windows at the ends and padding included."""
    sizes = SIZES | {"relative_positions": positions, "local_rope_theta": 50.0, "initializer_range": 0.3}
    network = Encoder("electra", make_architecture("small", sizes, 50, None))
    cut: list[Blocks | None] = []

    def counted(length: int, window: int) -> Blocks | None:
        cut.append(blocks_of(length, window))
        return cut[-1]

    with monkeypatch.context() as patch:
        patch.setattr(attention, "blocks_of", lambda length, window: None)
        with kernels.off():
            expected = passes(network, inputs(length))
    monkeypatch.setattr(attention, "blocks_of", counted)
    with kernels.off():
        assert_alike(passes(network, inputs(length)), expected)
    assert cut == [Blocks(-(-length // 32), 32, 1)]
    if positions == "rotary":
        assert_alike(one_program(lambda: passes(network, inputs(length)))(), expected)


def test_blocks_look_in_one_direction(monkeypatch) -> None:
    sizes = make_architecture("small", SIZES | {"relative_positions": "rotary", "initializer_range": 0.3}, 50, None)
    network = Encoder("generator_ltr", sizes, direction="left_to_right")
    with kernels.off():
        found = passes(network, inputs(200))
        monkeypatch.setattr(attention, "blocks_of", lambda length, window: None)
        assert_alike(found, passes(network, inputs(200)))


def test_layers_in_blocks_can_be_computed_again() -> None:
    architecture = make_architecture("small", SIZES | {"relative_positions": "coco"}, 50, None)

    def step(recompute: str) -> list[tf.Tensor]:
        network = Encoder("electra", architecture, recompute=recompute)
        return in_a_graph(lambda: passes(network, inputs(200), SeedStream(tf.constant([5, 6]))))

    assert_alike(step("layers"), step("none"))


def test_tiles_of_a_long_sequence_keep_to_a_wide_window(monkeypatch) -> None:
    """Where blocks save too little, long sequences still have no array of all pairs."""
    monkeypatch.setattr(attention, "LONG", 128)
    sizes = SIZES | {"relative_positions": "rotary", "local_attention": 120, "initializer_range": 0.3}
    network = Encoder("electra", make_architecture("small", sizes, 50, None))
    assert blocks_of(192, 60) is None
    with kernels.off():
        expected = passes(network, inputs(192))
    assert_alike(passes(network, inputs(192)), expected)


def test_the_cost_is_that_of_the_window() -> None:
    sizes = {"local_attention": 128, "relative_positions": "rotary", "num_hidden_layers": 3}
    whole = make_architecture("small", sizes | {"local_attention": 0}, 600, None)
    local = make_architecture("small", sizes, 600, None)
    saved = flops.encoder("", whole, 1024).forward_flops - flops.encoder("", local, 1024).forward_flops
    assert saved == 2 * 4 * 1024 * (1024 - 192) * 256  # two layers; 64 queries see 3 blocks of 64
    assert blocks_of(128, 64) is None and flops.encoder("", local, 128) == flops.encoder("", whole, 128)
