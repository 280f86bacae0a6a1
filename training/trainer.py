"""The training loop of pre-training and fine-tuning: steps on the device, looks at them once a loop.

A `Task` knows one step of one replica; `Trainer` compiles a loop of them, saves and restores, watches for non-finite
losses and gradients and for signals, evaluates and reports. orbit's Controller is the model, and its summary manager
is used; the controller itself prints every line twice, keeps the input's state in Python and neither estimates time nor
checks losses, so the loop is ours.
"""

import contextlib
import functools
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import orbit
import tensorflow as tf

from training.distribution import distribute, host_number, is_chief
from util.errors import UserError
from util.files import append_json_line, keep_steps, write_json
from util.progress import Progress
from util.reading import read_json

Tensors = Any  # a nested structure of tensors


class LoopResult(NamedTuple):
    """Of a loop of steps, as tensors.

    totals: the steps' results, summed over replicas and steps.
    first: the losses and watched values of the first step.
    first_bad: name of a loss or watched value -> the first step (0-based) at which it was not finite, or int64.max.
    """

    totals: dict[str, Tensors]
    first: dict[str, Tensors]
    first_bad: dict[str, Tensors]


class Optimizer(Protocol):
    """What the loop reads of an optimizer (training.optimization.AdamW)."""

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
        """One update in replica context.

        Returns {"losses": name -> scalar whose sum over replicas is the loss, "watched": likewise, other values that
        must be finite, "metrics": name -> (numerator, denominator)}.
        """
        ...

    def training_data(self, position: int) -> tf.data.Dataset: ...

    def explain(self, error: Exception) -> str | None:
        """What the user can do about an error of TensorFlow's while stepping; None if the task does not know."""
        ...


