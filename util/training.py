"""The training loop of pre-training and fine-tuning: steps on the device, looks at them once a loop.

A `Task` knows one step of one replica; `Trainer` compiles a loop of them, saves and restores, watches for non-finite
losses and signals, evaluates and reports. orbit's Controller is the model, and its summary manager is used; the
controller itself prints every line twice, keeps the input's state in Python and neither estimates time nor checks
losses, so the loop is ours.
"""

import json
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orbit
import tensorflow as tf

from util.distribution import distribute, is_chief
from util.errors import UserError
from util.files import keep_json_lines, write_json
from util.progress import Progress

Tensors = Any  # a nested structure of tensors


class StepResult(NamedTuple):
    """Of one step or several, on the host: losses (means over steps), metrics (ratios), and what they came from."""

    losses: dict[str, float]
    metrics: dict[str, float]


class Optimizer(Protocol):
    """What the loop reads of an optimizer (model.optimization.AdamW)."""

    @property
    def step(self) -> tf.Variable: ...

    @property
    def schedule(self) -> Callable[[tf.Tensor], tf.Tensor]: ...


class Task(Protocol):
    """What the loop needs to know of a kind of training."""

    @property
    def model(self) -> tf.Module: ...

    @property
    def optimizer(self) -> Optimizer: ...

    @property
    def loss_scale(self) -> tf.Module | None: ...

    def train_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """One update in replica context. Returns {"losses": name -> scalar whose sum over replicas is the loss,
        "metrics": name -> (numerator, denominator)}."""
        ...

    def eval_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """{"metrics": ..., "histograms": name -> tensor} of a batch, in replica context; sums over replicas count."""
        ...

    def training_data(self, position: int) -> tf.data.Dataset: ...

    def evaluation_data(self) -> tf.data.Dataset: ...

    def summarise(self, totals: dict[str, Tensors]) -> dict[str, float]:
        """Metrics from summed numerators, denominators and histograms."""
        ...


class Schedule(NamedTuple):
    """When things happen, in steps."""

    num_train_steps: int
    iterations_per_loop: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    eval_every_steps: int
    num_eval_steps: int
    examples_per_step: int


