"""Tells from a vocabulary alone how text was normalised for it. No TensorFlow, no numpy.

A vocabulary made of normalised text holds normalised words. So text was not lower-cased if lower-casing would change
words of the vocabulary, and likewise for accents. A few such words prove nothing: somebody's own words may stand in
place of [unused1] and its kind.
"""

import unicodedata
from collections.abc import Iterable

_STRAY = 0.05  # share of words that a vocabulary of normalised text may have of another kind


def without_accents(text: str) -> str:
    """Strips accents as BERT's BasicTokenizer does: decomposes characters, and drops the marks."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def is_lower_cased(tokens: Iterable[str]) -> bool:
    """Tells whether a WordPiece vocabulary is one of lower-cased text. One without any letter that has a case is.

    `str.isupper` would not do: BERT's uncased vocabulary holds U+211D, a capital letter that has no lower case.
    """
    words_with_case = 0
    words_with_capitals = 0
    for word in _words(tokens):
        lower = word.lower()
        if lower != word.upper():
            words_with_case += 1
        if lower != word:
            words_with_capitals += 1
    return words_with_capitals <= _STRAY * words_with_case


def keeps_accents(tokens: Iterable[str]) -> bool:
    """Tells whether a WordPiece vocabulary is one of text whose accents were kept.

    Stripping also decomposes Hangul and drops vowel signs of other scripts, so that their words are found only if
    accents are kept.
    """
    words_beyond_ascii = 0
    words_with_accents = 0
    for word in _words(tokens):
        if word.isascii():
            continue
        words_beyond_ascii += 1
        if without_accents(word) != word:
            words_with_accents += 1
    return words_with_accents > _STRAY * words_beyond_ascii


def _words(tokens: Iterable[str]) -> list[str]:
    """Leaves out special tokens, which are no text: [CLS], [unused1], and <S> of BERT's Chinese vocabulary."""
    words = []
    for token in tokens:
        in_brackets = token.startswith("[") and token.endswith("]")
        in_angles = token.startswith("<") and token.endswith(">")
        if not (in_brackets or in_angles):
            words.append(token)
    return words
