"""Layers of which nothing is kept but their input.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf2.model.keys import Keys
from electra_tf2.model.layers import SeedStream


def recomputed(layer: Callable[..., Any], x: tf.Tensor, keys: Keys, seeds: SeedStream | None) -> tf.Tensor:
    """Calls a transformer layer; its gradient computes it again, with the same dropout."""
    first = copy.copy(seeds)

    # What has a gradient is an argument or a variable.
    def states(x: tf.Tensor, position_bias: tf.Tensor) -> tf.Tensor:
        again = copy.copy(first)
        x = layer(x, keys._replace(position_bias=position_bias), again)
        if seeds is not None and again is not None:
            seeds.skip_past(again)
        return x

    return tf.recompute_grad(states)(x, keys.position_bias)
