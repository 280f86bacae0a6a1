"""The training loop of pre-training and fine-tuning: runs steps, reports, saves and evaluates.

A `TrainingTask` defines one step of one replica; training.device_loop runs many steps in one call. `Trainer` decides
when to report, save, evaluate and stop; training.checkpoints and training.reporting write the files.
docs/architecture.md explains why it is not orbit's Controller.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.training.checkpoints import Checkpoints
from electra_tf2.training.device_loop import DeviceLoop, Pace, Totals, run_and_sum
from electra_tf2.training.distribution import HostMeans, distribute, has_several_hosts, is_chief
from electra_tf2.training.reporting import Reporter
from electra_tf2.training.run_folder import GO_ON
from electra_tf2.training.signals import StopSignal
from electra_tf2.training.training_task import Tensors, TrainingTask
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress, counted, duration, say, track

TOLD_SECONDS = 20.0  # of a training that is shorter nobody is told how long it will take


class LoopSchedule(NamedTuple):
    """When to report, save and evaluate.

    num_train_steps: steps of the whole run.
    iterations_per_loop: steps between two reports.
    save_checkpoints_steps: steps between two checkpoints.
    keep_checkpoint_max: how many checkpoints are kept.
    eval_every_steps: steps between two evaluations; 0: none.
    num_eval_steps: batches of an evaluation, at most.
    examples_per_step: sequences of the global batch.
    first_step: the step at which the current phase of the data begins.
    examples_before: examples that earlier phases have read.
    """

    num_train_steps: int
    iterations_per_loop: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    eval_every_steps: int
    num_eval_steps: int
    examples_per_step: int
    first_step: int = 0
    examples_before: int = 0

    def position(self, step: int) -> int:
        """How many examples were read before a step: the position in the data at which the step begins."""
        return self.examples_before + (step - self.first_step) * self.examples_per_step


class Trainer:
    """Trains a task to the end of its schedule, from the newest checkpoint of the folder if there is one.

    Args:
      task: built under the strategy's scope.
      model_dir: folder of checkpoints, events and train_metrics.jsonl.
      evaluate: computes metrics of the current weights; default: sums of the task's `eval_step`.
      best_metric: name of the metric, higher is better, by which the best checkpoint is kept in model_dir/best.
      patience: so many evaluations in a row without improvement end the training; 0: none do.
    """

    def __init__(
        self,
        task: TrainingTask,
        strategy: tf.distribute.Strategy,
        schedule: LoopSchedule,
        model_dir: str,
        evaluate: Callable[[], dict[str, float]] | None = None,
        best_metric: str | None = None,
        patience: int = 0,
    ) -> None:
        self.task = task
        self.strategy = strategy
        self.schedule = schedule
        self.model_dir = Path(model_dir)
        self.chief = is_chief(strategy)
        self.step = task.optimizer.step
        tracked: dict[str, tf.Module] = {"model": task.model, "optimizer": task.optimizer}
        if task.loss_scale is not None:
            tracked["loss_scale"] = task.loss_scale
        self.checkpoints = Checkpoints(self.model_dir, tracked, schedule.keep_checkpoint_max)
        self.reporter = Reporter(self.model_dir, self.chief, task.shown)
        self._evaluate = evaluate or self._evaluate_sums
        self._best_metric = best_metric
        self._patience = patience
        self._stop = StopSignal()
        self._saved_step = -1
        self._eval_step = tf.function(self._one_eval_step, autograph=False)
        self._mean_over_hosts = HostMeans(strategy)

    @property
    def current_step(self) -> int:
        """How many updates were made so far."""
        return int(self.step.numpy())

    def restore(self) -> int:
        """Restores the newest good checkpoint, if there is one. Returns its step, or 0."""
        step = self.checkpoints.restore()
        if step is not None:
            self._saved_step = step
        return self.current_step

    def train(self) -> int:
        """Trains to `num_train_steps`.

        Returns:
          0, or 128 plus the signal's number if a signal stopped the run after a checkpoint was saved.

        Raises:
          UserError: fewer than one step; a loss or gradient that is not finite; a file that cannot be written.
        """
        schedule = self.schedule
        start = self.current_step
        self._start = start
        if schedule.num_train_steps < 1:
            raise UserError("there is less than one step to train: raise num_train_steps or num_train_epochs")
        self.model_dir.mkdir(parents=True, exist_ok=True)
        self._folder = self.model_dir.stat()
        self.reporter.resume(start)
        try:
            with self._explaining():
                # The run before may have been killed between this checkpoint and its evaluation.
                if start and self._evaluation_is_due(start):
                    self._evaluate_in_training(start)
                if start >= schedule.num_train_steps:
                    self._end_without_training(start)
                    return 0
                self._train(start)
        finally:
            self.checkpoints.writer.settle()
            self.reporter.close()
        if self._stop.number is None:
            return 0
        say(f"{self._stop.name}: saved {self.model_dir} at step {self.current_step:,}. {GO_ON}.")
        return 128 + self._stop.number

    def _end_without_training(self, step: int) -> None:
        if self._saved_step == step and self.chief:
            self.checkpoints.tidy(step)
        say(f"Nothing to train: {self.model_dir} is at step {step:,} of {self.schedule.num_train_steps:,}.")

    def _train(self, start: int) -> None:
        """Runs the steps from `start` on, until the last checkpoint is written."""
        schedule = self.schedule
        data = self.task.training_data(schedule.position(start))
        say("tracing and compiling a step")
        progress = Progress(
            "step", schedule.num_train_steps, done=start, unit="examples", per=schedule.examples_per_step
        )
        with progress, contextlib.ExitStack() as listening:
            loop = DeviceLoop(self.task, self.strategy, iter(distribute(self.strategy, data)))
            self._run_steps(loop, progress, listening)
            # From here on the run only waits for the last checkpoint, so a signal is answered at once.
            self._stop.on_receive = self._say_saving
            self.checkpoints.writer.wait()
            # The other hosts wait here for the chief, which writes. The numbers mean nothing.
            self._mean_over_hosts(0.0, 0.0)

    def _run_steps(self, loop: DeviceLoop, progress: Progress, listening: contextlib.ExitStack) -> None:
        """Alternates calls of several steps with reports, checkpoints and evaluations, until the end or a signal.

        Args:
          listening: takes the context within which signals are answered.
        """
        schedule = self.schedule
        pace = Pace()
        step = self.current_step
        totals = loop.nothing  # since the last report
        steps_in_totals = 0
        while step < schedule.num_train_steps and not self._stops_early(step):
            until_event = self._steps_until_next_event(step)
            steps = min(pace.steps, until_event)
            began = time.monotonic()
            totals = loop.run(steps, steps_in_totals, totals)
            self._check_finite(totals)
            self.checkpoints.writer.check()
            if pace.is_first:
                # Only now. While a step compiles, for minutes perhaps, a signal just ends the process: there is nothing
                # to save.
                listening.enter_context(self._stop)
            if step == 0:
                first_loss = float(totals.first["loss"]) / self.task.summed_examples
                progress.line(f"first loss     {first_loss:.2f}")
            step += steps
            steps_in_totals += steps
            seconds_per_step = (time.monotonic() - began) / steps
            stops = self._agree(pace, seconds_per_step)
            self._say_duration(progress, pace.first_seconds, schedule.num_train_steps - step)
            if stops or steps == until_event:
                self._report(progress, step, totals, steps_in_totals)
                totals = loop.nothing
                steps_in_totals = 0
            else:
                progress.update(step)
            if stops or self._checkpoint_is_due(step):
                with progress.pause():
                    self._save()
            if stops:
                return
            if self._evaluation_is_due(step):
                with progress.pause():
                    self._evaluate_in_training(step)

    def _say_duration(self, progress: Progress, seconds_per_step: float | None, steps: int) -> None:
        """Says once, soon after the start, about how long the remaining steps take."""
        if seconds_per_step is None or seconds_per_step * steps < TOLD_SECONDS:
            return
        time_left = duration(seconds_per_step * steps)
        progress.line(f"time           about {time_left} for {counted(steps, 'more step')}, without evaluations")

    def _steps_until_next_event(self, step: int) -> int:
        """How many steps lie before the next report, checkpoint, evaluation or the end."""
        schedule = self.schedule
        distances = [schedule.num_train_steps - step]
        for every in (schedule.iterations_per_loop, schedule.save_checkpoints_steps, schedule.eval_every_steps):
            if every:
                distances.append(every - step % every)
        return min(distances)

    def _checkpoint_is_due(self, step: int) -> bool:
        return step % self.schedule.save_checkpoints_steps == 0 or step == self.schedule.num_train_steps

    def _report(self, progress: Progress, step: int, totals: Totals, steps: int) -> None:
        """Reports the means of the last `steps` steps."""
        self._check_folder()
        # The last update was that of the 0-based step before.
        rate = float(self.task.optimizer.schedule(tf.constant(step - 1)))
        means = {}
        for name, total in totals.sums["losses"].items():
            means[name] = float(total) / steps / self.task.summed_examples
        for name, total in totals.sums["watched"].items():
            means[name] = float(total) / steps
        self.reporter.steps(progress, step, means, ratios(totals.sums["metrics"]), rate)

    # Checkpoints.

    def _check_folder(self) -> None:
        """Raises UserError if the folder was deleted or moved: a new one would lack the run's configuration."""
        try:
            is_same = os.path.samestat(self.model_dir.stat(), self._folder)
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise UserError(f"{self.model_dir} was deleted or moved while the run trained there: nothing more is saved")

    def _save(self) -> None:
        """Saves the current step, unless it is saved already."""
        step = self.current_step
        if self._saved_step == step:
            return
        if self._stop.number is not None:
            self._say_saving()
        self._check_folder()
        if self.chief:
            self.checkpoints.save(step)
        self._saved_step = step

    def _say_saving(self) -> None:
        say(f"{self._stop.name}: saving step {self.current_step:,}")

    # Evaluations.

    def evaluate(self) -> dict[str, float]:
        """Computes the metrics of the current weights, or with ema_decay of their averages."""
        with self.task.optimizer.averaged(), self._explaining(evaluating=True):
            return self._evaluate()

    def _evaluation_is_due(self, step: int) -> bool:
        """True if a step is to be evaluated, and was not evaluated before the run was resumed."""
        every = self.schedule.eval_every_steps
        if not every:
            return False
        ends_the_run = step == self.schedule.num_train_steps and self._best_metric is not None
        if step % every and not ends_the_run:
            return False
        return step != self._start or not self.reporter.evaluation_file(step).exists()

    def _evaluate_in_training(self, step: int) -> None:
        with self.task.optimizer.averaged():
            with self._explaining(evaluating=True):
                metrics = self._evaluate()
            # Report an evaluation only after its checkpoint is on disk.
            self.checkpoints.writer.wait()
            if self.chief and self._best_metric is not None:
                self.checkpoints.save_best(step, metrics[self._best_metric])
        self.reporter.evaluation(step, metrics)

    def _stops_early(self, step: int) -> bool:
        """Saves and returns true if the last `patience` evaluations, this step's included, brought no improvement."""
        every = self.schedule.eval_every_steps
        if not (self._patience and every and step) or step % every:
            return False
        best_step = 0
        if self.chief:  # it alone has the file of the best checkpoint, so it decides for all hosts
            best_step = self.checkpoints.best_step
        is_over = bool(best_step) and (step - best_step) // every >= self._patience
        if not self._mean_over_hosts(float(is_over), 0.0)[0]:
            return False
        say(f"early stopping at step {step:,}: no evaluation since step {best_step:,} was better")
        self._save()
        return True

    def _evaluate_sums(self) -> dict[str, float]:
        """Metrics over the evaluation data, at most `num_eval_steps` batches; masking is the same at every call."""
        totals: dict[str, Tensors] | None = None
        dataset = self.task.evaluation_data().take(self.schedule.num_eval_steps)
        for index, batch in enumerate(track(distribute(self.strategy, dataset), "evaluation batch")):
            result = self._eval_step(batch, tf.constant(index, tf.int64))
            if totals is None:
                totals = result
            else:
                totals = tf.nest.map_structure(tf.add, totals, result)
        if totals is None:
            raise UserError("there is nothing to evaluate: the held-out records hold no batch")
        return self.task.summarise(totals)

    def _one_eval_step(self, batch: Tensors, index: tf.Tensor) -> dict[str, Tensors]:
        return run_and_sum(self.strategy, self.task.eval_step, batch, index)

    # Several hosts.

    def _agree(self, pace: Pace, seconds: float) -> bool:
        """Sets the pace by the mean of all hosts' seconds per step. Returns whether any host got a signal."""
        got_signal = float(self._stop.number is not None)
        share_with_signal, mean_seconds = self._mean_over_hosts(got_signal, seconds)
        if share_with_signal and self._stop.number is None:
            self._stop.number = signal.SIGTERM  # another host got one
        pace.took(mean_seconds)
        return self._stop.number is not None

    # Errors.

    def _check_finite(self, totals: Totals) -> None:
        """Raises UserError if a loss or gradient was not finite, before anything later is saved."""
        first_bad = {name: int(step) for name, step in totals.first_bad.items()}
        step = min(first_bad.values())
        if step == tf.int64.max:
            return
        self.checkpoints.writer.settle()
        bad_names = ", ".join(name for name, bad_step in first_bad.items() if bad_step == step)
        newest = self.checkpoints.newest()
        repeats = ""
        if step and step == self.checkpoints.newest_step():
            # The update that this checkpoint holds may itself have ruined the weights.
            repeats = f" If the first step stops like this again, delete {newest}.*, so that the one before is used."
        raise UserError(
            f"not finite at step {step + 1:,}: {bad_names}. Nothing was saved since. Last good checkpoint: {newest}. "
            "To go on from there, run the command again, without --overwrite, with a lower learning_rate, more "
            f"num_warmup_steps, or precision float32.{repeats}"
        )

    @contextlib.contextmanager
    def _explaining(self, evaluating: bool = False) -> Iterator[None]:
        """Turns those errors of TensorFlow that a user can mend into UserErrors."""
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            if evaluating:
                raise UserError("out of memory in an evaluation: lower eval_batch_size") from error
            raise UserError(
                f"out of memory with {self.schedule.examples_per_step} sequences a step: lower train_batch_size, or "
                "keep it and raise gradient_accumulation_steps; precision bfloat16 also saves memory"
            ) from error
        except (
            tf.errors.OpError,
            UnicodeDecodeError,
        ) as error:  # TensorFlow fails to decode a message that quotes bytes
            reason = self.task.explain(error) or self._lost_host(error)
            if reason is None:
                raise
            raise UserError(reason) from error

    def _lost_host(self, error: Exception) -> str | None:
        """Returns what the user can do if another host ended, which makes collective operations fail; else None."""
        lost_host_errors = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        if not has_several_hosts(self.strategy) or not isinstance(error, lost_host_errors):
            return None
        # A checkpoint that is being written now is the last one.
        self.checkpoints.writer.settle()
        return (
            "another host of this job ended or cannot be reached any more; its own output says why. Last checkpoint: "
            f"{self.checkpoints.newest()}. Start the same command, without --overwrite, on all hosts to "
            "go on from there."
        )

    # Dry runs.

    def time_steps(self, warm_up: int = 2, steps: int = 5) -> tuple[float, float]:
        """Trains a few steps from the start of the data, saving nothing. Returns mean loss and seconds per step."""
        with self._explaining():
            data = distribute(self.strategy, self.task.training_data(0))
            loop = DeviceLoop(self.task, self.strategy, iter(data))
            losses = []
            began = 0.0
            for step in track(range(warm_up + steps), "step", warm_up + steps):
                if step == warm_up:
                    began = time.monotonic()
                totals = loop.run(1, 0, loop.nothing)
                losses.append(float(totals.sums["losses"]["loss"]))
            seconds = time.monotonic() - began
        return sum(losses[warm_up:]) / steps, seconds / steps


def ratios(metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]) -> dict[str, float]:
    """numerator / denominator of every metric; 0 where nothing was counted."""
    values = {}
    for name, (numerator, denominator) in metrics.items():
        values[name] = 0.0
        if float(denominator):
            values[name] = float(numerator) / float(denominator)
    return values
