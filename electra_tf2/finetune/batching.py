"""Makes padded batches of features, in an order that is a function of (seed, position).

All features of a run are the rows of one table. A batch is a list of row indices and a length. Each epoch is a
permutation of all rows. To save padding, the rows of several batches (a pool) are sorted by length, cut into batches of
similar length, and these are shuffled. Evaluation takes every row once, the longest first.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.finetune.tasks.task import Features, Label, Split, Task

# Batches that are sorted by length together. An epoch has four pools at least: sorted as a whole, it would put the same
# rows of like length into one batch each time.
_LARGEST_POOL = 50
_POOLS_OF_AN_EPOCH = 4
Batch = dict[str, tf.Tensor]


def bucket_length(length: int, max_length: int) -> int:
    """The length to which a batch is padded: a multiple of an eighth of the next power of two, at least of 8."""
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
      tasks: in the order of `task_names`. A row's task is an index in this list.
      fixed_padding: whether every batch is padded to `max_length`, and none sorted by length.
      choices: number of rows of an example (`Split.choices`).
    """

    def __init__(
        self, tasks: Sequence[TaskFeatures], max_length: int, fixed_padding: bool = False, choices: int = 1
    ) -> None:
        self.max_length = max_length
        self.fixed_padding = fixed_padding
        self.choices = choices
        self._tasks = tasks
        self._features: list[Features] = []
        task_indices = []
        for index, task in enumerate(tasks):
            self._features += task.features
            task_indices += [index] * len(task.features)
        self._task_indices = np.array(task_indices, np.int32)
        self.lengths = np.array([len(feature.input_ids) for feature in self._features], np.int32)
        # An example is as long as its longest row.
        self._example_lengths = self.lengths.reshape(-1, choices).max(1, initial=0)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lengths)

    @property
    def examples(self) -> int:
        """Number of examples. A batch size counts these, not rows."""
        return len(self._example_lengths)

    def training_batches(
        self, batch_size: int, seed: int, position: int = 0, rows: slice | None = None
    ) -> tf.data.Dataset:
        """Makes batches without an end.

        Args:
          position: number of examples to skip, a multiple of the batch size.
          rows: part of each global batch for this host; None: all of it.
        """
        if rows is None:
            rows = slice(None)
        batches_before = position // batch_size

        def batches() -> Iterator[dict[str, np.ndarray]]:
            # From the first epoch on, since each begins with the remainder of the one before (0.1 s for a million).
            every_batch = self._training_examples(batch_size, seed)
            for examples in itertools.islice(every_batch, batches_before, None):
                # All hosts pad alike, to the longest example of the global batch.
                yield self._batch(examples[rows], self._padded_length(examples))

        rows_of_this_host = len(range(batch_size)[rows])
        return self._dataset(batches, rows_of_this_host)

    def evaluation_batches(self, batch_size: int) -> tf.data.Dataset:
        """Makes batches of every row once. The last one is filled up with copies whose `row` is -1."""

        def batches() -> Iterator[dict[str, np.ndarray]]:
            for examples in self._by_length(batch_size):
                filled_up = np.pad(examples, (0, batch_size - len(examples)), constant_values=-1)
                yield self._batch(filled_up, self._padded_length(examples))

        return self._dataset(batches, batch_size)

    def plain_batches(self, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
        """Makes batches of every row once as arrays, padded to the longest row. The last one may have fewer rows.

        Meant for a few rows, since a dataset takes 0.1 s to start.
        """
        for examples in self._by_length(batch_size):
            longest = self.max_length if self.fixed_padding else int(self._example_lengths[examples].max())
            yield self._batch(examples, longest)

    def _by_length(self, batch_size: int) -> Iterator[np.ndarray]:
        """Yields the indices of every batch's examples, the longest first."""
        order = np.argsort(-self._example_lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            yield order[start : start + batch_size]

    def _padded_length(self, examples: np.ndarray) -> int:
        if self.fixed_padding:
            return self.max_length
        return bucket_length(int(self._example_lengths[examples].max()), self.max_length)

    def _training_examples(self, batch_size: int, seed: int) -> Iterator[np.ndarray]:
        """Yields the indices of every batch's examples, int64 [batch_size], without an end.

        Each epoch sees each example once. The batch that two epochs share has no example twice if there are enough.
        """
        remainder = np.zeros(0, np.int64)  # the end of the epoch before, too short for a batch
        for epoch in itertools.count():
            random = np.random.default_rng([seed, epoch])
            order = random.permutation(self.examples)
            if len(remainder) > 0:
                others = order[~np.isin(order, remainder)]
                filling = others[: batch_size - len(remainder)]
                yet_to_come = order[~np.isin(order, filling)]
                order = np.concatenate([remainder, filling, yet_to_come])
            in_whole_batches = len(order) // batch_size * batch_size
            batches = order[:in_whole_batches].reshape(-1, batch_size)
            if len(order) > self.examples:
                # The batch that this epoch shares with the one before takes no part in a pool.
                yield from batches[:1]
                batches = batches[1:]
            yield from self._in_pools(batches, random)
            remainder = order[in_whole_batches:]

    def _in_pools(self, batches: np.ndarray, random: np.random.Generator) -> Iterator[np.ndarray]:
        """Regroups the examples of an epoch's batches within pools, so that a batch has examples of similar length."""
        pool_size = 1
        if not self.fixed_padding:
            pool_size = min(_LARGEST_POOL, max(1, len(batches) // _POOLS_OF_AN_EPOCH))
        for first in range(0, len(batches), pool_size):
            pool = batches[first : first + pool_size]
            # A stable sort keeps rows of one length in their order, which the permutation of the epoch made random.
            examples = pool.reshape(-1)
            by_length = np.argsort(self._example_lengths[examples], kind="stable")
            pool = examples[by_length].reshape(pool.shape)
            # Shuffled again, or each pool would go from its shortest rows to its longest.
            yield from random.permutation(pool)

    def _dataset(self, batches: Callable[[], Iterator[dict[str, np.ndarray]]], batch_size: int) -> tf.data.Dataset:
        rows = batch_size * self.choices
        length = self.max_length if self.fixed_padding else None
        shapes = {
            "row": tf.TensorSpec([rows], tf.int64),
            "task_id": tf.TensorSpec([rows], tf.int32),
            "input_ids": tf.TensorSpec([rows, length], tf.int32),
            "segment_ids": tf.TensorSpec([rows, length], tf.int32),
            "input_mask": tf.TensorSpec([rows, length], tf.int32),
        }
        for task in self._tasks:
            for name, label in task.labels.items():
                shape = [rows, length] if label.per_token else [rows]
                shapes[f"{task.name}/{name}"] = tf.TensorSpec(shape, label.dtype)
        return tf.data.Dataset.from_generator(batches, output_signature=shapes).prefetch(4)

    def _batch(self, examples: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Makes a padded batch.

        Args:
          examples: indices of the examples. -1 fills a batch up with copies of its first row under the task -1, which
            no head's loss counts.

        Returns:
          int32 [B, L] input_ids, input_mask, segment_ids and labels per token; [B] the other labels and int64 `row`.
        """
        rows = (examples[:, np.newaxis] * self.choices + np.arange(self.choices)).reshape(-1)
        is_filling = np.repeat(examples < 0, self.choices)
        rows[is_filling] = -1
        source = np.where(is_filling, rows[0], rows)
        features = [self._features[row] for row in source]
        task_indices = self._task_indices[source]
        batch: dict[str, np.ndarray] = {
            "row": rows,
            "task_id": np.where(is_filling, -1, task_indices).astype(np.int32),
            "input_mask": (np.arange(length) < self.lengths[source, np.newaxis]).astype(np.int32),
            "input_ids": _padded([feature.input_ids for feature in features], length, "int32"),
            "segment_ids": _padded([feature.segment_ids for feature in features], length, "int32"),
        }
        for index, task in enumerate(self._tasks):
            for name, label in task.labels.items():
                # Rows of other tasks have zeros there.
                values: list[Any] = [[] if label.per_token else 0] * len(features)
                for place in np.flatnonzero(task_indices == index):
                    values[place] = features[place].labels[name]
                if label.per_token:
                    batch[f"{task.name}/{name}"] = _padded(values, length, label.dtype)
                else:
                    batch[f"{task.name}/{name}"] = np.array(values, label.dtype)
        return batch


def prediction_table(task: Task, split: Split) -> FeatureTable:
    """Makes the table of a split to be predicted."""
    part = TaskFeatures(task.name, split.features, task.labels)
    return FeatureTable([part], task.config.max_seq_length, task.config.fixed_padding, split.choices)


def _padded(rows: Sequence[Sequence[float] | np.ndarray], length: int, dtype: str) -> np.ndarray:
    """Pads rows with zeros, [rows, length]."""
    values = np.zeros([len(rows), length], dtype)
    for index, row in enumerate(rows):
        values[index, : len(row)] = row[:length]
    return values
