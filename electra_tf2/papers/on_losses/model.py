"""Auxiliary tasks beside the main objective ("On Losses for Modern Language Models", Aroca-Ouellette & Rudzicz 2020).

An auxiliary task is an objective on the states of the pre-trained network: its input is the corrupted one for ELECTRA,
the masked one for BERT. A task may change the sequences before they are masked, which everything else then sees; what
it changed is its label. tasks.py has what tasks have in common; tokens.py and segments.py have the tasks (section 3.2);
here are the steps at which each is trained (section 4), the model and its evaluation.
"""

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.records import read_batches
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.heads import GeneratorOutput, MaskedLanguageModel
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Layer, SeedStream, fold_in
from electra_tf2.papers.on_losses import segments, tokens
from electra_tf2.papers.on_losses.config import TASKS, Config
from electra_tf2.papers.on_losses.tasks import Auxiliary, Classification, TaskBatch
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import Batch, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.objective import Networks, Objective
from electra_tf2.pretrain.pretrain_data import Records
from electra_tf2.pretrain.pretraining_model import PretrainingModel, StepValues
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.training.task import compiled_step
from electra_tf2.util.errors import UserError

MAIN = ""  # the name of all that is no auxiliary task

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

# Schedules (section 4).
#
#     sum    everything at every step
#     inc    the main objective at every step; one task more at the start of each of N equal stages
#     alt    the main objective, the first task, the second, ... in turn
#     alt+   the main objective at every step, the tasks in turn
#     cmtl   one of the main objective and the tasks at a time, in stages
#     cmtl+  the main objective at every step, one of the tasks beside it, in stages


def stage_steps(tasks: int, steps: int) -> np.ndarray:
    """int64 [stages, tasks] that add up to `steps`: number of steps of each task, rounded along the run.

    Continual multi-task learning (CMTL) has as many stages as tasks: a stage brings in a task and repeats the earlier
    ones. Of T steps and n tasks, with u = T / (n (n + 1)), stage i = 0, 1, ... gives (i + 2) u to its task and u to
    each earlier one, so every task gets T / n.
    """
    shares = np.tril(np.ones([tasks, tasks])) + np.diag(np.arange(tasks) + 1.0)
    ends = np.rint(np.cumsum(shares.reshape(-1) / shares.sum()) * steps).astype(np.int64)
    return np.diff(ends, prepend=0).reshape(tasks, tasks)


@functools.lru_cache
def staged_tasks(tasks: int, steps: int, seed: int) -> np.ndarray:
    """uint8 [steps]: the task of each step; the steps of a stage are shuffled."""
    stages = []
    for stage, counts in enumerate(stage_steps(tasks, steps)):
        random = np.random.Generator(np.random.Philox(key=[seed, stage]))
        stages.append(random.permutation(np.repeat(np.arange(tasks, dtype=np.uint8), counts)))
    return np.concatenate(stages)


def active_tasks(config: Config, step: tf.Tensor) -> dict[str, tf.Tensor] | None:
    """Task, or MAIN, -> float32 scalar, 1 if it is trained at the 0-based step, else 0; None if all always are."""
    if not config.takes_turns:
        return None
    names, how = config.aux_tasks, config.aux_combination
    beside = how in ("inc", "alt+", "cmtl+")
    turns = names if beside else [MAIN, *names]
    number = tf.cast(step, tf.int32)
    if how == "inc":
        reached = tf.cast(step, tf.int64) * len(names) // max(1, config.num_train_steps)
        values = tf.unstack(tf.cast(tf.range(len(names), dtype=tf.int64) <= reached, tf.float32))
    else:
        turn = number % len(turns)
        if how.startswith("cmtl"):
            order = staged_tasks(len(turns), config.num_train_steps, config.seed)
            turn = tf.cast(tf.gather(tf.constant(order), tf.minimum(number, len(order) - 1)), tf.int32)
        values = tf.unstack(tf.one_hot(turn, len(turns)))
    found = dict(zip(turns, values, strict=True))
    return found | {MAIN: tf.ones([])} if beside else found


class TaskValues(NamedTuple):
    """`StepValues`, and what is trained at a step.

    active: float32 scalar by task, 1 if it is trained, MAIN for all else.
    """

    temperature: float | tf.Tensor
    step: tf.Tensor | None
    active: dict[str, tf.Tensor]


def share_of(task: str, values: StepValues) -> float | tf.Tensor:
    """1 if a task, or MAIN, is trained at a step, else 0."""
    return values.active.get(task, values.active[MAIN]) if isinstance(values, TaskValues) else 1.0


