"""Pairs of a text and a statement, made of a plain text by rules, in RTE's columns: to learn before RTE.

  python -m benchmarks.entailment_pairs --corpus corpus --output made/rte/train.tsv \\
      --mnli data/finetuning_data/mnli/train.tsv

A text is one to three sentences of a paragraph. Half of the statements follow from it: one of its sentences, shortened
at the end, in brackets or at a leading phrase. The others are shortened, too, and then changed: two names change
places, a name, a digit or a "not" is another's, or the sentence is another one of the paragraph, the one with the most
words in common. Nobody has judged them: what is cut may turn a sentence into what its text does not say. `--mnli` adds
the pairs of MNLI that people judged, each twice. English alone.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.common import parser_of
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.finetune.classification.reading import read_rows
from electra_tf2.finetune.tasks.spec import Columns
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically

Pair = tuple[str, str, str]

_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_NAME = re.compile(r"\b(?:[A-Z][\w'-]+(?:\s+(?:of|the|de|van)\s+(?=[A-Z])|\s+)?)+(?<!\s)")
_NUMBER = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")
_AUXILIARY = re.compile(r"\b(is|are|was|were|can|could|will|would|has|had|have|may|might|should|did|does|do)\b")
_JOINT = re.compile(
    r",?\s+(?:which|who|where|when|while|although|because|since|after|before|and|but|in|on|by|for|with|as|during|from|at"
    r"|to|that)\s"
)
_LEADING_PHRASE = re.compile(
    r"^(?:In|On|At|After|Before|During|By|Since|While|When|As|Although|For|From|With)\b[^,]{3,60},\s+"
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_NO_NAMES = re.compile("the|in|it|he|she|this|a|an|they|on|as|at|by|for|these|his|her|its", re.IGNORECASE)
_SENTENCE_WORDS = range(6, 41)
_LONGEST_TEXT = 90  # words
_PARAGRAPHS_OF_NAMES = 20_000


def paragraphs_of(corpus: Corpus) -> Iterator[list[str]]:
    """Sentences of 6 to 40 words of each line that has three of them and does not begin with someone's speech."""
    for file in corpus.files():
        for block in corpus.read(file.name):
            for line in (raw.decode("utf-8", "ignore").strip() for raw in block.lines):
                found = [sentence for sentence in _END.split(line) if len(sentence.split()) in _SENTENCE_WORDS]
                if len(found) >= 3 and '"' not in line[:200]:
                    yield found


def _names(sentence: str) -> list[str]:
    return [name.group() for name in _NAME.finditer(sentence[1:])]


def _replaced(sentence: str, place: re.Match[str], new: str) -> str:
    return sentence[: place.start()] + new + sentence[place.end() :]


