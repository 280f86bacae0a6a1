"""Layers that are computed again for their gradient (`recompute` layers): memory saved for a third of the time."""

import copy
from collections.abc import Callable

import tensorflow as tf

from electra_tf2.model.attention import AttentionContext
from electra_tf2.model.layers import SeedStream


def recomputed(
    layer: Callable[..., tf.Tensor], x: tf.Tensor, context: AttentionContext, seeds: SeedStream | None
) -> tf.Tensor:
    """Runs a layer and keeps its input only; the gradient computes the layer again, with the same dropout.

    Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    first = copy.copy(seeds)

    # What has a gradient is an argument or a variable.
    def run(x: tf.Tensor, position_bias: tf.Tensor) -> tf.Tensor:
        again = copy.copy(first)
        x = layer(x, context._replace(position_bias=position_bias), again)
        if seeds is not None and again is not None:
            seeds.skip_past(again)
        return x

    return tf.recompute_grad(run)(x, context.position_bias)
