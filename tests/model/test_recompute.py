"""Layers that are computed again for their gradient: the same states and gradients, dropout included."""

from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder, TransformerLayer
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.model.layers import SeedStream


def test_a_layer_is_computed_twice_and_its_gradient_is_the_same(monkeypatch):
    """As one program; tests/model/test_local_attention.py does so in an ordinary graph."""
    sizes = Architecture(
        50, 8, 8, 1, 2, 16, max_position_embeddings=16, relative_positions="t5", initializer_range=0.3
    )  # fmt: skip
    random = np.random.RandomState(0)
    ids, weights = tf.constant(random.randint(1, 50, [2, 12]), tf.int32), tf.constant(random.rand(2, 12, 8), tf.float32)
    calls, call = [], TransformerLayer.call

    def counted(layer, x, context, seeds, keeps_little=False):
        calls.append(1)
        return call(layer, x, context, seeds, keeps_little)

    monkeypatch.setattr(TransformerLayer, "call", counted)

    def passes(recompute, compiled):
        network = Encoder("electra", sizes, recompute=recompute)

        def gradients():
            seeds = SeedStream(tf.constant([5, 6]))
            with tf.GradientTape() as tape:
                output = network(ids, tf.ones_like(ids), tf.zeros_like(ids), seeds)
                loss = tf.reduce_sum(weights * (output.sequence + output.layers[0] ** 2))
            found = tape.gradient(loss, network.trainable_variables)
            return [output.sequence, seeds.next(), *map(tf.convert_to_tensor, found)]

        calls.clear()
        return compiled(gradients)(), len(calls)

    kept, once = passes("none", lambda function: tf.function(function, autograph=False))
    recomputed, twice = passes("layers", one_program)
    assert (once, twice) == (1, 2)
    for value, exact in zip(recomputed, kept, strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_selective_recomputation_repeats_what_is_cheap():
    sizes = Architecture(
        50, 8, 8, 1, 2, 16, max_position_embeddings=32, norm_style="pre", gated_mlp=True, initializer_range=0.3
    )  # fmt: skip
    random = np.random.RandomState(0)
    ids, weights = tf.constant(random.randint(1, 50, [2, 32]), tf.int32), tf.constant(random.rand(2, 32, 8), tf.float32)

    def passes(recompute):
        """Values, gradients, and how often a program has each type of operation."""
        network = Encoder("electra", sizes, recompute=recompute)

        def gradients():
            with tf.GradientTape() as tape:
                states = network(ids, tf.ones_like(ids), tf.zeros_like(ids), SeedStream(tf.constant([5, 6]))).sequence
                loss = tf.reduce_sum(weights * states**2)
            return [states, *map(tf.convert_to_tensor, tape.gradient(loss, network.trainable_variables))]

        program: Any = one_program(gradients)
        types = [operation.type for operation in program.get_concrete_function().graph.get_operations()]
        return program(), {name: types.count(name) for name in ("Erf", "Softmax")}

    (kept, once), (again, twice) = passes("none"), passes("selective")
    for value, exact in zip(again, kept, strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    # The activation; probabilities before dropout, of the scores computed again.
    assert {name: twice[name] - once[name] for name in twice} == {"Erf": 1, "Softmax": 1}
