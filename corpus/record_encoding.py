"""Encodes examples as tf.train.Example protocol buffers, a batch at a time.

The last step of the data builder before the TFRecord file. Records are those of the original's builder: int64 lists
input_ids, input_mask and segment_ids of full length. Building a proto message for each of them takes longer than
tokenising the text, so the bytes are laid out here: all lists are of one length and mask and segments are single
bytes, so only the variable-length encoding of the ids needs work, and that is a table look-up.
"""

import numpy as np

from corpus.example_builder import Examples

_LENGTH_DELIMITED = 2


class ExampleEncoder:
    """Encodes examples of one length and vocabulary.

    Args:
      max_length: tokens of an example, padding included.
      vocab_size: ids are below it.
    """

    def __init__(self, max_length: int, vocab_size: int):
        self._length = max_length
        ids = np.arange(vocab_size, dtype=np.int64)
        if vocab_size > 1 << 21:
            raise ValueError(f"vocab_size is {vocab_size}; ids of more than three bytes are not supported")
        # Base 128, low digits first; the high bit says that more digits follow.
        self._sizes = (1 + (ids >= 1 << 7) + (ids >= 1 << 14)).astype(np.uint8)
        self._digits = np.stack([ids & 127, ids >> 7 & 127, ids >> 14], axis=1).astype(np.uint8)
        for digit in (0, 1):
            self._digits[:, digit] |= np.where(self._sizes > digit + 1, 128, 0).astype(np.uint8)
        self._used = np.arange(3) < self._sizes[:, None]
        self._mask_prefix = _entry(b"input_mask", bytes(max_length))[:-max_length]
        self._segments_prefix = _entry(b"segment_ids", bytes(max_length))[:-max_length]
        self._prefixes: dict[int, bytes] = {}

    def encode(self, examples: Examples) -> list[bytes]:
        """One serialized tf.train.Example for every row."""
        rows = len(examples.input_ids)
        if not rows:
            return []
        ids = examples.input_ids.reshape(-1)
        payload = self._digits[ids][self._used[ids]].tobytes()
        ends = np.cumsum(self._sizes[ids].reshape(rows, -1).sum(axis=1, dtype=np.int64)).tolist()
        rest = np.concatenate(
            [
                np.broadcast_to(np.frombuffer(self._mask_prefix, np.uint8), [rows, len(self._mask_prefix)]),
                examples.input_mask,
                np.broadcast_to(np.frombuffer(self._segments_prefix, np.uint8), [rows, len(self._segments_prefix)]),
                examples.segment_ids,
            ],
            axis=1,
        )
        rest_size = rest.shape[1]
        rest_bytes = rest.tobytes()
        records = []
        start = 0
        for row, end in enumerate(ends):
            prefix = self._prefixes.get(end - start) or self._prefix(end - start, rest_size)
            records.append(prefix + payload[start:end] + rest_bytes[row * rest_size : (row + 1) * rest_size])
            start = end
        return records

    def _prefix(self, payload_size: int, rest_size: int) -> bytes:
        """Everything before the ids, which depends only on how many bytes they take."""
        entry = _entry(b"input_ids", bytes(payload_size))
        prefix = _tag(1) + _varint(len(entry) + rest_size) + entry[:-payload_size]
        self._prefixes[payload_size] = prefix
        return prefix


def _entry(name: bytes, values: bytes) -> bytes:
    """An entry of Features' map: name -> Feature holding an Int64List whose packed values are given."""
    feature = _field(3, _field(1, values))
    return _field(1, _field(1, name) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    return _tag(number) + _varint(len(content)) + content


def _tag(number: int) -> bytes:
    return bytes([number << 3 | _LENGTH_DELIMITED])


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)
