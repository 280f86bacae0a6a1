"""BERT's text normalisation, before WordPiece, for large batches of lines.

The tokenizer and the vocabulary trainer both call this, so a vocabulary is trained on the words that are looked up in
it. The steps are those of BERT's BasicTokenizer: drop control and unassigned characters, replace white space by blanks,
put blanks around Chinese characters, lower-case, strip accents, put blanks around punctuation. They are not done for
each character or word: a byte table translates ASCII, and each distinct run of other characters is normalised once and
cached. Unicode properties are those of the running Python's unicodedata, as in the original. No TensorFlow.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from electra_tf2.corpus.casing import without_accents
from electra_tf2.corpus.corpus_reader import valid_utf8

# ASCII: control characters are dropped, tab and carriage return become blanks, "\n" separates lines.
_ASCII_DROPPED = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_KEEP_CASE = bytes.maketrans(b"\t\r", b"  ")
_LOWER_CASE = _KEEP_CASE.lower()
_NON_ASCII = re.compile(rb"[\x80-\xff]+")
_CAPITAL_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}".encode()  # its lower case depends on its neighbours
MAX_CHARS_PER_WORD = 200  # WordPiece makes longer words [UNK]
# For normalised text: only ASCII's white space and punctuation need to be looked for.
_LONG_WORD = re.compile(rb"[^\x00-\x20!-/:-@\[-`{-~]{%d,}" % (MAX_CHARS_PER_WORD + 1))
_ASCII_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_WINDOW = MAX_CHARS_PER_WORD // 2  # bytes. A word that is too long covers at least one aligned window
_CACHED_RUNS = 1 << 18  # runs of non-ASCII characters

# The blocks of Chinese characters that BERT's authors listed. The original does not know later extensions either.
_CHINESE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class TextNormalizer:
    """Normalises lines so that splitting at blanks and ASCII punctuation gives the words of BERT's BasicTokenizer.

    Args:
      strip_accents: as in the original it matters only if do_lower_case is true; None means true.
    """

    def __init__(self, do_lower_case: bool = True, strip_accents: bool | None = None):
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case and strip_accents is not False
        self._ascii_table = _LOWER_CASE if do_lower_case else _KEEP_CASE
        self._cached_run = functools.lru_cache(_CACHED_RUNS)(self._normalize_run)

    def __call__(self, lines: Sequence[bytes]) -> list[bytes]:
        """Normalises lines of UTF-8. Bytes that are no UTF-8 are left out."""
        return self.joined(lines).split(b"\n") if lines else []

    def joined(self, lines: Sequence[bytes]) -> bytes:
        """The normalised lines with b"\\n" between them."""
        text = b"\n".join(lines)
        if text.count(b"\n") != len(lines) - 1:  # a line has a line end within
            text = b"\n".join(line.replace(b"\n", b" ") for line in lines)
        if text.isascii():
            return text.translate(self._ascii_table, _ASCII_DROPPED)
        # Invalid bytes go first: dropping a control character between them could make them a valid character.
        text = valid_utf8(text).translate(self._ascii_table, _ASCII_DROPPED)
        if self.do_lower_case and _CAPITAL_SIGMA in text:
            text = self._with_lower_sigmas(text)
        cached_run = self._cached_run
        return _NON_ASCII.sub(lambda run: cached_run(run[0]), text)

    def _with_lower_sigmas(self, text: bytes) -> bytes:
        """Lower-cases whole lines that have a capital sigma, which becomes another letter at the end of a word."""
        lines = text.split(b"\n")
        for index, line in enumerate(lines):
            if _CAPITAL_SIGMA in line:
                lines[index] = _cleaned(line.decode()).lower().encode()
        return b"\n".join(lines)

    def _normalize_run(self, run: bytes) -> bytes:
        """Normalises a maximal run of non-ASCII characters. Only sigma's lower case depends on more than the run."""
        text = _cleaned(run.decode("utf-8"))
        if self.do_lower_case:
            text = text.lower()
            if self.strip_accents:
                text = without_accents(text)
        pieces = []
        for character in text:
            is_punctuation = unicodedata.category(character)[0] == "P"
            pieces.append(f" {character} " if is_punctuation else character)
        return "".join(pieces).encode("utf-8")


def basic_tokens(text: str, normalize: TextNormalizer) -> list[str]:
    """Words as BERT's basic tokenizer splits them: at blanks, punctuation and Chinese characters."""
    # The normaliser puts blanks around all of these except ASCII's punctuation.
    [normalized] = normalize([text.encode("utf-8", "ignore")])
    return _ASCII_PUNCTUATION.sub(r" \g<0> ", normalized.decode()).split()


def replace_long_words(text: bytes, replacement: bytes) -> bytes:
    """Replaces words of more than MAX_CHARS_PER_WORD characters in normalised text."""
    whole = len(text) - len(text) % _WINDOW
    windows = np.frombuffer(text, np.uint8, whole).reshape(-1, _WINDOW)
    if (windows.min(axis=1) <= 32).all():  # every window holds a blank or a line end: there is no long word
        return text

    def replaced(match: re.Match[bytes]) -> bytes:
        # The pattern counts bytes.
        is_too_long = len(match[0].decode("utf-8")) > MAX_CHARS_PER_WORD
        return replacement if is_too_long else match[0]

    return _LONG_WORD.sub(replaced, text)


def _cleaned(text: str) -> str:
    """Drops control characters, replaces white space by blanks, and puts blanks around Chinese characters."""
    kept = []
    for character in text:
        if character < "\x80":
            kept.append(character)
            continue
        category = unicodedata.category(character)
        if category in ("Zs", "Zl", "Zp"):  # the original splits at all three
            kept.append(" ")
        elif category[0] == "C" or character == "\N{REPLACEMENT CHARACTER}":
            continue  # control, format, private or unassigned character
        elif category == "Lo" and any(first <= ord(character) <= last for first, last in _CHINESE):
            kept.append(f" {character} ")
        else:
            kept.append(character)
    return "".join(kept)
