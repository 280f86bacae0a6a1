"""Text that could stand in place of an example's second segment: from elsewhere in its document, and of another one.

`electra build-data --paper on_losses` adds two fields to the records, without special tokens and filled up with zeros;
only zeros where there is no such text:

  same_document_ids    from elsewhere in the document
  other_document_ids   of another document

Which of the three a record shows is drawn while training, so a record has no label and may show another one at every
epoch, and no row of a batch depends on its neighbours.

The three are to differ by what they say alone. All begin with a line that is not the first of its document, as second
segments do. Those of a full example are as long as its second segment and are cut within a line like it; those of a
shorter example end with a line and are at most as long.

Lines are gathered to pages: whole documents, or part of a very long one. Text from elsewhere is of the same page, and
that of other documents comes from excerpts of the last pages, so memory grows neither with the corpus nor with its
documents. Pages and draws follow from the lines, not from the calls in which they come.
"""

import collections
import random
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.jobs import BuildSettings
from electra_tf2.corpus.packing import ELECTRA, Packer, Spans
from electra_tf2.corpus.records import ExtraField
from electra_tf2.corpus.vocabulary import PAD, load_vocab
from electra_tf2.util.errors import UserError

FIELDS = ("same_document_ids", "other_document_ids")

PAGE_TOKENS = 1 << 16  # a page ends with the document that exceeds it, or within one at twice as many
_EXCERPTS = 1024  # that wait to stand in for second segments
_EXCERPTS_OF_DOCUMENT = 8


def check_settings(settings: BuildSettings) -> None:
    """Raises UserError for settings that these fields cannot be built with."""
    if settings.packing != ELECTRA or settings.compat == "original":
        raise UserError("--paper on_losses needs --packing electra, which makes second segments, and --compat none")
    if load_vocab(settings.vocab_file)[0] != PAD:
        raise UserError(
            f"--paper on_losses needs {PAD} as token 0 of {settings.vocab_file!r}, with which records are filled"
        )


def extra_fields(max_length: int, vocab_size: int) -> dict[str, tuple[int, int]]:
    """The two fields, each as long as the record."""
    return dict.fromkeys(FIELDS, ExtraField(max_length, vocab_size))


def extend(packer: Packer, max_length: int, source: random.Random) -> Packer:
    """A packer of the same examples that finds their other segments."""
    return OtherSegmentFinder(packer, max_length, source)


class _Excerpt(NamedTuple):
    """Text from the beginning of a line on: int32 tokens, and bool, at the last token of a line."""

    document: int
    tokens: np.ndarray
    line_ends: np.ndarray

    def beginning(self, wanted: int, full: bool) -> np.ndarray:
        """As many tokens as are wanted; if not `full`, only up to the last line that ends in them."""
        ends = np.flatnonzero(self.line_ends[:wanted])
        return self.tokens[: wanted if full else ends[-1] + 1 if len(ends) else 0]


class _Page(NamedTuple):
    """Lines of a page, in the flat array of its examples.

    tokens: int32 [tokens], of which the first may have waited since the last page. line_ends: bool [tokens].
    bounds: int64 [documents + 1], where they begin and end.
    lines: of each document, int64, where its lines begin, but for the first.
    """

    tokens: np.ndarray
    line_ends: np.ndarray
    bounds: np.ndarray
    lines: list[np.ndarray]

    def excerpt(self, document: int, start: int, length: int) -> _Excerpt:
        """Text of a document from a place on."""
        part = slice(start, min(start + length, self.bounds[document + 1]))
        return _Excerpt(document, self.tokens[part].copy(), self.line_ends[part].copy())


