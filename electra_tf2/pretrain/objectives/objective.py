"""Base class of objectives: a loss term over the outputs of a forward pass, with its hparams, checks, cost and metrics.

A pre-training run is a generator, a main network and a list of objectives (pretrain.pretraining_model). The class side
of an `Objective` answers the configuration, so this module and those of the papers import no TensorFlow; an instance
holds the heads and computes the term. docs/architecture.md adds one from outside, top to bottom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from electra_tf2.formats.folders import network_hparams
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.flops import Part
from electra_tf2.pretrain.hparams import PretrainingHparams
from electra_tf2.pretrain.masking import Arranged, Batch, CorruptedBatch, Draw, MaskedBatch
from electra_tf2.util.errors import UserError
from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    from electra_tf2.model.encoder import Encoder, EncoderOutput
    from electra_tf2.model.generator import GeneratorOutput, MaskedLanguageModel
    from electra_tf2.model.other_generators import TwoTowerClozeModel, UniformGenerator

    Generator: TypeAlias = MaskedLanguageModel | TwoTowerClozeModel | UniformGenerator

# name -> (numerator, denominator), float32 scalars to be summed over steps and replicas before dividing
Metrics: TypeAlias = "dict[str, tuple[tf.Tensor, tf.Tensor]]"
H = TypeVar("H", bound=PretrainingHparams, contravariant=True)  # the hparams that an objective reads
Kind = TypeVar("Kind", bound="Objective")


class TeacherNeed(NamedTuple):
    """A frozen network that reads the same sequences.

    checkpoint: folder of its model (`--init-checkpoint` takes the same).
    reads: the original sequences, the masked ones or the main network's corrupted ones.
    detection, tokens: whether its head that detects replaced tokens, or its masked language model, is asked, too.
    """

    checkpoint: str
    reads: Literal["original", "masked", "corrupted"] = "original"
    detection: bool = False
    tokens: bool = False

    @property
    def hparams(self) -> dict[str, Any]:
        """Hparams of its network and its input, from its configuration (formats.folders)."""
        hparams = network_hparams(self.checkpoint)
        if not hparams:
            raise UserError(f"teacher: {self.checkpoint!r} holds no configuration of a model, which a teacher needs")
        return hparams

    @property
    def architecture(self) -> Architecture:
        """Its sizes."""
        names = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")
        return make_architecture(*map(self.hparams.__getitem__, names))


class Needs(NamedTuple):
    """Parts of the forward pass that an objective needs besides the main network's states.

    views: lengths of the sequences of further passes of the pre-trained network (`Objective.views`).
    attention: (layer, head) of the pre-trained network, both from 0, whose attention maps are kept.
    teacher: a teacher's pass.
    whole_batch: rows are related to all others of their replica; with several micro-batches that takes a further
      forward pass (`Objective.shared`).
    two_segments: records must have a second segment.
    other_segments: fields of records that must hold text that could stand in its place (corpus.other_segments).
    """

    views: tuple[int, ...] = ()
    attention: frozenset[tuple[int, int]] = frozenset()
    teacher: TeacherNeed | None = None
    whole_batch: bool = False
    two_segments: bool = False
    other_segments: frozenset[str] = frozenset()

    @classmethod
    def together(cls, every: Iterable[Needs]) -> Needs:
        """All of several objectives' needs. A run has one teacher."""
        every = list(every)
        return cls(
            views=tuple(length for needs in every for length in needs.views),
            attention=frozenset().union(*(needs.attention for needs in every)),
            teacher=next((needs.teacher for needs in every if needs.teacher is not None), None),
            whole_batch=any(needs.whole_batch for needs in every),
            two_segments=any(needs.two_segments for needs in every),
            other_segments=frozenset().union(*(needs.other_segments for needs in every)),
        )


class View(NamedTuple):
    """A further sequence of every row for the pre-trained network: int32 [B, C] ids, 1 at real tokens, segments."""

    input_ids: tf.Tensor
    input_mask: tf.Tensor
    segment_ids: tf.Tensor


class TeacherOutput(NamedTuple):
    """Outputs of a teacher; no gradient.

    encoded: its encoder's output. replaced_logits: float32 [B, L], positive means replaced; None unless asked for.
    token_logits: float32 [B, N, V] at the drawn positions; likewise.
    """

    encoded: EncoderOutput
    replaced_logits: tf.Tensor | None
    token_logits: tf.Tensor | None


class StepValues(NamedTuple):
    """Hyperparameters that may change from step to step: floats, or float32 scalars where they do (pretrain.schedules).

    mask_prob: share of a sequence's tokens that is masked.
    temperature: of the generator's softmax when sampling.
    main_weight: factor of all losses of the main network.
    step: 0-based, of the update, float32; None: the end of the run, however long it is.
    active: what is trained at this step, by auxiliary task, "" all else; None: everything.
    """

    mask_prob: float | tf.Tensor
    temperature: float | tf.Tensor
    main_weight: float | tf.Tensor = 1.0
    step: tf.Tensor | None = None
    active: dict[str, tf.Tensor] | None = None

    def share_of(self, task: str) -> float | tf.Tensor:
        """1 if a task is trained, else 0; what is none of aux_tasks goes with the main objective."""
        return 1.0 if self.active is None else self.active.get(task, self.active[""])


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
    def replaced(self) -> CorruptedBatch:
        """The main network's input, in a run that has a main network of its own."""
        assert self.corrupted is not None
        return self.corrupted

    @property
    def pretrained(self) -> EncoderOutput:
        """The output of the network that pre-training is for: the main network, or BERT's only one."""
        encoded = self.encoded or self.generator.encoded
        assert encoded is not None
        return encoded

    @property
    def states(self) -> tf.Tensor:
        """[B, L, H], the last layer of the network that pre-training is for."""
        return self.pretrained.sequence