class Statements:
    """Makes statements of sentences, and others that do not follow.

    Args:
      names: stand in for a name where the text has no other.
      random: every draw.
    """

    def __init__(self, names: list[str], random: Random) -> None:
        self.names = names
        self.random = random

    def shortened(self, sentence: str) -> str:
        """The sentence without brackets, mostly without its end, half of the time without a leading phrase."""
        body = _BRACKETS.sub("", sentence).rstrip(".!?")
        ends = [joint.start() for joint in _JOINT.finditer(body) if len(body[: joint.start()].split()) >= 5]
        if self.random.random() < 0.7 and ends:
            body = body[: self.random.choice(ends)].rstrip(",; ")
        if self.random.random() < 0.5 and (phrase := _LEADING_PHRASE.match(body)):
            body = body[phrase.end()].upper() + body[phrase.end() + 1 :]
        return body + "."

    def with_names_swapped(self, statement: str) -> str | None:
        """Two of its names change places; None where it has none that differ."""
        found = [name for name in _NAME.finditer(statement) if not _NO_NAMES.fullmatch(name.group())]
        if len(found) < 2:
            return None
        one, other = sorted(self.random.sample(found, 2), key=re.Match.start)
        if one.group() == other.group():
            return None
        return _replaced(_replaced(statement, other, one.group()), one, other.group())

    def with_another_name(self, statement: str, names: list[str]) -> str | None:
        """One of its names becomes another of the text's, or of any, if those are all in it."""
        found = [name for name in _NAME.finditer(statement) if name.start() > 0]
        if not found:
            return None
        others = [name for name in names if name not in statement] or self.names
        return _replaced(statement, self.random.choice(found), self.random.choice(others))

    def with_another_number(self, statement: str) -> str | None:
        """A digit of one of its numbers is another."""
        found = list(_NUMBER.finditer(statement))
        if not found:
            return None
        number = self.random.choice(found)
        place = number.start() + self.random.randrange(len(number.group()))
        if not statement[place].isdigit():
            return None
        digit = self.random.choice([digit for digit in "123456789" if digit != statement[place]])
        return statement[:place] + digit + statement[place + 1 :]

    def negated(self, statement: str) -> str | None:
        """Says "not" after one of its auxiliary verbs, or no longer."""
        found = list(_AUXILIARY.finditer(statement))
        if not found:
            return None
        end = self.random.choice(found).end()
        rest = statement[end:]
        return statement[:end] + (rest[4:] if rest.startswith(" not") else " not" + rest)

    def changed(self, statement: str, text: list[str], paragraph: list[str]) -> str | None:
        """A statement that does not follow from the text, a part of the paragraph; None where that only repeats it."""
        draw = self.random.random()
        made = None
        if draw < 0.25:
            made = self.with_names_swapped(statement)
        elif draw < 0.5:
            made = self.with_another_name(statement, [name for sentence in text for name in _names(sentence)])
        elif draw < 0.6:
            made = self.with_another_number(statement)
        elif draw < 0.7:
            made = self.negated(statement)
        rest = [sentence for sentence in paragraph if sentence not in text]
        if made is None and rest:
            words = set(" ".join(text).lower().split())
            near = max(rest, key=lambda other: len(words & set(other.lower().split())) / len(other.split()))
            made = self.shortened(near)
        return made

    def pair_of(self, paragraph: list[str]) -> Pair | None:
        """A text, a statement and RTE's label; None where the text is too long or the statement its only sentence."""
        number = self.random.randint(1, min(3, len(paragraph) - 1))
        first = self.random.randrange(len(paragraph) - number + 1)
        text = paragraph[first : first + number]
        told = self.random.choice(text)
        whole = " ".join(text)
        if len(whole.split()) > _LONGEST_TEXT:
            return None
        statement = self.shortened(told)
        if self.random.random() < 0.5:
            return None if statement == whole else (whole, statement, "entailment")
        other = self.changed(statement, text, paragraph)
        return None if other is None else (whole, other, "not_entailment")


def pairs_of(corpus: Corpus, count: int, random: Random) -> list[Pair]:
    """So many pairs at most, one of a paragraph at most, drawn from the whole corpus."""
    paragraphs = list(paragraphs_of(corpus))
    random.shuffle(paragraphs)
    known = [name for paragraph in paragraphs[:_PARAGRAPHS_OF_NAMES] for one in paragraph for name in _names(one)]
    statements = Statements(known or ["Nobody"], random)
    pairs: list[Pair] = []
    for paragraph in paragraphs:
        if len(pairs) == count:
            break
        if pair := statements.pair_of(paragraph):
            pairs.append(pair)
    return pairs


def mnli_pairs(path: Path) -> list[Pair]:
    """MNLI's pairs with RTE's labels. Raises UserError where the file or a column is missing."""
    columns = Columns(("sentence1", "sentence2"), "gold_label")
    rows = read_rows(path, columns, Columns((("sentence1",), ("sentence2",)), ("gold_label",)))
    labels = ["entailment" if row.label == "entailment" else "not_entailment" for row in rows]
    return [(row.texts[0], row.texts[1], label) for row, label in zip(rows, labels, strict=True)]


def main() -> None:
    """Writes the pairs with RTE's header, in a random order; fewer than `--count` where the corpus has no more."""
    options = parser_of(__doc__, corpus=Path, output=Path, count=60_000, mnli="", seed=7).parse_args()
    random = Random(options.seed)
    try:
        pairs = pairs_of(Corpus(str(options.corpus), recursive=True), options.count, random)
        if not pairs:
            raise UserError(f"no pair was made of {options.corpus}: --count, or no line has three sentences")
        rows = pairs + 2 * (mnli_pairs(Path(options.mnli)) if options.mnli else [])
        random.shuffle(rows)
        lines = ["\t".join((str(index), *(" ".join(part.split()) for part in row))) for index, row in enumerate(rows)]
        write_atomically(options.output, "\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n")
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{len(pairs):,} pairs and {len(rows) - len(pairs):,} of MNLI in {options.output}")


if __name__ == "__main__":
    main()
