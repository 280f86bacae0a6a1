"""Texts as a network reads them: "[CLS] text [SEP]" or "[CLS] text [SEP] text [SEP]", padded to one length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corpus.tokenization import WordpieceTokenizer

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
    """
    pairs = [(text,) if isinstance(text, str) else text for text in texts]
    flat = [part.encode("utf-8", "ignore") for pair in pairs for part in pair]
    ids, lengths = tokenizer.tokenize(flat)
    pieces = iter(np.split(ids, np.cumsum(lengths)[:-1]))
    special = tokenizer.special
    rows = []
    for pair in pairs:
        parts = [list(next(pieces)) for _ in pair]
        while sum(map(len, parts)) > max_length - 1 - len(parts):
            max(reversed(parts), key=len).pop()
        segments = [0] + [number for number, part in enumerate(parts) for _ in range(len(part) + 1)]
        rows.append(([special.cls, *(i for part in parts for i in (*part, special.sep))], segments))
    longest = max((len(row) for row, _ in rows), default=1)
    longest = min(max_length, -(-longest // multiple) * multiple)
    encoded = Encoded(*(np.zeros([len(rows), longest], np.int32) for _ in range(3)))
    encoded.input_ids[:] = special.pad
    for number, (row, segments) in enumerate(rows):
        encoded.input_ids[number, : len(row)] = row
        encoded.input_mask[number, : len(row)] = 1
        encoded.segment_ids[number, : len(row)] = segments
    return encoded
