"""Features to padded batches: of similar length, padded to a bucket, in an order that follows from (seed, position).

All features of a run are one table; a batch is a list of its rows and a length. Training goes through
the epochs' permutations one after the other, as the original does: in pools of `_POOL` batches the rows are sorted by
length, cut into batches, and the batches shuffled. Evaluation sees every row once, the longest first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.finetune.tasks.task import Features, Label, Split, Task

_POOL = 50  # batches that are sorted by length together
Batch = dict[str, tf.Tensor]


def bucket_length(length: int, max_length: int) -> int:
    """The length that a batch is padded to: steps of an eighth of the next power of two, of 8 at least."""
    step = max(8, (1 << max(0, length - 1).bit_length()) // 8)
    return min(max_length, -(-length // step) * step)


class TaskFeatures(NamedTuple):
    """One task's features and their labels' types."""

    name: str
    features: Sequence[Features]
    labels: dict[str, Label]


class FeatureTable:
    """The features of one or several tasks.

    Args:
      tasks: in the order of `task_names`; a row's task is its index here.
      fixed_padding: pad every batch to `max_length`, and do not sort by length.
      choices: rows that make one example of a batch, as the candidates of a question do (`Task.choices`).
    """

    def __init__(
        self, tasks: Sequence[TaskFeatures], max_length: int, fixed_padding: bool = False, choices: int = 1
    ) -> None:
        self.max_length, self.fixed_padding, self.choices = max_length, fixed_padding, choices
        self._tasks, self._features = tasks, [(i, feature) for i, task in enumerate(tasks) for feature in task.features]
        self.lengths = np.array([len(feature.input_ids) for _, feature in self._features], np.int32)
        self._example_lengths = self.lengths.reshape(-1, choices).max(1, initial=0)

    def __len__(self) -> int:
        """Rows."""
        return len(self.lengths)

    @property
    def examples(self) -> int:
        """Number of examples, in which a batch is counted."""
        return len(self._example_lengths)

    def training_batches(
        self, batch_size: int, seed: int, position: int = 0, rows: slice | None = None
    ) -> tf.data.Dataset:
        """Endless batches from the `position`-th example on (a multiple of the batch size).

        Args:
          rows: the examples of each global batch for this host; None for all of them.
        """
        rows, start = rows or slice(None), position // batch_size

        def batches() -> Iterator[dict[str, np.ndarray]]:
            for examples in self._training_examples(batch_size, seed, start):
                yield self._batch(examples[rows], self._padded_length(examples))

        return self._dataset(batches, len(range(batch_size)[rows]))

    def evaluation_batches(self, batch_size: int) -> tf.data.Dataset:
        """Every row once; the last batch is filled up with rows of `row` -1."""

        def batches() -> Iterator[dict[str, np.ndarray]]:
            for examples in self._by_length(batch_size):
                full = np.pad(examples, (0, batch_size - len(examples)), constant_values=-1)
                yield self._batch(full, self._padded_length(examples))

        return self._dataset(batches, batch_size)

    def plain_batches(self, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
        """Every row once as arrays, at hand at once: a dataset takes 0.1 s to begin.

        Padded to their longest row; the last one is as short as it comes out.
        """
        for examples in self._by_length(batch_size):
            longest = self.max_length if self.fixed_padding else int(self._example_lengths[examples].max())
            yield self._batch(examples, longest)

    def _by_length(self, batch_size: int) -> Iterator[np.ndarray]:
        order = np.argsort(-self._example_lengths, kind="stable")
        return (order[i : i + batch_size] for i in range(0, len(order), batch_size))

    def _padded_length(self, examples: np.ndarray) -> int:
        if self.fixed_padding:
            return self.max_length
        return bucket_length(int(self._example_lengths[examples].max()), self.max_length)

    def _training_examples(self, batch_size: int, seed: int, start: int) -> Iterator[np.ndarray]:
        """The examples of the batches from number `start` on."""
        size = self.examples
        pool_rows = batch_size * (1 if self.fixed_padding else _POOL)
        pool, skipped = divmod(start * batch_size, pool_rows)
        permutation, epoch_of = np.zeros(0, np.int64), -1
        while True:
            rows = np.empty(pool_rows, np.int64)
            filled, at = 0, pool * pool_rows
            while filled < pool_rows:
                epoch, offset = divmod(at + filled, size)
                if epoch != epoch_of:
                    permutation, epoch_of = np.random.default_rng([seed, 0, epoch]).permutation(size), epoch
                part = permutation[offset : offset + pool_rows - filled]
                rows[filled : filled + len(part)] = part
                filled += len(part)
            if not self.fixed_padding:
                random = np.random.default_rng([seed, 1, pool])
                rows = rows[np.lexsort((random.random(pool_rows), self._example_lengths[rows]))]
                rows = random.permutation(rows.reshape(-1, batch_size)).reshape(-1)
            for first in range(skipped, pool_rows, batch_size):
                yield rows[first : first + batch_size]
            pool, skipped = pool + 1, 0

    def _dataset(self, batches: Callable[[], Iterator[dict[str, np.ndarray]]], batch_size: int) -> tf.data.Dataset:
        rows, width = batch_size * self.choices, self.max_length if self.fixed_padding else None
        shapes = {"row": tf.TensorSpec([rows], tf.int64), "task_id": tf.TensorSpec([rows], tf.int32)}
        shapes |= {name: tf.TensorSpec([rows, width], tf.int32) for name in ("input_ids", "segment_ids", "input_mask")}
        for task in self._tasks:
            for name, label in task.labels.items():
                inner = [width] if label.per_token else []
                shapes[f"{task.name}/{name}"] = tf.TensorSpec([rows, *inner], label.dtype)
        return tf.data.Dataset.from_generator(batches, output_signature=shapes).prefetch(4)

    def _batch(self, examples: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """int32 [B, L] input_ids, input_mask, segment_ids and per-token labels; [B] the others and int64 `row`.

        Rows of number -1 are copies of the batch's first row under the task -1, which no head's loss counts.
        """
        rows = (examples[:, np.newaxis] * self.choices + np.arange(self.choices)).reshape(-1)
        rows[np.repeat(examples < 0, self.choices)] = -1
        source = np.where(rows < 0, rows[0], rows)
        chosen = [self._features[row] for row in source]
        batch: dict[str, np.ndarray] = {
            "row": rows,
            "task_id": np.where(rows < 0, -1, [number for number, _ in chosen]).astype(np.int32),
            "input_mask": (np.arange(length) < self.lengths[source, np.newaxis]).astype(np.int32),
            "input_ids": _padded([feature.input_ids for _, feature in chosen], length, "int32"),
            "segment_ids": _padded([feature.segment_ids for _, feature in chosen], length, "int32"),
        }
        for number, task in enumerate(self._tasks):
            for name, label in task.labels.items():
                none: Any = [] if label.per_token else 0
                values = [feature.labels[name] if of == number else none for of, feature in chosen]
                padded = _padded(values, length, label.dtype) if label.per_token else np.array(values, label.dtype)
                batch[f"{task.name}/{name}"] = padded
        return batch


def prediction_table(task: Task, split: Split) -> FeatureTable:
    """The features of a split that is predicted."""
    part = TaskFeatures(task.name, split.features, task.labels)
    return FeatureTable([part], task.config.max_seq_length, task.config.fixed_padding, task.predicted_choices)


def _padded(rows: Sequence[Sequence[float] | np.ndarray], length: int, dtype: str) -> np.ndarray:
    """[rows, length], zeros behind each row."""
    values = np.zeros([len(rows), length], dtype)
    for number, row in enumerate(rows):
        values[number, : len(row)] = row[:length]
    return values
