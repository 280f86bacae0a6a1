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
    """Input of one text or pair, int32 [tokens] each with the special tokens; `cut` counts tokens that did not fit."""

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
    """Warns that `texts` of `of` texts were cut to `limit` tokens, and that `tokens` were left out."""

    def __init__(self, texts: int, of: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"{texts:,} of {of:,} texts are longer than the {limit:,} tokens that are read, and were cut: "
            f"{tokens:,} tokens do not count"
        )
        self.texts = texts
        self.of = of
        self.tokens = tokens
        self.limit = limit

    @classmethod
    def from_cut(cls, cut: Sequence[int], limit: int) -> "LongTexts | None":
        """The warning to give, if any. cut: tokens that were left out of each text. limit: the longest input."""
        texts = sum(count > 0 for count in cut)
        if not texts:
            return None
        return cls(texts, len(cut), sum(cut), limit)

    @classmethod
    def all_of(cls, warnings: Sequence["LongTexts"], of: int, limit: int) -> "LongTexts":
        """One warning in place of those of several calls, on `of` texts together."""
        texts = sum(warning.texts for warning in warnings)
        tokens = sum(warning.tokens for warning in warnings)
        return cls(texts, of, tokens, limit)


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
    inputs = [_as_tuple(text) for text in listed(texts)]
    # All are tokenised at once, which is fast, and dealt out again.
    pieces = iter(tokenizer.pieces(list(itertools.chain.from_iterable(inputs))))
    rows = []
    for texts_of_input in inputs:
        pieces_of_input = list(itertools.islice(pieces, len(texts_of_input)))
        rows.append(pack(pieces_of_input, tokenizer.special, max_length))
    warn_of_cut([row.cut for row in rows], max_length)
    return rows


def warn_of_cut(cut: Sequence[int], limit: int) -> None:
    """Warns of texts that were cut (`LongTexts.from_cut`), at the line that called our caller's caller."""
    warning = LongTexts.from_cut(cut, limit)
    if warning is not None:
        warnings.warn(warning, stacklevel=4)


class Window(NamedTuple):
    """A stretch of a long text that is read at once, and the tokens that it answers for.

    start: number of its first token in the text. row: the input. kept: the tokens of the text, from and to, that have
    more text around them in this window than in its neighbours.
    """

    start: int
    row: Row
    kept: slice


def windows_of(pieces: np.ndarray, special: SpecialIds, max_length: int) -> list[Window]:
    """Cuts a text's tokens, int32 [pieces], into windows that overlap by half; each token is kept by one of them."""
    room = max_length - 2  # for [CLS] and [SEP]
    last = max(0, len(pieces) - room)
    starts = [*range(0, last, max(1, room // 2)), last]
    # Two neighbours share the tokens from the start of the second to the end of the first: each keeps a half of them.
    borders = [0]
    for before, start in itertools.pairwise(starts):
        borders.append((start + before + room) // 2)
    borders.append(len(pieces))
    windows = []
    for number, start in enumerate(starts):
        row = pack([pieces[start : start + room]], special, max_length)
        windows.append(Window(start, row, slice(borders[number], borders[number + 1])))
    return windows


def padded(rows: Sequence[Row], special: SpecialIds) -> Encoded:
    """Pads rows to the length of the longest."""
    longest = max((len(row.input_ids) for row in rows), default=1)
    input_ids = np.full([len(rows), longest], special.pad, np.int32)
    input_mask = np.zeros_like(input_ids)
    segment_ids = np.zeros_like(input_ids)
    for number, row in enumerate(rows):
        length = len(row.input_ids)
        input_ids[number, :length] = row.input_ids
        input_mask[number, :length] = 1
        segment_ids[number, :length] = row.segment_ids
    return Encoded(input_ids, input_mask, segment_ids)


def by_length(lengths: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """Numbers of the rows of one batch after the other, shortest rows first, so that they need little padding."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def at_tokens(
    function: Callable[..., Any], rows: Sequence[Row], special: SpecialIds, batch_size: int
) -> list[np.ndarray]:
    """Values at each row's tokens, [tokens, ...], of a function of `Encoded` that returns a tensor [B, L, ...]."""
    values_of_rows: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for places, values, lengths in of_rows(function, rows, special, batch_size):
        for place, values_of_row, length in zip(places, values, lengths, strict=True):
            values_of_rows[place] = values_of_row[:length]
    return values_of_rows


def of_rows(
    function: Callable[..., Any], rows: Sequence[Row], special: SpecialIds, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Values [B, ...] of a function of `Encoded`, batch by batch, each with its rows' numbers and their lengths.

    Rows of similar length are computed together: (numbers of the rows, values, numbers of tokens).
    """
    for places in by_length([len(row.input_ids) for row in rows], batch_size):
        inputs = padded([rows[place] for place in places], special)
        yield places, function(*inputs).numpy(), inputs.lengths


def listed(texts: Any) -> list[Any]:
    """The texts that a call from Python is given, a single one or several, as a list. All such calls go through here.

    Raises:
      UserError: something else, even if it can be iterated over: a table would give the names of its columns.
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


def _as_tuple(text: object) -> tuple[str, ...]:
    """A text, or a pair of texts, as a tuple. Raises UserError for anything else."""
    if isinstance(text, str):
        return (text,)
    if isinstance(text, (tuple, list)) and len(text) in (1, 2) and all(isinstance(item, str) for item in text):
        return tuple(text)
    raise UserError(f"a text or a pair of texts is needed, got {shown(text)}")


def pack(texts: Sequence[np.ndarray], special: SpecialIds, length: int) -> Row:
    """The row of at most `length` tokens of a text or a pair, of which the longer text is cut first.

    Args:
      texts: int32 [pieces] each.
    """
    separator = np.array([special.sep], np.int32)
    input_ids = [np.array([special.cls], np.int32)]
    segment_ids = [np.zeros(1, np.int32)]
    lengths = [len(text) for text in texts]
    kept = truncated_lengths(lengths, length - 1 - len(texts))
    for segment, text in enumerate(texts):
        if segment == 1 and not len(text):  # an empty second text has no [SEP] of its own
            continue
        input_ids += [text[: kept[segment]], separator]
        segment_ids.append(np.full(kept[segment] + 1, segment, np.int32))
    return Row(np.concatenate(input_ids), np.concatenate(segment_ids), sum(lengths) - sum(kept))


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """Lengths to which one or two texts are cut: tokens go one by one from the longer, else from the second."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    kept = min(first, max(room - second, (room + 1) // 2))
    return [kept, min(second, room - kept)]
