"""Features to padded batches: of similar length, padded to a bucket, in an order that follows from (seed, position).

All features of a run are one table of ragged tensors; a batch is a list of its rows and a length. Training goes through
the epochs' permutations one after the other, as the original does: in pools of `_POOL` batches the rows are sorted by
length, cut into batches, and the batches shuffled. Evaluation sees every row once, the longest first.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.finetune.task import Features, Label

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
        features = [feature for task in tasks for feature in task.features]
        self.lengths = np.array([len(feature.input_ids) for feature in features], np.int32)
        self._example_lengths = self.lengths.reshape(-1, choices).max(1, initial=0)
        task_ids = np.concatenate([np.full(len(task.features), i) for i, task in enumerate(tasks)])
        with tf.device("CPU:0"):
            self._ragged = {
                "input_ids": _ragged([feature.input_ids for feature in features], "int32"),
                "segment_ids": _ragged([feature.segment_ids for feature in features], "int32"),
            }
            self._scalars = {"task_id": tf.constant(task_ids, tf.int32)}
            for i, task in enumerate(tasks):
                for name, label in task.labels.items():
                    values = [
                        feature.labels[name]
                        if task_ids[row] == i
                        else ([] if label.per_token else np.zeros(label.size or ()))
                        for row, feature in enumerate(features)
                    ]
                    key = f"{task.name}/{name}"
                    if label.per_token:
                        self._ragged[key] = _ragged(values, label.dtype)
                    else:
                        self._scalars[key] = tf.constant(np.array(values, label.dtype))

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
        start = position // batch_size

        def chosen() -> Iterator[tuple[np.ndarray, int]]:
            for examples in self._training_examples(batch_size, seed, start):
                yield examples, self._padded_length(examples)

        return self._dataset(chosen, batch_size, rows)

    def evaluation_batches(self, batch_size: int) -> tf.data.Dataset:
        """Every row once; the last batch is filled up with rows of `row` -1."""
        order = np.argsort(-self._example_lengths, kind="stable")

        def chosen() -> Iterator[tuple[np.ndarray, int]]:
            for i in range(0, len(order), batch_size):
                examples = order[i : i + batch_size]
                length = self._padded_length(examples)
                yield np.pad(examples, (0, batch_size - len(examples)), constant_values=-1), length

        return self._dataset(chosen, batch_size, None)

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

    def _dataset(self, chosen: object, batch_size: int, rows: slice | None) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_generator(
            chosen, output_signature=(tf.TensorSpec([batch_size], tf.int64), tf.TensorSpec([], tf.int32))
        )
        return dataset.map(
            lambda examples, length: self._batch(self._rows(examples if rows is None else examples[rows]), length)
        ).prefetch(4)

    def _rows(self, examples: tf.Tensor) -> tf.Tensor:
        """int64 [B * choices]: the rows of examples, -1 for those of number -1."""
        rows = examples[:, tf.newaxis] * self.choices + tf.range(self.choices, dtype=tf.int64)
        return tf.reshape(tf.where(examples[:, tf.newaxis] < 0, tf.cast(-1, tf.int64), rows), [-1])

    def _batch(self, rows: tf.Tensor, length: tf.Tensor) -> Batch:
        """int32 [B, L] input_ids, input_mask, segment_ids and per-token labels; [B] the others and `row`.

        Rows of number -1 are copies of the batch's first row under the task -1, which no head's loss counts.
        """
        source = tf.where(rows < 0, rows[0], rows)
        batch = {"row": rows}
        for name, ragged in self._ragged.items():
            dense = tf.gather(ragged, source).to_tensor()
            dense = dense[:, :length]
            dense = tf.pad(dense, [[0, 0], [0, length - tf.shape(dense)[1]]])
            batch[name] = tf.ensure_shape(dense, [rows.shape[0], self.max_length if self.fixed_padding else None])
        for name, values in self._scalars.items():
            batch[name] = tf.gather(values, source)
        batch["task_id"] = tf.where(rows < 0, -1, batch["task_id"])
        lengths = tf.gather(tf.constant(self.lengths), source)
        batch["input_mask"] = tf.cast(tf.range(length)[tf.newaxis] < lengths[:, tf.newaxis], tf.int32)
        batch["input_mask"] = tf.ensure_shape(batch["input_mask"], batch["input_ids"].shape)
        return batch


def plain_batches(
    task: TaskFeatures, max_length: int, batch_size: int, fixed_padding: bool = False, choices: int = 1
) -> Iterator[dict[str, np.ndarray]]:
    """The batches of `FeatureTable.evaluation_batches` as arrays, at hand at once: a dataset takes 0.1 s to begin.

    Padded to their longest row; the last one is as short as it comes out.
    """
    lengths = np.array([len(feature.input_ids) for feature in task.features], np.int32)
    order = np.argsort(-lengths.reshape(-1, choices).max(1, initial=0), kind="stable")
    for start in range(0, len(order), batch_size):
        rows = (order[start : start + batch_size, np.newaxis] * choices + np.arange(choices)).reshape(-1)
        length = max_length if fixed_padding else int(lengths[rows].max())
        chosen = [task.features[int(row)] for row in rows]
        batch = {
            "row": rows,
            "task_id": np.zeros(len(rows), np.int32),
            "input_mask": (np.arange(length) < lengths[rows, np.newaxis]).astype(np.int32),
            "input_ids": _padded([feature.input_ids for feature in chosen], length, "int32"),
            "segment_ids": _padded([feature.segment_ids for feature in chosen], length, "int32"),
        }
        for name, label in task.labels.items():
            values = [feature.labels[name] for feature in chosen]
            padded = _padded(values, length, label.dtype) if label.per_token else np.array(values, label.dtype)
            batch[f"{task.name}/{name}"] = padded
        yield batch


def _padded(rows: Sequence[Sequence[float] | np.ndarray], length: int, dtype: str) -> np.ndarray:
    """[rows, length], zeros behind each row."""
    values = np.zeros([len(rows), length], dtype)
    for number, row in enumerate(rows):
        values[number, : len(row)] = row[:length]
    return values


def _ragged(rows: Sequence[Sequence[float] | np.ndarray], dtype: str) -> tf.RaggedTensor:
    lengths = [len(row) for row in rows]
    values = np.concatenate([np.asarray(row, dtype) for row in rows]) if rows else np.zeros(0, dtype)
    return tf.RaggedTensor.from_row_lengths(values, lengths)
