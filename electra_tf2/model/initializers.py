"""Initial values of variables, as functions of shape and seed."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

# (shape, seed of two integers) -> float32 values
Initializer: TypeAlias = Callable[[list[int], list[int]], tf.Tensor]


def truncated_normal(stddev: float) -> Initializer:
    def initial_values(shape: list[int], seed: list[int]) -> tf.Tensor:
        return tf.random.stateless_truncated_normal(shape, seed, stddev=stddev)

    return initial_values


def glorot_uniform(shape: list[int], seed: list[int]) -> tf.Tensor:
    """Initialises dense kernels as TF1 does by default; the original uses it for three layers (docs/differences.md)."""
    limit = (6.0 / (shape[0] + shape[1])) ** 0.5
    return tf.random.stateless_uniform(shape, seed, -limit, limit)


def zeros(shape: list[int], seed: list[int]) -> tf.Tensor:
    del seed
    return tf.zeros(shape)


def constant(values: Sequence[float] | Sequence[Sequence[float]]) -> Initializer:
    def initial_values(shape: list[int], seed: list[int]) -> tf.Tensor:
        del seed
        return tf.reshape(tf.constant(values), shape)

    return initial_values


def ones(shape: list[int], seed: list[int]) -> tf.Tensor:
    del seed
    return tf.ones(shape)
