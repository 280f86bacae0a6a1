"""Time that the training loop adds to a step: the loop around a step that does nothing but sleep, or nothing at all.

  python -m benchmarks.loop
  python -m benchmarks.loop --step-ms 5 --steps 2000

The step is a task of the real loop (training.loop.Trainer, training.device_loop) on the real input pipeline, batches of
128 sequences of 128 tokens from records; in place of a network it sums its batch, and waits as long as an accelerator
would compute. Printed are milliseconds a step, of which the step's own, and the share that loop and input add; and the
processor's time of a step in all threads, which other work on the machine disturbs little. The reports, the metrics'
way to the host and the checks for non-finite losses are in it, as in training.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import parser_of, seconds, write_records
from electra_tf2.util.environment import quiet_tensorflow

BATCH = 128


def make_task(step_seconds: float, records: Any) -> Any:
    """A task whose step waits."""
    import tensorflow as tf

    from electra_tf2.pretrain import pretrain_data
    from electra_tf2.training.optimization import AdamW, Schedule
    from electra_tf2.training.task import TrainingTask

    def wait() -> float:
        time.sleep(step_seconds)
        return 0.0

    class Waiting(TrainingTask):
        """Sums its batch, waits, and counts its steps."""

        def __init__(self) -> None:
            super().__init__(tf.distribute.get_strategy(), False, 0, "float32")
            self.model = tf.Module()
            self.model.weight = tf.Variable(1.0)
            schedule = Schedule(peak=1e-3, num_train_steps=10**6, num_warmup_steps=0)
            self.optimizer = AdamW([self.model.weight], schedule, lambda variable: False)

        def train_step(self, batch: Any, step: tf.Tensor) -> dict[str, Any]:
            total = tf.cast(tf.reduce_sum(batch["input_ids"]), tf.float32)
            if step_seconds:
                total += tf.ensure_shape(tf.py_function(wait, [], tf.float32), [])
            self.optimizer.step.assign_add(1)
            return {"losses": {"loss": total}, "watched": {"gradient_norm": total}, "metrics": {"m": (total, 1.0)}}

        def training_data(self, position: int) -> tf.data.Dataset:
            return pretrain_data.training_batches(records, BATCH, 1, position, None)

    return Waiting()


def seconds_per_step(step_seconds: float, steps: int, folder: Path, records: Any) -> tuple[float, float]:
    """Measures a whole training run's steps but the first report's, which traces: time, and the processor's time."""
    import tensorflow as tf

    from electra_tf2.training.loop import Schedule, Trainer

    schedule = Schedule(steps, max(1, steps // 10), steps, 1, 0, 0, BATCH)
    trainer = Trainer(make_task(step_seconds, records), tf.distribute.OneDeviceStrategy("CPU:0"), schedule, str(folder))
    times: list[tuple[int, float, float]] = []
    report = trainer._report

    def timed(*given: Any) -> None:
        times.append((given[1], time.monotonic(), time.process_time()))
        report(*given)

    trainer._report = timed  # type: ignore[assignment, method-assign]
    trainer.train()
    (first, began, used), (last, ended, used_then) = times[0], times[-1]
    return (ended - began) / (last - first), (used_then - used) / (last - first)


def main() -> None:
    given = parser_of(__doc__, step_ms=5.0, steps=1000).parse_args()
    quiet_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        records = write_records(Path(folder, "records"), 128, 20_000, 4)
        for wait in (0.0, given.step_ms / 1e3):
            found, used = seconds_per_step(wait, given.steps, Path(folder, f"run{wait}"), records)
            own = sum(seconds(lambda: time.sleep(given.step_ms / 1e3)) for _ in range(200)) / 200 if wait else 0.0
            more = f", {100 * (found / own - 1):.1f} % more" if own else ""
            ms = f"a step of {1e3 * own:.2f} ms: {1e3 * found:.2f} ms in the loop{more}"
            print(f"{ms}; {1e3 * used:.2f} ms of processors")


if __name__ == "__main__":
    main()
