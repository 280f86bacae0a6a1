"""Warnings of tokens that a model does not know, wherever it answers: it reads [UNK] in their place."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.util.progress import counted

_TEXTS_LOOKED_AT = 1000  # for characters without a token, of the texts with unknown tokens
_SHOWN = 10


class UnknownTokens(UserWarning):
    """So many `unknown` of all `tokens` are [UNK].

    Args:
      characters: those without a token, the commonest first.
    """

    def __init__(self, unknown: int, tokens: int, characters: Sequence[str]) -> None:
        share = f"{counted(unknown, 'token')} of {tokens:,} {'is' if unknown == 1 else 'are'} unknown to this model"
        reason = "words are too long, or their pieces missing"
        if characters:
            reason = f"characters without a token: {' '.join(characters[:_SHOWN])}"
        super().__init__(f"{share}: it reads [UNK] there ({reason})")
        self.unknown = unknown
        self.tokens = tokens


def unknown_tokens(
    tokenizer: WordpieceTokenizer, ids: Sequence[np.ndarray], texts: Sequence[Iterable[str]]
) -> UnknownTokens | None:
    """The warning to give of texts with unknown tokens; None if there are none.

    Args:
      ids: int32 [tokens] of each input.
      texts: the text or texts of each input.
    """
    special = tokenizer.special
    around = [special.cls, special.sep, special.pad]  # which are no tokens of a text
    if special.unk in around:  # of bytes, which are never unknown
        return None
    unknown = 0
    tokens = 0
    lines: list[bytes] = []
    for input_ids, its_texts in zip(ids, texts, strict=True):
        tokens += int(np.count_nonzero(~np.isin(input_ids, around)))
        count = int(np.count_nonzero(input_ids == special.unk))
        unknown += count
        if count and len(lines) < _TEXTS_LOOKED_AT:
            lines += [text.encode("utf-8", "ignore") for text in its_texts]
    if not unknown:
        return None
    characters: list[str] = []
    if tokenizer.is_wordpiece:
        normalized = tokenizer.normalize.joined(lines).decode()
        characters = [character for character, _ in tokenizer.without_token(Counter(normalized))]
    return UnknownTokens(unknown, tokens, characters)


def warn_of_unknown(
    tokenizer: WordpieceTokenizer, ids: Sequence[np.ndarray], texts: Sequence[Iterable[str]], stacklevel: int = 3
) -> None:
    """Warns of unknown tokens in the name of the caller's caller. Arguments as `unknown_tokens`."""
    warning = unknown_tokens(tokenizer, ids, texts)
    if warning is not None:
        warnings.warn(warning, stacklevel=stacklevel)
