"""Turns texts into a network's input: rows "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]", padded batches.

B batch, L length.
"""

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
    """A text or a pair as input, int32 [tokens] each, special ones included. cut: number of tokens that did not fit."""

    input_ids: np.ndarray
    segment_ids: np.ndarray
    cut: int = 0


class Encoded(NamedTuple):
    """A padded batch, int32 [B, L] each."""

    input_ids: np.ndarray
    input_mask: np.ndarray
    segment_ids: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.input_mask.sum(-1)


class LongTexts(UserWarning):
    """Some texts were truncated.

    Args:
      texts: number of truncated texts. all_texts: number of texts. tokens: number of tokens that were cut off.
      limit: most tokens of an input. noun: what was truncated, if it is no whole text.
    """

    def __init__(self, texts: int, all_texts: int, tokens: int, limit: int, noun: str = "text") -> None:
        super().__init__(
            f"{texts:,} of {all_texts:,} {noun}s are longer than the {limit:,} tokens that are read, and were cut: "
            f"{tokens:,} tokens do not count"
        )
        self.texts = texts
        self.all_texts = all_texts
        self.tokens = tokens
        self.limit = limit

    @classmethod
    def from_cut(cls, cut: Sequence[int], limit: int, noun: str = "text") -> "LongTexts | None":
        """Makes a warning if texts were truncated, or else None. cut: number of tokens that were cut off each text."""
        texts = sum(count > 0 for count in cut)
        if not texts:
            return None
        return cls(texts, len(cut), sum(cut), limit, noun)

    @classmethod
    def merged(cls, warnings: Sequence["LongTexts"], all_texts: int, limit: int) -> "LongTexts":
        """Merges the warnings of several calls into one."""
        texts = sum(warning.texts for warning in warnings)
        tokens = sum(warning.tokens for warning in warnings)
        return cls(texts, all_texts, tokens, limit)


def encode(tokenizer: WordpieceTokenizer, texts: Sequence[Text], max_length: int) -> Encoded:
    """Tokenises texts and pairs of texts into one padded batch. Arguments and errors as in `encode_rows`."""
    return padded(encode_rows(tokenizer, texts, max_length), tokenizer.special)


def encode_rows(tokenizer: WordpieceTokenizer, texts: Sequence[Text], max_length: int) -> list[Row]:
    """Tokenises texts and pairs of texts. Tokens that do not fit are cut off the end of the longer one.

    Args:
      max_length: most tokens of a row, special ones included.

    Raises:
      UserError: `texts` is neither a text nor a list, or an entry is neither a text nor a pair.

    Warns:
      LongTexts: some texts were truncated.
    """
    inputs = [_as_tuple(text) for text in text_list(texts)]
    # Tokenising everything in one call is fast. The pieces come in the order of the texts.
    pieces = iter(tokenizer.pieces(list(itertools.chain.from_iterable(inputs))))
    rows = []
    for input_texts in inputs:
        input_pieces = list(itertools.islice(pieces, len(input_texts)))
        rows.append(pack(input_pieces, tokenizer.special, max_length))
    warn_of_cut([row.cut for row in rows], max_length)
    return rows


def warn_of_cut(cut: Sequence[int], limit: int, noun: str = "text") -> None:
    """Warns of truncated texts (`LongTexts.from_cut`) at the line that called the caller's caller."""
    warning = LongTexts.from_cut(cut, limit, noun)
    if warning is not None:
        warnings.warn(warning, stacklevel=4)


class Window(NamedTuple):
    """A part of a long text that is read at once, and those of its tokens for which its results are used.

    start: position of its first token in the text. row: the input. kept: positions in the text of the tokens that have
    more context in this window than in the neighbouring ones.
    """

    start: int
    row: Row
    kept: slice


def windows_of(pieces: np.ndarray, special: SpecialIds, max_length: int) -> list[Window]:
    """Cuts a text's tokens, int32 [pieces], into windows that overlap by half. Exactly one window keeps each token."""
    room = max_length - 2  # beside [CLS] and [SEP]
    last = max(0, len(pieces) - room)
    starts = [*range(0, last, max(1, room // 2)), last]
    # Neighbouring windows share the tokens from the second's start to the first's end. Each keeps half of them.
    borders = [0]
    for previous, start in itertools.pairwise(starts):
        borders.append((start + previous + room) // 2)
    borders.append(len(pieces))
    windows = []
    for index, start in enumerate(starts):
        row = pack([pieces[start : start + room]], special, max_length)
        windows.append(Window(start, row, slice(borders[index], borders[index + 1])))
    return windows


def padded(rows: Sequence[Row], special: SpecialIds) -> Encoded:
    """Pads rows to the length of the longest."""
    longest = max((len(row.input_ids) for row in rows), default=1)
    input_ids = np.full([len(rows), longest], special.pad, np.int32)
    input_mask = np.zeros_like(input_ids)
    segment_ids = np.zeros_like(input_ids)
    for index, row in enumerate(rows):
        length = len(row.input_ids)
        input_ids[index, :length] = row.input_ids
        input_mask[index, :length] = 1
        segment_ids[index, :length] = row.segment_ids
    return Encoded(input_ids, input_mask, segment_ids)


def by_length(lengths: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """Sorts rows by length and cuts them into batches, which then need little padding. Yields each batch's indices."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def values_at_tokens(
    function: Callable[..., Any], rows: Sequence[Row], special: SpecialIds, batch_size: int
) -> list[np.ndarray]:
    """Runs a network on rows, in batches of similar length.

    Args:
      function: from the fields of `Encoded` to a tensor [B, L, ...].

    Returns:
      For each row its values without padding, [tokens, ...].
    """
    all_values: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for indices, values, lengths in values_in_batches(function, rows, special, batch_size):
        for index, row_values, length in zip(indices, values, lengths, strict=True):
            all_values[index] = row_values[:length]
    return all_values


def values_in_batches(
    function: Callable[..., Any], rows: Sequence[Row], special: SpecialIds, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Runs a network on rows, in batches of similar length.

    Args:
      function: from the fields of `Encoded` to a tensor [B, ...].

    Yields:
      For each batch the indices of its rows, the values [B, ...], and the rows' numbers of tokens.
    """
    for indices in by_length([len(row.input_ids) for row in rows], batch_size):
        inputs = padded([rows[index] for index in indices], special)
        yield indices, function(*inputs).numpy(), inputs.lengths


def text_list(texts: Any) -> list[Any]:
    """Makes a list of the text or texts that a method of a model is called with.

    Raises:
      UserError: it is neither a text nor a list. A data frame is refused, too: it would iterate over column names.
    """
    if isinstance(texts, str):
        return [texts]
    # A table has the first in pandas and polars, the second in Arrow and `datasets`.
    for attribute in ("columns", "column_names"):
        names = getattr(texts, attribute, None)
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
    """Makes the row of a text or a pair.

    Args:
      texts: int32 [pieces] each. The longer one is truncated first.
      length: most tokens of the row.
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
    """Lengths to which one or two texts are truncated.

    As if tokens were cut one by one from the longer text, or from the second if both are equally long (BERT).
    """
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    # The first text gets what the second does not need, and at least half, rounded up. The second gets the rest.
    first_kept = min(first, max(room - second, (room + 1) // 2))
    return [first_kept, min(second, room - first_kept)]
