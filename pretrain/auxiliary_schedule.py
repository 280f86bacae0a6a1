"""Which loss is trained at which step, where auxiliary tasks stand beside the main objective ("On Losses for Modern
Language Models", Aroca-Ouellette & Rudzicz 2020, section 4).

    sum    everything at every step
    inc    the main objective at every step; one task more at the start of each of N equal stages
    alt    the main objective, the first task, the second, ... in turn
    alt+   the main objective at every step, the tasks in turn
    cmtl   one of the main objective and the tasks at a time, in stages
    cmtl+  the main objective at every step, one of the tasks beside it, in stages

Continual multi-task learning (CMTL) has as many stages as tasks: a stage brings in a task and repeats the earlier ones.
Of T steps and n tasks, with u = T / (n (n + 1)), stage i = 0, 1, ... gives (i + 2) u to its task and u to each earlier
one, so every task gets T / n. Within a stage a step goes to a task in proportion to what it has left there, which is to
say that the stage's steps are shuffled. What is drawn is a function of (seed, num_train_steps).
"""

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig

MAIN = ""  # the name of all that is no auxiliary task


def stage_steps(tasks: int, steps: int) -> np.ndarray:
    """int64 [stages, tasks] that add up to `steps`: how many each task gets, rounded along the run."""
    shares = np.tril(np.ones([tasks, tasks])) + np.diag(np.arange(tasks) + 1.0)
    ends = np.rint(np.cumsum(shares.reshape(-1) / shares.sum()) * steps).astype(np.int64)
    return np.diff(ends, prepend=0).reshape(tasks, tasks)


def staged_tasks(tasks: int, steps: int, seed: int) -> np.ndarray:
    """uint8 [steps]: the task of each step."""
    stages = []
    for stage, counts in enumerate(stage_steps(tasks, steps)):
        random = np.random.Generator(np.random.Philox(key=[seed, stage]))
        stages.append(random.permutation(np.repeat(np.arange(tasks, dtype=np.uint8), counts)))
    return np.concatenate(stages)


def active(config: PretrainingConfig, step: tf.Tensor) -> dict[str, tf.Tensor] | None:
    """Task, or MAIN, -> float32 scalar, 1 if it is trained at the 0-based step, else 0; None if all always are."""
    names, how = config.aux_tasks, config.aux_combination
    if not names or how == "sum":
        return None
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
