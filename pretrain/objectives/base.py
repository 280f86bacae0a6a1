"""What an objective is: a loss term over the outputs of one forward pass, with its metrics.

A pre-training run is a generator, a main network and a list of objectives (pretrain.pretraining_model). Adding an
objective means a file here that subclasses `Objective`, a spec beside it (pretrain.objectives.spec), its hparams and a
recipe.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.generator import GeneratorOutput
from electra_tf2.model.layers import Layer
from electra_tf2.pretrain.auxiliary_schedule import MAIN
from electra_tf2.pretrain.corruption import CorruptedBatch
from electra_tf2.pretrain.cropping import CroppedBatch
from electra_tf2.pretrain.generators import Generator
from electra_tf2.pretrain.masking import Arranged, Draw, MaskedBatch
from electra_tf2.pretrain.ramps import Ramped
from electra_tf2.pretrain.teacher import TeacherOutput

# name -> (numerator, denominator), float32 scalars to be summed over steps and replicas before dividing
Metrics = dict[str, tuple[tf.Tensor, tf.Tensor]]


class WholeBatch(NamedTuple):
    """The batch that the rows at hand are a part of, for objectives that relate rows to one another.

    shared: loss name -> float32 [W, ...], what that objective's `shared` said of all rows; no gradient.
    real: bool [W], rows that hold a sequence.
    start: int32 scalar, place of the first row at hand.
    share: the part of the whole loss that is computed with the rows at hand; these parts add up to 1.
    """

    shared: dict[str, tf.Tensor]
    real: tf.Tensor
    start: tf.Tensor
    share: float


class Forward(NamedTuple):
    """The outputs of one forward pass that objectives read.

    masked: the masked batch.
    generator: its logits.
    corrupted: the main network's input; None, like all below, for runs without a main network of their own.
    encoded: the main network's output on it.
    views: loss name -> the network's outputs on the sequences that this objective asked for (`Objective.views`).
    teacher: a frozen network's output; likewise.
    whole: the batch that these rows belong to, where they are not all of it and an objective needs the others.
    sampled: the generator's pass that replacements are drawn from, by `generator_sample_mode`.
    temperature: of the softmax that they are drawn from, as it is at this step.
    """

    masked: MaskedBatch
    generator: GeneratorOutput
    corrupted: CorruptedBatch | None = None
    encoded: EncoderOutput | None = None
    views: Mapping[str, Sequence[EncoderOutput]] = MappingProxyType({})
    teacher: TeacherOutput | None = None
    whole: WholeBatch | None = None
    sampled: GeneratorOutput | None = None
    temperature: float | tf.Tensor = 1.0

    @property
    def states(self) -> tf.Tensor:
        """[B, L, H], the main network's last layer; None for runs without one."""
        return None if self.encoded is None else self.encoded.sequence

    @property
    def trained(self) -> tf.Tensor:
        """[B, L, H], the last layer of the network that is kept: the main network, or BERT's only one."""
        encoded = self.encoded or self.generator.encoded
        assert encoded is not None
        return encoded.sequence


def corrupted(forward: Forward) -> CorruptedBatch:
    """The corrupted batch of a run that has a main network of its own."""
    assert forward.corrupted is not None
    return forward.corrupted


class ObjectiveOutput(NamedTuple):
    """An objective's result on some rows.

    numerator: float32 scalar, the sum of weighted losses; the loss is numerator / normalizer.
    metrics: name -> (numerator, denominator), both float32 scalars.
    histograms: name -> float32 [2, K], negatives and positives by bucket (pretrain.metrics).
    """

    numerator: tf.Tensor
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class Built(NamedTuple):
    """What there is when an objective is built: the networks, and the objectives built before it."""

    encoder: Encoder | None
    generator: Generator
    objectives: Sequence["Objective"]


Kind = TypeVar("Kind", bound="Objective")


class Objective(Layer):
    """A loss term: the weighted sum of losses over rows, tokens or draws, divided by the weights of the whole batch.

    Args:
      scope: its name; variables belong to heads with scopes of their own.

    Attributes:
      loss_name: key of the term in losses and logs.
      loss_weight: its factor in the total loss, once all ramps are at their end.
      initial_loss: about the term's value before training.
      of_generator: whether it trains the generator, not the main network.
      shown: metrics of training that tell how it fares, beside the loss in the progress.
      task: its name in aux_tasks, if it is one of them (pretrain.auxiliary_schedule).
    """

    loss_name: str
    loss_weight: float
    initial_loss: float
    of_generator: bool = False
    shown: Sequence[str] = ()
    task: str = MAIN

    def __init__(self, scope: str, config: PretrainingConfig, built: Built | None = None) -> None:
        super().__init__(scope, config.seed)
        self.config = config
        del built

    def arrange(self, batch: dict[str, tf.Tensor], candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        """Changes the sequences before they are masked, for everyone, and says in labels by name how; or does nothing.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          candidates: float32 [B, L], 1 at tokens that are not special.
          draw: uniform draws for the rows of this objective.
          active: bool scalar: whether it is trained at this step; if not, labels have the same shape and are -1.
        """
        del candidates, draw, active
        return batch, {}

    def views(self, masked: MaskedBatch) -> Sequence[CroppedBatch]:
        """Further sequences that the network shall read; their lengths are those of the spec's needs."""
        del masked
        return ()

    @property
    def changes_text(self) -> bool:
        """Whether it has an `arrange` of its own."""
        return type(self).arrange is not Objective.arrange

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 weights of the losses, by token [B, L], draw [B, N] or row [B]; they depend on the masking alone."""
        raise NotImplementedError

    def weight_at(self, ramped: Ramped) -> float | tf.Tensor:
        """The factor of the term at a step."""
        weight = self.loss_weight if self.of_generator else self.loss_weight * ramped.main_weight
        return weight if ramped.active is None else weight * ramped.active[self.task]

    def call(self, forward: Forward, training: bool) -> ObjectiveOutput:
        """The term on the rows at hand; metrics that cost a pass over the vocabulary only if not `training`."""
        raise NotImplementedError

    def shared(self, forward: Forward) -> tf.Tensor | None:
        """float32 [B, ...]: what other micro-batches need of these rows, if the spec's needs say `whole_batch`."""
        del forward
        return None

    def normalizer(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 scalar: the weight of the rows, summed over the global batch to divide the numerator."""
        return tf.reduce_sum(self.token_weights(masked))

    def output(
        self,
        forward: Forward,
        losses: tf.Tensor,
        metrics: Metrics,
        histograms: dict[str, tf.Tensor] | None = None,
    ) -> ObjectiveOutput:
        """The result from float32 losses of the weights' shape; `metrics` may hold the term under its name."""
        numerator, denominator = weighted_mean(losses, self.token_weights(forward.masked))
        return ObjectiveOutput(numerator, {self.loss_name: (numerator, denominator)} | metrics, histograms or {})


def built_before(built: Built | None, kind: type[Kind]) -> Kind:
    """The objective of a class that another one builds on."""
    assert built is not None
    return next(objective for objective in built.objectives if isinstance(objective, kind))


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(sum of weights x values, sum of weights), float32."""
    values, weights = tf.cast(values, tf.float32), tf.cast(weights, tf.float32)
    return tf.reduce_sum(values * weights), tf.reduce_sum(weights)
