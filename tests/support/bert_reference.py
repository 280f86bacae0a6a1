"""BERT's tokenisation written out plainly, one character at a time: what the fast tokenizer is compared with.

Slow on purpose: each rule is one line to check against the paper's description of BERT's BasicTokenizer and
WordPiece, in the order in which the original applies them.
"""

import unicodedata
from collections.abc import Collection

CHINESE = [
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
]


def basic_tokens(text: str, lower: bool, strip_accents: bool) -> list[str]:
    cleaned = ""
    for character in text:
        if character in " \t\n\r" or unicodedata.category(character) == "Zs":
            cleaned += " "
        elif character in "\0\ufffd" or unicodedata.category(character).startswith("C"):
            continue
        elif any(ord(character) in block for block in CHINESE):
            cleaned += f" {character} "
        else:
            cleaned += character
    words = []
    for word in cleaned.split():
        if lower:
            word = word.lower()
            if strip_accents:
                word = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if is_punctuation(c) else c for c in word).split(" ")
    return " ".join(words).split()


def is_punctuation(character: str) -> bool:
    if character.isascii():
        return 33 <= ord(character) < 127 and not character.isalnum()
    return unicodedata.category(character).startswith("P")


def wordpieces(word: str, vocab: Collection[str]) -> list[str]:
    if len(word) > 200:
        return ["[UNK]"]
    pieces: list[str] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        end = len(word)
        while end > start and prefix + word[start:end] not in vocab:
            end -= 1
        if end == start:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


def tokens(text: str, vocab: Collection[str], lower: bool = True, strip_accents: bool = True) -> list[str]:
    return [piece for word in basic_tokens(text, lower, strip_accents) for piece in wordpieces(word, vocab)]