class SummedTask(Task, Protocol):
    """A task whose metrics are sums over batches, so that the loop itself can evaluate it."""

    def eval_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """{"metrics": ..., "histograms": name -> tensor} of a batch, in replica context; sums over replicas count."""
        ...

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
      evaluate: computes metrics of the weights as they are; not needed for a `SummedTask`.
      best_metric: of these, higher is better; the best checkpoint goes to model_dir/best (`restore_best`).
    """

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        schedule: Schedule,
        model_dir: str,
        evaluate: Callable[[], dict[str, float]] | None = None,
        best_metric: str | None = None,
    ) -> None:
        self.task, self.strategy, self.schedule = task, strategy, schedule
        self._evaluate, self._best_metric = evaluate or self._evaluate_sums, best_metric
        self.model_dir = Path(model_dir)
        self.chief = is_chief(strategy)
        self.step = task.optimizer.step
        tracked = {"model": task.model, "optimizer": task.optimizer}
        if task.loss_scale is not None:
            tracked["loss_scale"] = task.loss_scale
        self.checkpoint = tf.train.Checkpoint(**tracked)
        # Every host takes part in saving; only the chief's files are kept.
        self._scratch = None if self.chief else self.model_dir / f".host_{host_number(strategy)}"
        self.manager = tf.train.CheckpointManager(
            self.checkpoint,
            str(self._scratch or self.model_dir),
            max_to_keep=schedule.keep_checkpoint_max if self.chief else 1,
            checkpoint_name="model.ckpt",
        )
        self.metrics_file = self.model_dir / "train_metrics.jsonl"
        self._signalled = False
        self.last_logged: dict[str, float] | None = None  # at the last look at the losses
        self._train_loop = tf.function(self._loop_of_steps, autograph=False)
        self._best = tf.train.Checkpoint(model=task.model)
        self._eval_step = tf.function(self._one_eval_step, autograph=False)
        self._sum_over_hosts = tf.function(self._sum, autograph=False)

    @property
    def current_step(self) -> int:
        """Updates made so far."""
        return int(self.step.numpy())

    def restore(self) -> int:
        """Restores the newest checkpoint, if there is one. Returns the step."""
        latest = tf.train.latest_checkpoint(str(self.model_dir))
        if latest is not None:
            try:
                status = self.checkpoint.restore(latest).assert_existing_objects_matched()
                status.expect_partial()  # an evaluation has no use for the counter of saves; no warning about that
            except (AssertionError, ValueError, tf.errors.OpError) as error:
                raise UserError(f"{latest} is not a checkpoint of this model: {error}") from None
        return self.current_step

    def save(self) -> str:
        return self.manager.save(checkpoint_number=self.current_step)

    # The device's side.

    def _run(self, function: Callable[..., dict[str, Tensors]], batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        result = self.strategy.run(function, args=(batch, step))
        return tf.nest.map_structure(
            lambda value: self.strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None), result
        )

    def _loop_of_steps(self, iterator: Iterator[Tensors], steps: tf.Tensor) -> LoopResult:
        """`steps` steps (one at least, for `first`), without a word to the host in between."""

        @functools.partial(tf.function, autograph=False)
        def one_step() -> tuple[dict[str, Tensors], dict[str, Tensors], dict[str, Tensors]]:
            number = tf.identity(self.step)
            result = self._run(self.task.train_step, next(iterator), number)
            watched = result["losses"] | result["watched"]
            bad = {name: tf.where(tf.math.is_finite(value), tf.int64.max, number) for name, value in watched.items()}
            return result, watched, bad

        def next_step(done: tf.Tensor, so_far: LoopResult) -> tuple[tf.Tensor, LoopResult]:
            result, watched, bad = one_step()
            return done + 1, LoopResult(
                tf.nest.map_structure(tf.add, so_far.totals, result),
                tf.nest.map_structure(lambda first, value: tf.where(done == 0, value, first), so_far.first, watched),
                tf.nest.map_structure(tf.minimum, so_far.first_bad, bad),
            )

        # The graph holds the step once, in the loop's body: what the loop starts from needs its results' types only.
        result, watched, bad = one_step.get_concrete_function().structured_outputs
        nothing = LoopResult(
            tf.nest.map_structure(lambda value: tf.zeros(value.shape, value.dtype), result),
            tf.nest.map_structure(lambda value: tf.zeros(value.shape, value.dtype), watched),
            {name: tf.constant(tf.int64.max) for name in bad},
        )
        start = (tf.constant(0), nothing)
        _, results = tf.while_loop(lambda done, _: done < steps, next_step, start, parallel_iterations=1)
        return results

    def _one_eval_step(self, batch: Tensors, number: tf.Tensor) -> dict[str, Tensors]:
        return self._run(cast(SummedTask, self.task).eval_step, batch, number)

    def _sum(self, value: tf.Tensor) -> tf.Tensor:
        return self.strategy.reduce(
            tf.distribute.ReduceOp.SUM, self.strategy.run(tf.identity, args=(value,)), axis=None
        )

    # The host's side.

    def train(self) -> int:
        """Trains to `num_train_steps`. Returns 0, or 143 if a SIGTERM stopped it after saving."""
        schedule, start = self.schedule, self.current_step
        if start >= schedule.num_train_steps:
            print(f"Nothing to train: {self.model_dir} is at step {start:,} of {schedule.num_train_steps:,}.")
            return 0
        if self.chief:  # what was logged after the checkpoint will be logged again
            keep_steps(self.metrics_file, start)
        iterator = iter(distribute(self.strategy, self.task.training_data(start * schedule.examples_per_step)))
        summaries = orbit.utils.SummaryManager(
            str(self.model_dir / "events") if self.chief else None, tf.summary.scalar, global_step=self.step
        )
        progress = Progress(
            "step", schedule.num_train_steps, done=start, unit="examples", per=schedule.examples_per_step
        )
        previous = signal.signal(signal.SIGTERM, self._on_signal)
        try:
            with self._explaining():
                return self._train(iterator, summaries, progress)
        finally:
            signal.signal(signal.SIGTERM, previous)
            summaries.flush()
            progress.close()
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _train(self, iterator: Iterator[Tensors], summaries: Any, progress: Progress) -> int:
        schedule, step = self.schedule, self.current_step
        while step < schedule.num_train_steps:
            steps = self._steps_until_next_event(step)
            result = self._train_loop(iterator, tf.constant(steps, tf.int32))
            self._check_finite(result)
            if step == 0:
                print(f"initial loss   {float(result.first['loss']):.2f}", flush=True)
            step += steps
            values = {name: float(total) / steps for name, total in result.totals["losses"].items()}
            values |= {name: float(total) / steps for name, total in result.totals["watched"].items()}
            values["learning_rate"] = float(self.task.optimizer.schedule(tf.constant(step - 1)))
            self._log(summaries, step, values, ratios(result.totals["metrics"]), progress)
            stopped = self._stopped()
            with progress.pause():
                if stopped or step % schedule.save_checkpoints_steps == 0 or step == schedule.num_train_steps:
                    self.save()
                if stopped:
                    progress.line(f"SIGTERM: saved {self.model_dir} at step {step:,}. Run the same command to go on.")
                    return 128 + signal.SIGTERM
                at_end = step == schedule.num_train_steps and self._best_metric is not None
                if schedule.eval_every_steps and (step % schedule.eval_every_steps == 0 or at_end):
                    metrics = self.evaluate()
                    progress.line(f"evaluation at step {step:,}: {format_metrics(metrics)}")
                    if self.chief:
                        summaries.write_summaries({f"eval/{name}": value for name, value in metrics.items()})
                        write_json(self.model_dir / "eval" / f"step-{step}.json", metrics)
                        self._keep_if_best(step, metrics)
        return 0

    def _keep_if_best(self, step: int, metrics: dict[str, float]) -> None:
        """Saves the weights if they are the best so far; what an interrupted run did later does not count."""
        if self._best_metric is None:
            return
        value, before = metrics[self._best_metric], self._read_best()
        if before is not None and before["step"] < step and before["value"] >= value:
            return
        path = self._best.write(str(self.model_dir / "best" / f"model.ckpt-{step}"))
        write_json(self.model_dir / "best" / "best.json", {"step": step, "value": value, "path": Path(path).name})
        for old in (self.model_dir / "best").glob("model.ckpt-*"):
            if not old.name.startswith(f"model.ckpt-{step}."):
                old.unlink()

    def _read_best(self) -> dict[str, Any] | None:
        path = self.model_dir / "best" / "best.json"
        return read_json(path, "best checkpoint") if path.exists() else None

    def restore_best(self) -> int:
        """Restores the weights that did best in `best_metric`. Returns their step."""
        best = self._read_best()
        if best is None:
            raise UserError(f"{self.model_dir} holds no best checkpoint: train with keep_best")
        self._best.read(str(self.model_dir / "best" / best["path"])).expect_partial()
        return int(best["step"])

    def time_steps(self, warm_up: int = 2, steps: int = 5) -> tuple[float, float]:
        """Trains a few steps from the start of the data, saving nothing. Returns mean loss and seconds per step."""
        with self._explaining():
            iterator = iter(distribute(self.strategy, self.task.training_data(0)))
            float(self._train_loop(iterator, tf.constant(warm_up, tf.int32)).first["loss"])
            start = time.monotonic()
            result = self._train_loop(iterator, tf.constant(steps, tf.int32))
            loss = float(result.totals["losses"]["loss"]) / steps
            return loss, (time.monotonic() - start) / steps

    def _on_signal(self, number: int, frame: Any) -> None:
        del number, frame
        self._signalled = True

    def _stopped(self) -> bool:
        """Whether any host was told to stop; all of them find out after the same step."""
        if host_number(self.strategy) is None:
            return self._signalled
        return bool(self._sum_over_hosts(tf.constant(int(self._signalled))) > 0)

    def _steps_until_next_event(self, step: int) -> int:
        schedule = self.schedule
        events = [schedule.iterations_per_loop, schedule.save_checkpoints_steps, schedule.eval_every_steps]
        ahead = [every - step % every for every in events if every]
        return min([*ahead, schedule.num_train_steps - step])

    def _check_finite(self, result: LoopResult) -> None:
        """Stops at the first non-finite loss or gradient, before anything is saved that came after it."""
        first_bad = {name: int(step) for name, step in result.first_bad.items()}
        step = min(first_bad.values())
        if step == tf.int64.max:
            return
        last = tf.train.latest_checkpoint(str(self.model_dir)) or "none was saved yet"
        raise UserError(
            f"not finite at step {step + 1:,}: {', '.join(name for name, bad in first_bad.items() if bad == step)}. "
            f"Nothing was saved since. Last good checkpoint: {last}. "
            "Try a lower learning_rate, more num_warmup_steps, or precision float32."
        )

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Errors of TensorFlow's that the user can mend leave as such."""
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            raise UserError(
                f"out of memory with {self.schedule.examples_per_step} sequences a step: lower train_batch_size, or "
                "keep it and raise gradient_accumulation_steps; precision bfloat16 also saves memory"
            ) from error
        except (
            tf.errors.OpError,
            UnicodeDecodeError,
        ) as error:  # its message may quote a record's bytes
            reason = self.task.explain(error) or self._lost_host(error)
            if reason is None:
                raise
            raise UserError(reason) from error

    def _lost_host(self, error: Exception) -> str | None:
        """What to do if the error is how collective operations fail when another host ended."""
        lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        if host_number(self.strategy) is None or not isinstance(error, lost):
            return None
        last = tf.train.latest_checkpoint(str(self.model_dir)) or "none was saved yet"
        return (
            "another host of this job ended or cannot be reached any more; its own output says why. Last checkpoint: "
            f"{last}. Start the same command on all hosts to go on from there."
        )

    def _log(
        self, summaries: Any, step: int, values: dict[str, float], metrics: dict[str, float], progress: Progress
    ) -> None:
        self.last_logged = values
        rate = progress.update(step, {name: value for name, value in values.items() if name != "gradient_norm"})
        if not self.chief:
            return
        # Names of the metrics file and of TensorBoard: the schedule's and the clock's values belong to no phase.
        phase = {name: value for name, value in values.items() if name != "learning_rate"}
        common = {"learning_rate": values["learning_rate"], "examples_per_second": rate}
        line = {"step": step} | phase | {f"train_{name}": value for name, value in metrics.items()} | common
        summaries.write_summaries({f"train/{name}": value for name, value in (phase | metrics).items()} | common)
        append_json_line(self.metrics_file, line)

    def evaluate(self) -> dict[str, float]:
        """Metrics of the weights as they are."""
        with self._explaining():
            return self._evaluate()

    def _evaluate_sums(self) -> dict[str, float]:
        """Metrics over the evaluation data, at most `num_eval_steps` batches; masking is the same at every call."""
        task = cast(SummedTask, self.task)
        totals: dict[str, Tensors] | None = None
        dataset = task.evaluation_data().take(self.schedule.num_eval_steps)
        for number, batch in enumerate(distribute(self.strategy, dataset)):
            result = self._eval_step(batch, tf.constant(number, tf.int64))
            totals = result if totals is None else tf.nest.map_structure(tf.add, totals, result)
        if totals is None:
            raise UserError("there is nothing to evaluate: the held-out records hold no batch")
        return task.summarise(totals)


def ratios(metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]) -> dict[str, float]:
    """numerator / denominator of every metric; 0 where nothing was counted."""
    return {
        name: float(numerator) / float(denominator) if float(denominator) else 0.0
        for name, (numerator, denominator) in metrics.items()
    }


def format_metrics(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
