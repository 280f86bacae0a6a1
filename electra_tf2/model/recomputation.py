"""Layers that are computed again for their gradient (recompute "layers"): less memory for a third more time."""

import copy
from collections.abc import Callable

import tensorflow as tf

from electra_tf2.model.attention import AttentionContext
from electra_tf2.model.layers import SeedStream


def recomputed(
    layer: Callable[..., tf.Tensor],
    x: tf.Tensor,
    context: AttentionContext,
    seeds: SeedStream | None,
) -> tf.Tensor:
    """Runs a layer and keeps only its input; the gradient computes the layer again, with the same dropout.

    Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    seeds_before = copy.copy(seeds)

    # tf.recompute_grad gives gradients to arguments and variables only, so the learned position bias is an argument.
    def run(x: tf.Tensor, position_bias: tf.Tensor) -> tf.Tensor:
        # Both runs, forward and for the gradient, draw from a fresh copy: the same dropout.
        layer_seeds = copy.copy(seeds_before)
        x = layer(x, context._replace(position_bias=position_bias), layer_seeds)
        if seeds is not None and layer_seeds is not None:
            seeds.skip_past(layer_seeds)
        return x

    return tf.recompute_grad(run)(x, context.position_bias)
