"""Warns of characters and words that a vocabulary lacks. A network reads [UNK] in their place.

Three readers are told different things: who builds records can make another vocabulary; who fine-tunes can choose
another model; who asks a model for answers can do neither, and is told how many tokens do not count.
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.util.progress import counted

_MANY = 0.01  # share of [UNK] in records or in a task's texts that is worth a warning
_SEARCHED_TEXTS_OF_TASK = 10_000  # for characters without a token
_SEARCHED_TEXTS = 1000  # with [UNK], of those that a model answers for
_SHOWN = 10  # characters in a message


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


def characters_without_token(tokenizer: WordpieceTokenizer, characters: Counter[str]) -> list[tuple[str, int]]:
    """Filters counted characters of normalised texts: those that are no token, the most frequent first."""
    known = {token.removeprefix("##") for token in tokenizer.vocab}
    unknown = []
    for character, count in characters.items():
        if character not in known and not character.isspace():
            unknown.append((character, count))
    return sorted(unknown, key=lambda item: (-item[1], item[0]))


def _unknown_characters(tokenizer: WordpieceTokenizer, texts: Iterable[str]) -> list[str]:
    """Lists the characters of texts that are no token, the most frequent first; none of a byte-level vocabulary."""
    if not tokenizer.is_wordpiece:
        return []
    lines = [text.encode("utf-8", "ignore") for text in texts]
    normalized = tokenizer.normalize.joined(lines).decode()
    return [character for character, _ in characters_without_token(tokenizer, Counter(normalized))]


def report_on_records(share: float, characters: Sequence[str]) -> str:
    """Makes a warning about [UNK] in records, with advice for their builder; "" if there is little.

    Args:
      share: share of the tokens that are [UNK].
      characters: characters without a token, the most frequent first.
    """
    if share < _MANY:
        return ""
    return (
        f"{_share_and_characters(share, characters, 'which teach nothing')}. Use a vocabulary of this language and "
        "casing, or make one with a larger --limit-alphabet (electra build-vocab)"
    )


def report_on_task(tokenizer: WordpieceTokenizer, ids: Iterable[np.ndarray], texts: Iterable[str]) -> str:
    """Makes a warning about [UNK] in a task's texts, with advice for who fine-tunes; "" if there is little.

    Args:
      ids: of each input, int32 [tokens].
      texts: of all inputs, in any order.
    """
    all_ids = np.concatenate([np.zeros(0, np.int32), *ids])
    unknown = np.count_nonzero(all_ids == tokenizer.special.unk)
    share = unknown / max(len(all_ids), 1)
    if share < _MANY or not tokenizer.is_wordpiece:
        return ""
    characters = _unknown_characters(tokenizer, itertools.islice(texts, _SEARCHED_TEXTS_OF_TASK))
    meaning = "words that look all alike to the model"
    said = _share_and_characters(share, characters, meaning)
    if characters and not any(character.isalpha() for character in characters):
        return said  # of emoji and symbols no other model is likely to know more
    return f"{said}. Use a model of this language and casing"


def _share_and_characters(share: float, characters: Sequence[str], meaning: str) -> str:
    commonest = " ".join(characters[:_SHOWN]) or "none, words are too long or their pieces missing"
    return (
        f"{100 * share:.1f} % of the tokens are [UNK], {meaning}. The commonest characters without a token: {commonest}"
    )


def unknown_tokens(
    tokenizer: WordpieceTokenizer, ids: Sequence[np.ndarray], texts: Sequence[Iterable[str]]
) -> UnknownTokens | None:
    """Makes a warning if texts that a model answers for have unknown tokens, or else None.

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
    texts_with_unknown: list[str] = []
    for input_ids, input_texts in zip(ids, texts, strict=True):
        tokens += int(np.count_nonzero(~np.isin(input_ids, not_text)))
        unknown_here = int(np.count_nonzero(input_ids == special.unk))
        unknown += unknown_here
        if unknown_here and len(texts_with_unknown) < _SEARCHED_TEXTS:
            texts_with_unknown += input_texts
    if not unknown:
        return None
    return UnknownTokens(unknown, tokens, _unknown_characters(tokenizer, texts_with_unknown))


def warn_of_unknown(
    tokenizer: WordpieceTokenizer, ids: Sequence[np.ndarray], texts: Sequence[Iterable[str]], stacklevel: int = 3
) -> None:
    """Warns of unknown tokens at the line that called the caller. Other arguments as in `unknown_tokens`."""
    warning = unknown_tokens(tokenizer, ids, texts)
    if warning is not None:
        warnings.warn(warning, stacklevel=stacklevel)