class LossTerm(NamedTuple):
    """An objective's result on some rows.

    numerator: float32 scalar, the sum of weighted losses; the loss is numerator / normalizer.
    metrics: name -> (numerator, denominator), both float32 scalars.
    histograms: name -> float32 [2, K], negatives and positives by bucket (pretrain.metrics).
    """

    numerator: tf.Tensor
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class Networks(NamedTuple):
    """The networks of a run, and the objectives that are built before another one."""

    encoder: Encoder | None
    generator: Generator
    objectives: Sequence[Objective]

    def first(self, kind: type[Kind]) -> Kind:
        """The objective of a class that another one builds on."""
        return next(objective for objective in self.objectives if isinstance(objective, kind))


class Objective(Generic[H]):
    """A loss term: the weighted sum of losses over rows, tokens or draws, divided by the weights of the whole batch.

    Layers that `__init__` keeps as attributes are trained and saved with the model.

    Class attributes:
      flag: the hparam that asks for it; "" where `is_chosen` decides otherwise.
      title: what the card of an exported model says of it; every flag has one.
      role: "generator" trains the generator, every run has one; "main" trains the main network; "beside" comes with a
        main one.
      without_main: of role "beside": whether it may come with the generator alone, as in BERT.
      implies: hparams that `flag` sets.
      task: its name in aux_tasks, if it is one of them (pretrain.objectives.on_losses). An objective that changes the
        text has one in any case: its metrics, whose names begin with it, are evaluated in a pass of their own.
      loss_name: key of the term in losses and logs.
      weight: the hparam that is its factor in the total loss; "" where `__init__` sets `loss_weight`.
      shown: metrics that tell how it fares, of training or of an evaluation: what is printed beside the loss.

    Attributes:
      loss_weight: its factor in the total loss, once all schedules are at their end.
      initial_loss: about the term's value before training.
    """

    flag: str = ""
    title: str = ""
    role: Literal["generator", "main", "beside"] = "beside"
    without_main: bool = False
    implies: Mapping[str, Any] = MappingProxyType({})
    task: str = ""
    loss_name: str
    weight: str = ""
    shown: Sequence[str] = ()
    loss_weight: float
    initial_loss: float

    # What the configuration asks; no TensorFlow.

    @classmethod
    def is_chosen(cls, config: H) -> bool:
        """True if a run has it."""
        return bool(cls.flag and getattr(config, cls.flag))

    @classmethod
    def problems(cls, config: H) -> Iterator[str]:
        """Reasons why a run that has it cannot be, one sentence each."""
        return iter(())

    @classmethod
    def needs(cls, config: H) -> Needs:
        """Parts of the forward pass that are computed for it."""
        return Needs()

    @classmethod
    def parts(cls, config: H) -> list[Part]:
        """Its heads and further passes, priced."""
        return []

    # What the model asks.

    def __init__(self, config: H, networks: Networks) -> None:
        self.config = config
        if self.weight:
            self.loss_weight = getattr(config, self.weight)

    def arrange(self, batch: Batch, candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Arranged:
        """Changes the sequences before they are masked, for everyone, and says in labels by name how.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          candidates: float32 [B, L], 1 at tokens that are not special.
          draw: uniform draws for the rows of this objective.
          active: bool scalar: whether it is trained at this step; if not, labels have the same shape and are -1.
        """
        raise NotImplementedError  # where it is not defined, the text stays as it is

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        """Further sequences that the network shall read; their lengths are those of `needs`."""
        del masked
        return ()

    def sample(
        self, masked: MaskedBatch, generated: GeneratorOutput, words: tf.Tensor, temperature: float | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the generator's samples; an objective of role "generator" that has it replaces pretrain.masking's.

        Args:
          words: [V, E], the main network's word table, in the compute type.

        Returns:
          int32 [B, N], and float32 [B, L, E] to be added to the main network's word embeddings.
        """
        raise NotImplementedError

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 weights of the losses, by token [B, L], draw [B, N] or row [B]; they depend on the masking alone.

        By default every draw of a masked position counts.
        """
        return masked.masked_lm_weights

    def normalizer(self, masked: MaskedBatch) -> tf.Tensor:
        """float32 scalar: the weight of the rows, summed over the global batch to divide the numerator."""
        return tf.reduce_sum(self.token_weights(masked))

    def weight_at(self, values: StepValues) -> float | tf.Tensor:
        """The factor of the term at a step."""
        weight = self.loss_weight if self.role == "generator" else self.loss_weight * values.main_weight
        return weight * values.share_of(self.task)

    def shared(self, forward: Forward) -> tf.Tensor | None:
        """float32 [B, ...]: what other micro-batches need of these rows, if `needs` says `whole_batch`."""
        del forward
        return None

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        """The term on the rows at hand; metrics that cost a pass over the vocabulary only if not `training`."""
        raise NotImplementedError

    def output(
        self, forward: Forward, losses: tf.Tensor, metrics: Metrics, histograms: dict[str, tf.Tensor] | None = None
    ) -> LossTerm:
        """The result from float32 losses of the weights' shape; `metrics` may hold the term under its name."""
        numerator, denominator = weighted_mean(losses, self.token_weights(forward.masked))
        return LossTerm(numerator, {self.loss_name: (numerator, denominator)} | metrics, histograms or {})


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(sum of weights x values, sum of weights), float32."""
    values, weights = tf.cast(values, tf.float32), tf.cast(weights, tf.float32)
    return tf.reduce_sum(values * weights), tf.reduce_sum(weights)
