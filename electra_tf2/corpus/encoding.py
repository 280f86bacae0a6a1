"""Texts as a network reads them: "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]", padded to one length."""

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.util.errors import UserError, shown

Text = str | tuple[str, str]


class Row(NamedTuple):
    """One text or pair: int32 [tokens] each, special tokens included; `cut` counts the tokens that did not fit."""

    input_ids: np.ndarray
    segment_ids: np.ndarray
    cut: int = 0


class Encoded(NamedTuple):
    """int32 [B, L] each; lengths [B] counts the tokens of a row, special ones included."""

    input_ids: np.ndarray
    input_mask: np.ndarray
    segment_ids: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.input_mask.sum(-1)


class LongTexts(UserWarning):
    """So many `texts` of all were cut to `limit` tokens; `tokens` were left out."""

    def __init__(self, texts: int, of: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"{texts:,} of {of:,} texts are longer than the {limit:,} tokens that are read, and were cut: "
            f"{tokens:,} tokens do not count"
        )
        self.texts, self.of, self.tokens, self.limit = texts, of, tokens, limit

    @classmethod
    def from_cut(cls, cut: Sequence[int], limit: int) -> "LongTexts | None":
        """The warning to give, if any. cut: tokens that were left out of each text. limit: the longest input."""
        texts = sum(count > 0 for count in cut)
        return cls(texts, len(cut), sum(cut), limit) if texts else None

    @classmethod
    def all_of(cls, parts: Sequence["LongTexts"], of: int, limit: int) -> "LongTexts":
        """One warning for several calls on `of` texts."""
        return cls(sum(part.texts for part in parts), of, sum(part.tokens for part in parts), limit)


def encode(tokenizer: WordpieceTokenizer, texts: Sequence[Text], max_length: int) -> Encoded:
    """Tokenises texts and pairs of texts and pads them to the longest. Arguments and errors as `rows_of`."""
    return padded(rows_of(tokenizer, texts, max_length), tokenizer.special)


def rows_of(tokenizer: WordpieceTokenizer, texts: Sequence[Text], max_length: int) -> list[Row]:
    """Tokenises texts and pairs of texts; tokens that do not fit are cut from the end of the longer one.

    Args:
      max_length: tokens of a row, at most, special ones included.

    Raises:
      UserError: `texts` is neither a text nor a list, or one of it is neither a text nor a pair.

    Warns:
      LongTexts: some were cut.
    """
    pairs = [_parts(text) for text in listed(texts)]
    pieces = iter(tokenizer.pieces([part for pair in pairs for part in pair]))
    rows = [pack(list(itertools.islice(pieces, len(pair))), tokenizer.special, max_length) for pair in pairs]
    warn_of_cut([row.cut for row in rows], max_length)
    return rows


def warn_of_cut(cut: Sequence[int], limit: int) -> None:
    """Warns of texts that were cut (`LongTexts.from_cut`), in the name of the caller's caller."""
    if found := LongTexts.from_cut(cut, limit):
        warnings.warn(found, stacklevel=4)


class Window(NamedTuple):
    """A part of a long text that is read at once, and the tokens that it answers for.

    start: number of its first token in the text. row: the input. kept: tokens of the text, from and to, which this
    window shows with more around them than its neighbours do.
    """

    start: int
    row: Row
    kept: slice


