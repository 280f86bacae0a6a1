"""A pre-training model: a generator, a main network and a list of objectives, composed from a configuration.

A training step calls three methods: `prepare` masks the batch and makes all random draws; for each micro-batch,
`forward` is ELECTRA's figure and `outputs` adds up the objectives. A paper's model overrides the methods that it
changes.

Shapes: B rows, L length, N masked positions, K buckets of a histogram.
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
from electra_tf2.pretrain.objectives import make
from electra_tf2.pretrain.objectives.objective import Forward, Metrics, Objective
from electra_tf2.util.errors import UserError


class Outputs(NamedTuple):
    """Losses and metrics of some rows of the global batch.

    loss: float32 scalar, these rows' share of the total loss; the shares of micro-batches and replicas add up.
    losses: loss name -> float32 scalar, the share of that term, not yet multiplied by its weight.
    metrics: name -> (numerator, denominator), float32 scalars that add up.
    histograms: name -> float32 [2, K] that add up (evaluation_metrics.auc).
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
        networks = self.make_networks()
        self.encoder = networks.encoder
        self.generator = networks.generator
        self.objectives = tuple(self.make_objectives(networks))
        names = [objective.loss_name for objective in self.objectives]
        if len(set(names)) < len(names):
            raise UserError(f"paper {config.paper}: two objectives have the same loss_name: {', '.join(names)}")
        # Keras finds no variables in objectives, which are plain objects. Tracked here, their layers are saved under
        # the paths objectives/0/head, objectives/1/head, ...
        layers = tf.__internal__.tracking.wrap([objective.layer for objective in self.objectives])
        self._track_trackable(layers, "objectives")
        self._objective_layers = layers

    # Networks and objectives, which papers replace or add to.

    def make_networks(self) -> Networks:
        """Makes the main network and the generator."""
        return make_networks(self.config)

    def make_objectives(self, networks: Networks) -> list[Objective]:
        """Makes the run's loss terms, in the order of their variables in checkpoints."""
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
          seed: int32 [2], a function of the step, the same on every replica.
          row_offset: index of the first row in the global batch.
          global_batch_size: rows of the global batch; default: B.

        Returns:
          The masked batch with all random draws, a function of (seed, row of the global batch); and the normalizers.
        """
        rows = batch["input_ids"].shape[0]
        draw = masking.row_draws(seed, rows, row_offset, global_batch_size or rows)
        masked = self.mask(batch, draw)
        return masked, self.normalizers(masked)

    def mask(self, batch: Batch, draw: Draw) -> MaskedBatch:
        """Chooses positions and masks them: single tokens, words or spans, by the hparam mask_unit."""
        return masking.mask(self.config, batch, draw, self.special, make_unit(self.config))

    def normalizers(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Loss name -> float32 scalar, the sum of these rows' weights; summed over replicas, it divides the loss."""
        return {objective.loss_name: objective.normalizer(masked) for objective in self.objectives}

    def forward(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        sampled_ids: tf.Tensor | None = None,
    ) -> Forward:
        """Runs generator, corruption and main network (ELECTRA, figure 2), and reads what else objectives ask for.

        Args:
          seed: int32 [2], of the dropout; None switches dropout off.
          sampled_ids: int32 [B, N], in place of the generator's samples.
        """
        seeds = None
        if seed is not None:
            seeds = SeedStream(seed)
        generated = self.generator(masked, seeds)
        if self.config.generator_kind is GeneratorKind.NONE:
            # BERT: the masked language model is the only network.
            return Forward(masked, generated, views=self.read_views(masked, seeds))
        if sampled_ids is None:
            to_sample = self.sampled_pass(masked, generated, seeds)
            softmax = masking.sampled_softmax(self.config, masked, to_sample)
            sampled_ids = softmax.sample(masked.sampling_noise, self.config.temperature)  # [B, N]
        corrupted = masking.corrupt(self.config, masked, sampled_ids)
        encoded = self.encoder(corrupted.input_ids, masked.input_mask, masked.segment_ids, seeds)  # states [B, L, H]
        return Forward(masked, generated, corrupted, encoded, self.read_views(masked, seeds))

    def sampled_pass(
        self,
        masked: MaskedBatch,
        generated: GeneratorOutput,
        seeds: SeedStream | None,
    ) -> GeneratorOutput:
        """The generator's pass that is sampled: `generated`, or with generator_sample_mode eval one without dropout."""
        if self.config.generator_sample_mode == "eval" and seeds is not None:
            return self.generator(masked, None)
        return generated

    def read_views(self, masked: MaskedBatch, seeds: SeedStream | None) -> Mapping[str, Sequence[EncoderOutput]]:
        """Reads the further sequences that objectives ask for: loss name -> the main network's output on each."""
        outputs = {}
        for objective in self.objectives:
            views = objective.views(masked)
            outputs[objective.loss_name] = [self.encoder(*view, seeds) for view in views]
        return outputs

    def outputs(
        self,
        forward: Forward,
        training: bool = False,
        normalizers: dict[str, tf.Tensor] | None = None,
        step: tf.Tensor | None = None,
    ) -> Outputs:
        """Computes losses and metrics of a forward pass.

        Args:
          forward: pass over the rows of `prepare`, or over a slice of them.
          training: leaves out metrics that cost a pass over the vocabulary.
          normalizers: from `prepare`, summed over the global batch; default: those of these rows.
          step: int64 scalar, 0-based, for weights that change while a run trains; None: their last values.
        """
        if normalizers is None:
            normalizers = self.normalizers(forward.masked)
        weights = self.loss_weights(step)
        loss = tf.zeros([])
        losses: dict[str, tf.Tensor] = {}
        metrics: Metrics = {}
        histograms: dict[str, tf.Tensor] = {}
        for objective in self.objectives:
            name = objective.loss_name
            result = objective(forward, training)
            losses[name] = result.numerator / (normalizers[name] + 1e-6)
            loss += weights[name] * losses[name]
            metrics.update(result.metrics)
            histograms.update(result.histograms)
        encoded = forward.encoded or forward.generator.encoded
        if not training and encoded is not None:
            metrics.update(state_cosines(encoded.sequence, forward.masked.input_mask))
        return Outputs(loss, losses, metrics, histograms)

    def loss_weights(self, step: tf.Tensor | None) -> dict[str, float | tf.Tensor]:
        """Loss name -> weight in the total loss. A paper's may depend on the step; None asks for the last values."""
        del step
        return {objective.loss_name: objective.loss_weight for objective in self.objectives}

    def call(self, masked: MaskedBatch, seed: tf.Tensor | None = None, training: bool = False) -> Outputs:
        """Runs `forward` and `outputs` over a whole batch, with the loss weights of the end of a run.

        Args:
          seed: int32 [2], of the dropout; unused unless `training`.
          training: switches dropout on, and metrics over the vocabulary off.
        """
        forward = self.forward(masked, seed if training else None)
        return self.outputs(forward, training)


def make_model(config: PretrainingConfig) -> PretrainingModel:
    """Makes the model of a run: its paper's if that has one, else the core's."""
    return paper_or_core(config.paper, "model", "Model", PretrainingModel)(config)
