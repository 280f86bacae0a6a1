"""Packs lines of tokens into pre-training examples of one or two segments, never across documents.

The data builder calls this between tokenisation and encoding. The rules are those of the original's ExampleBuilder:
lines are gathered until the target length is reached; one example in ten has a single segment, otherwise lines go to
the first segment until about half the target, the line that straddles it by the toss of a coin; one example in twenty
has a random target length. Two things differ unless `original` is set: what does not fit into an example begins the
next one (the original throws it away, half of a corpus with long lines), and lines keep their order (the original puts
a short line into the first segment although earlier lines have gone to the second).

Only the line and example loops are Python; tokens stay in flat arrays and examples are spans of them.

`SentencePacker` packs examples of full length instead: RoBERTa's FULL-SENTENCES and DOC-SENTENCES (section 4.2). They
have one segment and as many tokens as fit; a line that does not fit goes on in the next one. With FULL-SENTENCES the
text goes on across the ends of documents, where an additional [SEP] stands, so all examples are full but the last of a
job and, by one token, those that a document ends with; with DOC-SENTENCES the last one of every document is shorter.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

# Ways of --packing.
ELECTRA = "electra"
FULL_SENTENCES = "full_sentences"
DOC_SENTENCES = "doc_sentences"
MIN_LENGTH = 5  # the shortest random target length
SINGLE_SEGMENT_CHANCE = 0.1
RANDOM_LENGTH_CHANCE = 0.05
_NO_SECOND_SEGMENT = 100_000  # a target length of the first segment that no example reaches
_NO_TOKENS = np.zeros([0], np.int32)
_NO_SEPARATOR = -1  # no token has this id


class Spans(NamedTuple):
    """Examples as places in a flat array of tokens; the second segment follows the first there.

    tokens: int32 [tokens]
    starts, first_lengths, second_lengths: int64 [examples]; no special tokens are counted, second_lengths may be 0.
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
    """Packs a stream of documents; what is unfinished at the end of a call waits for the next one."""

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        """Adds lines and returns the examples that they complete.

        Args:
          tokens: int32 [sum of lengths], the lines one after the other.
          lengths: tokens of each line.
          ends: whether the line is the end of a document (and holds no text).
        """

    def finish(self) -> Spans:
        """Makes examples of the text that waits."""


