"""The format of pre-training records: encoding, parsing and checking.

The builder encodes examples here and training parses them here. A record is a tf.train.Example with three int64 lists
of full length, padded with zeros, as the original's builder writes it (FIELDS):

  input_ids     [CLS] first segment [SEP], or [CLS] first segment [SEP] second segment [SEP]
  input_mask    1 at tokens, 0 at padding
  segment_ids   1 at the second segment and its [SEP], else 0

Every record is checked when it is parsed. An id that is too large would be looked up beyond the embeddings, which
processors refuse, GPUs answer with zeros and XLA with anything. Reading imports TensorFlow, writing does not.
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
# A TFRecord is a header (length, checksum of the length), the data, and a footer (checksum of the data).
_HEADER = struct.Struct("<Q4x")
_FOOTER_BYTES = 4
_LENGTH_DELIMITED = 2  # wire type of protocol buffers


class RecordFormat(NamedTuple):
    """The format that all records of a run share.

    length: number of ids in a record, padding included. vocab_size: all ids are below it.
    """

    length: int
    vocab_size: int

    @property
    def limits(self) -> dict[str, int]:
        """Field -> exclusive upper limit of its values. None may be negative."""
        return {"input_ids": self.vocab_size, "input_mask": 2, "segment_ids": 2}

    def parse(self, serialized: Any) -> dict[str, Any]:
        """string [B] -> int32 [B, length] for each field.

        Raises:
          tf.errors.InvalidArgumentError: a record is invalid; `read_batches` finds out which and why.
          UnicodeDecodeError: the same, where TensorFlow's message quotes bytes that are no text.
        """
        import tensorflow as tf

        features = {field: tf.io.FixedLenFeature([self.length], tf.int64) for field in FIELDS}
        values = tf.io.parse_example(serialized, features)
        # Values are compared as unsigned integers, so that negative ones are too large, and before they lose bits.
        fits = []
        for field, limit in self.limits.items():
            unsigned = tf.bitcast(values[field], tf.uint64)
            fits.append(tf.reduce_max(unsigned) < tf.constant(limit, tf.uint64))
        check = tf.debugging.Assert(tf.reduce_all(fits), ["a record's numbers are too large"])
        with tf.control_dependencies([check]):
            return {field: tf.cast(value, tf.int32) for field, value in values.items()}

    def problem(self, record: bytes) -> str | None:
        """Describes what is wrong with a record; None if it is valid."""
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
    """Yields a file's records in batches, int32 [records, length] for each field.

    Args:
      skip: number of records at the start that are not read. size: records in a batch.

    Raises:
      UserError: a record is damaged or not of this format; names the file and the record, counted from 1.
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
        if size > 1:  # reads this batch one by one, up to the bad record, which raises UserError there
            yield from read_batches(file, record_format, done, size=1)
        problem = "is not as it was written: its length or its checksum is wrong"
        if serialized is not None and not isinstance(error, tf.errors.DataLossError):
            problem = record_format.problem(serialized[0].numpy()) or str(error)
        raise UserError(
            f"{os.fspath(file)}: record {done + 1} {problem}. Build the records again, or delete the file if others "
            "are left."
        ) from None


def count_records(file: str | os.PathLike[str]) -> int:
    """Counts the records of an uncompressed TFRecord file by its headers alone.

    Raises:
      UserError: the file ends within a record.
    """
    size = os.path.getsize(file)
    position = 0
    count = 0
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
    """Encodes batches of examples.

    Building a proto message for each example would take longer than tokenising the text, so the bytes are laid out
    here. All lists have the same length, and each value of mask and segments is one byte. Only ids need an encoding of
    variable length (varint), which is looked up in a table.
    """

    def __init__(self, record_format: RecordFormat):
        ids = np.arange(record_format.vocab_size, dtype=np.int64)
        if len(ids) > 1 << 21:
            raise ValueError(f"ids are below {len(ids)}; those of more than three bytes are not supported")
        # A varint has digits of base 128, the lowest first. The high bit of a byte tells that more follow.
        self._sizes = (1 + (ids >= 1 << 7) + (ids >= 1 << 14)).astype(np.uint8)
        self._digits = np.stack([ids & 127, ids >> 7 & 127, ids >> 14], axis=1).astype(np.uint8)
        for digit in (0, 1):
            self._digits[:, digit] |= np.where(self._sizes > digit + 1, 128, 0).astype(np.uint8)
        self._is_used = np.arange(3) < self._sizes[:, None]
        _, mask_field, segments_field = FIELDS
        self._mask_header = self._header(mask_field, record_format.length)
        self._segments_header = self._header(segments_field, record_format.length)
        self._ids_headers: dict[int, bytes] = {}  # size of the encoded ids in bytes -> header

    @staticmethod
    def _header(field: str, size: int) -> np.ndarray:
        """uint8, what stands before a field's values, which are `size` bytes."""
        return np.frombuffer(_entry(field, bytes(size))[:-size], np.uint8)

    def encode(self, examples: Examples) -> list[bytes]:
        """Encodes each row as a record."""
        rows = len(examples.input_ids)
        if not rows:
            return []
        parts = self._mask_header, examples.input_mask, self._segments_header, examples.segment_ids
        rest = np.concatenate([np.broadcast_to(part, [rows, part.shape[-1]]) for part in parts], axis=1)
        size = rest.shape[1]
        rest_bytes = rest.tobytes()
        records = []
        for row, ids in enumerate(self._ids_entries(examples.input_ids)):
            records.append(_field(1, ids + rest_bytes[row * size : (row + 1) * size]))
        return records

    def _ids_entries(self, ids: np.ndarray) -> Iterator[bytes]:
        """Yields the encoded entry of each row of ids [rows, length]."""
        flat = ids.reshape(-1)
        payload = self._digits[flat][self._is_used[flat]].tobytes()
        row_sizes = self._sizes[flat].reshape(len(ids), -1).sum(axis=1, dtype=np.int64)
        start = 0
        for end in np.cumsum(row_sizes).tolist():
            size = end - start
            header = self._ids_headers.get(size)
            if header is None:
                header = _entry(FIELDS[0], bytes(size))[:-size]
                self._ids_headers[size] = header
            yield header + payload[start:end]
            start = end


def _entry(name: str, values: bytes) -> bytes:
    """An entry of tf.train.Features' map, from a name to a Feature with an Int64List of these packed values."""
    feature = _field(3, _field(1, values))
    return _field(1, _field(1, name.encode()) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer with this number."""
    return bytes([number << 3 | _LENGTH_DELIMITED]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    return bytes([value & 127 | 128]) + _varint(value >> 7)
