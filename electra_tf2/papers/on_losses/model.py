"""Auxiliary tasks beside the main objective ("On Losses for Modern Language Models", Aroca-Ouellette & Rudzicz 2020).

An auxiliary task is an objective on the states of the pre-trained network: its input is the corrupted one for ELECTRA,
the masked one for BERT. A task may change the sequences before they are masked, which everything else then sees; what
it changed is its label. papers.on_losses.tasks has what tasks have in common and the steps at which each is trained;
tokens and segments have the tasks (section 3.2).
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import tensorflow as tf

from electra_tf2.corpus.records import read_batches
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.generator import GeneratorOutput, MaskedLanguageModel
from electra_tf2.model.layers import SeedStream, fold_in
from electra_tf2.papers.on_losses import segments, tokens
from electra_tf2.papers.on_losses.config import TASKS, Config
from electra_tf2.papers.on_losses.heads import TaskVectors
from electra_tf2.papers.on_losses.tasks import MAIN, Auxiliary, TaskBatch, active_tasks
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import Batch, MaskedBatch
from electra_tf2.pretrain.objectives.objective import Networks, Objective
from electra_tf2.pretrain.pretrain_data import Records
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.schedules import StepValues
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.errors import UserError

_CLASSES: dict[str, type[Auxiliary]] = {
    "fs": segments.FastSent,
    "qt": segments.QuickThoughts,
    "asp": segments.AdjacentSegments,
    "sdp": segments.SameDocument,
    "so": segments.SentenceOrder,
    "tf": tokens.TermFrequency,
    "tf_idf": tokens.TermFrequencyInverse,
    "tcp": tokens.TokenCorruption,
    "scp": tokens.SequenceCorruption,
    "tgs": tokens.TrigramOrder,
}


class TaskValues(NamedTuple):
    """`StepValues`, and what is trained at a step.

    active: float32 scalar by task, 1 if it is trained, MAIN for all else.
    """

    mask_prob: float | tf.Tensor
    temperature: float | tf.Tensor
    main_weight: float | tf.Tensor
    step: tf.Tensor | None
    active: dict[str, tf.Tensor]


def share_of(task: str, values: StepValues) -> float | tf.Tensor:
    """1 if a task, or MAIN, is trained at a step, else 0."""
    return values.active.get(task, values.active[MAIN]) if isinstance(values, TaskValues) else 1.0


class Model(PretrainingModel):
    """A core's model with auxiliary tasks beside its objectives."""

    config: Config

    def __init__(self, config: Config, special: SpecialIds | None = None) -> None:
        super().__init__(config, special)
        self.tasks = tuple(objective for objective in self.objectives if isinstance(objective, Auxiliary))

    def make_objectives(self, networks: Networks) -> list[Objective]:
        config = self.config
        self._task_vectors = None  # made before the objectives: optimizer's slots are saved in the order of variables
        if config.use_task_ids:
            centred = config.aux_combination.endswith("+")
            self._task_vectors = TaskVectors(config.architecture, len(config.aux_tasks), centred, config.seed)
        tasks = [_CLASSES[task](config, networks) for task in TASKS if task in config.aux_tasks]
        return [*super().make_objectives(networks), *tasks]

    def weight_of(self, objective: Objective, values: StepValues) -> float | tf.Tensor:
        task = objective.task if isinstance(objective, Auxiliary) else MAIN
        return super().weight_of(objective, values) * share_of(task, values)

    def prepare(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
        values: StepValues | None = None,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        rows, values = batch["input_ids"].shape[0], values or self.final_values
        of_rows = (rows, row_offset, global_batch_size or rows)
        labels: dict[str, tf.Tensor] = {}
        unmaskable = tf.zeros_like(batch["input_ids"], tf.bool)
        for objective in self.tasks:
            if objective.changes_text():
                key = fold_in(seed, zlib.crc32(objective.loss_name.encode()) >> 1)
                candidates = masking.candidates_mask(batch["input_ids"], batch["input_mask"], self.special)
                active = tf.convert_to_tensor(share_of(objective.task, values)) > 0
                draw = masking.row_draws(key, *of_rows)
                changed = objective.change_text(batch, candidates, draw, active)
                batch, labels[objective.task] = changed.batch, changed.labels
                if changed.unmaskable is not None:
                    unmaskable |= changed.unmaskable
        ids, real, separators = batch["input_ids"], batch["input_mask"], self.config.mask_separators
        candidates = tf.where(unmaskable, 0.0, masking.candidates_mask(ids, real, self.special, separators))
        noise = masking.draw_noise(self.config, seed, *of_rows)
        masked = masking.mask(self.config, batch, noise, self.special, values.mask_prob, self.unit, candidates)
        task_ids = tf.zeros_like(ids[:, 0])
        if self._task_vectors is not None:
            task_ids += self._task_number(values)
        # It has all fields of a masked batch.
        of_tasks = cast(MaskedBatch, TaskBatch(masked, labels, task_ids))
        return of_tasks, self.normalizers(of_tasks)

    def _task_number(self, values: StepValues) -> tf.Tensor:
        """int32 scalar: number k > 0 is the k-th of aux_tasks, 0 none.

        0 are steps that train the main objective alone, generators, and everything after pre-training, which knows
        nothing of this. Where the main objective has no steps of its own (alt+, cmtl+), a network that always read a
        task's vector would then miss what the vectors have in common, so `TaskVectors` takes their mean away.
        """
        if not isinstance(values, TaskValues):
            return tf.zeros([], tf.int32)
        numbered = enumerate(self.config.aux_tasks, start=1)
        return tf.add_n([tf.cast(values.active[task], tf.int32) * number for number, task in numbered])

    # Vectors of tasks, added to the words of all that the pre-trained network reads.

    def generate(self, masked: MaskedBatch, seeds: SeedStream | None) -> GeneratorOutput:
        if self._task_vectors is None or self.has_main_network:
            return super().generate(masked, seeds)
        assert isinstance(self.generator, MaskedLanguageModel)
        encoded = self.encode(masked.masked_input_ids, masked, seeds)
        return self.generator.predictions(masked, seeds, encoded)

    def encode(self, input_ids: tf.Tensor, masked: MaskedBatch, seeds: SeedStream | None) -> EncoderOutput:
        return self._encode(input_ids, masked.input_mask, masked.segment_ids, masked, seeds)

    def _encode(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor,
        segment_ids: tf.Tensor,
        masked: MaskedBatch,
        seeds: SeedStream | None,
    ) -> EncoderOutput:
        assert self.encoder is not None
        if self._task_vectors is None:
            return self.encoder(input_ids, input_mask, segment_ids, seeds)
        assert isinstance(masked, TaskBatch)
        embeddings, vectors = self.encoder.embeddings, self._task_vectors(masked.task_ids)
        embedded = embeddings.combine(embeddings.lookup(input_ids) + vectors, segment_ids, seeds)
        return self.encoder.encode(embedded, input_mask, seeds)

    def read_views(self, masked: MaskedBatch, seeds: SeedStream | None) -> Mapping[str, Sequence[EncoderOutput]]:
        found = dict(super().read_views(masked, seeds))
        for objective in self.tasks:
            if views := objective.views(masked):
                found[objective.loss_name] = [self._encode(*view, masked, seeds) for view in views]
        return found


class Task(PretrainingTask):
    """Steps that train some tasks, and evaluations of each."""

    config: Config
    model: Model

    def __init__(self, config: Config, *arguments: Any) -> None:
        super().__init__(config, *arguments)
        if self.train_records is not None:
            check_records(config, self.train_records)

    def step_values(self, step: tf.Tensor) -> StepValues:
        values, active = super().step_values(step), active_tasks(self.config, step)
        return values if active is None else cast(StepValues, TaskValues(*values, active))

    def eval_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        """Metrics of a batch whose text is as it was read, so that runs with and without tasks compare. Each task that
        changes the text is measured in a pass of its own."""
        changing = [objective.task for objective in self.model.tasks if objective.changes_text()]
        if not changing:
            return super().eval_step(batch, step)
        found = self._turn(MAIN, batch, step)
        for task in changing:
            metrics = self._turn(task, batch, step)["metrics"]
            found["metrics"] |= {name: sums for name, sums in metrics.items() if name.startswith(f"{task}_")}
        return found

    def _turn(self, turn: str, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        active = {name: tf.constant(float(name == turn)) for name in (MAIN, *self.config.aux_tasks)}
        return self.measure(batch, step, cast(StepValues, TaskValues(*self.model.final_values, active)))


def check_records(config: Config, records: Records) -> None:
    """Raises UserError if the records hold no text that the tasks ask about."""
    file = next(file for file, count in zip(records.files, records.counts, strict=True) if count)
    batch = next(read_batches(file, records.format))
    of_segments = [task for task in config.aux_tasks if task in ("so", "asp", "sdp")]
    if of_segments and not (batch["segment_ids"] > 0).any():
        raise UserError(
            f"{file}: no record has a second segment, and aux_tasks {', '.join(of_segments)} need two: build records "
            "with --packing electra"
        )
    fields = {field for objective in config.aux_tasks for field in getattr(_CLASSES[objective], "texts", ())}
    lacking = [field for field in sorted(fields) if not (batch[field] > 0).any()]
    if lacking:
        raise UserError(
            f"{file}: no record has text in {' and '.join(lacking)}, which aux_tasks {', '.join(of_segments)} need: "
            "the documents are too few or too short, or not told apart (by blank lines)"
        )
