"""BERT's text normalisation in bulk: what happens to text before WordPiece sees it.

Both the tokenizer and the vocabulary trainer call this, so a vocabulary is trained on the words that are looked up in
it. The steps are those of BERT's BasicTokenizer (drop control and unassigned characters, make every white space a
blank, blanks around Chinese characters, lower case, strip accents, blanks around punctuation), but never one character
or one word at a time: ASCII goes through one byte table, and each distinct run of other characters is worked out once
and remembered. Unicode properties are those of the running Python's unicodedata, as in the original. No TensorFlow.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from electra_tf2.corpus.text_files import valid_utf8

# ASCII: control characters go, tab and carriage return become blanks; "\n" is the separator of lines here.
_ASCII_DROPPED = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_KEEP_CASE = bytes.maketrans(b"\t\r", b"  ")
_LOWER_CASE = _KEEP_CASE.lower()
_NON_ASCII = re.compile(rb"[\x80-\xff]+")
_CAPITAL_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}".encode()  # its lower case depends on its neighbours
# Longer words become [UNK] whatever they are made of.
MAX_CHARS_PER_WORD = 200
# In normalised text, where other white space and other punctuation have blanks around them.
_LONG_WORD = re.compile(rb"[^\x00-\x20!-/:-@\[-`{-~]{%d,}" % (MAX_CHARS_PER_WORD + 1))
_ASCII_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_WINDOW = MAX_CHARS_PER_WORD // 2  # a longer word covers one aligned window of this many bytes
_REMEMBERED = 1 << 18  # runs of non-ASCII characters

# The blocks of Chinese characters that BERT's authors listed; later extensions are left alone, as in the original.
_CHINESE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class TextNormalizer:
    """Normalises lines so that splitting at blanks and ASCII punctuation gives the words of BERT's BasicTokenizer.

    strip_accents matters only when do_lower_case is on, as in the original; None means on.
    """

    def __init__(self, do_lower_case: bool = True, strip_accents: bool | None = None):
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case and strip_accents is not False
        self._ascii_table = _LOWER_CASE if do_lower_case else _KEEP_CASE
        self._normalized = functools.lru_cache(_REMEMBERED)(self._normalize_run)

    def __call__(self, lines: Sequence[bytes]) -> list[bytes]:
        """One normalised line for every line of UTF-8; bytes that are not UTF-8 are left out."""
        return self.joined(lines).split(b"\n") if lines else []

    def joined(self, lines: Sequence[bytes]) -> bytes:
        """The normalised lines with b"\\n" between them."""
        text = b"\n".join(lines)
        if text.count(b"\n") != len(lines) - 1:
            text = b"\n".join(line.replace(b"\n", b" ") for line in lines)
        if text.isascii():
            return text.translate(self._ascii_table, _ASCII_DROPPED)
        # Checked before anything is dropped, which could join the halves of a broken character.
        text = valid_utf8(text).translate(self._ascii_table, _ASCII_DROPPED)
        if self.do_lower_case and _CAPITAL_SIGMA in text:
            lines = text.split(b"\n")  # at the end of a word the sigma becomes another letter
            text = b"\n".join(_cleaned(x.decode()).lower().encode() if _CAPITAL_SIGMA in x else x for x in lines)
        normalized = self._normalized
        return _NON_ASCII.sub(lambda run: normalized(run[0]), text)

    def _normalize_run(self, run: bytes) -> bytes:
        """A maximal run of non-ASCII characters. No step but sigma's lower case looks beyond the run."""
        text = _cleaned(run.decode("utf-8"))
        if self.do_lower_case:
            text = text.lower()
            if self.strip_accents:
                text = unicodedata.normalize("NFD", text)
                text = "".join(character for character in text if unicodedata.category(character) != "Mn")
        pieces = (f" {character} " if unicodedata.category(character)[0] == "P" else character for character in text)
        return "".join(pieces).encode("utf-8")


def basic_tokens(text: str, normalize: TextNormalizer) -> list[str]:
    """Words as BERT's basic tokenizer splits them: at blanks, punctuation and Chinese characters."""
    # The normaliser has set Chinese characters and all but ASCII's punctuation apart.
    return _ASCII_PUNCTUATION.sub(r" \g<0> ", normalize([text.encode("utf-8", "ignore")])[0].decode()).split()


def replace_long_words(text: bytes, replacement: bytes) -> bytes:
    """Normalised text with another word for each of more than MAX_CHARS_PER_WORD characters."""
    whole = len(text) - len(text) % _WINDOW
    windows = np.frombuffer(text, np.uint8, whole).reshape(-1, _WINDOW)
    if (windows.min(axis=1) <= 32).all():  # every window holds a blank or line end: no word can be that long
        return text
    return _LONG_WORD.sub(
        lambda word: replacement if len(word[0].decode("utf-8")) > MAX_CHARS_PER_WORD else word[0], text
    )


def _cleaned(text: str) -> str:
    """Drops control characters, makes white space blanks, and puts blanks around Chinese characters."""
    kept = []
    for character in text:
        if character < "\x80":
            kept.append(character)
            continue
        category = unicodedata.category(character)
        if category in ("Zs", "Zl", "Zp"):  # the original splits at all three
            kept.append(" ")
        elif category[0] == "C" or character == "\N{REPLACEMENT CHARACTER}":
            continue  # control, format, private use, unassigned
        elif category == "Lo" and any(first <= ord(character) <= last for first, last in _CHINESE):
            kept.append(f" {character} ")
        else:
            kept.append(character)
    return "".join(kept)
