"""Which tasks are trained at a step: the paper's six ways to combine them (section 4), the hparam aux_combination.

sum    everything at every step
inc    the main objective at every step; one task more at the start of each of N equal stages
alt    the main objective, the first task, the second, ... in turn
alt+   the main objective at every step, the tasks in turn
cmtl   one of the main objective and the tasks at a time, in stages
cmtl+  the main objective at every step, one of the tasks beside it, in stages
"""

import functools
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from electra_tf2.papers.on_losses.config import Config

MAIN = ""  # stands for all objectives that are no auxiliary tasks

# Task or MAIN -> float32 scalar, 1 if it is trained at a step, else 0.
ActiveTasks: TypeAlias = Mapping[str, float | tf.Tensor]


def active_tasks(config: Config, step: tf.Tensor | None) -> ActiveTasks | None:
    """Which tasks are trained at a step; None: all.

    Args:
      step: int64 scalar, 0-based; None in evaluation, where all tasks are measured.
    """
    if not config.takes_turns or step is None:
        return None
    tasks = config.aux_tasks
    combination = config.aux_combination
    if combination == "inc":
        stage = step * len(tasks) // max(1, config.aux_steps)
        is_reached = tf.range(len(tasks), dtype=tf.int64) <= stage
        return {MAIN: tf.ones([])} | _by_name(tasks, tf.cast(is_reached, tf.float32))

    # One of these at a time.
    trains_main_always = combination in ("alt+", "cmtl+")
    turns = tasks if trains_main_always else [MAIN, *tasks]
    step = tf.cast(step, tf.int32)
    if combination in ("alt", "alt+"):
        turn = step % len(turns)
    else:
        order = staged_tasks(len(turns), config.aux_steps, config.seed)
        turn = tf.gather(tf.constant(order), tf.minimum(step, len(order) - 1))
    active = _by_name(turns, tf.one_hot(tf.cast(turn, tf.int32), len(turns)))
    if trains_main_always:
        active[MAIN] = tf.ones([])
    return active


def _by_name(names: list[str], values: tf.Tensor) -> dict[str, float | tf.Tensor]:
    return dict(zip(names, tf.unstack(values), strict=True))


def stage_steps(tasks: int, steps: int) -> np.ndarray:
    """int64 [stages, tasks]: how many steps each task gets in each stage; they add up to `steps`.

    Continual multi-task learning (CMTL) has as many stages as tasks: each stage adds a task and repeats the earlier
    ones. With T steps, n tasks and u = T / (n (n + 1)), stage i = 0, 1, ... gives (i + 2) u steps to its task and u to
    each earlier one. So every task gets T / n in all. Steps are rounded along the run.
    """
    # In units of u: row i has i + 2 on the diagonal, 1 before it.
    units = np.tril(np.ones([tasks, tasks])) + np.diag(np.arange(tasks) + 1.0)
    shares = units.reshape(-1) / units.sum()
    ends = np.rint(np.cumsum(shares) * steps).astype(np.int64)
    return np.diff(ends, prepend=0).reshape(tasks, tasks)


@functools.lru_cache
def staged_tasks(tasks: int, steps: int, seed: int) -> np.ndarray:
    """uint8 [steps]: index of the task that each step trains; the steps of a stage are shuffled."""
    stages = []
    for stage, counts in enumerate(stage_steps(tasks, steps)):
        random = np.random.Generator(np.random.Philox(key=[seed, stage]))
        stages.append(random.permutation(np.repeat(np.arange(tasks, dtype=np.uint8), counts)))
    return np.concatenate(stages)
