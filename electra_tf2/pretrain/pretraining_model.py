"""A pre-training model: a generator, a main network and a list of objectives, composed from a configuration.

`PretrainingModel.forward` is ELECTRA's figure: the generator reads the masked input, its samples corrupt the original
one, the main network reads that; `outputs` are the objectives over it. The training step of one replica is `prepare`
(masking, all random draws, and the weights whose sums over the global batch divide the losses), and both of these per
micro-batch. So gradient accumulation and any number of replicas compute the loss and gradient of one device that
sees the whole global batch.
"""

import zlib
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import SpecialIds, load_vocab, special_ids
from electra_tf2.model.embeddings import Embeddings
from electra_tf2.model.encoder import Encoder, EncoderOutput
from electra_tf2.model.generator import MaskedLanguageModel
from electra_tf2.model.other_generators import TwoTowerClozeModel, UniformGenerator
from electra_tf2.model.layers import Layer, SeedStream
from electra_tf2.papers.amos.generator import BlockwiseEncoder, MixtureOfGenerators
from electra_tf2.papers.mpa.attention import ObservedEncoder
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import Batch, CorruptedBatch, MaskedBatch
from electra_tf2.pretrain.masking_units import UNITS
from electra_tf2.pretrain.metrics import state_cosines
from electra_tf2.pretrain.objectives import on_losses
from electra_tf2.pretrain.objectives.catalogue import ObjectiveHparams
from electra_tf2.pretrain.objectives.objective import Forward, Metrics, Networks, Objective, StepValues, TeacherOutput

