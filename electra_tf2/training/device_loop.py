"""Runs many steps on the device in one call from Python, and decides how many."""

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.training.training_task import Tensors, TrainingTask

CALL_SECONDS = 2.0  # that one call takes; a signal waits for its end
_MEASURED_CALLS = 3  # behind the first, which compiles, whose times tell how long a training will take


class Totals(NamedTuple):
    """Results of the steps since the last report, as tensors.

    sums: results of the steps, summed over replicas and steps.
    first: losses and watched values of the first of these steps.
    first_bad: name of a loss or watched value -> 0-based index of the first step at which it was not finite;
      int64.max: it was always finite.
    """

    sums: dict[str, Tensors]
    first: dict[str, Tensors]
    first_bad: dict[str, Tensors]


class DeviceLoop:
    """Runs steps of a task on the batches of an iterator.

    A call gets the totals so far and returns the new ones. So it makes no difference how many calls some steps take.

    Attributes:
      nothing: the totals of no steps.
    """

    def __init__(self, task: TrainingTask, strategy: tf.distribute.Strategy, iterator: Iterator[Tensors]) -> None:
        counter = task.optimizer.step

        @functools.partial(tf.function, autograph=False)
        def one_step() -> tuple[dict[str, Tensors], dict[str, Tensors], dict[str, Tensors]]:
            step = tf.identity(counter)  # before the update counts on
            result = run_and_sum(strategy, task.train_step, next(iterator), step)
            watched = result["losses"] | result["watched"]
            bad = {}
            for name, value in watched.items():
                bad[name] = tf.where(tf.math.is_finite(value), tf.int64.max, step)
            return result, watched, bad

        def next_step(done: tf.Tensor, so_far: Totals) -> tuple[tf.Tensor, Totals]:
            def value_at_first(first: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
                return tf.where(done == 0, value, first)

            result, watched, bad = one_step()
            totals = Totals(
                sums=tf.nest.map_structure(tf.add, so_far.sums, result),
                first=tf.nest.map_structure(value_at_first, so_far.first, watched),
                first_bad=tf.nest.map_structure(tf.minimum, so_far.first_bad, bad),
            )
            return done + 1, totals

        @functools.partial(tf.function, autograph=False)
        def loop(done: tf.Tensor, so_far: Totals, end: tf.Tensor) -> Totals:
            def is_left(done: tf.Tensor, so_far: Totals) -> tf.Tensor:
                del so_far
                return done < end

            _, totals = tf.while_loop(is_left, next_step, (done, so_far), parallel_iterations=1)
            return totals

        self._loop = loop
        # Traces the step, once: `nothing` needs the types of its results.
        result, watched, bad = one_step.get_concrete_function().structured_outputs

        def zeros_like(value: tf.TensorSpec) -> tf.Tensor:
            return tf.zeros(value.shape, value.dtype)

        self.nothing = Totals(
            sums=tf.nest.map_structure(zeros_like, result),
            first=tf.nest.map_structure(zeros_like, watched),
            first_bad={name: tf.constant(tf.int64.max) for name in bad},
        )

    def run(self, steps: int, done: int, so_far: Totals) -> Totals:
        """Runs `steps` more steps, after `done` steps whose totals are `so_far`."""
        return self._loop(tf.constant(done), so_far, tf.constant(done + steps))


def run_and_sum(
    strategy: tf.distribute.Strategy,
    function: Callable[..., dict[str, Tensors]],
    batch: Tensors,
    step: tf.Tensor,
) -> dict[str, Tensors]:
    """Calls a function with the rows of each replica and sums its results over replicas."""

    def summed(value: Tensors) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)

    return tf.nest.map_structure(summed, strategy.run(function, args=(batch, step)))


class Pace:
    """How many steps one call may run: as many as take about `CALL_SECONDS`. And how long a step takes.

    first_seconds: seconds per step at the start, right after the last of the calls that tell them; None before and
      after. It is their median, since batches of another length compile their program first.
    """

    def __init__(self) -> None:
        self.steps = 1
        self.first_seconds: float | None = None
        self._calls = 0
        self._measured: list[float] = []  # seconds per step of the first calls

    @property
    def is_first(self) -> bool:
        """True before the first call has ended."""
        return not self._calls

    def took(self, seconds_per_step: float) -> None:
        """Sets how many steps the next call runs, by the time that a step of the last call took."""
        self._calls += 1
        if self._calls == 1:
            # The first call also traces and compiles, so its time says nothing.
            return
        self.first_seconds = None
        if len(self._measured) < _MEASURED_CALLS:
            self._measured.append(seconds_per_step)
            if len(self._measured) == _MEASURED_CALLS:
                self.first_seconds = statistics.median(self._measured)
        wanted = int(CALL_SECONDS / max(seconds_per_step, 1e-9))
        # At most ten times as many as before, because one measurement may be far off.
        self.steps = max(1, min(wanted, 10 * self.steps))
