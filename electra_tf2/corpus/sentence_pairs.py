"""Pairs of sentences from plain text, for vectors of sentences: what needs no label means the same, more or less.

corpus --sentences--> paragraphs of sentences --pairs_of--> (text, positive)
"""

import itertools
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from electra_tf2.corpus.scripts import sentences, words
from electra_tf2.corpus.text_files import Corpus

_Row = TypeVar("_Row")

KINDS = ("cropped", "adjacent", "single")
_KEPT = (0.6, 0.95)  # share of a cropped sentence's words that stay, drawn for each


def paragraphs(corpus: Corpus, min_words: int, max_words: int) -> Iterator[list[str]]:
    """Runs of sentences that follow each other in a line of a corpus; one of another length ends a run.

    Where no blanks divide words, letters count.
    """
    for file in corpus.files():
        for block in corpus.read(file.name):
            for line in block.lines:
                found = sentences(line.decode("utf-8", "ignore"))
                for fits, run in itertools.groupby(found, lambda one: min_words <= len(words(one)) <= max_words):
                    if fits:
                        yield list(run)


def cropped(text: str, random: np.random.Generator) -> str:
    """The text with some of its words left out, at random; one word at least."""
    parts = words(text)
    stays = random.random(len(parts)) < random.uniform(*_KEPT)
    stays[random.integers(len(parts))] = True
    return " ".join("".join(part for part, here in zip(parts, stays, strict=True) if here).split())


def pairs_of(sentences: list[str], kind: str, random: np.random.Generator) -> list[dict[str, str]]:
    """Rows of a training file from sentences that follow each other.

    Args:
      kind: one of `KINDS`: a sentence and itself with words left out; a sentence and the next one; a sentence alone,
        which dropout makes two of (SimCSE, section 3).
    """
    if kind == "adjacent":
        return [{"text": one, "positive": other} for one, other in itertools.pairwise(sentences)]
    if kind == "single":
        return [{"text": sentence} for sentence in sentences]
    return [{"text": sentence, "positive": cropped(sentence, random)} for sentence in sentences]


def chosen(rows: Iterator[_Row], number: int, random: np.random.Generator) -> list[_Row]:
    """So many rows at random, all of them equally likely (Vitter 1985, algorithm R), in a random order."""
    kept: list[_Row] = []
    for seen, row in enumerate(rows):
        if seen < number:
            kept.append(row)
        elif (place := int(random.integers(seen + 1))) < number:
            kept[place] = row
    return [kept[place] for place in random.permutation(len(kept))]