class TaskVectors(Layer):
    """A learned vector of the embeddings' width for each task.

    Args:
      centred: take the vectors' mean away, so that no task (0) is the middle of all.
    """

    def __init__(self, architecture: Architecture, tasks: int, centred: bool, seed: int = 0) -> None:
        super().__init__("task_embeddings", seed)
        shape = [tasks, architecture.embedding_size]
        self.table = self.weight("table", shape, truncated_normal(architecture.initializer_range))
        self._centred = centred

    def call(self, task_ids: tf.Tensor) -> tf.Tensor:
        """int32 [B] -> float32 [B, 1, E], to be added to the embeddings of every token; zeros for task 0."""
        vectors = self.table - tf.reduce_mean(self.table, 0) if self._centred else self.table
        return tf.tensordot(tf.one_hot(task_ids - 1, self.table.shape[0]), vectors, 1)[:, tf.newaxis]


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

    @property
    def changing(self) -> list[Classification]:
        """The tasks that change the text."""
        return [task for task in self.tasks if isinstance(task, Classification)]

    def weight_of(self, objective: Objective, values: StepValues) -> float | tf.Tensor:
        task = objective.task if isinstance(objective, Auxiliary) else MAIN
        return super().weight_of(objective, values) * share_of(task, values)

    def prepare(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        """As of the core; the batch may hold a step's `StepValues` under the name "values", as `Task` passes it."""
        values = batch.get("values", self.final_values)
        batch = {name: field for name, field in batch.items() if name != "values"}
        rows = batch["input_ids"].shape[0]
        of_rows = (rows, row_offset, global_batch_size or rows)
        labels: dict[str, tf.Tensor] = {}
        unmaskable = tf.zeros_like(batch["input_ids"], tf.bool)
        for task in self.changing:
            key = fold_in(seed, zlib.crc32(task.loss_name.encode()) >> 1)
            candidates = masking.candidates_mask(batch["input_ids"], batch["input_mask"], self.special)
            active = tf.convert_to_tensor(share_of(task.task, values)) > 0
            changed = task.change_text(batch, candidates, masking.row_draws(key, *of_rows), active)
            batch, labels[task.task] = changed.batch, changed.labels
            if changed.unmaskable is not None:
                unmaskable |= changed.unmaskable
        ids, real, separators = batch["input_ids"], batch["input_mask"], self.config.mask_separators
        candidates = tf.where(unmaskable, 0.0, masking.candidates_mask(ids, real, self.special, separators))
        draw = masking.row_draws(seed, *of_rows)
        masked = masking.mask(self.config, batch, draw, self.special, self.unit, candidates)
        # It has all fields of a masked batch.
        of_tasks = cast(MaskedBatch, TaskBatch(masked, labels, tf.fill([rows], self._task_number(values))))
        return of_tasks, self.normalizers(of_tasks)

    def _task_number(self, values: StepValues) -> tf.Tensor:
        """int32 scalar: number k > 0 is the k-th of aux_tasks, 0 none.

        0 are steps that train the main objective alone, generators, and everything after pre-training, which knows
        nothing of this. Where the main objective has no steps of its own (alt+, cmtl+), a network that always read a
        task's vector would then miss what the vectors have in common, so `TaskVectors` takes their mean away.
        """
        if self._task_vectors is None or not isinstance(values, TaskValues):
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
        return self._read(View(input_ids, masked.input_mask, masked.segment_ids), masked, seeds)

    def _read(self, view: View, masked: MaskedBatch, seeds: SeedStream | None) -> EncoderOutput:
        assert self.encoder is not None
        if self._task_vectors is None:
            return self.encoder(*view, seeds)
        assert isinstance(masked, TaskBatch)
        embeddings, vectors = self.encoder.embeddings, self._task_vectors(masked.task_ids)
        embedded = embeddings.combine(embeddings.lookup(view.input_ids) + vectors, view.segment_ids, seeds)
        return self.encoder.encode(embedded, view.input_mask, seeds)

    def read_views(self, masked: MaskedBatch, seeds: SeedStream | None) -> Mapping[str, Sequence[EncoderOutput]]:
        found = dict(super().read_views(masked, seeds))
        for task in self.tasks:
            if views := task.views(masked):
                found[task.loss_name] = [self._read(view, masked, seeds) for view in views]
        return found


class Task(PretrainingTask):
    """Steps that train some tasks, and evaluations of each."""

    config: Config
    model: Model

    def __init__(self, config: Config, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        if self.train_records is not None:
            check_records(config, self.train_records)

    def step_values(self, step: tf.Tensor) -> StepValues:
        values, active = super().step_values(step), active_tasks(self.config, step)
        return values if active is None else cast(StepValues, TaskValues(*values, active))

    @compiled_step
    def train_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        return super().train_step(batch | {"values": self.step_values(step)}, step)

    def eval_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        """Metrics of a batch whose text is as it was read, so that runs with and without tasks compare. Each task that
        changes the text is measured in a pass of its own."""
        changing = [task.task for task in self.model.changing]
        if not changing:
            return super().eval_step(batch, step)
        found = self._turn(MAIN, batch, step)
        for task in changing:
            metrics = self._turn(task, batch, step)["metrics"]
            found["metrics"] |= {name: sums for name, sums in metrics.items() if name.startswith(f"{task}_")}
        return found

    def _turn(self, turn: str, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        active = {name: tf.constant(float(name == turn)) for name in (MAIN, *self.config.aux_tasks)}
        return super().eval_step(batch | {"values": TaskValues(*self.model.final_values, active)}, step)


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
    fields = {field for task in config.aux_tasks for field in getattr(_CLASSES[task], "texts", ())}
    lacking = [field for field in sorted(fields) if not (batch[field] > 0).any()]
    if lacking:
        raise UserError(
            f"{file}: no record has text in {' and '.join(lacking)}, which aux_tasks {', '.join(of_segments)} need: "
            "the documents are too few or too short, or not told apart (by blank lines)"
        )
