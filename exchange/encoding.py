"""Texts as a network reads them: "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]", padded to one length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.util.errors import UserError, shown

Text = str | tuple[str, str]


class Encoded(NamedTuple):
    """int32 [B, L] each; lengths [B] counts the tokens of a row, special ones included."""

    input_ids: np.ndarray
    input_mask: np.ndarray
    segment_ids: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.input_mask.sum(-1)


def encode(tokenizer: WordpieceTokenizer, texts: Sequence[Text], max_length: int, multiple: int = 1) -> Encoded:
    """Tokenises texts and pairs of texts; what does not fit is cut from the end of the longer one.

    Args:
      max_length: tokens of a row, at most, special ones included.
      multiple: the common length is rounded up to one of it (but not beyond max_length).

    Raises:
      UserError: one text instead of several, or what is neither a text nor a pair.
    """
    refuse_single(texts)
    pairs = [_parts(text) for text in texts]
    flat = [part.encode("utf-8", "ignore") for pair in pairs for part in pair]
    ids, lengths = tokenizer.tokenize(flat)
    pieces = iter(np.split(ids, np.cumsum(lengths)[:-1]))
    rows = [pack([next(pieces) for _ in pair], tokenizer.special, max_length) for pair in pairs]
    longest = max((len(row) for row, _ in rows), default=1)
    longest = min(max_length, -(-longest // multiple) * multiple)
    encoded = Encoded(*(np.zeros([len(rows), longest], np.int32) for _ in range(3)))
    encoded.input_ids[:] = tokenizer.special.pad
    for number, (row, segments) in enumerate(rows):
        encoded.input_ids[number, : len(row)] = row
        encoded.input_mask[number, : len(row)] = 1
        encoded.segment_ids[number, : len(row)] = segments
    return encoded


def refuse_single(texts: object) -> None:
    """Raises UserError where a text stands for a list of texts: a string is a list of its characters, too."""
    if isinstance(texts, (str, bytes)):
        raise UserError(f"a list of texts is needed, got a single one: {shown(texts)}")


def _parts(text: object) -> Sequence[str]:
    parts = (text,) if isinstance(text, str) else text
    if not isinstance(parts, (tuple, list)) or len(parts) not in (1, 2) or not all(isinstance(p, str) for p in parts):
        raise UserError(f"a text or a pair of texts is needed, got {shown(text)}")
    return parts


def pack(texts: Sequence[np.ndarray], special: SpecialIds, length: int) -> tuple[np.ndarray, np.ndarray]:
    """int32 input_ids and segment_ids of at most `length`; of a pair the longer text gives way.

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
    return np.concatenate(input_ids), np.concatenate(segment_ids)


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """How much of one or two texts is kept: tokens go one by one from the longer, the second if they are equal."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]
