"""The pre-training record: what it holds, how it is written, and how it is read and checked.

The builder encodes its examples here and training parses them here, so the schema stands in one place. A record is a
tf.train.Example with three int64 lists of full length, as the original's builder writes it (FIELDS; zeros are padding):

  input_ids     [CLS] first segment [SEP], or [CLS] first segment [SEP] second segment [SEP]
  input_mask    1 at tokens, 0 at padding
  segment_ids   1 at the second segment and its [SEP], else 0

Every record is checked as it is parsed, whoever reads it: a wrong number that reached the model would be a lookup
beyond the embeddings, which processors refuse, GPUs answer with zeros and XLA with anything. TensorFlow is imported by
what reads, not by what writes.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.packing import Examples
from electra_tf2.files.content import opened_raw, refuse_substitute
from electra_tf2.util.environment import untuned
from electra_tf2.util.errors import UserError

FIELDS = ("input_ids", "input_mask", "segment_ids")
_HEADER = struct.Struct("<Q4x")  # of a TFRecord: length, its checksum
_FOOTER_BYTES = 4
_LENGTH_DELIMITED = 2


class RecordFormat(NamedTuple):
    """Format that all records of a run have in common.

    length: tokens of an example, padding included. vocab_size: ids are below it.
    """

    length: int
    vocab_size: int

    @property
    def limits(self) -> dict[str, int]:
        """Field -> what its numbers are below; none is negative."""
        return {"input_ids": self.vocab_size, "input_mask": 2, "segment_ids": 2}

    def parse(self, serialized: Any) -> dict[str, Any]:
        """string [B] -> int32 [B, length] per field, all records at once.

        Raises:
          tf.errors.InvalidArgumentError: one of them is no such record; `read_batches` finds out which and why.
          UnicodeDecodeError: the same; TensorFlow's own message quotes the record, and could not be decoded.
        """
        import tensorflow as tf

        features = {field: tf.io.FixedLenFeature([self.length], tf.int64) for field in FIELDS}
        values = tf.io.parse_example(serialized, features)
        # As an unsigned number a negative one is too large; and no number is cut to 32 bits before it is checked.
        fits = [
            tf.reduce_max(tf.bitcast(values[field], tf.uint64)) < tf.constant(limit, tf.uint64)
            for field, limit in self.limits.items()
        ]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(fits), ["a record's numbers are too large"])]):
            return {field: tf.cast(value, tf.int32) for field, value in values.items()}

    def problem(self, record: bytes) -> str | None:
        """Says what is wrong with a record; None if nothing is."""
        import tensorflow as tf
        from google.protobuf.message import DecodeError

        try:
            features = tf.train.Example.FromString(record).features.feature
            lists = {name: np.array(feature.int64_list.value, np.int64) for name, feature in features.items()}
        except (DecodeError, UnicodeDecodeError):
            return "is no tf.train.Example"
        for field, limit in self.limits.items():
            if field not in lists:
                return f"has no {field!r} but {', '.join(sorted(lists)) or 'nothing'}: not a pre-training record"
            values = lists[field]
            if len(values) != self.length:
                return f"has length {len(values)}, but max_seq_length is {self.length}"
            wrong = values[(values < 0) | (values >= limit)]
            if len(wrong) and limit == self.vocab_size:
                return f"holds token id {wrong[0]}, but vocab_size is {limit}; is it the records' vocabulary?"
            if len(wrong):
                return f"holds {wrong[0]} in {field}, where only 0 and 1 may stand"
        return None


def read_batches(
    file: str | os.PathLike[str], record_format: RecordFormat, skip: int = 0, size: int = 1024
) -> Iterator[dict[str, np.ndarray]]:
    """A file's records but for the first ones, some after the other: int32 [records, length] per field.

    Raises:
      UserError: one is damaged or not of this format; names the file and the record, which count from 1.
    """
    import tensorflow as tf

    refuse_substitute(file)
    done = skip
    serialized = None
    try:
        for serialized in untuned(tf.data.TFRecordDataset(os.fspath(file)).skip(skip).batch(size)):
            yield {field: values.numpy() for field, values in record_format.parse(serialized).items()}
            done += len(serialized)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        if size > 1:  # which of them is it?
            yield from read_batches(file, record_format, done, size=1)
        problem = "is not as it was written: its length or its checksum is wrong"
        if serialized is not None and not isinstance(error, tf.errors.DataLossError):
            problem = record_format.problem(serialized[0].numpy()) or str(error)
        raise UserError(
            f"{os.fspath(file)}: record {done + 1} {problem}. Build the records again, or delete the file if others "
            "are left."
        ) from None


def count_records(file: str | os.PathLike[str]) -> int:
    """Counts the records of an uncompressed TFRecord file, by hopping from header to header.

    Raises:
      UserError: the file ends within a record.
    """
    size = os.path.getsize(file)
    position = count = 0
    with opened_raw(file) as stream:
        while position < size:
            stream.seek(position)
            header = stream.read(_HEADER.size)
            if len(header) == _HEADER.size:
                position += _HEADER.size + _HEADER.unpack(header)[0] + _FOOTER_BYTES
            count += 1
            if len(header) < _HEADER.size or position > size:
                raise UserError(
                    f"{file} is truncated or no TFRecord: it ends within record {count} of {size} bytes. "
                    "Delete it and build it again."
                )
    return count


class RecordEncoder:
    """Encodes examples a batch at a time.

    Building a proto message for each of them would take longer than tokenising the text, so the bytes are laid out
    here: all lists are of one length and mask and segments are single bytes, so only the variable-length encoding of
    the ids needs work, and that is a table look-up.
    """

    def __init__(self, record_format: RecordFormat):
        numbers = np.arange(record_format.vocab_size, dtype=np.int64)
        if len(numbers) > 1 << 21:
            raise ValueError(f"ids are below {len(numbers)}; those of more than three bytes are not supported")
        # Base 128, low digits first; the high bit says that more digits follow.
        self._sizes = (1 + (numbers >= 1 << 7) + (numbers >= 1 << 14)).astype(np.uint8)
        self._digits = np.stack([numbers & 127, numbers >> 7 & 127, numbers >> 14], axis=1).astype(np.uint8)
        for digit in (0, 1):
            self._digits[:, digit] |= np.where(self._sizes > digit + 1, 128, 0).astype(np.uint8)
        self._used = np.arange(3) < self._sizes[:, None]
        zeros = bytes(record_format.length)
        self._before_mask, self._before_segments = (
            np.frombuffer(_entry(field, zeros)[: -len(zeros)], np.uint8) for field in FIELDS[1:]
        )
        self._headers: dict[int, bytes] = {}  # of entries of ids, by the bytes that the ids take

    def encode(self, examples: Examples) -> list[bytes]:
        """One record for every row."""
        rows = len(examples.input_ids)
        if not rows:
            return []
        parts = self._before_mask, examples.input_mask, self._before_segments, examples.segment_ids
        rest = np.concatenate([np.broadcast_to(part, [rows, part.shape[-1]]) for part in parts], axis=1)
        size = rest.shape[1]
        rest_bytes = rest.tobytes()
        records = []
        for row, ids in enumerate(self._entries_of_ids(examples.input_ids)):
            records.append(_field(1, ids + rest_bytes[row * size : (row + 1) * size]))
        return records

    def _entries_of_ids(self, ids: np.ndarray) -> Iterator[bytes]:
        """The entry of every row of ids [rows, length]."""
        flat = ids.reshape(-1)
        payload = self._digits[flat][self._used[flat]].tobytes()
        row_sizes = self._sizes[flat].reshape(len(ids), -1).sum(axis=1, dtype=np.int64)
        start = 0
        for end in np.cumsum(row_sizes).tolist():
            size = end - start
            header = self._headers.get(size)
            if header is None:
                header = _entry(FIELDS[0], bytes(size))[:-size]
                self._headers[size] = header
            yield header + payload[start:end]
            start = end


def _entry(name: str, values: bytes) -> bytes:
    """An entry of Features' map: name -> Feature holding an Int64List whose packed values are given."""
    feature = _field(3, _field(1, values))
    return _field(1, _field(1, name.encode()) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _LENGTH_DELIMITED]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
