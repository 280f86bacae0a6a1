"""A pre-training model: a generator, a main network and a list of objectives, composed from a configuration.

A step is `prepare` (masking, all random draws, the weights that divide the losses), then `forward`, ELECTRA's figure,
and `outputs`, the objectives over it, for each micro-batch. A paper's model overrides the method that it changes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.config.papers import paper_or_core
from electra_tf2.configure_pretraining import GeneratorKind, PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab, special_ids
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.heads import GeneratorOutput
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.evaluation_metrics import state_cosines
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.masking_units import make_unit
from electra_tf2.pretrain.networks import Networks, make_networks
from electra_tf2.pretrain.objectives import coco_lm, make
from electra_tf2.pretrain.objectives.objective import Forward, Metrics, Objective
from electra_tf2.util.errors import UserError


class StepValues(NamedTuple):
    """Values that schedules depend on.

    step: int64 scalar, 0-based; None in evaluation, where every schedule is at its end.
    """

    step: tf.Tensor | None = None


class Outputs(NamedTuple):
    """Result of one forward pass over some rows of the global batch.

    loss: float32 scalar, these rows' share of the total loss. Shares of all micro-batches and replicas add up to it.
    losses: loss name -> float32 scalar, likewise, not yet multiplied by its weight.
    metrics: name -> (numerator, denominator), float32 scalars that add up.
    histograms: name -> float32 [2, K] that add up (pretrain.evaluation_metrics.auc).
    """

    loss: tf.Tensor
    losses: dict[str, tf.Tensor]
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class PretrainingModel(Layer):
    """Generator + main network + objectives; create it under the strategy's scope.

    Args:
      config: hparams of the run.

    Raises:
      UserError: there is no vocabulary; two objectives of a paper have the same loss_name.
    """

    def __init__(self, config: PretrainingConfig) -> None:
        super().__init__("", config.seed)
        self.config = config
        self.special = special_ids(load_vocab(config.vocab_file))
        # Those of evaluation, where every schedule is at its end.
        self.final_values = StepValues()
        networks = self.make_networks()
        self.encoder = networks.encoder
        self.generator = networks.generator
        self.objectives = tuple(self.make_objectives(networks))
        names = [objective.loss_name for objective in self.objectives]
        if len(set(names)) < len(names):
            raise UserError(f"paper {config.paper}: two objectives have the same loss_name: {', '.join(names)}")
        layers = tf.__internal__.tracking.wrap([objective.layer for objective in self.objectives])
        # Objectives are no layers; this gives their variables paths in checkpoints: objectives/0/head and so on.
        self._track_trackable(layers, "objectives")
        self._objective_layers = layers

    # Networks and objectives, which papers replace or add to.

    def make_networks(self) -> Networks:
        """The main network and the generator."""
        return make_networks(self.config)

    def make_objectives(self, networks: Networks) -> list[Objective]:
        """The run's loss terms, in the order of their variables in checkpoints."""
        return make.make_objectives(self.config, networks)

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """The trainable variables, without those of a frozen generator."""
        if not self.config.freeze_generator:
            return self.trainable_variables
        frozen = {id(variable) for variable in self.generator.trainable_variables}
        return [variable for variable in self.trainable_variables if id(variable) not in frozen]

    # A step.

    def prepare(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        """Masks the rows of one replica and sums the weights of their losses.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          seed: int32 [2], of the step, the same on every replica.
          row_offset: of the first row in the global batch.
          global_batch_size: rows of the global batch; B if not given.

        Returns:
          The masked batch with all random draws, a function of (seed, global row); and loss name -> float32 scalar,
          the sum of the rows' weights. Summed over replicas, it divides the loss.
        """
        rows = batch["input_ids"].shape[0]
        masked = self.mask(batch, masking.row_draws(seed, rows, row_offset, global_batch_size or rows))
        return masked, self.normalizers(masked)

    def mask(self, batch: Batch, draw: Draw) -> MaskedBatch:
        """Masks rows, with random draws for them; `mask_unit` says what is masked as a whole."""
        return masking.mask(self.config, batch, draw, self.special, make_unit(self.config))

    def normalizers(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Loss name -> float32 scalar, the sum of these rows' weights."""
        return {objective.loss_name: objective.normalizer(masked) for objective in self.objectives}

    def call(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        training: bool = False,
        values: StepValues | None = None,
    ) -> Outputs:
        """One forward pass over a whole batch.

        Args:
          seed: int32 [2] of the dropout; unused if not `training`.
          training: switches dropout on and metrics over the vocabulary off.
          values: of this step; the final ones if not given.
        """
        values = values or self.final_values
        forward = self.forward(masked, seed if training else None)
        return self.outputs(forward, training, values=values)

    def forward(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        sampled_ids: tf.Tensor | None = None,
    ) -> Forward:
        """Generator, corruption, main network, and what else an objective reads.

        Args:
          seed: of the dropout; None switches it off.
          sampled_ids: int32 [B, N], in place of the generator's samples.
        """
        seeds = None if seed is None else SeedStream(seed)
        generated = self.generator(masked, seeds)
        if self.config.generator_kind is GeneratorKind.NONE:  # BERT
            return Forward(masked, generated, views=self.read_views(masked, seeds))
        if sampled_ids is None:
            softmax = masking.sampled_softmax(self.config, masked, self.sampled(masked, generated, seeds))
            sampled_ids = softmax.sample(masked.sampling_noise, self.config.temperature)
        corrupted = masking.corrupt(self.config, masked, sampled_ids)
        encoded = self.encoder(corrupted.input_ids, masked.input_mask, masked.segment_ids, seeds)
        return Forward(masked, generated, corrupted, encoded, self.read_views(masked, seeds))

    def sampled(self, masked: MaskedBatch, generated: GeneratorOutput, seeds: SeedStream | None) -> GeneratorOutput:
        """The pass that replacements are drawn from: `generated`, or by generator_sample_mode one without dropout."""
        if self.config.generator_sample_mode == "eval" and seeds is not None:
            return self.generator(masked, None)
        return generated

    def read_views(self, masked: MaskedBatch, seeds: SeedStream | None) -> Mapping[str, Sequence[EncoderOutput]]:
        """Loss name -> the main network's outputs on further sequences that the loss reads: COCO-LM's crops."""
        if not self.config.sequence_contrast_objective:
            return {}
        crop = coco_lm.crop(self.config, masked)
        return {coco_lm.SequenceContrast.loss_name: [self.encoder(*crop, seeds)]}

    def outputs(
        self,
        forward: Forward,
        training: bool = False,
        normalizers: dict[str, tf.Tensor] | None = None,
        values: StepValues | None = None,
    ) -> Outputs:
        """Losses and metrics of a forward pass.

        Args:
          forward: of `prepare`'s rows, or of a slice of them.
          training: leaves out metrics that cost a pass over the vocabulary.
          normalizers: from `prepare`, summed over the global batch; those of the rows at hand if not given.
          values: of this step, for the weights of the losses; the final ones if not given.
        """
        normalizers = normalizers or self.normalizers(forward.masked)
        weights = self.loss_weights(values or self.final_values)
        loss = tf.zeros([])
        losses: dict[str, tf.Tensor] = {}
        metrics: Metrics = {}
        histograms: dict[str, tf.Tensor] = {}
        for objective in self.objectives:
            result = objective(forward, training)
            term = result.numerator / (normalizers[objective.loss_name] + 1e-6)
            losses[objective.loss_name] = term
            loss += weights[objective.loss_name] * term
            metrics.update(result.metrics)
            histograms.update(result.histograms)
        encoded = forward.encoded or forward.generator.encoded
        if not training and encoded is not None:
            metrics.update(state_cosines(encoded.sequence, forward.masked.input_mask))
        return Outputs(loss, losses, metrics, histograms)

    def loss_weights(self, values: StepValues) -> dict[str, float | tf.Tensor]:
        """Loss name -> factor of the term in the total loss; a paper's may change from step to step."""
        del values
        return {objective.loss_name: objective.loss_weight for objective in self.objectives}


def make_model(config: PretrainingConfig) -> PretrainingModel:
    """Makes the model of a run: its paper's if that has one, else the core's."""
    return paper_or_core(config.paper, "model", "Model", PretrainingModel)(config)
