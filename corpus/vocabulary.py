"""Reading and checking a WordPiece vocabulary without TensorFlow.

A vocabulary is a text file with one token a line; the line number, counted from zero, is the token's id. Everything
that needs ids (the data builder, the masking of the model, the tokenizer) loads the file here, so that a vocabulary
that cannot work is refused at start-up with the list of what is wrong with it.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from util.errors import UserError

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)

_SHOWN = 5  # how many offending tokens an error lists


class VocabularyError(UserError):
    """A vocabulary file that cannot be used; the message names the file and says what to do."""


class SpecialIds(NamedTuple):
    """Ids of the five special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def load_vocab(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a vocabulary file in the order of their ids; raises VocabularyError if it cannot be used."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise VocabularyError(
            f"vocabulary file {str(path)!r} does not exist; give an existing vocab.txt or make one with build_vocab.py"
        ) from None
    except OSError as error:
        raise VocabularyError(f"vocabulary file {str(path)!r} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"vocabulary file {str(path)!r} is not UTF-8 text (byte {error.start}); convert it to UTF-8"
        ) from None
    tokens = [line.strip() for line in text.split("\n")]
    while tokens and not tokens[-1]:
        tokens.pop()
    check_vocab(tokens, str(path))
    return tokens


def check_vocab(tokens: Sequence[str], name: str) -> None:
    """Raises VocabularyError unless every token is there once, none is empty and the special ones are among them."""
    if not tokens:
        raise VocabularyError(f"vocabulary file {name!r} is empty; it needs one token a line")
    problems = []
    missing = [token for token in SPECIAL_TOKENS if token not in set(tokens)]
    if missing:
        problems.append(f"lacks {_listing(missing)}")
    first_line: dict[str, int] = {}
    repeated, blank = [], []
    for number, token in enumerate(tokens, start=1):
        if not token:
            blank.append(str(number))
        elif token in first_line:
            repeated.append(f"{token} (lines {first_line[token]} and {number})")
        else:
            first_line[token] = number
    if repeated:
        problems.append(f"repeats {_listing(repeated)}")
    if blank:
        problems.append(f"has blank lines: {_listing(blank)}")
    if problems:
        hint = "; a WordPiece vocabulary in BERT's format is needed (SentencePiece models are not)" if missing else ""
        raise VocabularyError(f"vocabulary file {name!r} " + ", ".join(problems) + hint)


def special_ids(tokens: Sequence[str]) -> SpecialIds:
    """Ids of [PAD], [UNK], [CLS], [SEP], [MASK] in a vocabulary that load_vocab has accepted."""
    return SpecialIds(*(tokens.index(token) for token in SPECIAL_TOKENS))


def vocab_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the file as it is on disk (what `sha256sum` prints): records and checkpoints name their vocabulary."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise VocabularyError(f"vocabulary file {str(path)!r} cannot be read: {error.strerror}") from None


def _listing(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