def windows_of(pieces: np.ndarray, special: SpecialIds, max_length: int) -> list[Window]:
    """Cuts a text's tokens, int32 [pieces], into windows that overlap by half; each token is kept by one of them."""
    room = max_length - 2
    last = max(0, len(pieces) - room)
    starts = [*range(0, last, max(1, room // 2)), last]
    borders = [0, *((start + before + room) // 2 for before, start in itertools.pairwise(starts)), len(pieces)]
    rows = [pack([pieces[start : start + room]], special, max_length) for start in starts]
    kept = itertools.starmap(slice, itertools.pairwise(borders))
    return [Window(*window) for window in zip(starts, rows, kept, strict=True)]


def padded(rows: Sequence[Row], special: SpecialIds) -> Encoded:
    """Pads rows to the length of the longest."""
    shape = [len(rows), max((len(row.input_ids) for row in rows), default=1)]
    encoded = Encoded(np.full(shape, special.pad, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32))
    for number, row in enumerate(rows):
        here = slice(len(row.input_ids))
        encoded.input_ids[number, here], encoded.segment_ids[number, here] = row.input_ids, row.segment_ids
        encoded.input_mask[number, here] = 1
    return encoded


def by_length(lengths: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """Places of a batch's rows at a time, shortest rows first, so that rows of a batch need little padding."""
    order = np.argsort(lengths, kind="stable")
    yield from np.split(order, range(batch_size, len(order), batch_size)) if len(order) else ()


def at_tokens(
    function: Callable[..., Any], rows: Sequence[Row], special: SpecialIds, batch_size: int
) -> list[np.ndarray]:
    """Values at each row's tokens, [tokens, ...], of a function of `Encoded` that returns a tensor [B, L, ...]."""
    found: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for places, values, lengths in of_rows(function, rows, special, batch_size):
        for place, of_row, length in zip(places, values, lengths, strict=True):
            found[place] = of_row[:length]
    return found


def of_rows(
    function: Callable[..., Any], rows: Sequence[Row], special: SpecialIds, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(places of the rows of a batch, values [B, ...] of a function of `Encoded`, numbers of tokens), batch by batch.

    Rows of similar length are computed together.
    """
    for places in by_length([len(row.input_ids) for row in rows], batch_size):
        inputs = padded([rows[place] for place in places], special)
        yield places, function(*inputs).numpy(), inputs.lengths


def listed(texts: Any) -> list[Any]:
    """The texts that a call from Python was given, a single one or several, as a list; all calls take them here.

    Raises:
      UserError: something else, which may look like a list: a table iterates over the names of its columns.
    """
    if isinstance(texts, str):
        return [texts]
    for columns in ("columns", "column_names"):  # of pandas and polars, of Arrow and `datasets`
        names = getattr(texts, columns, None)
        if names is not None and hasattr(texts, "__getitem__"):
            raise UserError(f"a list of texts is needed, got a table: give one of its columns, {shown(list(names))}")
    is_sequence = hasattr(texts, "__len__") and hasattr(texts, "__getitem__")
    if not is_sequence or isinstance(texts, (Mapping, bytes)):
        raise UserError(f"a text or a list of texts is needed, got {shown(texts)}")
    axes = getattr(texts, "ndim", 1)
    if axes != 1:
        raise UserError(f"a list of texts is needed, got an array of {axes} axes: give one column or row of it")
    return list(texts)


def _parts(text: object) -> Sequence[str]:
    parts = (text,) if isinstance(text, str) else text
    if not isinstance(parts, (tuple, list)) or len(parts) not in (1, 2) or not all(isinstance(p, str) for p in parts):
        raise UserError(f"a text or a pair of texts is needed, got {shown(text)}")
    return parts


def pack(texts: Sequence[np.ndarray], special: SpecialIds, length: int) -> Row:
    """The row of at most `length` tokens of a text or a pair, of which the longer text is cut first.

    Args:
      texts: int32 [pieces] each.
    """
    input_ids, segment_ids = [np.array([special.cls], np.int32)], [np.zeros(1, np.int32)]
    kept = truncated_lengths([len(text) for text in texts], length - 1 - len(texts))
    for segment, (text, room) in enumerate(zip(texts, kept, strict=True)):
        if segment and not len(text):  # an empty second text has no [SEP] of its own
            continue
        input_ids += [text[:room], np.array([special.sep], np.int32)]
        segment_ids.append(np.full(room + 1, segment, np.int32))
    return Row(np.concatenate(input_ids), np.concatenate(segment_ids), sum(map(len, texts)) - sum(kept))


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """Lengths to which one or two texts are cut: tokens go one by one from the longer, else from the second."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    kept = min(first, max(room - second, (room + 1) // 2))
    return [kept, min(second, room - kept)]
