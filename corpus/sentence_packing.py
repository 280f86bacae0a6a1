"""Packs lines of tokens into examples of full length: RoBERTa's FULL-SENTENCES and DOC-SENTENCES (section 4.2).

Beside corpus.example_builder, which packs as ELECTRA does. An example has one segment and as many tokens as fit; a line
that does not fit goes on in the next one. With FULL-SENTENCES the text goes on across the ends of documents, where an
additional [SEP] stands, so all examples are full but the last of a unit and, by one token, those that a document ends
with; with DOC-SENTENCES the last example of every document is shorter.
"""

from collections.abc import Iterable

import numpy as np

from electra_tf2.corpus.example_builder import Spans

FULL_SENTENCES, DOC_SENTENCES = "full_sentences", "doc_sentences"


class SentencePacker:
    """Packs a stream of documents; what is unfinished at the end of a call waits for the next one.

    Args:
      max_length: tokens of an example, [CLS] and [SEP] included.
      separator: id of the [SEP] between two documents; None: no example crosses the end of one.
    """

    def __init__(self, max_length: int, separator: int | None):
        self._room = max_length - 2
        self._crosses = separator is not None
        self._separator = -1 if separator is None else separator
        self._tokens = np.zeros([0], np.int32)

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        """Adds lines and returns the examples that they complete; arguments as of `ExampleBuilder.add`."""
        places = np.unique(np.cumsum(np.fromiter(lengths, np.int64))[np.fromiter(ends, bool)])
        before = len(self._tokens)
        if self._crosses:
            if len(places) and places[0] == 0 and (not before or self._tokens[-1] == self._separator):
                places = places[1:]  # documents without text
            tokens = np.insert(tokens, places, self._separator)
        self._tokens = np.concatenate([self._tokens, tokens])
        return self._cut([] if self._crosses else (before + places).tolist())

    def finish(self) -> Spans:
        """The last example, if something waits."""
        return self._cut([len(self._tokens)])

    def _cut(self, ends: list[int]) -> Spans:
        """Full examples of all tokens, and before each of `ends` what is left."""
        tokens, found, at = self._tokens, list[tuple[int, int]](), 0
        for end in [*ends, None]:
            stop = len(tokens) if end is None else end
            while at < stop:
                at += int(tokens[at] == self._separator)  # an example neither begins nor ends with one
                if end is None and stop - at < self._room:
                    break
                after = min(at + self._room, stop)
                if after > at:
                    found.append((at, after - at - int(tokens[after - 1] == self._separator)))
                at = after
        self._tokens = tokens[at:].copy()
        table = np.array(found, np.int64).reshape(-1, 2)
        return Spans(tokens, table[:, 0], table[:, 1], np.zeros([len(table)], np.int64))
