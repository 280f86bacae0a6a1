"""From tokenised lines to pre-training examples: one or two segments, packed to a length, never across documents.

The rules are those of the original's ExampleBuilder (spec: about 10 % one segment, 5 % of a random target length, a
coin flip for the sentence that straddles the first segment's target). Its loss of text beyond the maximum length of a
long line is mended: a line is cut where an example is full and goes on in the next; `keep_overflow=False` restores it.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

NO_SECOND_SEGMENT = 100_000  # a first segment's target length that no text reaches


class Example(NamedTuple):
    """Token ids without special tokens, int32 [any] each; `second` may be empty."""

    first: np.ndarray
    second: np.ndarray


class ExampleBuilder:
    """Turns lines of one document after another into examples.

    Args:
      max_length: tokens of an example, [CLS] and [SEP] included; at least 5.
      source: of all random decisions, called in the original's order.
      keep_overflow: cut long lines instead of losing what exceeds the example.
    """

    def __init__(self, max_length: int, source: random.Random, keep_overflow: bool = True) -> None:
        self._max_length = max_length
        self._source = source
        self._keep_overflow = keep_overflow
        self._sentences: list[np.ndarray] = []
        self._length = 0
        self._target_length = max_length

    def add_line(self, ids: np.ndarray) -> Iterator[Example]:
        """Adds a line of text; yields the examples that it completes."""
        if not self._keep_overflow:
            self._add(ids)
            if self._length >= self._target_length:
                yield self._create_example()
            return
        while True:
            room = max(1, self._target_length - 3) - self._length  # [CLS] and two [SEP]
            if len(ids) < room:
                self._add(ids)
                return
            self._add(ids[:room])
            ids = ids[room:]
            yield self._create_example()
            if not len(ids):
                return

    def end_document(self) -> Iterator[Example]:
        """Yields what is left of the document, if anything is."""
        if self._length:
            yield self._create_example()

    def _add(self, ids: np.ndarray) -> None:
        self._sentences.append(ids)
        self._length += len(ids)

    def _create_example(self) -> Example:
        chance = self._source.random
        first_target = NO_SECOND_SEGMENT if chance() < 0.1 else (self._target_length - 3) // 2
        first: list[np.ndarray] = []
        second: list[np.ndarray] = []
        first_length = second_length = 0
        for sentence in self._sentences:
            if (
                first_length == 0
                or first_length + len(sentence) < first_target
                or (second_length == 0 and first_length < first_target and chance() < 0.5)
            ):
                first.append(sentence)
                first_length += len(sentence)
            else:
                second.append(sentence)
                second_length += len(sentence)
        first_ids = np.concatenate(first)[: self._max_length - 2]
        room = max(0, self._max_length - len(first_ids) - 3)
        second_ids = np.concatenate(second)[:room] if second else first_ids[:0]
        self._sentences, self._length = [], 0
        self._target_length = self._source.randint(5, self._max_length) if chance() < 0.05 else self._max_length
        return Example(first_ids, second_ids)


def to_arrays(examples: list[Example], max_length: int, cls_id: int, sep_id: int) -> tuple[np.ndarray, ...]:
    """Padded input_ids int32, input_mask uint8, segment_ids uint8, each [examples, max_length]."""
    ids = np.zeros([len(examples), max_length], np.int32)
    mask = np.zeros([len(examples), max_length], np.uint8)
    segments = np.zeros([len(examples), max_length], np.uint8)
    for row, (first, second) in enumerate(examples):
        end = len(first) + 2
        ids[row, 0] = cls_id
        ids[row, 1 : end - 1] = first
        ids[row, end - 1] = sep_id
        if len(second):
            start, end = end, end + len(second) + 1
            ids[row, start : end - 1] = second
            ids[row, end - 1] = sep_id
            segments[row, start:end] = 1
        mask[row, :end] = 1
    return ids, mask, segments


def serialize(ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> list[bytes]:
    """tf.train.Example protos with int64 lists input_ids, input_mask, segment_ids, encoded for all rows at once."""
    payloads, ends = _varints(ids)
    start = 0
    records = []
    for row, end in enumerate(ends):
        features = (
            _entry(b"input_ids", payloads[start:end])
            + _entry(b"input_mask", mask[row].tobytes())
            + _entry(b"segment_ids", segments[row].tobytes())
        )
        records.append(b"\x0a" + _varint(len(features)) + features)
        start = end
    return records


def _varints(values: np.ndarray) -> tuple[bytes, list[int]]:
    """Protocol-buffer varints of all values of [rows, n] below 2^21, row after row, and where each row ends."""
    flat = values.reshape(-1).astype(np.uint32)
    lengths = 1 + (flat >= 1 << 7).astype(np.int64) + (flat >= 1 << 14)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    encoded = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    encoded[starts] = (flat & 0x7F) | np.where(lengths > 1, 0x80, 0).astype(np.uint32)
    two = lengths > 1
    encoded[starts[two] + 1] = ((flat[two] >> 7) & 0x7F) | np.where(lengths[two] > 2, 0x80, 0).astype(np.uint32)
    three = lengths > 2
    encoded[starts[three] + 2] = flat[three] >> 14
    return encoded.tobytes(), ends[values.shape[1] - 1 :: values.shape[1]].tolist()


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _entry(key: bytes, payload: bytes) -> bytes:
    """A map entry key -> Feature(int64_list=payload) of Features."""
    values = b"\x0a" + _varint(len(payload)) + payload
    feature = b"\x1a" + _varint(len(values)) + values
    entry = b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(feature)) + feature
    return b"\x0a" + _varint(len(entry)) + entry