Generator = MaskedLanguageModel | TwoTowerClozeModel | UniformGenerator


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
    """Generator + main network + objectives.

    Args:
      config: says everything; create the model under the strategy's scope.
      special: the ids of the special tokens; read from `config.vocab_file` if not given.
    """

    def __init__(self, config: PretrainingConfig, special: SpecialIds | None = None) -> None:
        super().__init__("", config.seed)
        self.config = config
        self.special = special or special_ids(load_vocab(config.vocab_file), config.unmasked_tokens)
        self.encoder = None
        if config.trains_main_network or not config.uniform_generator:
            self.encoder = make_main_network(config)
        self.generator = make_generator(config, self.encoder)
        self._task_vectors = None
        if config.use_task_ids:
            from electra_tf2.papers.on_losses.heads import TaskVectors

            centred = config.aux_combination.endswith("+")
            self._task_vectors = TaskVectors(config.architecture, len(config.aux_tasks), centred, config.seed)
        # What a step needs of the configuration is computed here, not when it is traced.
        self._has_main, self._needs = config.trains_main_network, config.needs
        self._unit = UNITS[config.mask_unit](config)
        self._final = StepValues(config.mask_prob, config.temperature)
        self.objectives = self._build_objectives()
        self.arranging = [one for one in self.objectives if type(one).arrange is not Objective.arrange]
        self._sampling = next((one for one in self.objectives if type(one).sample is not Objective.sample), None)
        made: dict[int, Layer] = {}
        layers = tf.__internal__.tracking.wrap([_layers_of(objective, made) for objective in self.objectives])
        self._track_trackable(layers, "objectives")  # their path in checkpoints
        self._objective_layers = layers
        self._teacher = None
        if self._needs.teacher is not None:
            from electra_tf2.pretrain.teacher import Teacher

            self._teacher = Teacher(self._needs.teacher, config)

    def _build_objectives(self) -> tuple[Objective[ObjectiveHparams], ...]:
        """Those of the run in its order. The generator's come first, but may build on the main network's."""
        kinds = self.config.objective_classes
        built: dict[int, Objective[ObjectiveHparams]] = {}
        for number in sorted(range(len(kinds)), key=lambda number: (kinds[number].role == "generator", number)):
            before = [built[place] for place in sorted(built)]
            built[number] = kinds[number](self.config, Networks(self.encoder, self.generator, before))
        return tuple(built[number] for number in range(len(kinds)))

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """The trainable variables, without those of a frozen generator."""
        if not self.config.freeze_generator:
            return self.trainable_variables
        frozen = {id(variable) for variable in self.generator.trainable_variables}
        return [variable for variable in self.trainable_variables if id(variable) not in frozen]

    def prepare(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
        values: StepValues | None = None,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        """Masks the rows of one replica and weighs them.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          seed: int32 [2], of the step, the same on every replica.
          row_offset: of the first row in the global batch.
          global_batch_size: rows of the global batch; B if not given.
          values: of this step; the final ones if not given.

        Returns:
          The masked batch with all random draws, a function of (seed, global row), and by loss term the float32 scalar
          weight of these rows: summed over replicas, it divides the term.
        """
        rows = batch["input_ids"].shape[0]
        of_rows = (rows, row_offset, global_batch_size or rows)
        values = values or self._final
        noise = masking.draw_noise(self.config, seed, *of_rows)
        labels: dict[str, tf.Tensor] = {}
        for objective in self.arranging:
            key = tf.random.experimental.stateless_fold_in(seed, zlib.crc32(objective.loss_name.encode()) >> 1)
            draw = masking.row_draws(key, *of_rows)
            candidates = masking.candidates_mask(batch["input_ids"], batch["input_mask"], self.special)
            active = tf.convert_to_tensor(values.share_of(objective.task)) > 0
            batch, found = objective.arrange(batch, candidates, draw, active)
            labels |= found
        masked = masking.mask(self.config, batch, noise, self.special, values.mask_prob, self._unit)
        masked = masked._replace(labels=labels)
        if self._task_vectors is not None:
            masked = masked._replace(task_ids=masked.task_ids + on_losses.task_number(self.config, values))
        return masked, self._normalizers(masked)

    def _normalizers(self, masked: MaskedBatch) -> dict[str, tf.Tensor]:
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
          training: whether dropout is on and metrics over the vocabulary are off.
          values: of this step; the final ones if not given.
        """
        values = values or self._final
        forward = self.forward(masked, seed if training else None, temperature=values.temperature)
        return self.outputs(forward, training, values=values)

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
        seeds = None if seed is None else SeedStream(seed)
        # Vectors of auxiliary tasks, float32 [B, 1, E].
        offsets = task_vector = None if self._task_vectors is None else self._task_vectors(masked.task_ids)
        if not self._has_main:
            assert isinstance(self.generator, MaskedLanguageModel)
            inputs = (masked.masked_input_ids, masked.input_mask, masked.segment_ids)
            encoded = self._encode(self.generator.encoder, *inputs, seeds, task_vector)
            generated = self.generator.predictions(masked, seeds, encoded)
            views = self._read_views(masked, seeds, task_vector)
            return Forward(masked, generated, views=views, teacher=self._ask_teacher(masked, None))
        generated = self.generator(masked, seeds)
        assert self.encoder is not None
        temperature = self._final.temperature if temperature is None else temperature
        sampled = generated
        if self.config.generator_sample_mode == "eval" and seeds is not None:
            sampled = self.generator(masked, None)
        if sampled_ids is None and self._sampling is not None:
            words = tf.cast(self.encoder.embeddings.word_embeddings, self.encoder.activation_dtype)
            sampled_ids, offsets = self._sampling.sample(masked, sampled, words, temperature)
            offsets = offsets if task_vector is None else offsets + task_vector
        elif sampled_ids is None:
            sampled_ids = masking.sample(self.config, masked, sampled, temperature)
        corrupted = masking.corrupt(self.config, masked, sampled_ids)
        inputs = (corrupted.input_ids, masked.input_mask, masked.segment_ids)
        encoded = self._encode(self.encoder, *inputs, seeds, offsets)
        views = self._read_views(masked, seeds, task_vector)
        teacher = self._ask_teacher(masked, corrupted)
        return Forward(masked, generated, corrupted, encoded, views, teacher, sampled=sampled, temperature=temperature)

    def _encode(
        self,
        encoder: Encoder,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        seeds: SeedStream | None,
        offsets: tf.Tensor | None,
    ) -> EncoderOutput:
        """Encodes int32 [B, L] ids whose embeddings `offsets`, float32 [B, 1 or L, E], are added to."""
        words = encoder.embeddings.lookup(input_ids)
        embedded = encoder.embeddings.combine(words if offsets is None else words + offsets, segment_ids, seeds)
        return encoder.encode(embedded, input_mask, seeds)

    def _read_views(
        self, masked: MaskedBatch, seeds: SeedStream | None, task_vector: tf.Tensor | None
    ) -> dict[str, list[EncoderOutput]]:
        """The pre-trained network's outputs on what objectives want it to read besides."""
        if self.encoder is None:
            return {}
        return {
            objective.loss_name: [self._encode(self.encoder, *view, seeds, task_vector) for view in views]
            for objective in self.objectives
            if (views := objective.views(masked))
        }

    def _ask_teacher(self, masked: MaskedBatch, corrupted: CorruptedBatch | None) -> TeacherOutput | None:
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
        values: StepValues | None = None,
    ) -> Outputs:
        """Losses and metrics of a forward pass.

        Args:
          forward: of `prepare`'s rows, or of a slice of them.
          training: leaves out metrics that cost a pass over the vocabulary.
          normalizers: from `prepare`, summed over the global batch; those of the rows at hand if not given.
          values: of this step, of which the losses' factors follow; the final ones if not given.
        """
        normalizers = normalizers or self._normalizers(forward.masked)
        values = values or self._final
        loss = tf.zeros([])
        losses: dict[str, tf.Tensor] = {}
        metrics: Metrics = {}
        histograms: dict[str, tf.Tensor] = {}
        for objective in self.objectives:
            result = objective(forward, training)
            term = result.numerator / (normalizers[objective.loss_name] + 1e-6)
            losses[objective.loss_name] = term
            loss += objective.weight_at(values) * term
            metrics.update(result.metrics)
            histograms.update(result.histograms)
        encoded = forward.encoded or forward.generator.encoded
        if not training and encoded is not None:
            metrics.update(state_cosines(encoded.sequence, forward.masked.input_mask))
        return Outputs(loss, losses, metrics, histograms)


