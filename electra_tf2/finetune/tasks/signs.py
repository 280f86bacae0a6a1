"""Divides texts into words at blanks and at signs, as a tagger of marked texts does.

The cards of such taggers hold this code (`source`), by which a program without ours finds the same words. So the
functions need the standard library alone.
"""

import inspect
import re
import unicodedata

from electra_tf2.corpus.scripts import WITHOUT_BLANKS

LETTERS = re.compile(f"[{WITHOUT_BLANKS}]")  # of scripts without blanks between words
WORD = re.compile("[sl]m*|[am]+")  # of kinds of characters


def kind_of(character: str) -> str:
    """Names the kind of a character by a letter.

    " " is a blank, s a sign, l a letter that is a word of its own, a any other letter or a digit, m what belongs to the
    character before it, such as an accent, or is not seen.
    """
    category = unicodedata.category(character)
    if character.isspace():
        return " "
    if category[0] == "M" or category in ("Cc", "Cf") or character == "\u30fc":  # the last: of a long vowel in Japanese
        return "m"
    if category[0] in "PSC":  # punctuation, symbols, emoji; new ones may have no category yet
        return "s"
    if LETTERS.match(character):
        return "l"
    return "a"


def words_at_signs(text: str) -> list[tuple[int, str]]:
    """Lists the words of a text, each behind its place. Signs are words, together with the marks behind them."""
    kinds = "".join(map(kind_of, text))
    return [(match.start(), text[match.start() : match.end()]) for match in WORD.finditer(kinds)]


def source() -> str:
    """The lines of a program that define `words_at_signs`; they need `re` and `unicodedata`."""
    constants = f"LETTERS = re.compile({LETTERS.pattern!a})\nWORD = re.compile({WORD.pattern!a})"
    return "\n\n".join([constants, inspect.getsource(kind_of), inspect.getsource(words_at_signs)])
