"""Auxiliary tasks beside the main objective ("On Losses for Modern Language Models", Aroca-Ouellette & Rudzicz 2020).

An auxiliary task is an objective on the states of the network that is pre-trained; ELECTRA's main network reads the
corrupted text, BERT the masked text. Two tasks rearrange the text before it is masked. The tasks (section 3.2) stand in
auxiliary.py, segments.py and halves.py, the steps at which each is trained (section 4) in schedules.py; here are the
model and its steps.
"""

import zlib
from typing import Any

import tensorflow as tf

from electra_tf2.corpus.records import FIELDS, read_batches
from electra_tf2.model.layers import fold_in
from electra_tf2.papers.on_losses.auxiliary import Auxiliary, TaskBatch, TermFrequency, TermFrequencyInverse
from electra_tf2.papers.on_losses.config import TASKS, Config
from electra_tf2.papers.on_losses.halves import FastSent, QuickThoughts
from electra_tf2.papers.on_losses.schedules import MAIN, ActiveTasks, active_tasks
from electra_tf2.papers.on_losses.segments import AdjacentSentences, Rearrangement, SentenceOrder
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.networks import Networks
from electra_tf2.pretrain.objectives.objective import Objective
from electra_tf2.pretrain.pretrain_data import Records
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.pretraining_task import EVALUATE, TRAIN, PretrainingTask
from electra_tf2.training.training_task import whole_step
from electra_tf2.util.errors import UserError

_TASK_CLASSES: dict[str, type[Auxiliary]] = {
    "fs": FastSent,
    "qt": QuickThoughts,
    "asp": AdjacentSentences,
    "so": SentenceOrder,
    "tf": TermFrequency,
    "tf_idf": TermFrequencyInverse,
}


class Model(PretrainingModel):
    """ELECTRA or BERT with auxiliary tasks beside the objectives."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tasks = tuple(objective for objective in self.objectives if isinstance(objective, Auxiliary))
        self.rearrangements = tuple(task for task in self.tasks if isinstance(task, Rearrangement))

    def make_objectives(self, networks: Networks) -> list[Objective]:
        objectives = super().make_objectives(networks)
        for task in TASKS:
            if task in self.config.aux_tasks:
                objectives.append(_TASK_CLASSES[task](self.config, networks))
        return objectives

    def loss_weights(self, step: tf.Tensor | None) -> dict[str, float | tf.Tensor]:
        weights = super().loss_weights(step)
        active = active_tasks(self.config, step)
        if active is None:
            return weights
        task_names = {task.loss_name: task.task for task in self.tasks}
        for loss_name in weights:
            task_name = task_names.get(loss_name, MAIN)
            weights[loss_name] *= active[task_name]
        return weights

    def rearrange(
        self,
        batch: Batch,
        seed: tf.Tensor,
        row_offset: tf.Tensor | int = 0,
        global_batch_size: int | None = None,
        active: ActiveTasks | None = None,
    ) -> Batch:
        """Lets tasks rearrange the text, and adds their labels to the batch, from which `mask` takes them.

        Args:
          batch, seed, row_offset, global_batch_size: as of `prepare`.
          active: tasks that are trained at this step; None: all.
        """
        rows = batch["input_ids"].shape[0]
        for task in self.rearrangements:
            share = 1.0 if active is None else active.get(task.task, 0.0)
            is_active = tf.convert_to_tensor(share) > 0
            # A seed by the task's name, so that its draws do not depend on which other tasks a run has.
            task_seed = fold_in(seed, zlib.crc32(task.loss_name.encode()) >> 1)
            draw = masking.row_draws(task_seed, rows, row_offset, global_batch_size or rows)
            rearranged, labels = task.rearrange(batch, draw)
            batch = dict(batch)
            for name in FIELDS:
                batch[name] = tf.where(is_active, rearranged[name], batch[name])
            batch[_label_field(task)] = tf.where(is_active, labels, -1)
        return batch

    def mask(self, batch: Batch, draw: Draw) -> MaskedBatch:
        """Masks, and adds the labels of `rearrange`; they are -1 if the batch was not rearranged."""
        masked = super().mask(batch, draw)
        no_labels = tf.fill([batch["input_ids"].shape[0]], -1)
        labels = {}
        for task in self.rearrangements:
            labels[task.task] = batch.get(_label_field(task), no_labels)
        return TaskBatch(**vars(masked), labels=labels)


def _label_field(task: Auxiliary) -> str:
    """Key of a task's labels in a rearranged batch."""
    return f"{task.task}_labels"


class Task(PretrainingTask):
    """Steps that train some tasks, and evaluations of each."""

    config: Config
    model: Model

    def __init__(self, config: Config, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        if self.train_records is not None:
            check_records(config, self.train_records)

    @whole_step
    def train_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        seed = self.step_seed(TRAIN, step)
        rearranged = self._rearranged(batch, seed, active_tasks(self.config, step))
        return super().train_step(rearranged, step)

    def eval_step(self, batch: Batch, step: tf.Tensor) -> dict[str, Any]:
        """Measures a batch that is not rearranged, so that runs with and without tasks compare.

        Each task that rearranges the text is measured in a further pass.
        """
        result = super().eval_step(batch, step)
        seed = self.step_seed(EVALUATE, step)
        for task in self.model.rearrangements:
            rearranged = self._rearranged(batch, seed, {task.task: 1.0})
            metrics = super().eval_step(rearranged, step)["metrics"]
            for name, sums in metrics.items():
                if name.startswith(f"{task.task}_"):
                    result["metrics"][name] = sums
        return result

    def _rearranged(self, batch: Batch, seed: tf.Tensor, active: ActiveTasks | None) -> Batch:
        rows = batch["input_ids"].shape[0]
        return self.model.rearrange(batch, seed, self._row_offset(batch), rows * self.replicas, active)


def check_records(config: Config, records: Records) -> None:
    """Raises UserError if tasks ask about second segments and the records hold none."""
    tasks = [task for task in config.aux_tasks if issubclass(_TASK_CLASSES[task], Rearrangement)]
    if not tasks:
        return
    counted_files = zip(records.files, records.counts, strict=True)
    file = next(file for file, count in counted_files if count)
    batch = next(read_batches(file, records.format))
    if not (batch["segment_ids"] > 0).any():
        raise UserError(
            f"{file}: no record has a second segment, and aux_tasks {', '.join(tasks)} need two: build records "
            "with --packing electra"
        )
