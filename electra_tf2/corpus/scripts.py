"""Finds scripts that WordPiece handles badly: without blanks between words, or with marks that are no accents.

BERT's tokenizer makes each Chinese character a word. In Japanese, Thai, Lao, Burmese, Khmer and Tibetan it takes
everything between two blanks for one word, and stripping accents removes signs of their letters that are no accents. No
program here divides such text into words. build-vocab, build-data and plan warn about it, from a sample of the corpus;
build-pairs counts letters as words.
"""

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

from electra_tf2.corpus.corpus_reader import Corpus

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_JOINED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
WITHOUT_BLANKS = f"{_CHINESE}{_JOINED}"  # letters of scripts without blanks between words, as a regular expression
_MARKS = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b6-\u17d3\u3099\u309a\u30fc"
_UNIT = re.compile(f"\\s*(?:[{WITHOUT_BLANKS}][{_MARKS}]*|[^\\s{WITHOUT_BLANKS}]+)")
_IS_JOINED = re.compile(f"[{_JOINED}]")
_IS_CHINESE = re.compile(f"[{_CHINESE}]")
_LETTER = re.compile(f"[{WITHOUT_BLANKS}]")
_SAMPLE_FILES = 8
_SAMPLE_CHARACTERS = 1 << 18
_LONGEST_WORD = 10  # letters between two blanks; if the mean is higher, blanks do not divide words
_WORTH_A_WARNING = 0.02  # share of the characters
_FIRST_INDIC = "\u0900"  # from here on, marks are vowels and tones. Hebrew's and Arabic's, before, may be left out

_SENTENCE_END = re.compile(
    # A mark that ends a sentence, maybe a closing quote, and blanks, before what may begin a sentence.
    r"(?:(?<=[.!?؟۔।])|(?<=[.!?؟۔।][\"')]))\s+(?=[\"'(]?[^\W\d_a-z])"
    # A full-width mark, maybe with a closing bracket.
    r"|(?:(?<=[。！？｡])|(?<=．)(?!\d)|(?<=[。！？｡．][」』）】》〉”’]))(?![。！？｡．」』）】》〉”’、，と])\s*"
    # A Burmese or Khmer mark; a blank between two Thai or Lao letters, which ends a clause.
    r"|(?<=[။។])\s*|(?<=[\u0e00-\u0eff])\s+(?=[\u0e00-\u0eff])"
)


def sentences(line: str) -> list[str]:
    """Divides a line of text into sentences."""
    return [part for part in _SENTENCE_END.split(line) if part]


def words(text: str) -> list[str]:
    """Divides a text into words, each with the blanks before it; in scripts without blanks, into letters with marks."""
    return _UNIT.findall(text)


class Sample(NamedTuple):
    """Statistics of a sample of text. Shares are of its characters without white space.

    chinese: share of Chinese characters, each a word to the tokenizer. joined: share of letters in other scripts that
    have no blanks between words. marks: share of characters that lose a sign which is no accent when accents are
    stripped. characters: character -> occurrences.
    """

    chinese: float
    joined: float
    marks: float
    characters: Counter[str]

    @property
    def needs_marks(self) -> bool:
        """True if accents should not be stripped."""
        return self.marks > _WORTH_A_WARNING


def sample(corpus: Corpus) -> Sample:
    """Samples the first lines of some files of a corpus. Raises UserError if they cannot be read."""
    files = corpus.files()
    chosen = files[:: max(1, len(files) // _SAMPLE_FILES)]
    lines: list[str] = []
    for file in chosen:
        blocks = corpus.read(file.name, block_bytes=_SAMPLE_CHARACTERS // len(chosen))
        first_block = next(blocks, None)
        if first_block is not None:
            lines += [line.decode() for line in first_block.lines]
    return sample_of("\n".join(lines)[:_SAMPLE_CHARACTERS])


def sample_of(text: str) -> Sample:
    """Computes the statistics of a text."""
    characters = Counter(character for character in text if character > " " and not character.isspace())
    total = max(characters.total(), 1)
    stretches = [len(_LETTER.findall(word)) for word in text.split() if _IS_JOINED.search(word)]
    joined = sum(stretches)
    if joined <= _LONGEST_WORD * len(stretches):  # short stretches on average: blanks do divide words
        joined = 0
    chinese = 0
    marks = 0
    for character, count in characters.items():
        if _IS_CHINESE.match(character):
            chinese += count
        if _loses_a_mark(character):
            marks += count
    return Sample(chinese / total, joined / total, marks / total, characters)


def _loses_a_mark(letter: str) -> bool:
    """True if stripping accents removes, from this character, a mark that is no accent."""
    if letter < _FIRST_INDIC or "\u1e00" <= letter <= "\u20ff":  # Latin and Greek, with their accents
        return False
    return any(unicodedata.category(part) == "Mn" for part in unicodedata.normalize("NFD", letter))


def warnings_of(text: Sample, strip_accents: bool) -> list[str]:
    """Warnings about text that WordPiece handles badly, each with advice."""
    warnings = []
    if text.joined > _WORTH_A_WARNING:
        warnings.append(
            f"{100 * text.joined:.0f} % of the text are letters without blanks between words, and WordPiece takes all "
            "that stands between two blanks for one word: put blanks between words first (MeCab, PyThaiNLP, ...), here "
            "and in every text that the model is to read"
        )
    if strip_accents and text.needs_marks:
        letters = [letter for letter, _ in text.characters.most_common() if _loses_a_mark(letter)]
        # An example for the message. A whole letter is easier to see than a combining mark.
        whole_letters = [letter for letter in letters if not unicodedata.combining(letter)]
        letter = (whole_letters or letters)[0]
        warnings.append(
            f"{100 * text.marks:.0f} % of the characters lose a sign that is no accent when accents are stripped "
            f"(such as that of {letter}): pass --no-strip-accents, and do_strip_accents false in --hparams"
        )
    return warnings
