"""The base of auxiliary tasks, and the steps at which each is trained (On Losses, section 4)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.papers.on_losses.config import Config
from electra_tf2.papers.on_losses.heads import PooledHead, StateHead
from electra_tf2.pretrain.masking import Batch, Draw, MaskedBatch
from electra_tf2.pretrain.objectives.coco_lm import View
from electra_tf2.pretrain.objectives.objective import (
    Forward,
    LossTerm,
    Metrics,
    Networks,
    Objective,
    weighted_mean,
)

MAIN = ""  # the name of all that is no auxiliary task

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


# Text that is changed before it is masked.


class Changed(NamedTuple):
    """Sequences as a task changed them, before they are masked.

    batch: int32 [B, L] of each field of records.
    labels: int32, what was done; -1 where nothing is asked.
    unmaskable: bool [B, L], tokens that must not be masked; None: all may.
    """

    batch: Batch
    labels: tf.Tensor
    unmaskable: tf.Tensor | None = None


class TaskBatch(NamedTuple):
    """A masked batch, and what tasks did to its sequences before; fields of `MaskedBatch` are its own, too.

    masked: the masked batch.
    labels: task -> int32 [B, ...] labels of `Task.change_text`.
    task_ids: int32 [B], the task that the step is about, from 1 on; 0: none (use_task_ids).
    """

    masked: MaskedBatch
    labels: dict[str, tf.Tensor]
    task_ids: tf.Tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.masked, name)


class Auxiliary(Objective):
    """A task of `aux_tasks`.

    Class attributes:
      task: its name there. Metrics of a task that changes the text begin with it.
    """

    config: Config
    task: str
    weight = "aux_weight"

    def change_text(self, batch: Batch, candidates: tf.Tensor, draw: Draw, active: tf.Tensor) -> Changed:
        """Changes the sequences before they are masked, for everyone; without an override the text stays as it is.

        Args:
          batch: int32 [B, L] input_ids, input_mask, segment_ids.
          candidates: float32 [B, L], 1 at tokens that are not special.
          draw: uniform draws for the rows of this task.
          active: bool scalar: whether it is trained at this step; if not, labels have the same shape and are -1.
        """
        raise NotImplementedError

    def views(self, masked: MaskedBatch) -> Sequence[View]:
        """Other sequences that the network shall read."""
        del masked
        return ()

    @classmethod
    def changes_text(cls) -> bool:
        return cls.change_text is not Auxiliary.change_text


class Classification(Auxiliary):
    """One of C classes for each label that `change_text` gave; negative labels do not count.

    Class attributes:
      head_name: of its head's variables; "" where a subclass makes head and parts itself.
      of_sequence: the head reads the [CLS] state; false: that of every token.
    """

    classes: int
    head_name: str = ""
    of_sequence = True
    head: PooledHead | StateHead

    def __init__(self, config: Config, networks: Networks) -> None:
        super().__init__(config, networks)
        self.initial_loss = math.log(self.classes)
        if self.head_name:
            kind = PooledHead if self.of_sequence else StateHead
            self.head = kind(f"{self.head_name}_predictions", config.architecture, self.classes, config.seed)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(labels_of(masked, self.task) >= 0, tf.float32)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [..., C], of the labels' shape."""
        return self.head(forward.states)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        labels = tf.maximum(labels_of(forward.masked, self.task), 0)
        logits, weights = self.logits(forward), self.token_weights(forward.masked)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        metrics: Metrics = {f"{self.task}_accuracy": weighted_mean(correct, weights)}
        return self.output(forward, losses, metrics)


def labels_of(masked: MaskedBatch, task: str) -> tf.Tensor:
    """int32, the labels of a task that changed the text."""
    assert isinstance(masked, TaskBatch)
    return masked.labels[task]
