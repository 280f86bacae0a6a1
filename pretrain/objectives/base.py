"""What an objective is: a loss term over the outputs of one forward pass, with its metrics.

A pre-training run is a generator, a main network and a list of objectives (pretrain.pretraining_model). Adding an
objective means one file here that subclasses `Objective`, its hparams, and a recipe.
"""

from typing import NamedTuple

import tensorflow as tf

from model.generator import GeneratorOutput
from model.layers import Layer
from pretrain.corruption import CorruptedBatch
from pretrain.masking import MaskedBatch

# name -> (numerator, denominator), float32 scalars to be summed over steps and replicas before dividing
Metrics = dict[str, tuple[tf.Tensor, tf.Tensor]]


class Forward(NamedTuple):
    """The outputs of one forward pass that objectives read.

    masked: the masked batch.
    generator: its logits.
    corrupted: the main network's input; None for runs without a main network of their own.
    states: [B, L, H], the main network's last layer over the corrupted input; None likewise.
    crop_states: [B, C, H], its last layer over crops of the original input; None unless an objective needs it.
    """

    masked: MaskedBatch
    generator: GeneratorOutput
    corrupted: CorruptedBatch | None = None
    states: tf.Tensor | None = None
    crop_states: tf.Tensor | None = None


def corrupted(forward: Forward) -> CorruptedBatch:
    """The corrupted batch of a run that has a main network of its own."""
    assert forward.corrupted is not None
    return forward.corrupted


class ObjectiveOutput(NamedTuple):
    """An objective's result on some rows.

    numerator: float32 scalar, the sum of weighted losses; the loss is numerator / normalizer.
    metrics: name -> (numerator, denominator), both float32 scalars.
    histograms: name -> float32 [2, 200], negatives and positives by probability bucket (pretrain.metrics).
    """

    numerator: tf.Tensor
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class Objective(Layer):
    """A loss term.

    Attributes:
      loss_name: key of the term in losses and logs.
      loss_weight: its factor in the total loss.
      initial_loss: about the term's value before training.
      of_generator: whether it trains the generator, not the main network.
    """

    loss_name: str
    loss_weight: float
    initial_loss: float
    of_generator: bool = False

    def normalizer(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 scalar: the weight of the rows, summed over the global batch to divide the numerator."""
        raise NotImplementedError

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        """The term on the rows at hand; metrics that cost a pass over the vocabulary only if not `training`."""
        raise NotImplementedError


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(sum of weights x values, sum of weights), float32."""
    values, weights = tf.cast(values, tf.float32), tf.cast(weights, tf.float32)
    return tf.reduce_sum(values * weights), tf.reduce_sum(weights)
