"""Reports of a run: train_metrics.jsonl, TensorBoard events, eval/step-N.json, lines and the progress of its steps.

The loop calls this with plain numbers. Only the chief writes files; a file that cannot be written is a UserError.
"""

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from electra_tf2.files.writing import append_json_line, keep_steps, replacing, write_json
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress


class Reporter:
    """Reports on one run.

    Args:
      shown: names of the losses and metrics that are printed; if empty, all losses of training, all of an evaluation.

    Attributes:
      last: the losses of the last report; empty before the first.
    """

    def __init__(self, folder: Path, chief: bool, shown: Sequence[str] = ()) -> None:
        self.folder = folder
        self._chief = chief
        self._shown = tuple(shown)
        self.last: dict[str, float] = {}
        self._writer: Any = None
        self._metrics_file = folder / "train_metrics.jsonl"

    def resume(self, step: int) -> None:
        """Drops lines and events of later steps, which a resumed run logs again."""
        if self._chief:
            keep_steps(self._metrics_file, step)
            with self._writing_events():
                self._drop_later_events(step)

    def steps(
        self, progress: Progress, step: int, losses: Mapping[str, float], others: Mapping[str, float], rate: float
    ) -> None:
        """Reports means since the last report.

        Args:
          losses: of losses and the gradient's norm.
          others: of the other metrics.
          rate: learning rate of the last step.
        """
        self.last = dict(losses)
        values = {**losses, **others, "learning_rate": rate}
        shown = [name for name in self._shown if name in values]
        if not shown:
            shown = [name for name in losses if "loss" in name]
        speed = progress.update(step, {name: values[name] for name in shown})
        if not self._chief:
            return
        # Without a prefix: the schedule's and the clock's values belong neither to training nor to an evaluation.
        common = {"learning_rate": rate, "examples_per_second": speed}
        metrics = {f"train_{name}": value for name, value in others.items()}
        append_json_line(self._metrics_file, {"step": step, **losses, **metrics, **common})
        events = {f"train/{name}": value for name, value in {**losses, **others}.items()}
        self._write_events(step, events | common)

    def evaluation_file(self, step: int) -> Path:
        return self.folder / "eval" / f"step-{step}.json"

    def evaluation(self, step: int, metrics: Mapping[str, float], during_training: bool = True) -> None:
        """Reports an evaluation. One during training gets its file last, which marks it as completely reported."""
        shown = {name: metrics[name] for name in self._shown if name in metrics} or metrics
        listed = ", ".join(f"{name} {value:.4g}".replace(" ", "\xa0") for name, value in shown.items())
        text = textwrap.fill(f"evaluation at step {step:,}: {listed}", 80, subsequent_indent="  ")
        # The no-break spaces kept each name and its value on one line.
        print(text.replace("\xa0", " "), flush=True)
        if self._chief:
            self._write_events(step, {f"eval/{name}": value for name, value in metrics.items()})
            if during_training:
                write_json(self.evaluation_file(step), metrics)

    def close(self) -> None:
        if self._writer is not None:
            with self._writing_events():
                self._writer.close()
            self._writer = None

    def _write_events(self, step: int, values: Mapping[str, float]) -> None:
        with self._writing_events():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self.folder / "events"))
            with self._writer.as_default():
                for name, value in values.items():
                    tf.summary.scalar(name, value, step=step)

    def _drop_later_events(self, step: int) -> None:
        """Writes the files of events anew without those of later steps."""
        for path in sorted((self.folder / "events").glob("*")):
            kept = []
            dropped = False
            try:
                for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                    if tf.compat.v1.Event.FromString(record).step > step:
                        dropped = True
                    else:
                        kept.append(record)
            except tf.errors.DataLossError:
                # A kill cut the file within its last record.
                dropped = True
            if dropped:
                with replacing(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
                    for record in kept:
                        writer.write(record)

    @contextlib.contextmanager
    def _writing_events(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            raise UserError(f"cannot write {self.folder / 'events'}: {error.message}") from None
