"""Layers that are computed again for their gradient: the same states and gradients, dropout included."""

from typing import Any

import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder, TransformerLayer
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.model.layers import SeedStream
from tests.support.encoder_reference import assert_alike, in_a_graph, inputs, passes


def sizes(**switches: Any) -> Architecture:
    return Architecture(50, 8, 8, 1, 2, 16, max_position_embeddings=32, initializer_range=0.3, **switches)


def test_a_layer_is_computed_twice_and_its_gradient_is_the_same(monkeypatch):
    """As one program; tests/model/test_local_attention.py does so in an ordinary graph."""
    calls, call = [], TransformerLayer.call

    def counted(layer, x, context, seeds, recompute_feed_forward=False):
        calls.append(1)
        return call(layer, x, context, seeds, recompute_feed_forward)

    monkeypatch.setattr(TransformerLayer, "call", counted)

    def step(recompute):
        network, seeds = Encoder("electra", sizes(relative_positions="t5"), recompute=recompute), tf.constant([5, 6])

        def gradients():
            stream = SeedStream(seeds)
            return [*passes(network, inputs(), stream), stream.next()]

        return gradients

    kept, once = in_a_graph(step("none")), len(calls)
    *recomputed, seed = one_program(step("layers"))()
    assert (once, len(calls)) == (1, 3)
    assert seed.numpy().tolist() == kept.pop().numpy().tolist()
    assert_alike(recomputed, kept)


def test_selective_recomputation_repeats_what_is_cheap():
    def step(recompute):
        """Values, gradients, and how often a program has each type of operation."""
        network = Encoder("electra", sizes(norm_style="pre", gated_mlp=True), recompute=recompute)
        program: Any = one_program(lambda: passes(network, inputs(32), SeedStream(tf.constant([5, 6]))))
        types = [operation.type for operation in program.get_concrete_function().graph.get_operations()]
        return program(), {name: types.count(name) for name in ("Erf", "Softmax")}

    (kept, once), (again, twice) = step("none"), step("selective")
    assert_alike(again, kept)
    # The activation; probabilities before dropout, of the scores computed again.
    assert {name: twice[name] - once[name] for name in twice} == {"Erf": 1, "Softmax": 1}
