"""Warns of words and characters that a model does not know. It reads [UNK] in their place."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.util.progress import counted

_SEARCHED_TEXTS = 1000  # texts with [UNK] that are searched for characters without a token
_SHOWN = 10  # such characters in the message


class UnknownTokens(UserWarning):
    """Some tokens are [UNK].

    Args:
      unknown: number of [UNK]. tokens: number of all tokens.
      characters: characters without a token, the most frequent first.
    """

    def __init__(self, unknown: int, tokens: int, characters: Sequence[str]) -> None:
        verb = "is" if unknown == 1 else "are"
        share = f"{counted(unknown, 'token')} of {tokens:,} {verb} unknown to this model"
        reason = "words are too long, or their pieces missing"
        if characters:
            reason = f"characters without a token: {' '.join(characters[:_SHOWN])}"
        super().__init__(f"{share}: it reads [UNK] there ({reason})")
        self.unknown = unknown
        self.tokens = tokens


def unknown_tokens(
    tokenizer: WordpieceTokenizer, ids: Sequence[np.ndarray], texts: Sequence[Iterable[str]]
) -> UnknownTokens | None:
    """Makes a warning if texts have unknown tokens, or else None.

    Args:
      ids: for each input, int32 [tokens].
      texts: for each input, its text or texts.
    """
    special = tokenizer.special
    not_text = [special.cls, special.sep, special.pad]
    if special.unk in not_text:  # a byte-level tokenizer has no [UNK]: it knows every byte
        return None
    unknown = 0
    tokens = 0
    lines: list[bytes] = []
    for input_ids, input_texts in zip(ids, texts, strict=True):
        tokens += int(np.count_nonzero(~np.isin(input_ids, not_text)))
        unknown_here = int(np.count_nonzero(input_ids == special.unk))
        unknown += unknown_here
        if unknown_here and len(lines) < _SEARCHED_TEXTS:
            lines += [text.encode("utf-8", "ignore") for text in input_texts]
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
    """Warns of unknown tokens at the line that called the caller. Other arguments as in `unknown_tokens`."""
    warning = unknown_tokens(tokenizer, ids, texts)
    if warning is not None:
        warnings.warn(warning, stacklevel=stacklevel)
