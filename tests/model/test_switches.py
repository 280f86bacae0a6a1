"""Switches of an encoder's architecture, each alone and together: against plain loops, compiled, counted, refused."""

from typing import Any

import pytest
import tensorflow as tf

from electra_tf2.model import costs, kernels
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels.compilation import one_program
from tests.support import encoder_reference
from tests.support.encoder_reference import assert_alike, inputs, passes, varied

NO_BIASES = {"attention_bias": False, "mlp_bias": False, "norm_bias": False}
SWITCHES: dict[str, dict[str, Any]] = {
    "gated": {"gated_mlp": True},
    "gated, relu": {"gated_mlp": True, "hidden_act": "relu"},
    "tanh": {"hidden_act": "tanh"},
    "no biases": NO_BIASES,
    "attention without biases": {"attention_bias": False},
    "feed-forward without biases": {"mlp_bias": False, "gated_mlp": True},
    "norms without biases": {"norm_bias": False},
    "epsilon": {"norm_eps": 0.01},
    "theta": {"relative_positions": "rotary", "rope_theta": 50.0},
    "norm after the projection": {"embedding_norm": "after"},
    "no norm of embeddings": {"embedding_norm": "none"},
    "local": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "local, theta": {"relative_positions": "rotary", "local_attention": 7, "local_rope_theta": 30.0},
    "local, distances": {"relative_positions": "coco", "local_attention": 6}
    | {"relative_position_buckets": 8, "relative_position_max_distance": 16},
    "first norm left out": {"norm_style": "pre", "first_norm": False},
    "no segments": {"type_vocab_size": 0},
    "one kind of segment": {"type_vocab_size": 1},
    "together": NO_BIASES
    | {"local_attention": 8, "global_attn_every_n_layers": 2, "rope_theta": 160.0, "local_rope_theta": 30.0}
    | {"gated_mlp": True, "relative_positions": "rotary", "embedding_norm": "after"}
    | {"norm_style": "pre", "first_norm": False, "type_vocab_size": 0, "norm_eps": 1e-5},
}


def sizes(**switches: Any) -> Architecture:
    given = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    return make_architecture(
        "small", given | {"max_position_embeddings": 24, "initializer_range": 0.3} | switches, 50, 8
    )


@pytest.mark.parametrize("name", SWITCHES)
def test_an_encoder_equals_its_definition_and_has_the_parameters_that_are_counted(name: str) -> None:
    network = Encoder("electra", sizes(**SWITCHES[name]))
    encoder_reference.compared_with(network)
    built = sum(int(tf.size(variable)) for variable in network.trainable_variables)
    assert costs.main_network_parameters(network.architecture) == built


@pytest.mark.parametrize("name", ["local, distances", "together"])
def test_an_encoder_reads_any_length(name: str) -> None:
    encoder_reference.any_length(varied(Encoder("electra", sizes(**SWITCHES[name]))))


def test_compiled_it_has_the_values_and_gradients_of_its_formulas() -> None:
    network, batch = varied(Encoder("electra", sizes(**SWITCHES["together"]))), inputs()
    with kernels.off():
        expected = passes(network, batch)
    assert_alike(passes(network, batch), expected)
    assert_alike(one_program(lambda: passes(network, batch))(), expected)


def test_a_gated_network_has_the_cost_of_one_that_is_not() -> None:
    plain, gated = (make_architecture("base", {"gated_mlp": gated}, 600, None) for gated in (False, True))
    assert (plain.intermediate_size, gated.intermediate_size) == (3072, 2048)
    flops = [costs.encoder("", architecture, 128).forward_flops for architecture in (plain, gated)]
    assert flops[0] == flops[1]
    assert make_architecture("small", {"gated_mlp": True}, 600, None).intermediate_size == 688  # 682.7


def test_what_makes_no_sense_is_refused() -> None:
    assert sizes(first_norm=False).problems() == ["first_norm false needs norm_style pre, got post"]
