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

import random
from collections.abc import Iterable, Mapping
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
_TRIES = 4  # draws of an excerpt, as the example's own document has some too


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


def problem(batch: Mapping[str, np.ndarray]) -> str | None:
    """Says what this builder would not have written; None if there is nothing."""
    room = np.maximum(0, batch["segment_ids"].sum(axis=1) - 1)  # tokens of the second segment without [SEP]
    for field in FIELDS:
        filled = batch[field] > 0
        if (filled != (np.arange(filled.shape[1]) < filled.sum(axis=1)[:, None])).any():
            return f"{field} has zeros between tokens"
        if (filled.sum(axis=1) > room).any():
            return f"{field} is longer than the second segment"
    return None


class _Excerpts(NamedTuple):
    """Beginnings of lines and what follows them in their documents.

    ids: int32 [K, length], filled up with zeros. line_ends: bool [K, length], at the last token of a line. lengths,
    documents: int64 [K].
    """

    ids: np.ndarray
    line_ends: np.ndarray
    lengths: np.ndarray
    documents: np.ndarray


class _Page(NamedTuple):
    """Lines of a page, in the flat array of its examples.

    tokens: int32 [tokens], of which the first may have waited since the last page. line_ends: bool [tokens].
    bounds: int64 [documents + 1], where they begin and end.
    starts, documents: int64 [lines], of those that are not the first of their document; both increase.
    """

    tokens: np.ndarray
    line_ends: np.ndarray
    bounds: np.ndarray
    starts: np.ndarray
    documents: np.ndarray

    def at(self, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and ends of lines from some places on, each [places, length]."""
        taken = places[:, None] + np.arange(length)
        return self.tokens.take(taken, mode="clip"), self.line_ends.take(taken, mode="clip")


class OtherSegmentFinder:
    """Packs a stream of documents and finds the other segments of every example that has two.

    Args:
      packer: decides on the examples, which are the same as without this.
      max_length: tokens of an example, special ones included; so long are the rows of other segments.
      source: of the draws.
    """

    def __init__(self, packer: Packer, max_length: int, source: random.Random, page_tokens: int = PAGE_TOKENS):
        self._packer = packer
        self._length = max_length
        self._page_tokens = page_tokens
        self._random = np.random.Generator(np.random.Philox(key=source.getrandbits(64)))
        self._tokens: list[np.ndarray] = []
        self._lines: list[int] = []
        self._ends: list[bool] = []
        self._size = 0
        self._document = 0  # number of the first one of the page
        self._continues = False  # whether that one began before
        none = np.zeros([0, max_length], np.int32)
        self._excerpts = _Excerpts(none, none > 0, np.zeros([0], np.int64), np.zeros([0], np.int64))

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
        documents = np.cumsum(ends) - ends
        line_ends = np.zeros([len(spans.tokens)], bool)
        line_ends[(starts + lengths - 1)[lengths > 0]] = True
        usable = (lengths > 0) & (starts > bounds[documents])
        page = _Page(spans.tokens, line_ends, bounds, starts[usable], documents[usable])
        self._keep_excerpts(page)
        spans = spans._replace(extra=self._others(spans, page))
        self._document += int(ends.sum())
        self._continues = not ends[-1]
        self._tokens, self._lines, self._ends, self._size = [], [], [], 0
        return spans

    def _keep_excerpts(self, page: _Page) -> None:
        """A few of every document that begins on this page; the oldest make room."""
        begun = page.documents >= int(self._continues)
        lines, documents = page.starts[begun], page.documents[begun]
        order = np.lexsort((self._random.random(len(lines)), documents))
        rank = np.arange(len(lines)) - np.searchsorted(documents, documents)  # sorted by document as they are
        chosen = order[rank < _EXCERPTS_OF_DOCUMENT][-_EXCERPTS:]
        lines, documents = lines[chosen], documents[chosen]
        lengths = np.minimum(page.bounds[documents + 1] - lines, self._length)
        new = _Excerpts(*page.at(lines, self._length), lengths, documents + self._document)
        self._excerpts = _Excerpts(
            *(np.concatenate(both)[-_EXCERPTS:] for both in zip(self._excerpts, new, strict=True))
        )

    def _others(self, spans: Spans, page: _Page) -> dict[str, np.ndarray]:
        wanted = spans.second_lengths
        full = spans.first_lengths + wanted + 3 == self._length
        documents = np.searchsorted(page.bounds[1:-1], spans.starts, side="right")
        elsewhere, places = self._elsewhere(spans, page, documents)
        other, chosen = self._of_another(wanted, documents + self._document)
        excerpts = self._excerpts
        rows = (
            _rows(elsewhere, *page.at(places, self._length), wanted, full),
            _rows(other, excerpts.ids[chosen], excerpts.line_ends[chosen], wanted, full),
        )
        return dict(zip(FIELDS, rows, strict=True))

    def _elsewhere(self, spans: Spans, page: _Page, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws text elsewhere in the document: the examples that have some, bool, and where theirs begins.

        It stands after the example, or before it with as many tokens between as the second segment has: so many are
        also left out between the first segment and what follows the example.
        """
        wanted = spans.second_lengths
        ends = spans.starts + spans.first_lengths + wanted
        first = np.searchsorted(page.starts, page.bounds[documents])
        before = np.searchsorted(page.starts, spans.starts - 2 * wanted, side="right") - first
        after = np.searchsorted(page.starts, ends)
        last = np.searchsorted(page.starts, page.bounds[documents + 1] - wanted, side="right")
        before, behind = np.maximum(before, 0), np.maximum(last - after, 0)
        drawn = (self._random.random(len(wanted)) * (before + behind)).astype(np.int64)
        line = np.where(drawn < before, first + drawn, after + drawn - before)
        found = (wanted > 0) & (before + behind > 0)
        return found, page.starts[line[found]]

    def _of_another(self, wanted: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws excerpts of other documents: the examples that have one, bool, and its number for each of them."""
        excerpts = self._excerpts
        order = np.argsort(-excerpts.lengths, kind="stable")
        enough = np.searchsorted(-excerpts.lengths[order], -wanted, side="right")
        drawn = (self._random.random([len(wanted), _TRIES]) * enough[:, None]).astype(np.int64)
        usable = (enough > 0) & (wanted > 0)
        drawn = order[drawn[usable]]
        others = excerpts.documents[drawn] != documents[usable, None]
        chosen = drawn[np.arange(len(drawn)), others.argmax(axis=1)][others.any(axis=1)]
        found = usable.copy()
        found[usable] = others.any(axis=1)
        return found, chosen

    def _joined(self, pages: list[Spans]) -> Spans:
        """One after the other."""
        none, rows = np.zeros([0], np.int64), np.zeros([0, self._length], np.int32)
        pages = [Spans(none.astype(np.int32), none, none, none, dict.fromkeys(FIELDS, rows)), *pages]
        at = np.cumsum([0] + [len(page.tokens) for page in pages])
        moved = [page._replace(starts=page.starts + start) for page, start in zip(pages, at, strict=False)]
        extra = {field: np.concatenate([page.extra[field] for page in pages]) for field in FIELDS}
        tokens, starts, first, second = map(np.concatenate, zip(*(page[:4] for page in moved), strict=True))
        return Spans(tokens, starts, first, second, extra)


def _rows(
    found: np.ndarray, ids: np.ndarray, line_ends: np.ndarray, wanted: np.ndarray, full: np.ndarray
) -> np.ndarray:
    """int32 [examples, length]: of those that are `found`, as many ids as are `wanted`; where the example is not `full`
    only up to the last line that ends in them, so none if none does."""
    column = np.arange(ids.shape[1])
    rows = np.zeros([len(found), ids.shape[1]], np.int32)
    ends = line_ends & (column < wanted[found, None])
    last = np.where(ends.any(axis=1), ids.shape[1] - ends[:, ::-1].argmax(axis=1), 0)
    lengths = np.where(full[found], wanted[found], last)
    rows[found] = ids * (column < lengths[:, None])
    return rows
