"""Packs lines of tokens into pre-training examples.

`ExampleBuilder` follows the original's ExampleBuilder: an example has one or two segments of one document.

- Lines are gathered until the target length is reached. In one example of twenty, that is a random length.
- One example in ten has a single segment. In the others, lines go to the first segment until about half the target; a
  coin decides on the line that straddles it.

It differs from the original in two points, unless `original` is set:

- What does not fit into an example begins the next one. The original throws it away, half of a corpus of long lines.
- Lines keep their order. The original puts a short line into the first segment though earlier ones are in the second.

`SentencePacker` is RoBERTa's FULL-SENTENCES and DOC-SENTENCES (section 4.2): an example has one segment with as many
tokens as fit, and a line that does not fit continues in the next example. With FULL-SENTENCES, examples cross the ends
of documents, where they have a [SEP]; with DOC-SENTENCES, the last example of a document is shorter.

Loops are over lines and examples. Tokens stay in flat arrays, and examples are spans of them.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

# Values of --packing.
ELECTRA = "electra"
FULL_SENTENCES = "full_sentences"
DOC_SENTENCES = "doc_sentences"
MIN_LENGTH = 5  # the shortest random target length
SINGLE_SEGMENT_CHANCE = 0.1
RANDOM_LENGTH_CHANCE = 0.05
_NO_SECOND_SEGMENT = 100_000  # a target length for the first segment that no example reaches
_NO_TOKENS = np.zeros([0], np.int32)
_NO_SEPARATOR = -1  # no token has this id


class Spans(NamedTuple):
    """Examples as spans of a flat array of tokens. The second segment follows the first.

    tokens: int32 [tokens], without special ones.
    starts, first_lengths, second_lengths: int64 [examples]. A second length may be 0.
    """

    tokens: np.ndarray
    starts: np.ndarray
    first_lengths: np.ndarray
    second_lengths: np.ndarray


class Examples(NamedTuple):
    """Padded rows with special tokens: input_ids int32, input_mask and segment_ids uint8, all [examples, length]."""

    input_ids: np.ndarray
    input_mask: np.ndarray
    segment_ids: np.ndarray


class Packer(Protocol):
    """Packs a stream of documents. Text for which an example is not yet full is kept for the next call."""

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        """Adds lines and returns the examples that they complete.

        Args:
          tokens: int32 [sum of lengths], the lines one after the other.
          lengths: tokens of each line.
          ends: for each line, True if it ends a document. It then has no tokens.
        """

    def finish(self) -> Spans:
        """Makes examples of the remaining text."""


class ExampleBuilder:
    """Packs one or two segments of whole lines, as the original does.

    Args:
      max_length: most tokens of an example, [CLS] and [SEP] included; at least MIN_LENGTH.
      source: random numbers, which are used in the original's order.
      original: True: throws overlong text away and reorders lines, as the original does.
    """

    def __init__(self, max_length: int, source: random.Random, original: bool = False):
        self._max_length = max_length
        self._target_length = max_length  # of the next example
        self._source = source
        self._original = original
        # Text that is in no example yet: it begins at tokens[start] and has `length` tokens.
        self._tokens = _NO_TOKENS
        self._start = 0
        self._length = 0
        self._lines: list[int] = []  # lengths of its lines
        self._examples: list[tuple[int, int, int]] = []  # of this call: start, lengths of both segments

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        self._tokens = np.concatenate([self._tokens, tokens])
        for length, end in zip(lengths, ends, strict=True):
            if end:
                while self._length:
                    self._create_example()
            elif length:
                self._lines.append(length)
                self._length += length
                while self._length >= self._target_length:
                    self._create_example()
        columns = np.array(self._examples, np.int64).reshape(-1, 3).T
        starts, first_lengths, second_lengths = columns
        spans = Spans(self._tokens, starts, first_lengths, second_lengths)
        self._tokens = self._tokens[self._start :].copy()
        self._start = 0
        self._examples = []
        return spans

    def finish(self) -> Spans:
        return self.add(_NO_TOKENS, [0], [True])

    def _create_example(self) -> None:
        """Makes an example of the first lines, and draws the target length of the next one."""
        first, second = self._segments()
        first = min(first, self._max_length - 2)  # beside [CLS] and [SEP]
        second = min(second, max(0, self._max_length - first - 3))  # and another [SEP]
        self._examples.append((self._start, first, second))
        self._drop(self._length if self._original else first + second)
        self._target_length = self._max_length
        if self._source.random() < RANDOM_LENGTH_CHANCE:
            self._target_length = self._source.randint(MIN_LENGTH, self._max_length)

    def _segments(self) -> tuple[int, int]:
        """Divides the lines between two segments. Returns their lengths, which may be too long for an example."""
        toss = self._source.random
        first_target = (self._target_length - 3) // 2  # beside [CLS] and two [SEP]
        if toss() < SINGLE_SEGMENT_CHANCE:
            first_target = _NO_SECOND_SEGMENT
        first = 0
        second = 0
        for index, length in enumerate(self._lines):
            goes_to_first = (
                first == 0
                or first + length < first_target
                # A coin decides on the line that straddles the target. It must be tossed for this line only.
                or (second == 0 and first < first_target and toss() < 0.5)
            )
            if goes_to_first:
                if second:  # only in the original: a later line joins the first segment
                    self._move_before_second(first, second, length)
                first += length
            elif self._original:
                second += length
            else:
                second = sum(self._lines[index:])
                break
        return first, second

    def _move_before_second(self, first: int, second: int, length: int) -> None:
        """Exchanges the second segment and the line after it, which has `length` tokens."""
        second_start = self._start + first
        block = self._tokens[second_start : second_start + second + length]
        block[:] = np.concatenate([block[second:], block[:second]])

    def _drop(self, used: int) -> None:
        """Removes the first `used` tokens of the text, and their lines."""
        self._start += used
        self._length -= used
        while self._lines and used >= self._lines[0]:
            used -= self._lines.pop(0)
        if used:
            self._lines[0] -= used


def assemble(spans: Spans, max_length: int, cls_id: int, sep_id: int) -> Examples:
    """Makes rows `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]` from spans, padded with zeros."""
    column = np.arange(max_length, dtype=np.int32)
    first_sep = (spans.first_lengths + 1).astype(np.int32)[:, None]
    length = example_lengths(spans).astype(np.int32)[:, None]
    after_first = column > first_sep
    mask = column < length
    # Column 1 holds the span's first token. The second segment is one column further to the right because of [SEP].
    index = (spans.starts - 1)[:, None] + column - after_first
    ids = spans.tokens.take(index, mode="clip")
    ids *= mask
    ids[:, 0] = cls_id
    np.put_along_axis(ids, first_sep.astype(np.int64), sep_id, axis=1)
    np.put_along_axis(ids, length.astype(np.int64) - 1, sep_id, axis=1)
    return Examples(ids, mask.view(np.uint8), (after_first & mask).view(np.uint8))


def example_lengths(spans: Spans) -> np.ndarray:
    """int64 [examples], number of tokens of each example, special ones included."""
    return spans.first_lengths + spans.second_lengths + 2 + (spans.second_lengths > 0)


class SentencePacker:
    """Packs one segment of as many tokens as fit.

    Args:
      max_length: most tokens of an example, [CLS] and [SEP] included.
      separator: id of the [SEP] between two documents; None: no example crosses the end of a document.
    """

    def __init__(self, max_length: int, separator: int | None):
        self._room = max_length - 2
        self._crosses_documents = separator is not None
        self._separator = _NO_SEPARATOR if separator is None else separator
        self._tokens = _NO_TOKENS  # text that is in no example yet

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        line_ends = np.cumsum(np.fromiter(lengths, np.int64))
        document_ends = np.unique(line_ends[np.fromiter(ends, bool)])
        length_before = len(self._tokens)
        if not self._crosses_documents:
            self._tokens = np.concatenate([self._tokens, tokens])
            return self._cut((length_before + document_ends).tolist())
        begins_with_end = len(document_ends) > 0 and document_ends[0] == 0
        is_separated = not length_before or self._tokens[-1] == self._separator
        if begins_with_end and is_separated:
            document_ends = document_ends[1:]  # of a document without text, which needs no further separator
        tokens = np.insert(tokens, document_ends, self._separator)
        self._tokens = np.concatenate([self._tokens, tokens])
        return self._cut([])

    def finish(self) -> Spans:
        return self._cut([len(self._tokens)])

    def _cut(self, ends: list[int]) -> Spans:
        """Cuts the text into full examples, and a shorter one before each of `ends`. Keeps the rest."""
        tokens = self._tokens
        examples: list[tuple[int, int]] = []  # start and length
        start = 0
        for end in ends:
            while start < end:
                start = self._cut_one(start, end, examples)
        while len(tokens) - start - self._begins_with_separator(start) >= self._room:
            start = self._cut_one(start, len(tokens), examples)
        start += self._begins_with_separator(start)
        self._tokens = tokens[start:].copy()
        starts, lengths = np.array(examples, np.int64).reshape(-1, 2).T
        return Spans(tokens, starts, lengths, np.zeros_like(lengths))

    def _cut_one(self, start: int, end: int, examples: list[tuple[int, int]]) -> int:
        """Appends an example of the text between `start` and `end`, if there is any. Returns where it ends."""
        start += self._begins_with_separator(start)
        after = min(start + self._room, end)
        if after > start:
            ends_with_separator = int(self._tokens[after - 1] == self._separator)
            examples.append((start, after - start - ends_with_separator))
        return after

    def _begins_with_separator(self, start: int) -> int:
        """1 if there is a separator at `start`, which must be skipped since no example begins with one; else 0."""
        return int(start < len(self._tokens) and self._tokens[start] == self._separator)
