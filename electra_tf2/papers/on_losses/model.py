"""Auxiliary tasks beside the main objective ("On Losses for Modern Language Models", Aroca-Ouellette & Rudzicz 2020).

An auxiliary task is an objective on the states of the pre-trained network: its input is the corrupted one for ELECTRA,
the masked one for BERT. A task may change the sequences before they are masked, which everything else then sees; what
it changed is its label. tasks.py and segments.py have the tasks (section 3.2); here are the steps at which each is
trained (section 4), the model and its evaluation.
"""

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.records import read_batches
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import EncoderOutput
from electra_tf2.model.heads import GeneratorOutput, MaskedLanguageModel
from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.layers import Layer, SeedStream, fold_in
from electra_tf2.papers.on_losses.config import TASKS, Config
from electra_tf2.papers.on_losses.segments import AdjacentSegments, FastSent, QuickThoughts, SameDocument, SentenceOrder
from electra_tf2.papers.on_losses.tasks import (
    Auxiliary,
    Classification,
    SequenceCorruption,
    TaskBatch,
    TermFrequency,
    TermFrequencyInverse,
    TokenCorruption,
    TrigramOrder,
)
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import Batch, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.objective import Networks, Objective
from electra_tf2.pretrain.pretrain_data import Records
from electra_tf2.pretrain.pretraining_model import PretrainingModel, StepValues
from electra_tf2.pretrain.task import EVALUATE, PretrainingTask
from electra_tf2.util.errors import UserError

MAIN = ""  # the name of all that is no auxiliary task

_EVERY: tuple[type[Auxiliary], ...] = (
    FastSent,
    QuickThoughts,
    AdjacentSegments,
    SameDocument,
    SentenceOrder,
    TermFrequency,
    TermFrequencyInverse,
    TokenCorruption,
    SequenceCorruption,
    TrigramOrder,
)
_CLASSES = {task_class.task: task_class for task_class in _EVERY}

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


Shares = Mapping[str, float | tf.Tensor]  # task, or MAIN, -> float32 scalar, 1 if it is trained at a step, else 0


def active_tasks(config: Config, step: tf.Tensor | None) -> Shares | None:
    """Shares of the tasks at the 0-based step, int64; None: all are trained, as always where nothing takes turns."""
    if not config.takes_turns or step is None:
        return None
    names, how = config.aux_tasks, config.aux_combination
    beside = how in ("inc", "alt+", "cmtl+")
    turns = names if beside else [MAIN, *names]
    number = tf.cast(step, tf.int32)
    if how == "inc":
        reached = step * len(names) // max(1, config.num_train_steps)
        values = tf.unstack(tf.cast(tf.range(len(names), dtype=tf.int64) <= reached, tf.float32))
    else:
        turn = number % len(turns)
        if how.startswith("cmtl"):
            order = staged_tasks(len(turns), config.num_train_steps, config.seed)
            turn = tf.cast(tf.gather(tf.constant(order), tf.minimum(number, len(order) - 1)), tf.int32)
        values = tf.unstack(tf.one_hot(turn, len(turns)))
    found = dict(zip(turns, values, strict=True))
    return found | {MAIN: tf.ones([])} if beside else found


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

    def __init__(self, config: Config) -> None:
        super().__init__(config)
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

    def loss_weights(self, values: StepValues) -> dict[str, float | tf.Tensor]:
        weights, active = super().loss_weights(values), active_tasks(self.config, values.step)
        if active is None:
            return weights
        tasks = {task.loss_name: task.task for task in self.tasks}
        return {name: weight * active[tasks.get(name, MAIN)] for name, weight in weights.items()}

    def prepare(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
        values: StepValues | None = None,
    ) -> tuple[MaskedBatch, dict[str, tf.Tensor]]:
        active = active_tasks(self.config, None if values is None else values.step)
        masked = self.masked(batch, seed, row_offset, global_batch_size or batch["input_ids"].shape[0], active)
        return masked, self.normalizers(masked)

    def masked(
        self, batch: Batch, seed: tf.Tensor, row_offset: tf.Tensor | int, global_batch_size: int, active: Shares | None
    ) -> MaskedBatch:
        """Has the active tasks (None: all) change the text, and masks it; other arguments are those of `prepare`."""
        rows = batch["input_ids"].shape[0]
        of_rows = (rows, row_offset, global_batch_size)
        labels: dict[str, tf.Tensor] = {}
        unmaskable = tf.zeros_like(batch["input_ids"], tf.bool)
        for task in self.changing:
            key = fold_in(seed, zlib.crc32(task.loss_name.encode()) >> 1)
            candidates = masking.candidates_mask(batch["input_ids"], batch["input_mask"], self.special)
            is_active = tf.convert_to_tensor(1.0 if active is None else active.get(task.task, 0.0)) > 0
            changed = task.change_text(batch, candidates, masking.row_draws(key, *of_rows))
            batch = {name: tf.where(is_active, changed.batch[name], field) for name, field in batch.items()}
            labels[task.task] = tf.where(is_active, changed.labels, -1)
            unmaskable |= is_active & changed.unmaskable
        ids, real, separators = batch["input_ids"], batch["input_mask"], self.config.mask_separators
        candidates = tf.where(unmaskable, 0.0, masking.candidates_mask(ids, real, self.special, separators))
        draw = masking.row_draws(seed, *of_rows)
        drawn = masking.draw_positions(self.config, batch, draw, candidates, self.unit)
        masked = masking.masked_at(self.config, batch, *drawn, draw, self.special)
        # It has all fields of a masked batch.
        return cast(MaskedBatch, TaskBatch(masked, labels, tf.fill([rows], self._task_number(active))))

    def _task_number(self, active: Shares | None) -> tf.Tensor:
        """int32 scalar: number k > 0 is the k-th of aux_tasks, 0 none.

        0 are steps that train the main objective alone, generators, and everything after pre-training, which knows
        nothing of this. Where the main objective has no steps of its own (alt+, cmtl+), a network that always read a
        task's vector would then miss what the vectors have in common, so `TaskVectors` takes their mean away.
        """
        if self._task_vectors is None or active is None:
            return tf.zeros([], tf.int32)
        numbered = enumerate(self.config.aux_tasks, start=1)
        return tf.add_n([tf.cast(active.get(task, 0.0), tf.int32) * number for number, task in numbered])

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
        seed, rows = self.seed_of(EVALUATE, step), batch["input_ids"].shape[0]
        return self._forward(self.model.masked(batch, seed, self._row_offset(batch), rows * self.replicas, {turn: 1.0}))


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
