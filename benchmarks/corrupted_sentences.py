"""Sentences of a text and corrupted ones, in CoLA's columns: a task without labels to learn before CoLA.

  python -m benchmarks.corrupted_sentences --corpus corpus --output corrupted/cola/train.tsv

Half of the sentences stay as they are (label 1), half are corrupted once (label 0): words change places, go, come, or
become others of their kind or of their stem. Warstadt et al. 2019 trained networks for CoLA on real and fake sentences
first, too, theirs drawn from language models or permuted. English alone.
"""

import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from benchmarks.common import parser_of
from electra_tf2.corpus.sentence_pairs import chosen, paragraphs
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically

# Words that stand for each other where grammar decides; one that stands in two lines becomes any of both.
_KINDS = """
is are be been being was were
has have had having
do does did done
i me my myself
he him his himself
she her hers herself
they them their themselves
who whom whose which what
that which what whether
to for of at in on with by from
a the some many much any every all
will would can did has is to
very so too much more most as
there it that
"""
_LITTLE = """
a an the to of in on at for with by from that which who it there he she they them him her his is are was were be been
have has had do does did will would can could may should not and or but if because as than so very too what when where
how why some any every no all each both other himself
"""
_ENDINGS = re.compile(r"(ing|ied|ies|ed|es|er|est|ly|e|d|s|y)$")
_CLEAN = re.compile(r"[A-Z][^\"“”(){}\[\]:;–—@*=\d]*[a-z]{3}[.!?]")
_CORE = re.compile(r"[\w'’]*\w")
_LONGEST_STEM = 8  # words of a stem, at most; more are of several meanings


def _core(word: str) -> str:
    return found.group().lower() if (found := _CORE.search(word)) else ""


def _exchanged(word: str, other: str) -> str:
    """The other word with the capital and the marks of the word."""
    return _CORE.sub(lambda core: other.capitalize() if core.group()[0].isupper() else other, word, count=1)


class Corruption:
    """Changes to a sentence, drawn at random; the words of a stem are those of the sentences.

    Args:
      sentences: whose words are counted; those that occur three times are used.
      random: that draws.
    """

    def __init__(self, sentences: Iterable[str], random: np.random.Generator) -> None:
        self.random = random
        self.little = sorted(set(_LITTLE.split()))
        self.kinds: dict[str, list[str]] = {}
        for line in _KINDS.strip().split("\n"):
            for word in line.split():
                self.kinds.setdefault(word, []).extend(other for other in line.split() if other != word)
        counts = Counter(_core(word) for sentence in sentences for word in sentence.split())
        stems: dict[str, list[str]] = {}
        for word in sorted(word for word, count in counts.items() if count >= 3 and word.isalpha()):
            stems.setdefault(_ENDINGS.sub("", word), []).append(word)
        self.forms = {
            word: [other for other in words if other != word]
            for stem, words in stems.items()
            if len(stem) >= 3 and 1 < len(words) <= _LONGEST_STEM
            for word in words
        }
        self.changes: dict[Callable[[list[str]], list[str]], float] = {
            self._swapped: 0.16,
            self._moved: 0.18,
            self._without_one: 0.16,
            self._with_one_more: 0.10,
            self._of_another_kind: 0.20,
            self._in_another_form: 0.20,
        }

    def __call__(self, sentence: str) -> str:
        """The sentence, changed once, with a capital first and its last mark."""
        before = words = sentence[:-1].split()
        changes, shares = [*self.changes], [*self.changes.values()]
        while words == before or not words:
            words = changes[self.random.choice(len(changes), p=shares)](list(before))
        text = " ".join(words)
        return text[:1].upper() + text[1:] + sentence[-1]

    def _swapped(self, words: list[str]) -> list[str]:
        i = self.random.integers(max(len(words) - 1, 1))
        return words[:i] + words[i : i + 2][::-1] + words[i + 2 :]

    def _moved(self, words: list[str]) -> list[str]:
        start = self.random.integers(len(words))
        stop = start + self.random.integers(1, 4)
        rest = words[:start] + words[stop:]
        to = self.random.integers(len(rest) + 1)
        return rest[:to] + words[start:stop] + rest[to:]

    def _without_one(self, words: list[str]) -> list[str]:
        little = [i for i, word in enumerate(words) if _core(word) in self.little]
        places = little if little and self.random.random() < 0.75 else range(len(words))
        del words[self.random.choice(places)]
        return words

    def _with_one_more(self, words: list[str]) -> list[str]:
        words.insert(self.random.integers(len(words) + 1), str(self.random.choice(self.little)))
        return words

    def _of_another_kind(self, words: list[str]) -> list[str]:
        return self._with_another(words, self.kinds)

    def _in_another_form(self, words: list[str]) -> list[str]:
        return self._with_another(words, self.forms)

    def _with_another(self, words: list[str], others: dict[str, list[str]]) -> list[str]:
        places = [i for i, word in enumerate(words) if _core(word) in others]
        if places:
            place = self.random.choice(places)
            words[place] = _exchanged(words[place], str(self.random.choice(others[_core(words[place])])))
        return words


def rows_of(corpus: Corpus, count: int, min_words: int, max_words: int, seed: int) -> list[tuple[int, str]]:
    """Labels and sentences, drawn from the whole corpus and in a random order; every second one is corrupted."""
    random = np.random.default_rng(seed)
    found = itertools.chain.from_iterable(paragraphs(corpus, min_words, max_words))
    clean = (" ".join(one.split()) for one in found if _CLEAN.fullmatch(one))
    sentences = chosen(clean, count, random)
    corrupted = Corruption(sentences, random)
    return [(index % 2, one if index % 2 else corrupted(one)) for index, one in enumerate(sentences)]


def main() -> None:
    """Writes the sentences; fewer than `--count` where the corpus has no more that are clean."""
    flags = {"corpus": Path, "output": Path, "count": 400_000, "min_words": 4, "max_words": 16, "seed": 0}
    options = parser_of(__doc__, **flags).parse_args()
    try:
        corpus = Corpus(str(options.corpus), recursive=True)
        rows = rows_of(corpus, options.count, options.min_words, options.max_words, options.seed)
        if not rows:
            raise UserError(
                f"no sentence of {options.corpus} was taken: --count, --min-words, --max-words, or the text"
            )
        write_atomically(options.output, "".join(f"text\t{label}\t\t{sentence}\n" for label, sentence in rows))
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{len(rows):,} sentences in {options.output}")


if __name__ == "__main__":
    main()
