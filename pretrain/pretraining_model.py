"""A pre-training model: a generator, a main network and a list of objectives, composed from a configuration.

The training step of one replica is `prepare` (masking and all random draws), `normalizers` (whose sums over the
global batch divide the losses) and a call per micro-batch. The split lets gradient accumulation and any number of
replicas compute the loss and gradient of one device that sees the whole global batch.
"""

from typing import NamedTuple

import tensorflow as tf

from configure_pretraining import PretrainingConfig
from model.encoder import Encoder
from model.generator import MaskedLanguageModel, TwoTowerClozeModel, UniformGenerator
from model.layers import Layer, SeedStream
from pretrain import corruption, masking
from pretrain.masking import MaskedBatch
from pretrain.objectives.base import Forward, Metrics, Objective
from pretrain.objectives.detection import NoiseContrastive, ReplacedTokenDetection
from pretrain.objectives.masked_lm import ClozeLM, MaskedLM
from util.vocabulary import SpecialIds, load_vocab, special_ids

_UNDECAYED = frozenset({"bias", "output_bias", "beta", "gamma"})


class Outputs(NamedTuple):
    """Result of one forward pass over some rows of the global batch.

    loss: float32 scalar, these rows' share of the total loss: the sum over rows, micro-batches and replicas is it.
    losses: term -> float32 scalar, likewise, unweighted.
    metrics: name -> (numerator, denominator), float32 scalars that add up.
    histograms: name -> float32 [2, 200] that add up (pretrain.metrics.auc).
    """

    loss: tf.Tensor
    losses: dict[str, tf.Tensor]
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class PretrainingModel(Layer):
    """Generator + main network + objectives (ELECTRA, Electric or BERT).

    Args:
      config: says everything; create the model under the strategy's scope.
      special: the ids of the special tokens; read from `config.vocab_file` if not given.
    """

    def __init__(self, config: PretrainingConfig, special: SpecialIds | None = None) -> None:
        super().__init__("", config.seed)
        self.config = config
        self.special = special or special_ids(load_vocab(config.vocab_file))
        architecture = config.architecture
        needs_main = config.electra_objective or config.electric_objective
        self.encoder = None
        if needs_main or not config.uniform_generator:
            self.encoder = Encoder("electra", architecture, None, "both", config.precision, config.seed)
        self.generator = self._build_generator(needs_main)
        self.objectives = self._build_objectives()
        self.corrupts = needs_main

    def _build_generator(self, needs_main: bool) -> MaskedLanguageModel | TwoTowerClozeModel | UniformGenerator:
        """The original's order: uniform wins; then a generator of its own; else the main network's weights."""
        config = self.config
        if config.uniform_generator:
            return UniformGenerator(config.vocab_size)
        assert self.encoder is not None
        if not (needs_main and config.untied_generator):
            return MaskedLanguageModel(self.encoder, seed=config.seed)
        architecture = config.generator_architecture
        shared = None if config.untied_generator_embeddings else self.encoder.embeddings
        if config.two_tower_generator:
            return TwoTowerClozeModel(architecture, shared, config.precision, config.seed)
        encoder = Encoder("generator", architecture, shared, "both", config.precision, config.seed)
        return MaskedLanguageModel(encoder, seed=config.seed)

    def _build_objectives(self) -> list[Objective]:
        config = self.config
        language_model: Objective = (
            ClozeLM(config) if isinstance(self.generator, TwoTowerClozeModel) else MaskedLM(config)
        )
        if config.electra_objective:
            return [language_model, ReplacedTokenDetection(config)]
        if config.electric_objective:
            return [language_model, NoiseContrastive(config)]
        return [language_model]

    @staticmethod
    def decays(variable: tf.Variable) -> bool:
        """Whether weight decay applies: to kernels and embedding tables, not to biases and layer norms."""
        return variable.name.split(":")[0].rsplit("/", 1)[-1] not in _UNDECAYED

    def prepare(
        self,
        batch: dict[str, tf.Tensor],
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
    ) -> MaskedBatch:
        """Masks the rows of one replica.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          seed: int32 [2], of the step, the same on every replica.
          row_offset: of the first row in the global batch.
          global_batch_size: rows of the global batch; B if not given.

        Returns:
          The masked batch with all random draws, a function of (seed, global row).
        """
        rows = batch["input_ids"].shape[0]
        noise = masking.draw_noise(self.config, seed, rows, row_offset, global_batch_size or rows)
        return masking.mask(self.config, batch, noise, self.special)

    def normalizers(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        """Loss term -> float32 scalar: the weight of these rows, to be summed over replicas."""
        return {objective.loss_name: objective.normalizer(masked) for objective in self.objectives}

    def call(
        self, masked: MaskedBatch, normalizers: dict[str, tf.Tensor], seed: tf.Tensor | None, training: bool
    ) -> Outputs:
        """One forward pass.

        Args:
          masked: from `prepare`, or a slice of its rows.
          normalizers: summed over the global batch.
          seed: int32 [2] of the dropout, distinct per step, replica and micro-batch; unused if not `training`.
          training: whether dropout is on and metrics over the vocabulary are off.
        """
        return self.outputs(self.forward(masked, seed if training else None), normalizers, training)

    def forward(
        self, masked: MaskedBatch, seed: tf.Tensor | None = None, sampled_ids: tf.Tensor | None = None
    ) -> Forward:
        """Generator, corruption, main network.

        Args:
          seed: of the dropout; None switches it off.
          sampled_ids: int32 [B, N], in place of the generator's samples.
        """
        seeds = None if seed is None else SeedStream(seed)
        generated = self.generator(masked, seeds)
        if not self.corrupts:
            return Forward(masked, generated)
        if sampled_ids is None:
            sampled_ids = corruption.sample(self.config, masked, generated.logits)
        corrupted = corruption.corrupt(self.config, masked, sampled_ids)
        assert self.encoder is not None
        encoded = self.encoder(corrupted.input_ids, masked.input_mask, masked.segment_ids, seeds)
        return Forward(masked, generated, corrupted, encoded.sequence)

    def outputs(self, forward: Forward, normalizers: dict[str, tf.Tensor], training: bool) -> Outputs:
        """Losses and metrics of a forward pass."""
        loss = tf.zeros([])
        losses: dict[str, tf.Tensor] = {}
        metrics: Metrics = {}
        histograms: dict[str, tf.Tensor] = {}
        for objective in self.objectives:
            result = objective(forward, training)
            term = result.numerator / (normalizers[objective.loss_name] + 1e-6)
            losses[objective.loss_name] = term
            loss += objective.loss_weight * term
            metrics.update(result.metrics)
            histograms.update(result.histograms)
        return Outputs(loss, losses, metrics, histograms)
