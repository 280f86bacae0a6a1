"""The training loop of pre-training and fine-tuning: when steps are done, reported, saved and evaluated.

A `TrainingTask` knows one step of one replica; training.device_loop runs many of them at once. `Trainer` watches for
losses and gradients that are not finite and for signals, and hands what comes of the steps to training.checkpoints and
training.reporting. docs/architecture.md says why it is not orbit's Controller.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf2.training.checkpoints import Checkpoints
from electra_tf2.training.device_loop import DeviceLoop, Pace, Totals, run_and_sum
from electra_tf2.training.distribution import distribute, host_number, is_chief
from electra_tf2.training.reporting import Reporter
from electra_tf2.training.run_folder import GO_ON
from electra_tf2.training.task import Tensors, TrainingTask
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress, say, track

# Of schedulers and terminals: Slurm sends what --signal names, submitit SIGUSR1, the end of an ssh session SIGHUP.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class LoopSchedule(NamedTuple):
    """When things happen, in steps."""

    num_train_steps: int
    iterations_per_loop: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int
    eval_every_steps: int
    num_eval_steps: int
    examples_per_step: int
    first_step: int = 0  # of a phase, before which so many examples were read:
    examples_before: int = 0

    def position(self, step: int) -> int:
        """Position in the data: examples that were read before a step."""
        return self.examples_before + (step - self.first_step) * self.examples_per_step


class Trainer:
    """Runs a task to the end of its schedule, resuming where a checkpoint of the folder left off.

    Args:
      task: built under the strategy's scope.
      model_dir: of checkpoints, events and train_metrics.jsonl.
      evaluate: computes metrics of the weights as they are; not needed where the task has an `eval_step`.
      best_metric: of these, higher is better; the best checkpoint goes to model_dir/best.
      patience: evaluations in a row without a better one that end the training; 0: none do.
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
        self.task, self.strategy, self.schedule = task, strategy, schedule
        self._evaluate, self._best_metric = evaluate or self._evaluate_sums, best_metric
        self._patience = patience
        self.model_dir = Path(model_dir)
        self.chief = is_chief(strategy)
        self.step = task.optimizer.step
        tracked: dict[str, tf.Module] = {"model": task.model, "optimizer": task.optimizer}
        if task.loss_scale is not None:
            tracked["loss_scale"] = task.loss_scale
        self.checkpoints = Checkpoints(self.model_dir, tracked, schedule.keep_checkpoint_max)
        self.reporter = Reporter(self.model_dir, self.chief, task.shown)
        self._signal: int | None = None
        self._may_abandon = False  # whether a signal may end what is going on, because it can be done again
        self._only_saves = False  # whether the last step is done
        self._since_report: tuple[int, list[float]] | None = None  # of a checkpoint between two reports: steps, totals
        self._saved = -1
        self._eval_step = tf.function(self._one_eval_step, autograph=False)
        self._sum_over_replicas = tf.function(self._sum, autograph=False)

    @property
    def current_step(self) -> int:
        """Updates made so far."""
        return int(self.step.numpy())

    def restore(self) -> int:
        """Restores the newest good checkpoint, if there is one. Returns the step."""
        restored = self.checkpoints.restore()
        if restored is not None:
            self._saved, memory = restored
            match memory.get("since_report"):
                case [int(steps), list(sums)] if all(isinstance(one, int | float) for one in sums):
                    self._since_report = steps, sums
        return self.current_step

    def _one_eval_step(self, batch: Tensors, number: tf.Tensor) -> dict[str, Tensors]:
        return run_and_sum(self.strategy, self.task.eval_step, batch, number)

    def _sum(self, value: tf.Tensor) -> tf.Tensor:
        on_replicas = self.strategy.run(tf.identity, args=(value,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, on_replicas, axis=None)

    def _mean_over_hosts(self, *numbers: float) -> list[float]:
        """Means of two numbers of every host, always two, since hosts may wait for one another at different calls; the
        numbers themselves where there is one host."""
        if host_number(self.strategy) is None:
            return list(numbers)
        mine = tf.constant([float(number) for number in numbers]) / self.strategy.num_replicas_in_sync
        return self._sum_over_replicas(mine).numpy().tolist()

    # The host's side.

    def train(self) -> int:
        """Trains to `num_train_steps`. Returns 0, or 128 and the signal's number if one stopped it after saving. Raises
        UserError: fewer than one step; a loss or gradient that is not finite; what cannot be written."""
        schedule, start = self.schedule, self.current_step
        self._start = start
        if schedule.num_train_steps < 1:
            raise UserError("there is less than one step to train: raise num_train_steps or num_train_epochs")
        self.model_dir.mkdir(parents=True, exist_ok=True)
        self._folder = self.model_dir.stat()
        self.reporter.resume(start)
        try:
            with self._explaining():
                if start and self._evaluation_is_due(start):
                    self._evaluate_in_training(start)
                if start >= schedule.num_train_steps:
                    if self._saved == start and self.chief:
                        self.checkpoints.tidy(start)
                    say(f"Nothing to train: {self.model_dir} is at step {start:,} of {schedule.num_train_steps:,}.")
                    return 0
                iterator = iter(distribute(self.strategy, self.task.training_data(schedule.position(start))))
                say("tracing and compiling a step")
                with Progress(
                    "step", schedule.num_train_steps, done=start, unit="examples", per=schedule.examples_per_step
                ) as progress:
                    self._train(DeviceLoop(self.task, self.strategy, iterator), progress)
        finally:
            self.checkpoints.writer.settle()
            self.reporter.close()
        if self._signal is None:
            return 0
        name = signal.Signals(self._signal).name
        say(f"{name}: saved {self.model_dir} at step {self.current_step:,}. {GO_ON}.")
        return 128 + self._signal

    def _train(self, loop: DeviceLoop, progress: Progress) -> None:
        with contextlib.ExitStack() as after_compilation:
            try:
                self._run_steps(loop, progress, after_compilation)
            except _Stopped:
                self._save({})
            self._only_saves = True
            self.checkpoints.writer.wait()
            self._mean_over_hosts(0.0, 0.0)  # the others wait for the chief

    def _run_steps(self, loop: DeviceLoop, progress: Progress, after_compilation: contextlib.ExitStack) -> None:
        schedule, step, pace = self.schedule, self.current_step, Pace()
        done, totals = self._resumed_totals(loop.nothing)  # since the last report
        while step < schedule.num_train_steps and not self._stops_early(step):
            until_report = self._steps_until_next_event(step)
            steps, began = min(pace.steps, until_report), time.monotonic()
            totals = loop.run(steps, done, totals)
            self._check_finite(totals)
            self.checkpoints.writer.check()
            if pace.is_first:  # until now nothing was trained, and compilation can take minutes
                after_compilation.enter_context(self._listening())
            if step == 0:
                progress.line(f"initial loss   {float(totals.first['loss']) / self.task.summed_examples:.2f}")
            step, done = step + steps, done + steps
            stop = self._agree(pace, (time.monotonic() - began) / steps)
            if steps == until_report:
                self._report(progress, step, totals, done)
                done, totals = 0, loop.nothing
            elif not stop:
                progress.update(step)
            if stop or step % schedule.save_checkpoints_steps == 0 or step == schedule.num_train_steps:
                sums = [float(one) for one in tf.nest.flatten(totals.sums)]
                with progress.pause():
                    self._save({"since_report": [done, sums]} if done else {})
            if stop:
                return
            if self._evaluation_is_due(step):
                with progress.pause():
                    self._evaluate_in_training(step)

    def _resumed_totals(self, nothing: Totals) -> tuple[int, Totals]:
        """Steps and totals since the last report; those of the checkpoint, if it was saved between two reports."""
        done, values = self._since_report or (0, [])
        like = tf.nest.flatten(nothing.sums)
        if not done or len(values) != len(like):
            return 0, nothing
        tensors = [tf.cast(tf.constant(value, tf.float64), one.dtype) for value, one in zip(values, like, strict=True)]
        return done, nothing._replace(sums=tf.nest.pack_sequence_as(nothing.sums, tensors))

    def _steps_until_next_event(self, step: int) -> int:
        schedule = self.schedule
        events = [schedule.iterations_per_loop, schedule.save_checkpoints_steps, schedule.eval_every_steps]
        ahead = [every - step % every for every in events if every]
        return min([*ahead, schedule.num_train_steps - step])

    def _report(self, progress: Progress, step: int, totals: Totals, steps: int) -> None:
        self._check_folder()
        rate, sums = float(self.task.optimizer.schedule(tf.constant(step - 1))), totals.sums
        means = {name: float(total) / steps / self.task.summed_examples for name, total in sums["losses"].items()}
        means |= {name: float(total) / steps for name, total in sums["watched"].items()}
        self.reporter.steps(progress, step, means, ratios(sums["metrics"]), rate)

    def _check_folder(self) -> None:
        """Raises UserError if the folder was deleted or moved, as a new one would lack the run's configuration."""
        try:
            same = os.path.samestat(self.model_dir.stat(), self._folder)
        except FileNotFoundError:
            same = False
        if not same:
            raise UserError(f"{self.model_dir} was deleted or moved while the run trained there: nothing more is saved")

    def _save(self, memory: dict[str, Any]) -> None:
        is_saved = self._saved == self.current_step
        if not is_saved or self.checkpoints.writer.is_busy:
            self._say_saving()
        if not is_saved:
            self._check_folder()
            if self.chief:
                self.checkpoints.save(self.current_step, memory)
            self._saved = self.current_step

    def _say_saving(self) -> None:
        if self._signal is not None:
            say(f"{signal.Signals(self._signal).name}: saving step {self.current_step:,}")

    def _stops_early(self, step: int) -> bool:
        """Saves and tells whether the last `patience` evaluations, the one at this step among them, were no better."""
        every = self.schedule.eval_every_steps
        if not (self._patience and every and step) or step % every:
            return False
        best = self.checkpoints.best_step if self.chief else 0  # which the chief alone writes
        if not self._mean_over_hosts(bool(best) and (step - best) // every >= self._patience, 0.0)[0]:
            return False
        say(f"early stopping at step {step:,}: no evaluation since step {best:,} was better")
        self._save({})
        return True

    def _evaluation_is_due(self, step: int) -> bool:
        """Tells whether to evaluate at a step; not again where a run goes on that had got to it."""
        every, is_last = self.schedule.eval_every_steps, step == self.schedule.num_train_steps
        if not every or (step % every and not (is_last and self._best_metric is not None)):
            return False
        return step != self._start or not self.reporter.evaluation_file(step).exists()

    def _evaluate_in_training(self, step: int) -> None:
        with self.task.optimizer.averaged():
            self._may_abandon = host_number(self.strategy) is None
            try:
                metrics = self._measured()
            finally:
                self._may_abandon = False
            self.checkpoints.writer.wait()  # what an evaluation says is that of a checkpoint which is there
            if self.chief and self._best_metric is not None:
                self.checkpoints.save_best(step, metrics[self._best_metric])
        self.reporter.evaluation(step, metrics)

    def time_steps(self, warm_up: int = 2, steps: int = 5) -> tuple[float, float]:
        """Trains a few steps from the start of the data, saving nothing. Returns mean loss and seconds per step."""
        with self._explaining():
            loop = DeviceLoop(self.task, self.strategy, iter(distribute(self.strategy, self.task.training_data(0))))
            losses, began = [], 0.0
            for number in track(range(warm_up + steps), "step", warm_up + steps):
                if number == warm_up:
                    began = time.monotonic()
                losses.append(float(loop.run(1, 0, loop.nothing).sums["losses"]["loss"]))
            return sum(losses[warm_up:]) / steps, (time.monotonic() - began) / steps

    # Signals, errors.

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        previous = {}
        for number in _SIGNALS:
            # What is ignored stays so: SIGHUP under nohup means that the run shall survive the terminal.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            previous[number] = signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        del frame
        self._signal = number
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait for anything
        if self._may_abandon:
            raise _Stopped
        if self._only_saves and self.checkpoints.writer.is_busy:
            self._say_saving()

    def _agree(self, pace: Pace, seconds: float) -> bool:
        """Sets the pace by the mean of all hosts' seconds per step. Returns whether any of them was told to stop."""
        stopped, seconds = self._mean_over_hosts(self._signal is not None, seconds)
        if stopped and self._signal is None:
            self._signal = signal.SIGTERM
        pace.took(seconds)
        return self._signal is not None

    def _check_finite(self, totals: Totals) -> None:
        """Stops at the first non-finite loss or gradient, before anything is saved that came after it."""
        first_bad = {name: int(step) for name, step in totals.first_bad.items()}
        step = min(first_bad.values())
        if step == tf.int64.max:
            return
        self.checkpoints.writer.settle()
        if self.chief:
            self.checkpoints.pass_over(step)
        raise UserError(
            f"not finite at step {step + 1:,}: {', '.join(name for name, bad in first_bad.items() if bad == step)}. "
            f"Nothing was saved since. Last good checkpoint: {self.checkpoints.newest()}. To go on from there, run "
            "the command again, without --overwrite, with a lower learning_rate, more num_warmup_steps, or precision "
            "float32."
        )

    @contextlib.contextmanager
    def _explaining(self, evaluating: bool = False) -> Iterator[None]:
        """Errors of TensorFlow's that the user can mend leave as such."""
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            if evaluating:
                raise UserError("out of memory in an evaluation: lower eval_batch_size") from error
            raise UserError(
                f"out of memory with {self.schedule.examples_per_step} sequences a step: lower train_batch_size, or "
                "keep it and raise gradient_accumulation_steps; precision bfloat16 also saves memory"
            ) from error
        except (tf.errors.OpError, UnicodeDecodeError) as error:  # the latter's message may quote a record's bytes
            reason = self.task.explain(error) or self._lost_host(error)
            if reason is None:
                raise
            raise UserError(reason) from error

    def _lost_host(self, error: Exception) -> str | None:
        """Says what to do if the error is how collective operations fail when another host ended."""
        lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        if host_number(self.strategy) is None or not isinstance(error, lost):
            return None
        self.checkpoints.writer.settle()  # what it writes is the last one soon
        return (
            "another host of this job ended or cannot be reached any more; its own output says why. Last checkpoint: "
            f"{self.checkpoints.newest()}. Start the same command, without --overwrite, on all hosts to "
            "go on from there."
        )

    def evaluate(self) -> dict[str, float]:
        """Metrics of the weights as they are, or of their averages where these are kept."""
        with self.task.optimizer.averaged():
            return self._measured()

    def _measured(self) -> dict[str, float]:
        with self._explaining(evaluating=True):
            return self._evaluate()

    def _evaluate_sums(self) -> dict[str, float]:
        """Metrics over the evaluation data, at most `num_eval_steps` batches; masking is the same at every call."""
        totals: dict[str, Tensors] | None = None
        dataset = self.task.evaluation_data().take(self.schedule.num_eval_steps)
        for number, batch in enumerate(track(distribute(self.strategy, dataset), "evaluation batch")):
            result = self._eval_step(batch, tf.constant(number, tf.int64))
            totals = result if totals is None else tf.nest.map_structure(tf.add, totals, result)
        if totals is None:
            raise UserError("there is nothing to evaluate: the held-out records hold no batch")
        return self.task.summarise(totals)


class _Stopped(Exception):
    """Signals that what went on is done again when the run goes on."""


def ratios(metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]) -> dict[str, float]:
    """numerator / denominator of every metric; 0 where nothing was counted."""
    return {
        name: float(numerator) / float(denominator) if float(denominator) else 0.0
        for name, (numerator, denominator) in metrics.items()
    }
