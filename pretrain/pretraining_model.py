"""A pre-training model: a generator, a main network and a list of objectives, composed from a configuration.

`PretrainingModel.forward` is ELECTRA's figure: the generator reads the masked input, its samples corrupt the original
one, the main network reads that; `outputs` are the objectives over it. The training step of one replica is `prepare`
(masking, all random draws, and the weights whose sums over the global batch divide the losses), and both of these per
micro-batch. So gradient accumulation and any number of replicas compute the loss and gradient of one device that
sees the whole global batch.
"""

import zlib
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import SpecialIds, load_vocab, special_ids
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.generator import MaskedLanguageModel
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.pretrain import corruption, masking, ramps
from electra_tf2.pretrain.corruption import CorruptedBatch
from electra_tf2.pretrain.generators import make_generator, make_main_network
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.metrics import state_cosines
from electra_tf2.pretrain.objectives.base import Built, Forward, Metrics, Objective
from electra_tf2.pretrain.objectives.spec import needs_of
from electra_tf2.pretrain.ramps import Ramped
from electra_tf2.pretrain.task_ids import TaskVectors, task_number
from electra_tf2.pretrain.teacher import Teacher, TeacherOutput
from electra_tf2.util.catalogue import load


class Outputs(NamedTuple):
    """Result of one forward pass over some rows of the global batch.

    loss: float32 scalar, these rows' share of the total loss: the sum over rows, micro-batches and replicas is it.
    losses: term -> float32 scalar, likewise, unweighted.
    metrics: name -> (numerator, denominator), float32 scalars that add up.
    histograms: name -> float32 [2, K] that add up (pretrain.metrics.auc).
    """

    loss: tf.Tensor
    losses: dict[str, tf.Tensor]
    metrics: Metrics
    histograms: dict[str, tf.Tensor]


