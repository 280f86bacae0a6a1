"""Reading and checking a WordPiece vocabulary without TensorFlow.

A vocabulary is a text file with one token a line; the line number, counted from zero, is the token's id. Everything
that needs ids (the data builder, the masking of the model, the tokenizer) loads the file here, so that a vocabulary
that cannot work is refused at start-up with the list of what is wrong with it.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_bytes, read_text

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
MAX_TOKENS = 1 << 20  # beyond any vocabulary in use; records encode ids in three bytes

_WHAT = "vocabulary file"
_MAX_TOKEN_BYTES = 256  # of tensorflow_text
_SHOWN = 5  # how many offending tokens an error lists


class SpecialIds(NamedTuple):
    """Ids of the five special tokens, and of others that are never masked."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    unmasked: tuple[int, ...] = ()


def load_vocab(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a vocabulary file in the order of their ids; raises UserError if it cannot be used."""
    path = os.fspath(path)
    if not os.path.lexists(path):
        raise UserError(f"{_WHAT} {path!r} does not exist; give an existing vocab.txt or make one with build_vocab.py")
    tokens = [line.strip() for line in read_text(path, _WHAT).split("\n")]
    while tokens and not tokens[-1]:
        tokens.pop()
    check_vocab(tokens, path)
    return tokens


def check_vocab(tokens: Sequence[str], name: str) -> None:
    """Raises UserError unless every token is there once and can be used, and the special ones are among them."""
    if not tokens:
        raise UserError(f"{_WHAT} {name!r} is empty; it needs one token a line")
    if len(tokens) > MAX_TOKENS:
        raise UserError(f"{_WHAT} {name!r} has {len(tokens):,} tokens; at most {MAX_TOKENS:,} are supported")
    lines = {token: number for number, token in enumerate(tokens, start=1)}
    problems = []
    missing = [token for token in SPECIAL_TOKENS if token not in lines]
    if missing:
        problems.append(f"lacks {_listing(missing)}")
    if len(lines) < len(tokens):
        lines_of = enumerate(tokens, start=1)
        repeated = [f"{token} (lines {n} and {lines[token]})" for n, token in lines_of if token and lines[token] != n]
        problems.append(f"repeats {_listing(repeated)}")
    unusable = {
        "has blank lines": lambda token: not token,
        "has tokens with a NUL character in lines": lambda token: "\0" in token,
        "has tokens that are too long in lines": lambda token: (
            len(token) * 4 > _MAX_TOKEN_BYTES and len(token.removeprefix("##").encode()) > _MAX_TOKEN_BYTES
        ),
    }
    for problem, is_so in unusable.items():
        found = [str(number) for number, token in enumerate(tokens, start=1) if is_so(token)]
        if found:
            problems.append(f"{problem}: {_listing(found)}")
    if not problems and all(token[0] == "[" and token[-1] == "]" for token in tokens):
        problems.append("holds special tokens and no words")
    if problems:
        hint = "; a WordPiece vocabulary in BERT's format is needed (SentencePiece models are not)" if missing else ""
        raise UserError(f"{_WHAT} {name!r} " + ", ".join(problems) + hint)


def special_ids(tokens: Sequence[str], unmasked: Iterable[str] = ()) -> SpecialIds:
    """Ids of [PAD], [UNK], [CLS], [SEP], [MASK] and of `unmasked` in a vocabulary that load_vocab has accepted."""
    pad, unk, cls, sep, mask = map(tokens.index, SPECIAL_TOKENS)
    return SpecialIds(pad, unk, cls, sep, mask, tuple(map(tokens.index, unmasked)))


def vocab_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the file as it is on disk (what `sha256sum` prints): records and checkpoints name their vocabulary."""
    return hashlib.sha256(read_bytes(os.fspath(path), _WHAT)).hexdigest()


def _listing(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
