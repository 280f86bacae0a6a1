"""Layers of which nothing is kept but their input.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf2.model.layers import SeedStream


def recomputed(layer: Callable[..., Any], tensors: tuple[tf.Tensor, ...], seeds: SeedStream | None) -> Any:
    """Calls a function of tensors and seeds; its gradient computes it again, with the same dropout.

    Args:
      tensors: all that has a gradient, variables apart.
    """
    first = copy.copy(seeds)

    def states(*tensors: tf.Tensor) -> Any:
        again = copy.copy(first)
        found = layer(*tensors, again)
        if seeds is not None and again is not None:
            seeds.skip_past(again)
        return found

    return tf.recompute_grad(states)(*tensors)