class ExampleBuilder:
    """Packs one or two segments of whole lines, as the original does.

    Args:
      max_length: tokens of an example, [CLS] and [SEP] included, at least MIN_LENGTH.
      source: random.Random(seed) gives the same examples every time, and the original's decisions in its order.
      original: throw overlong text away and reorder lines as the original does.
    """

    def __init__(self, max_length: int, source: random.Random, original: bool = False):
        self._max_length = max_length
        self._target_length = max_length  # of the next example
        self._source = source
        self._original = original
        # The text that waits: tokens from `_start` on, how many there are, and the lengths of their lines.
        self._tokens = _NO_TOKENS
        self._start = 0
        self._length = 0
        self._lines: list[int] = []
        # Start, and lengths of both segments, of each example since the last call.
        self._examples: list[tuple[int, int, int]] = []

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
        """Makes an example of the lines that wait, and draws the target length of the next one."""
        first, second = self._segments()
        first = min(first, self._max_length - 2)  # 2: [CLS] and [SEP]
        second = min(second, max(0, self._max_length - first - 3))  # 3: and another [SEP]
        self._examples.append((self._start, first, second))
        self._take(self._length if self._original else first + second)
        self._target_length = self._max_length
        if self._source.random() < RANDOM_LENGTH_CHANCE:
            self._target_length = self._source.randint(MIN_LENGTH, self._max_length)

    def _segments(self) -> tuple[int, int]:
        """Divides the lines that wait between two segments; returns the length of each, which may be too much."""
        toss = self._source.random
        first_target = (self._target_length - 3) // 2  # 3: one [CLS] and two [SEP] will be added
        if toss() < SINGLE_SEGMENT_CHANCE:
            first_target = _NO_SECOND_SEGMENT
        first = 0
        second = 0
        for index, length in enumerate(self._lines):
            goes_to_first = (
                first == 0
                or first + length < first_target
                # The line that straddles the middle; the coin is tossed for no other.
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
        """Exchanges the second segment and the line of so many tokens that follows it."""
        place = self._start + first
        block = self._tokens[place : place + second + length]
        block[:] = np.concatenate([block[second:], block[:second]])

    def _take(self, used: int) -> None:
        """Takes so many tokens away from the text that waits, and their lines."""
        self._start += used
        self._length -= used
        while self._lines and used >= self._lines[0]:
            used -= self._lines.pop(0)
        if used:
            self._lines[0] -= used


def assemble(spans: Spans, max_length: int, cls_id: int, sep_id: int) -> Examples:
    """Spans as rows `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, padded with zeros."""
    column = np.arange(max_length, dtype=np.int32)
    first_sep = (spans.first_lengths + 1).astype(np.int32)[:, None]
    length = example_lengths(spans).astype(np.int32)[:, None]
    after_first = column > first_sep
    mask = column < length
    # Column 1 holds the span's first token; the second segment is one further to the right because of [SEP].
    place = (spans.starts - 1)[:, None] + column - after_first
    ids = spans.tokens.take(place, mode="clip")
    ids *= mask
    ids[:, 0] = cls_id
    np.put_along_axis(ids, first_sep.astype(np.int64), sep_id, axis=1)
    np.put_along_axis(ids, length.astype(np.int64) - 1, sep_id, axis=1)
    return Examples(ids, mask.view(np.uint8), (after_first & mask).view(np.uint8))


def example_lengths(spans: Spans) -> np.ndarray:
    """Tokens of each example, special ones included, int64 [examples]."""
    return spans.first_lengths + spans.second_lengths + 2 + (spans.second_lengths > 0)


class SentencePacker:
    """Packs one segment of as many tokens as fit.

    Args:
      max_length: tokens of an example, [CLS] and [SEP] included.
      separator: id of the [SEP] between two documents; None: no example crosses the end of one.
    """

    def __init__(self, max_length: int, separator: int | None):
        self._room = max_length - 2
        self._crosses_documents = separator is not None
        self._separator = _NO_SEPARATOR if separator is None else separator
        self._tokens = _NO_TOKENS  # the text that waits

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        line_ends = np.cumsum(np.fromiter(lengths, np.int64))
        document_ends = np.unique(line_ends[np.fromiter(ends, bool)])
        waiting = len(self._tokens)
        if not self._crosses_documents:
            self._tokens = np.concatenate([self._tokens, tokens])
            return self._cut((waiting + document_ends).tolist())
        ends_at_once = len(document_ends) > 0 and document_ends[0] == 0
        is_separated = not waiting or self._tokens[-1] == self._separator
        if ends_at_once and is_separated:
            document_ends = document_ends[1:]  # the first end is of a document without text: no separator twice
        tokens = np.insert(tokens, document_ends, self._separator)
        self._tokens = np.concatenate([self._tokens, tokens])
        return self._cut([])

    def finish(self) -> Spans:
        return self._cut([len(self._tokens)])

    def _cut(self, ends: list[int]) -> Spans:
        """Cuts the text into examples: full ones and, before each of `ends`, what is left. The rest waits."""
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
        """Appends an example of the text from `start` to `end` at most, if there is any; returns where it ends."""
        start += self._begins_with_separator(start)
        after = min(start + self._room, end)
        if after > start:
            ends_with_separator = int(self._tokens[after - 1] == self._separator)
            examples.append((start, after - start - ends_with_separator))
        return after

    def _begins_with_separator(self, start: int) -> int:
        """1 if the text from `start` on begins with a separator, as no example does, else 0."""
        return int(start < len(self._tokens) and self._tokens[start] == self._separator)
