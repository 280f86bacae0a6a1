"""Auxiliary tasks beside the main objective ("On Losses for Modern Language Models", Aroca-Ouellette & Rudzicz 2020).

An auxiliary task is an objective on the states of the pre-trained network: its input is the corrupted one for ELECTRA,
the masked one for BERT. A task may change the sequences before they are masked (`arrange`), which everything else then
sees; what it changed is its label, in `MaskedBatch.labels`. Here is what they have in common and the steps at which
each is trained (section 4); the tasks are in on_losses_tokens and on_losses_segments.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf2.model.flops import Part
from electra_tf2.papers.on_losses.flops import pooled_classes, state_classes
from electra_tf2.pretrain.masking import MaskedBatch
from electra_tf2.pretrain.objectives.contrast import ContrastHparams
from electra_tf2.pretrain.objectives.objective import (
    Forward,
    LossTerm,
    Metrics,
    Networks,
    Objective,
    StepValues,
    weighted_mean,
)
from electra_tf2.util.hparams import closest, free_hparam, hparam
from electra_tf2.util.lazy import tf

if TYPE_CHECKING:
    import numpy as np

    from electra_tf2.papers.on_losses.heads import PooledHead, StateHead

MAIN = ""  # the name of all that is no auxiliary task
# How to have tasks that cannot be trained at one step.
TAKE_TURNS = "choose one, or an aux_combination that trains one at a time (alt, alt+, cmtl, cmtl+)"


@dataclasses.dataclass(frozen=True)
class OnLossesHparams(ContrastHparams):
    """Tasks, their weight, and how they take turns."""

    aux_tasks: list[str] = hparam(
        [],
        "auxiliary tasks beside the objective (On Losses), which predict: so (sentence order): whether the two "
        "segments were swapped; tgs (trigram shuffling): the order in which three tokens stood; tcp (token "
        "corruption): which tokens were tampered with; scp (sequence corruption): whether any was; qt (quick "
        "thoughts): which halves of records belong together; fs (FastSent): the other half's words; asp (adjacent "
        "segments): whether the second segment follows, precedes or is of another document; sdp (same document): "
        "whether it follows, is from elsewhere in the document or of another; tf, tf_idf (term frequency): how often "
        "a token occurs in its record, 0 to 10. asp and sdp need records built with --other-segments",
        heading="Auxiliary tasks",
    )
    aux_weight: float = hparam(
        1.0,
        "weight of each auxiliary task's loss; tf and tf_idf have squared errors of up to 100, fs of up to 4, the "
        "others the cross-entropy of a choice",
        at_least=0,
    )
    aux_combination: str = hparam(
        "sum",
        "what is trained at a step: sum: everything; inc: one task more at each stage; alt: objective and tasks in "
        "turn; cmtl: one of them, in stages; alt+, cmtl+: the objective always, and one task beside it",
        choices=("sum", "inc", "alt", "alt+", "cmtl", "cmtl+"),
    )
    use_task_ids: bool = hparam(
        False,
        "a learned vector of each step's auxiliary task is added to the network's inputs; needs an aux_combination "
        "that takes turns",
    )
    document_frequency_file: str = free_hparam(
        "", "file of tf_idf's table, of electra build-table; default <data_dir>/document_frequency.npz", place="read"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "document_frequency.npz")
        return super().derived() | {"document_frequency_file": self.document_frequency_file or default}

    @property
    def half_length(self) -> int:
        """Tokens of half of a full-length sequence, special ones included."""
        return (self.max_seq_length - 1) // 2 + 2

    @property
    def takes_turns(self) -> bool:
        """True if some steps train other tasks than others."""
        return bool(self.aux_tasks) and self.aux_combination != "sum"


def task_problems(config: OnLossesHparams, known: Sequence[str]) -> Iterator[str]:
    """Says why a run cannot have these tasks, or not so combined; `known` are those that there are."""
    tasks, how = config.aux_tasks, config.aux_combination
    for task in tasks:
        if task not in known:
            yield f"aux_tasks has {task!r}{closest(task, known)} (some of {', '.join(known)})"
    if any(tasks.count(task) > 1 for task in tasks):
        yield f"aux_tasks names a task twice: {', '.join(map(str, tasks))}"
    if how != "sum" and not tasks:
        yield f"aux_combination {how} needs aux_tasks"
    elif how == "cmtl+" and len(tasks) < 2:
        yield "aux_combination cmtl+ needs two aux_tasks or more: with one, it is sum"
    if config.use_task_ids and how in ("sum", "inc"):
        yield f"use_task_ids needs tasks that take turns: aux_combination {how} trains several"
    elif config.use_task_ids and how.endswith("+") and len(tasks) < 2:
        yield f"use_task_ids with aux_combination {how} needs two aux_tasks or more to tell apart"


def trained_together(config: OnLossesHparams, *tasks: str) -> list[str]:
    """Those of these aux_tasks that a run trains at one step, if there is such a step."""
    return [task for task in config.aux_tasks if task in tasks] if config.aux_combination in ("sum", "inc") else []


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
    import numpy as np

    shares = np.tril(np.ones([tasks, tasks])) + np.diag(np.arange(tasks) + 1.0)
    ends = np.rint(np.cumsum(shares.reshape(-1) / shares.sum()) * steps).astype(np.int64)
    return np.diff(ends, prepend=0).reshape(tasks, tasks)


def staged_tasks(tasks: int, steps: int, seed: int) -> np.ndarray:
    """uint8 [steps]: the task of each step; the steps of a stage are shuffled."""
    import numpy as np

    stages = []
    for stage, counts in enumerate(stage_steps(tasks, steps)):
        random = np.random.Generator(np.random.Philox(key=[seed, stage]))
        stages.append(random.permutation(np.repeat(np.arange(tasks, dtype=np.uint8), counts)))
    return np.concatenate(stages)


def active_tasks(config: OnLossesHparams, step: tf.Tensor) -> dict[str, tf.Tensor] | None:
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


def task_number(config: OnLossesHparams, values: StepValues) -> tf.Tensor:
    """int32 scalar, of use_task_ids: number k > 0 is the k-th of aux_tasks, 0 none.

    0 are steps that train the main objective alone, generators, and everything after pre-training, which knows nothing
    of this. Where the main objective has no steps of its own (alt+, cmtl+), a network that always read a task's vector
    would then miss what the vectors have in common, so papers.on_losses.heads.TaskVectors takes their mean away.
    """
    if values.active is None:
        return tf.zeros([], tf.int32)
    return tf.add_n([tf.cast(values.active[task], tf.int32) * k for k, task in enumerate(config.aux_tasks, start=1)])


# What tasks have in common.


class Auxiliary(Objective[OnLossesHparams]):
    """A task of `aux_tasks`."""

    without_main = True
    weight = "aux_weight"

    @classmethod
    def is_chosen(cls, config: OnLossesHparams) -> bool:
        return cls.task in config.aux_tasks


class Classification(Auxiliary):
    """One of C classes for each label that `arrange` gave; negative labels do not count.

    Class attributes:
      head_name: of its head's variables; "" where a subclass makes head and parts itself.
      of_sequence: the head reads the [CLS] state; false: that of every token.
    """

    classes: int
    head_name: str = ""
    of_sequence = True
    head: PooledHead | StateHead

    @classmethod
    def parts(cls, config: OnLossesHparams) -> list[Part]:
        name, sizes = cls.head_name.replace("_", " "), config.architecture
        if cls.of_sequence:
            return [pooled_classes(name, sizes, cls.classes)]
        return [state_classes(name, sizes, config.max_seq_length, cls.classes)]

    def __init__(self, config: OnLossesHparams, networks: Networks) -> None:
        from electra_tf2.papers.on_losses.heads import PooledHead, StateHead

        super().__init__(config, networks)
        self.initial_loss = math.log(self.classes)
        if self.head_name:
            kind = PooledHead if self.of_sequence else StateHead
            self.head = kind(f"{self.head_name}_predictions", config.architecture, self.classes, config.seed)

    def token_weights(self, masked: MaskedBatch) -> tf.Tensor:
        return tf.cast(masked.labels[self.task] >= 0, tf.float32)

    def logits(self, forward: Forward) -> tf.Tensor:
        """float32 [..., C], of the labels' shape."""
        return self.head(forward.states)

    def __call__(self, forward: Forward, training: bool) -> LossTerm:
        labels = tf.maximum(forward.masked.labels[self.task], 0)
        logits, weights = self.logits(forward), self.token_weights(forward.masked)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        correct = tf.equal(tf.argmax(logits, -1, tf.int32), labels)
        metrics: Metrics = {f"{self.task}_accuracy": weighted_mean(correct, weights)}
        return self.output(forward, losses, metrics)