class PretrainingModel(Layer):
    """Generator + main network + objectives (ELECTRA, Electric, COCO-LM, BERT and their ablations).

    Args:
      config: says everything; create the model under the strategy's scope.
      special: the ids of the special tokens; read from `config.vocab_file` if not given.
    """

    def __init__(self, config: PretrainingConfig, special: SpecialIds | None = None) -> None:
        super().__init__("", config.seed)
        self.config = config
        self.special = special or special_ids(load_vocab(config.vocab_file), config.unmasked_tokens)
        masking.masking_unit(config)  # reads its files now, not when a step is traced
        self.encoder = None
        if config.trains_main_network or not config.uniform_generator:
            self.encoder = make_main_network(config)
        self.generator = make_generator(config, self.encoder)
        self._task_vectors = TaskVectors(config) if config.use_task_ids else None
        self.objectives = self._build_objectives()
        need = needs_of(config).teacher
        self._teacher = None if need is None else Teacher(need, config)

    def _build_objectives(self) -> list[Objective]:
        """Those of the catalogue that the run has. The generator's come first, but may build on the main network's."""
        objectives: dict[str, list[Objective]] = {"generator": [], "main": [], "beside": []}
        for role in ("main", "beside", "generator"):
            for spec in (spec for spec in self.config.objectives if spec.role == role):
                for path in spec.objectives:
                    before = [objective for of_role in objectives.values() for objective in of_role]
                    objectives[role].append(load(path)(self.config, Built(self.encoder, self.generator, before)))
        return [objective for of_role in objectives.values() for objective in of_role]

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """The trainable variables, without those of a frozen generator."""
        if not self.config.freeze_generator:
            return self.trainable_variables
        frozen = {id(variable) for variable in self.generator.trainable_variables}
        return [variable for variable in self.trainable_variables if id(variable) not in frozen]

    def prepare(
        self,
        batch: dict[str, tf.Tensor],
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
        ramped: Ramped | None = None,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        """Masks the rows of one replica and weighs them.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          seed: int32 [2], of the step, the same on every replica.
          row_offset: of the first row in the global batch.
          global_batch_size: rows of the global batch; B if not given.
          ramped: values of this step; the final ones if not given.

        Returns:
          The masked batch with all random draws, a function of (seed, global row), and by loss term the float32 scalar
          weight of these rows: summed over replicas, it divides the term.
        """
        rows = batch["input_ids"].shape[0]
        of_rows = (rows, row_offset, global_batch_size or rows)
        noise = masking.draw_noise(self.config, seed, *of_rows)
        ramped = ramped or ramps.final(self.config)
        batch, labels = self._arranged(batch, ramped, seed, of_rows)
        masked = masking.mask(self.config, batch, noise, self.special, ramped.mask_prob)
        task_ids = masked.task_ids + task_number(self.config, ramped)
        masked = masked._replace(labels=labels, task_ids=task_ids)
        return masked, self._normalizers(masked)

    def _arranged(
        self, batch: dict[str, tf.Tensor], ramped: Ramped, seed: tf.Tensor, of_rows: tuple[int, tf.Tensor | int, int]
    ) -> masking.Arranged:
        """The batch as the objectives want it, and their labels."""
        labels: dict[str, tf.Tensor] = {}
        for objective in self.objectives:
            key = tf.random.experimental.stateless_fold_in(seed, zlib.crc32(objective.loss_name.encode()) >> 1)
            draw = masking.row_draws(key, *of_rows)
            candidates = masking.candidates_mask(batch["input_ids"], batch["input_mask"], self.special)
            active = tf.constant(True) if ramped.active is None else ramped.active[objective.task] > 0
            batch, found = objective.arrange(batch, candidates, draw, active)
            labels |= found
        return batch, labels

    def _normalizers(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
        return {objective.loss_name: objective.normalizer(masked) for objective in self.objectives}

    def call(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        training: bool = False,
        ramped: Ramped | None = None,
    ) -> Outputs:
        """One forward pass over a whole batch.

        Args:
          masked: from `prepare`.
          seed: int32 [2] of the dropout; unused if not `training`.
          training: whether dropout is on and metrics over the vocabulary are off.
          ramped: values of this step; the final ones if not given.
        """
        ramped = ramped or ramps.final(self.config)
        forward = self.forward(masked, seed if training else None, temperature=ramped.temperature)
        return self.outputs(forward, training, ramped=ramped)

    def forward(
        self,
        masked: MaskedBatch,
        seed: tf.Tensor | None = None,
        sampled_ids: tf.Tensor | None = None,
        temperature: float | tf.Tensor | None = None,
    ) -> Forward:
        """Generator, corruption, main network, and what else an objective needs.

        Args:
          seed: of the dropout; None switches it off.
          sampled_ids: int32 [B, N], in place of the generator's samples.
          temperature: of the sampling; the configured one if not given.
        """
        config, needs = self.config, needs_of(self.config)
        seeds = None if seed is None else SeedStream(seed)
        if not config.trains_main_network:
            assert isinstance(self.generator, MaskedLanguageModel)
            generated = self.generator(masked, seeds, needs.attention, self._told(masked))
            return Forward(masked, generated, views=self._viewed(masked, seeds), teacher=self._taught(masked, None))
        generated = self.generator(masked, seeds)
        assert self.encoder is not None
        offsets = told = self._told(masked)
        temperature = config.temperature if temperature is None else temperature
        sampled = generated
        if config.generator_sample_mode == "eval" and seeds is not None:
            sampled = self.generator(masked, None)
        if sampled_ids is None:
            if sampled.mixture is None:
                sampled_ids = corruption.sample(config, masked, sampled, temperature)
            else:
                words = tf.cast(self.encoder.embeddings.word_embeddings, self.encoder.activation_dtype)
                sampled_ids, offsets = corruption.sample_mixture(config, masked, sampled, words, temperature)
                offsets = offsets if told is None else offsets + told
        corrupted = corruption.corrupt(config, masked, sampled_ids)
        encoded = self.encoder(
            corrupted.input_ids, masked.input_mask, masked.segment_ids, seeds, needs.attention, offsets
        )
        return Forward(
            masked,
            generated,
            corrupted,
            encoded,
            self._viewed(masked, seeds),
            self._taught(masked, corrupted),
            sampled=sampled,
            temperature=temperature,
        )

    def _viewed(self, masked: MaskedBatch, seeds: SeedStream | None) -> dict[str, list[EncoderOutput]]:
        """The network that is kept on what objectives want it to read besides."""
        if self.encoder is None:
            return {}
        return {
            objective.loss_name: [self.encoder(*view, seeds, word_offsets=self._told(masked)) for view in views]
            for objective in self.objectives
            if (views := objective.views(masked))
        }

    def _told(self, masked: MaskedBatch) -> tf.Tensor | None:
        """float32 [B, 1, E], what tells the network that is kept of the step's task; None if nothing does."""
        return None if self._task_vectors is None else self._task_vectors(masked.task_ids)

    def _taught(self, masked: MaskedBatch, corrupted: CorruptedBatch | None) -> TeacherOutput | None:
        return None if self._teacher is None else self._teacher(masked, corrupted)

    def shared(self, forward: Forward) -> dict[str, tf.Tensor]:
        """Loss term -> float32 [B, ...]: what its objective wants to know of all rows of the batch, if anything."""
        values = {objective.loss_name: objective.shared(forward) for objective in self.objectives}
        return {name: value for name, value in values.items() if value is not None}

    def outputs(
        self,
        forward: Forward,
        training: bool = False,
        normalizers: dict[str, tf.Tensor] | None = None,
        ramped: Ramped | None = None,
    ) -> Outputs:
        """Losses and metrics of a forward pass.

        Args:
          forward: of `prepare`'s rows, or of a slice of them.
          training: leaves out metrics that cost a pass over the vocabulary.
          normalizers: from `prepare`, summed over the global batch; those of the rows at hand if not given.
          ramped: values of this step, of which the losses' factors follow; the final ones if not given.
        """
        normalizers = normalizers or self._normalizers(forward.masked)
        ramped = ramped or ramps.final(self.config)
        loss = tf.zeros([])
        losses: dict[str, tf.Tensor] = {}
        metrics: Metrics = {}
        histograms: dict[str, tf.Tensor] = {}
        for objective in self.objectives:
            result = objective(forward, training)
            term = result.numerator / (normalizers[objective.loss_name] + 1e-6)
            losses[objective.loss_name] = term
            loss += objective.weight_at(ramped) * term
            metrics.update(result.metrics)
            histograms.update(result.histograms)
        encoded = forward.encoded or forward.generator.encoded
        if not training and encoded is not None:
            metrics.update(state_cosines(encoded.sequence, forward.masked.input_mask))
        return Outputs(loss, losses, metrics, histograms)