class OtherSegmentFinder:
    """Packs a stream of documents and finds the other segments of every example that has two.

    Args:
      packer: decides on the examples, which are the same as without this.
      max_length: tokens of an example, special ones included; so long are the rows of other segments.
      source: of the draws.
    """

    def __init__(self, packer: Packer, max_length: int, source: random.Random, page_tokens: int = PAGE_TOKENS):
        self._packer, self._length, self._page_tokens, self._random = packer, max_length, page_tokens, source
        self._tokens: list[np.ndarray] = []
        self._lines: list[int] = []
        self._ends: list[bool] = []
        self._size = 0
        self._document = 0  # number of the first one of the page
        self._continues = False  # whether that one began before
        self._excerpts: collections.deque[_Excerpt] = collections.deque(maxlen=_EXCERPTS)

    def add(self, tokens: np.ndarray, lengths: Iterable[int], ends: Iterable[bool]) -> Spans:
        """Adds lines and returns the examples of the pages that they complete; arguments as of `Packer.add`."""
        pages: list[Spans] = []
        taken = at = 0
        for length, end in zip(lengths, ends, strict=True):
            self._lines.append(length)
            self._ends.append(end)
            self._size += length
            at += length
            if self._size >= (self._page_tokens if end else 2 * self._page_tokens):
                self._tokens.append(tokens[taken:at])
                pages.append(self._turn())
                taken = at
        self._tokens.append(tokens[taken:])
        return self._joined(pages)

    def finish(self) -> Spans:
        """Makes examples of the text that waits, of which there is none after the end of a document."""
        self._lines.append(0)
        self._ends.append(True)
        return self._joined([self._turn()])

    def _turn(self) -> Spans:
        """The examples of the page that waits, and the next page."""
        new = np.concatenate([np.zeros([0], np.int32), *self._tokens])
        lengths, ends = np.array(self._lines, np.int64), np.array(self._ends, bool)
        spans = self._packer.add(new, self._lines, self._ends)
        starts = len(spans.tokens) - len(new) + np.cumsum(lengths) - lengths
        bounds = np.concatenate([[0], starts[ends], [len(spans.tokens)]])
        line_ends = np.zeros([len(spans.tokens)], bool)
        line_ends[(starts + lengths - 1)[lengths > 0]] = True
        of_text = starts[lengths > 0]
        of_documents = np.split(of_text, np.searchsorted(of_text, bounds[1:-1]))
        lines = [lines[lines > first] for lines, first in zip(of_documents, bounds[:-1], strict=True)]
        page = _Page(spans.tokens, line_ends, bounds, lines)
        self._keep_excerpts(page)
        spans = spans._replace(extra=self._others(spans, page))
        self._document += int(ends.sum())
        self._continues = not ends[-1]
        self._tokens, self._lines, self._ends, self._size = [], [], [], 0
        return spans

    def _keep_excerpts(self, page: _Page) -> None:
        """A few of every document that begins on this page; the oldest make room."""
        for document, lines in enumerate(page.lines):
            if document or not self._continues:
                for start in self._random.sample(lines.tolist(), min(len(lines), _EXCERPTS_OF_DOCUMENT)):
                    excerpt = page.excerpt(document, start, self._length)
                    self._excerpts.append(excerpt._replace(document=self._document + document))

    def _others(self, spans: Spans, page: _Page) -> dict[str, np.ndarray]:
        """The fields of every example, int32 [examples, length]."""
        rows = {field: np.zeros([len(spans.starts), self._length], np.int32) for field in FIELDS}
        lengths = np.array([len(excerpt.tokens) for excerpt in self._excerpts], np.int64)
        documents = np.array([excerpt.document for excerpt in self._excerpts], np.int64)
        of_spans = np.searchsorted(page.bounds[1:-1], spans.starts, side="right")
        for row, (start, first, wanted) in enumerate(zip(*spans[1:4], strict=True)):
            if not wanted:
                continue
            document, full = of_spans[row], first + wanted + 3 == self._length
            # Elsewhere in the document: after the example, or before it with as many tokens between as the second
            # segment has: so many are also left out between the first segment and what follows the example.
            lines = page.lines[document]
            after = (lines >= start + first + wanted) & (lines <= page.bounds[document + 1] - wanted)
            lines = lines[after | (lines <= start - 2 * wanted)]
            others = np.flatnonzero((lengths >= wanted) & (documents != self._document + document))
            if len(lines):
                excerpt = page.excerpt(document, self._drawn(lines), self._length)
                text = excerpt.beginning(wanted, full)
                rows[FIELDS[0]][row, : len(text)] = text
            if len(others):
                text = self._excerpts[self._drawn(others)].beginning(wanted, full)
                rows[FIELDS[1]][row, : len(text)] = text
        return rows

    def _drawn(self, values: np.ndarray) -> int:
        return int(values[self._random.randrange(len(values))])

    def _joined(self, pages: list[Spans]) -> Spans:
        """One after the other."""
        none, rows = np.zeros([0], np.int64), np.zeros([0, self._length], np.int32)
        pages = [Spans(none.astype(np.int32), none, none, none, dict.fromkeys(FIELDS, rows)), *pages]
        at = np.cumsum([0] + [len(page.tokens) for page in pages])
        moved = [page._replace(starts=page.starts + start) for page, start in zip(pages, at, strict=False)]
        extra = {field: np.concatenate([page.extra[field] for page in pages]) for field in FIELDS}
        tokens, starts, first, second = map(np.concatenate, zip(*(page[:4] for page in moved), strict=True))
        return Spans(tokens, starts, first, second, extra)
