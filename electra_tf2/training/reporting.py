"""Reports of a run: train_metrics.jsonl, TensorBoard events, eval/step-N.json, printed lines and progress.

The loop hands over plain numbers. Only the chief writes files; a file that cannot be written is a UserError.
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
      shown: names of the losses and metrics to print; if empty, all losses in training, everything in evaluations.

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
        self,
        progress: Progress,
        step: int,
        losses: Mapping[str, float],
        others: Mapping[str, float],
        rate: float,
    ) -> None:
        """Reports means since the last report.

        Args:
          losses: means of the losses and of the gradient's norm.
          others: means of the other metrics.
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
        # Without a prefix, because they are metrics neither of training nor of an evaluation.
        common = {"learning_rate": rate, "examples_per_second": speed}
        metrics = {f"train_{name}": value for name, value in others.items()}
        append_json_line(self._metrics_file, {"step": step, **losses, **metrics, **common})
        events = {f"train/{name}": value for name, value in {**losses, **others}.items()}
        self._write_events(step, events | common)

    def evaluation_file(self, step: int) -> Path:
        return self.folder / "eval" / f"step-{step}.json"

    def evaluation(self, step: int, metrics: Mapping[str, float], during_training: bool = True) -> None:
        """Reports an evaluation. During training its file is written last: that marks it as completely reported."""
        shown = {name: metrics[name] for name in self._shown if name in metrics} or metrics
        listed = ", ".join(f"{name} {value:.4g}".replace(" ", "\xa0") for name, value in shown.items())
        text = textwrap.fill(f"evaluation at step {step:,}: {listed}", 80, subsequent_indent="  ")
        # No-break spaces have kept each name and its value on one line.
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
        """Rewrites the files of events without the events of later steps."""
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
