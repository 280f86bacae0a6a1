"""Batches of pre-training records in an order that is a function of (seed, position) alone.

An epoch visits the files (shards) in a random order. A few successive shards are a window: they are loaded together and
their records shuffled. The position in the data is one number, how many records were read, and a run resumes anywhere
by reading at most one window. No record is dropped at the end of an epoch.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.record_metadata import Shard, check_metadata, read_metadata, record_files
from electra_tf2.corpus.records import RecordFormat, count_records, read_batches
from electra_tf2.pretrain.masking import Batch
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track

# A window is at most this large, unless a single shard holds more records.
WINDOW_RECORDS = 1 << 17
WINDOW_SHARDS = 16


class Records(NamedTuple):
    """Files of records.

    counts: how many records each file holds.
    unigram_entropy: of the tokens that can be masked, in nats; None if metadata.json lacks it.
    listed: file -> its entry in metadata.json, with which the content is compared when the file is read.
    trained_on: of records to evaluate on, whether they are the training's, for want of others.
    """

    files: list[str]
    counts: list[int]
    format: RecordFormat
    unigram_entropy: float | None = None
    listed: Mapping[str, Shard] = {}
    trained_on: bool = False

    @property
    def total(self) -> int:
        return sum(self.counts)

    def batches(self) -> Iterator[dict[str, np.ndarray]]:
        """Reads all records in their order, int32 [records, length] for each field. Raises UserError."""
        for file, count in zip(self.files, self.counts, strict=True):
            if count:
                yield from read_batches(file, self.format)

    def checked(self, files: list[str]) -> Iterator[str]:
        """Yields files, each after a check that its content is what was built. Raises UserError."""
        for file in files:
            if file in self.listed:
                self.listed[file].check_content(file)
            yield file


def has_records(pattern: str) -> bool:
    """True if files match a pattern, or metadata.json of their folder lists some that do."""
    metadata = read_metadata(os.path.dirname(pattern) or ".")
    return bool((metadata and metadata.listed(pattern)) or record_files(pattern))


def find_records(pattern: str, config: PretrainingConfig, flag: str) -> Records:
    """Finds the records of a pattern and checks them against the configuration.

    Args:
      flag: hparam that holds the pattern, for messages.

    Raises:
      UserError: no file matches; a file is truncated or differs from metadata.json; the records have another vocabulary
        or length.
    """
    files = record_files(pattern)
    if not has_records(pattern):
        _refuse_pattern(pattern, flag)
    listed: dict[str, Shard] = {}
    folders = sorted({os.path.dirname(file) for file in files} or {os.path.dirname(pattern)})
    entropy = None
    for folder in folders:
        metadata = read_metadata(folder or ".")
        if metadata is None:
            continue
        check_metadata(
            metadata, config.vocab_file, config.max_seq_length, config.do_lower_case, config.do_strip_accents
        )
        for name in metadata.listed(pattern):
            metadata.check_shard(name)
            listed[os.path.join(folder, name)] = metadata.shards[name]
        if len(folders) == 1:
            # Of several folders the entropies would have to be weighted; nobody has asked for that.
            entropy = metadata.unigram_entropy
    counts = []
    for file in files:
        counts.append(listed[file].examples if file in listed else count_records(file))
    record_format = RecordFormat(config.max_seq_length, config.vocab_size)
    records = Records(files, counts, record_format, entropy, listed)
    if not records.total:
        raise UserError(f"{flag}: the {len(files)} files of {pattern!r} hold no record; was the corpus empty?")
    # Read a first record, so that files of another kind are refused now.
    next(records.batches())
    return records


def _refuse_pattern(pattern: str, flag: str) -> NoReturn:
    folder = os.path.dirname(pattern) or "."
    content = f"{folder} does not exist"
    if os.path.isdir(folder):
        names = sorted(os.listdir(folder))[:8]
        content = f"{folder} holds {', '.join(names) or 'nothing'}"
    raise UserError(f"{flag}: no file matches {pattern!r} ({content}). Build some by electra build-data.")


def find_problem(error: Exception, *records: Records | None) -> str | None:
    """Reads all records to find the damaged one behind an error of TensorFlow. Describes it; None if there is none."""
    if not isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError)):
        return None
    files = []
    try:
        for source in records:
            if source is not None:
                files += [(file, source.format) for file in source.checked(source.files)]
        for file, record_format in track(files, "looking for the damaged record in file", len(files)):
            for _ in read_batches(file, record_format):
                pass
    except UserError as problem:
        return str(problem)
    return None


def _windows(records: Records, seed: int, epoch: int) -> list[list[int]]:
    """Cuts the shards of an epoch, in the order in which they are visited, into windows of shard indices."""
    order = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(len(records.files))
    windows: list[list[int]] = [[]]
    size = 0
    for shard in order.tolist():
        count = records.counts[shard]
        if windows[-1] and (len(windows[-1]) == WINDOW_SHARDS or size + count > WINDOW_RECORDS):
            windows.append([])
            size = 0
        windows[-1].append(shard)
        size += count
    return windows


def _schedule(records: Records, seed: int, position: int) -> Iterator[tuple[list[str], tuple[int, int], int]]:
    """Yields every window from a position on, for ever, as (files, seed of the shuffle, records to skip)."""
    epoch, skip = divmod(position, records.total)
    while True:
        epoch_seed = (seed * 1_000_003 + epoch) % 2**63  # fits into an int64
        for window_index, window in enumerate(_windows(records, seed, epoch)):
            size = sum(records.counts[shard] for shard in window)
            if skip >= size:
                # The whole window lies before the position.
                skip -= size
                continue
            files = list(records.checked([records.files[shard] for shard in window]))
            yield files, (epoch_seed, window_index), skip
            skip = 0
        epoch += 1


def training_batches(
    records: Records,
    batch_size: int,
    seed: int,
    position: int,
    rows: slice | None = None,
) -> tf.data.Dataset:
    """Makes an endless dataset of shuffled batches.

    Args:
      batch_size: rows of the global batch.
      position: how many records were read before: `step * batch_size`.
      rows: rows of the global batch that this host reads; None: all.

    Returns:
      Batches of int32 [rows, L] for each field, of static shapes.
    """

    def load(files: tf.Tensor, seed: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        everything = tf.data.TFRecordDataset(files, num_parallel_reads=None).batch(1 << 40)
        serialized = everything.get_single_element()  # string [records of the window]
        return tf.random.experimental.stateless_shuffle(serialized, seed)[skip:]

    dataset = tf.data.Dataset.from_generator(
        lambda: _schedule(records, seed, position),
        output_signature=(tf.TensorSpec([None], tf.string), tf.TensorSpec([2], tf.int64), tf.TensorSpec([], tf.int64)),
    )
    dataset = dataset.map(load, num_parallel_calls=1, deterministic=True).prefetch(1)
    dataset = dataset.rebatch(batch_size, drop_remainder=True)
    if rows is not None:
        dataset = dataset.map(lambda serialized: serialized[rows])
    dataset = dataset.map(records.format.parse, num_parallel_calls=2)
    return dataset.prefetch(4)


def evaluation_batches(records: Records, batch_size: int, rows: slice | None = None) -> tf.data.Dataset:
    """Makes a dataset of every record once, in order. The last batch is filled up with rows whose input_mask is 0."""
    files = tf.data.Dataset.from_generator(
        lambda: records.checked(records.files), output_signature=tf.TensorSpec([], tf.string)
    )
    dataset = tf.data.TFRecordDataset(files).batch(batch_size)
    dataset = dataset.map(records.format.parse)

    def fill(batch: Batch) -> Batch:
        missing = batch_size - tf.shape(batch["input_ids"])[0]
        filled = {}
        for name, value in batch.items():
            padded = tf.pad(value, [[0, missing], [0, 0]])
            filled[name] = tf.ensure_shape(padded, [batch_size, value.shape[1]])
            if rows is not None:
                filled[name] = filled[name][rows]
        return filled

    return dataset.map(fill).prefetch(2)


def dataset_summary(records: Records) -> str:
    """Describes records: "12,345 records in 8 files of FOLDER"."""
    files = len(records.files)
    return f"{records.total:,} records in {files} file{'s' * (files > 1)} of {Path(records.files[0]).parent}"