def _layers_of(objective: Objective[ObjectiveHparams], made: dict[int, Layer]) -> Layer:
    """Layers and variables of an objective, a plain object, under the names of its attributes.

    Args:
      made: those of objectives by their ids, so that one that another builds on is the same there.
    """
    if id(objective) not in made:
        made[id(objective)] = layer = Layer("")
        for name, value in vars(objective).items():
            if isinstance(value, Objective):
                setattr(layer, name, _layers_of(value, made))
            elif any(isinstance(one, tf.Module | tf.Variable) for one in tf.nest.flatten(value)):
                setattr(layer, name, value)
    return made[id(objective)]


def _encoder_settings(config: PretrainingConfig) -> tuple[str, int, str]:
    """The last arguments of every encoder: compute type, seed, what is recomputed."""
    return config.precision, config.seed, config.recompute


def make_main_network(config: PretrainingConfig) -> Encoder:
    embeddings = None
    if config.embedding_sharing == "gdes":
        base = Embeddings("generator/embeddings", config.generator_architecture, config.seed)
        embeddings = Embeddings("electra/embeddings", config.architecture, config.seed, base=base)
    network: tuple[Any, ...] = ("electra", config.architecture, embeddings, "both", *_encoder_settings(config))
    observed = config.needs.attention
    return ObservedEncoder(*network, observed=observed) if observed else Encoder(*network)


def make_generator(config: PretrainingConfig, main: Encoder | None) -> Generator:
    """Makes the generator, with what it shares with the main network (ELECTRA, section 3.2; DeBERTaV3).

    The original's order: uniform wins; then a generator of its own; else the main network's weights.

    Args:
      main: the main network; None where nothing needs one.
    """
    if config.uniform_generator:
        return UniformGenerator(config.vocab_size)
    assert main is not None
    if not config.has_own_generator:
        return MaskedLanguageModel(main, seed=config.seed)
    architecture, settings = config.generator_architecture, _encoder_settings(config)
    shared: Embeddings | None = main.embeddings
    if config.untied_generator_embeddings:
        shared = None
    elif config.embedding_sharing == "gdes":
        shared = main.embeddings.base
    elif config.generator_sample_mode == "zero_dropout":
        shared = Embeddings("generator/embeddings", architecture, config.seed, words=main.embeddings)
    if config.two_tower_generator:
        return TwoTowerClozeModel(architecture, shared, *settings)
    network: tuple[Any, ...] = ("generator", architecture, shared, "both", *settings)
    if config.generator_exits:
        return MixtureOfGenerators(BlockwiseEncoder(config.generator_exits, *network), seed=config.seed)
    return MaskedLanguageModel(Encoder(*network), seed=config.seed)
