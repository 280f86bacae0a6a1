"""Layers of which nothing is kept but their input.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.model.kernels.compilation import are_one_program, stored
from electra_tf2.model.keys import Keys
from electra_tf2.model.layers import LayerNorm, SeedStream


def recomputed(
    layer: Callable[..., Any],
    x: tf.Tensor,
    read: tf.Tensor,
    next_norm: LayerNorm | None,
    keys: Keys,
    seeds: SeedStream | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Calls a transformer layer; its gradient computes it again, with the same dropout."""
    first = copy.copy(seeds)

    # What has a gradient is an argument or a variable.
    def states(x: tf.Tensor, read: tf.Tensor, position_bias: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        again = copy.copy(first)
        x, read, _ = layer(x, read, next_norm, keys._replace(position_bias=position_bias), again)
        if seeds is not None and again is not None:
            seeds.skip_past(again)
        return x, read

    return (_recomputed_in_program if are_one_program() else tf.recompute_grad)(states)(x, read, keys.position_bias)


def _recomputed_in_program(function: Callable[..., Any]) -> Callable[..., Any]:
    """tf.recompute_grad for programs of whole steps, in which XLA sees through what that one does to keep the second
    computation apart, takes both for one and keeps its results."""

    @tf.custom_gradient
    def call(*tensors: tf.Tensor) -> Any:
        def gradient(*upstreams: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            passed = stored(*tensors, *upstreams)
            again, given = passed[: len(tensors)], passed[len(tensors) :]
            with tf.GradientTape() as tape:
                tape.watch(again)
                outputs = function(*again)
            found = tape.gradient(outputs, [*again, *variables], given, tf.UnconnectedGradients.ZERO)
            return found[: len(again)], found[len(again) :]

        return function(*tensors), gradient

    return call