class Trainer:
    """Runs a task to the end of its schedule, resuming where a checkpoint of the folder left off.

    Args:
      task: built under the strategy's scope.
      model_dir: of checkpoints, events and train_metrics.jsonl.
    """

    def __init__(self, task: Task, strategy: tf.distribute.Strategy, schedule: Schedule, model_dir: str) -> None:
        self.task, self.strategy, self.schedule = task, strategy, schedule
        self.model_dir = Path(model_dir)
        self.step = task.optimizer.step
        tracked = {"model": task.model, "optimizer": task.optimizer}
        if task.loss_scale is not None:
            tracked["loss_scale"] = task.loss_scale
        self.checkpoint = tf.train.Checkpoint(**tracked)
        directory = str(self.model_dir)
        if not is_chief(strategy):  # every host takes part in saving; only the chief's file is kept
            directory = str(self.model_dir / f"worker_{strategy.cluster_resolver.task_id}")
        self.manager = tf.train.CheckpointManager(
            self.checkpoint, directory, max_to_keep=schedule.keep_checkpoint_max, checkpoint_name="model.ckpt"
        )
        self.metrics_file = self.model_dir / "train_metrics.jsonl"
        self._stop_signal: int | None = None
        self._train_loop = tf.function(self._loop_of_steps)
        self._eval_step = tf.function(self._one_eval_step)

    @property
    def current_step(self) -> int:
        """Updates made so far."""
        return int(self.step.numpy())

    def restore(self) -> int:
        """Restores the newest checkpoint, if there is one. Returns the step."""
        latest = tf.train.latest_checkpoint(str(self.model_dir))
        if latest is not None:
            try:
                self.checkpoint.restore(latest).assert_existing_objects_matched()
            except (AssertionError, ValueError, tf.errors.OpError) as error:
                raise UserError(f"{latest} is not a checkpoint of this model: {error}") from None
        keep_json_lines(self.metrics_file, lambda line: line["step"] <= self.current_step)
        return self.current_step

    def save(self) -> str:
        return self.manager.save(checkpoint_number=self.current_step)

    # The device's side.

    def _run(self, function: Callable[..., dict[str, Tensors]], batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        result = self.strategy.run(function, args=(batch, step))
        return tf.nest.map_structure(
            lambda value: self.strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None), result
        )

    def _loop_of_steps(self, iterator: Iterator[Tensors], steps: tf.Tensor) -> tuple[dict[str, Tensors], tf.Tensor]:
        """`steps` steps; their summed results and the first step with a non-finite loss, or -1."""

        @tf.function
        def one_step() -> tuple[dict[str, Tensors], tf.Tensor]:
            number = tf.identity(self.step)
            result = self._run(self.task.train_step, next(iterator), number)
            finite = tf.reduce_all(tf.math.is_finite(tf.stack(list(result["losses"].values()))))
            return result, tf.where(finite, tf.int64.max, number)

        totals, first_bad = one_step()
        for _ in tf.range(steps - 1):
            result, bad = one_step()
            totals = tf.nest.map_structure(tf.add, totals, result)
            first_bad = tf.minimum(first_bad, bad)
        return totals, first_bad

    def _one_eval_step(self, batch: Tensors, number: tf.Tensor) -> dict[str, Tensors]:
        return self._run(self.task.eval_step, batch, number)

    # The host's side.

    def train(self) -> int:
        """Trains to `num_train_steps`. Returns 0, or 143 if a SIGTERM stopped it after saving."""
        schedule = self.schedule
        start = self.current_step
        if start >= schedule.num_train_steps:
            print(f"Nothing to train: {self.model_dir} is at step {start:,} of {schedule.num_train_steps:,}.")
            return 0
        position = start * schedule.examples_per_step
        iterator = iter(distribute(self.strategy, self.task.training_data(position)))
        chief = is_chief(self.strategy)
        summaries = orbit.utils.SummaryManager(
            str(self.model_dir / "events") if chief else None, tf.summary.scalar, global_step=self.step
        )
        progress = Progress(start, schedule.num_train_steps, schedule.examples_per_step)
        previous = signal.signal(signal.SIGTERM, self._on_signal)
        try:
            while (step := self.current_step) < schedule.num_train_steps:
                steps = self._steps_until_next_event(step)
                totals, first_bad = self._train_loop(iterator, tf.constant(steps, tf.int32))
                result = self._to_host(totals, steps)
                step += steps
                if int(first_bad) != tf.int64.max:
                    self._stop_non_finite(int(first_bad), result)
                rate = progress.update(step, result.losses | result.metrics)
                learning_rate = float(self.task.optimizer.schedule(tf.constant(step - 1)))
                if chief:
                    self._log(summaries, step, result, learning_rate, rate)
                if self._stop_signal is not None:
                    print(f"\nSIGTERM: saved {self.save()} at step {step:,}. Run the same command to go on.")
                    return 128 + self._stop_signal
                if step % schedule.save_checkpoints_steps == 0 or step == schedule.num_train_steps:
                    self.save()
                if schedule.eval_every_steps and step % schedule.eval_every_steps == 0:
                    metrics = self.evaluate()
                    progress.line(f"evaluation at step {step:,}: {format_metrics(metrics)}")
                    if chief:
                        summaries.write_summaries({f"eval/{name}": value for name, value in metrics.items()})
                        write_json(self.model_dir / "eval" / f"step-{step}.json", metrics)
        finally:
            signal.signal(signal.SIGTERM, previous)
            summaries.flush()
            progress.close()
        return 0

    def _on_signal(self, number: int, frame: Any) -> None:
        del frame
        self._stop_signal = number

    def _steps_until_next_event(self, step: int) -> int:
        schedule = self.schedule
        events = [schedule.iterations_per_loop, schedule.save_checkpoints_steps, schedule.eval_every_steps]
        ahead = [every - step % every for every in events if every]
        return min([*ahead, schedule.num_train_steps - step])

    def _to_host(self, totals: dict[str, Tensors], steps: int) -> StepResult:
        losses = {name: float(value) / steps for name, value in totals["losses"].items()}
        return StepResult(losses, ratios(totals["metrics"]))

    def _log(self, summaries: Any, step: int, result: StepResult, learning_rate: float, rate: float) -> None:
        line = {"step": step} | result.losses | {f"train_{name}": value for name, value in result.metrics.items()}
        line |= {"learning_rate": learning_rate, "examples_per_second": rate}
        values = {f"train/{name}": value for name, value in (result.losses | result.metrics).items()}
        summaries.write_summaries(values | {"learning_rate": learning_rate, "examples_per_second": rate})
        self.metrics_file.parent.mkdir(parents=True, exist_ok=True)
        with open(self.metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _stop_non_finite(self, step: int, result: StepResult) -> None:
        bad = [name for name, value in result.losses.items() if not math.isfinite(value)]
        last = tf.train.latest_checkpoint(str(self.model_dir)) or "none was saved yet"
        raise UserError(
            f"the loss is not finite since step {step + 1:,} ({', '.join(bad)}); nothing was saved after it. "
            f"Last good checkpoint: {last}. Try a lower learning_rate, more num_warmup_steps, or precision float32."
        )

    def evaluate(self) -> dict[str, float]:
        """Metrics over the evaluation data, at most `num_eval_steps` batches; masking is the same at every call."""
        totals: dict[str, Tensors] | None = None
        dataset = self.task.evaluation_data().take(self.schedule.num_eval_steps)
        for number, batch in enumerate(distribute(self.strategy, dataset)):
            result = self._eval_step(batch, tf.constant(number, tf.int64))
            totals = result if totals is None else tf.nest.map_structure(tf.add, totals, result)
        if totals is None:
            raise UserError("there is nothing to evaluate: the held-out records hold no batch")
        return self.task.summarise(totals)


def ratios(metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]) -> dict[str, float]:
    """numerator / denominator of every metric; 0 where nothing was counted."""
    return {
        name: float(numerator) / float(denominator) if float(denominator) else 0.0
        for name, (numerator, denominator) in metrics.items()
    }


def format_metrics(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
