"""Objectives: loss terms over the outputs of a forward pass. docs/architecture.md shows how to add one.

Shapes: B rows, L length, N masked positions, C length of a view, H hidden, K buckets of a histogram.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.heads import GeneratorOutput
from electra_tf2.model.layers import Layer
from electra_tf2.pretrain.masking import CorruptedBatch, MaskedBatch
from electra_tf2.pretrain.networks import Networks

# name -> (numerator, denominator), float32 scalars that are summed over steps and replicas before they are divided
Metrics: TypeAlias = dict[str, tuple[tf.Tensor, tf.Tensor]]


class View(NamedTuple):
    """A further sequence of each row, which the main network reads for one objective: COCO-LM's crops.

    input_ids: int32 [B, C].
    input_mask: int32 [B, C], 1 at real tokens.
    segment_ids: int32 [B, C].
    """

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor


class WholeBatch(NamedTuple):
    """All W rows of a batch that is split into micro-batches or replicas, for losses that compare rows.

    compared: loss name -> float32 [W, ...], the values of every row that the loss compares; without gradient.
    real: bool [W], false for rows of padding.
    start: int32 scalar, index of the first row of this micro-batch or replica.
    share: 1 / number of micro-batches or replicas: each computes the loss of all rows, and counts this share of it.
    """

    compared: dict[str, tf.Tensor]
    real: tf.Tensor
    start: tf.Tensor
    share: float


@dataclasses.dataclass(frozen=True)
class Forward:
    """Outputs of one forward pass, which objectives read. A paper's model may add fields in a subclass.

    masked: the masked batch.
    generator: the generator's distributions at the masked positions.
    corrupted, encoded: input and output of the main network; None in runs without one (BERT).
    views: loss name -> the main network's outputs on `Objective.views`.
    whole: all rows of the batch, where an objective compares these with the others.
    """

    masked: MaskedBatch
    generator: GeneratorOutput
    corrupted: CorruptedBatch | None = None
    encoded: EncoderOutput | None = None
    views: Mapping[str, Sequence[EncoderOutput]] = dataclasses.field(default_factory=dict)
    whole: WholeBatch | None = None

    @property
    def main_input(self) -> CorruptedBatch:
        """The main network's input, in a run that has one."""
        assert self.corrupted is not None
        return self.corrupted

    @property
    def pretrained(self) -> EncoderOutput:
        """Output of the network that pre-training is for: the main network, or BERT's only one."""
        encoded = self.encoded or self.generator.encoded
        assert encoded is not None
        return encoded

    @property
    def states(self) -> tf.Tensor:
        """[B, L, H], the last layer of `pretrained`, in the compute type."""
        return self.pretrained.sequence


class LossTerm(NamedTuple):
    """Result of an objective on some rows.

    numerator: float32 scalar, the weighted sum of losses; `normalizer`, summed over the global batch, divides it.
    metrics: name -> (numerator, denominator).
    histograms: name -> float32 [2, K], negatives and positives by bucket (pretrain.evaluation_metrics).
    """

    numerator: tf.Tensor
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class Objective:
    """A loss term: a weighted mean of losses over the rows, tokens or masked positions of the global batch.

    Layers that `__init__` assigns to attributes are trained and saved with the model.

    Class attributes:
      loss_name: key of the term in losses and logs.
      weight: name of the hparam that is its factor in the total loss; "" where `__init__` sets `loss_weight`.
      shown: names of the metrics that are printed beside the loss.

    Attributes:
      layer: holds the objective's layers and variables under the names of its attributes.
      loss_weight: factor in the total loss, at the end of a run where it changes from step to step.
      initial_loss: approximate value before training.
    """

    loss_name: str
    weight: str = ""
    shown: Sequence[str] = ()
    layer: Layer
    loss_weight: float
    initial_loss: float

    def __setattr__(self, name: str, value: Any) -> None:
        """Keeps layers and variables in `layer` too: objectives are plain objects, in which Keras finds none."""
        super().__setattr__(name, value)
        if "layer" not in self.__dict__:
            self.__dict__["layer"] = Layer("")
        layer = self.layer
        if isinstance(value, Objective):
            setattr(layer, name, value.layer)
        elif any(isinstance(part, tf.Module | tf.Variable) for part in tf.nest.flatten(value)):
            setattr(layer, name, value)

    def __init__(self, config: PretrainingConfig, networks: Networks) -> None:
        del networks
        self.config = config
        if self.weight:
            self.loss_weight = getattr(config, self.weight)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 weights of the losses: of tokens [B, L], rows [B] or, by default, masked positions [B, N].

        They must depend on the masking alone: their sum is known before the forward pass.
        """
        return masked.masked_lm_weights

    def normalizer(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 scalar, these rows' sum of weights. Its sum over the global batch divides the weighted losses."""
        return tf.reduce_sum(self.token_weights(masked))

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        """Further sequences that the main network reads for this objective; its states of them are in Forward.views."""
        del masked
        return ()

    def compared_values(self, forward: Forward) -> tf.Tensor | None:
        """float32 [B, ...]: what the loss compares with other rows; None if it compares none.

        With several micro-batches they are computed first, for all rows of the batch (config.needs_whole_batch).
        """
        del forward
        return None

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        """Computes the term on the rows of a forward pass.

        Args:
          training: leaves out metrics that cost a pass over the vocabulary.
        """
        raise NotImplementedError

    def output(
        self,
        forward: Forward,
        losses: tf.Tensor,
        metrics: Metrics,
        histograms: dict[str, tf.Tensor] | None = None,
    ) -> LossTerm:
        """Makes the term of float32 losses, shaped as `token_weights`.

        Args:
          metrics: beside the mean loss, which a metric called `loss_name` replaces.
        """
        numerator, denominator = weighted_mean(losses, self.token_weights(forward.masked))
        mean_loss = {self.loss_name: (numerator, denominator)}
        return LossTerm(numerator, mean_loss | metrics, histograms or {})


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Numerator and denominator of a mean: sum of weights x values, sum of weights; float32 scalars."""
    values = tf.cast(values, tf.float32)
    weights = tf.cast(weights, tf.float32)
    return tf.reduce_sum(values * weights), tf.reduce_sum(weights)
