"""Objectives: loss terms over the outputs of a forward pass. docs/architecture.md shows how to add one."""

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
from electra_tf2.training.micro_batches import WholeBatch

# name -> (numerator, denominator), float32 scalars to be summed over steps and replicas before dividing
Metrics: TypeAlias = dict[str, tuple[tf.Tensor, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Forward:
    """Outputs of one forward pass, which objectives read. A paper's model may add fields in a subclass.

    masked: the masked batch.
    generator: its distributions at the masked positions.
    corrupted, encoded: input and output of the main network; None in runs without one (BERT).
    views: loss name -> the network's outputs on other sequences that this objective reads: COCO-LM's crops.
    whole: the batch that these rows are a part of, where an objective needs the other rows.
    """

    masked: MaskedBatch
    generator: GeneratorOutput
    corrupted: CorruptedBatch | None = None
    encoded: EncoderOutput | None = None
    views: Mapping[str, Sequence[EncoderOutput]] = dataclasses.field(default_factory=dict)
    whole: WholeBatch | None = None

    @property
    def replaced(self) -> CorruptedBatch:
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
    """Result of an objective on the rows at hand.

    numerator: float32 scalar, the weighted sum of losses; `normalizer`, summed over the global batch, divides it.
    histograms: name -> float32 [2, K], negatives and positives by bucket (pretrain.evaluation_metrics).
    """

    numerator: tf.Tensor
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class Objective:
    """A loss term: a weighted mean of losses over the rows, tokens or masked positions of the global batch.

    Layers that `__init__` keeps as attributes are trained and saved with the model.

    Class attributes:
      loss_name: key of the term in losses and logs.
      weight: the hparam that is its factor in the total loss; "" where `__init__` sets `loss_weight`.
      shown: names of the metrics that are printed beside the loss.

    Attributes:
      layer: holds the objective's layers and variables under the names of its attributes.
      loss_weight: its factor in the total loss, once all schedules are at their end.
      initial_loss: the term's approximate value before training.
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

    def shared(self, forward: Forward) -> tf.Tensor | None:
        """float32 [B, ...], values of these rows that other micro-batches need (config.needs_whole_batch)."""
        del forward
        return None

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        """The term on the rows at hand; metrics that cost a pass over the vocabulary only if not `training`."""
        raise NotImplementedError

    def output(
        self, forward: Forward, losses: tf.Tensor, metrics: Metrics, histograms: dict[str, tf.Tensor] | None = None
    ) -> LossTerm:
        """The term from float32 losses, shaped as `token_weights`. A metric `loss_name` replaces the mean loss."""
        numerator, denominator = weighted_mean(losses, self.token_weights(forward.masked))
        return LossTerm(numerator, {self.loss_name: (numerator, denominator)} | metrics, histograms or {})


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(sum of weights x values, sum of weights), float32."""
    values, weights = tf.cast(values, tf.float32), tf.cast(weights, tf.float32)
    return tf.reduce_sum(values * weights), tf.reduce_sum(weights)
