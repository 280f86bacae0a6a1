"""Scripts without blanks between words, and with marks that are no accents: what a sample of a corpus tells of them.

BERT's tokenizer makes each Chinese character a word. Of Japanese, Thai, Lao, Burmese, Khmer and Tibetan it takes all
that stands between two blanks for one word, and stripping accents takes signs off their letters that are no accents. No
program here divides such text into words: build-vocab, build-data and plan say what comes of it, build-pairs counts
letters.
"""

import itertools
import re
import unicodedata
from collections import Counter
from typing import NamedTuple

from electra_tf2.corpus.text_files import Corpus

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_JOINED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_MARKS = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b6-\u17d3\u3099\u309a\u30fc"
_UNIT = re.compile(f"\\s*(?:[{_CHINESE}{_JOINED}][{_MARKS}]*|[^\\s{_CHINESE}{_JOINED}]+)")
_IS_JOINED = re.compile(f"[{_JOINED}]")
_IS_CHINESE = re.compile(f"[{_CHINESE}]")
_LETTER = re.compile(f"[{_CHINESE}{_JOINED}]")
_SAMPLE_FILES, _SAMPLE_CHARACTERS = 8, 1 << 18
_LONGEST_WORD = 10  # letters between two blanks, on average, of text that is divided into words
_WORTH_A_WORD = 0.02  # share of the characters
_FIRST_INDIC = "\u0900"  # from here on marks are vowels and tones; before, Hebrew's and Arabic's may be left out

_END = re.compile(
    # with a blank behind it, before what may begin a sentence
    r"(?:(?<=[.!?؟۔।])|(?<=[.!?؟۔।][\"')]))\s+(?=[\"'(]?[^\W\d_a-z])"
    # of full width, with the brackets that it ends with
    r"|(?:(?<=[。！？｡])|(?<=．)(?!\d)|(?<=[。！？｡．][」』）】》〉”’]))(?![。！？｡．」』）】》〉”’、，と])\s*"
    # Burmese and Khmer ends; between two Thai or Lao letters a blank ends a clause
    r"|(?<=[။។])\s*|(?<=[\u0e00-\u0eff])\s+(?=[\u0e00-\u0eff])"
)


def sentences(line: str) -> list[str]:
    """The sentences of a line of text."""
    return [part for part in _END.split(line) if part]


def words(text: str) -> list[str]:
    """The words of a text, each with the blanks before it; where none divide them, letters with their marks."""
    return _UNIT.findall(text)


class Sample(NamedTuple):
    """Shares of a sample's characters, white space apart, and how often each occurs.

    chinese: each a word to the tokenizer. joined: in stretches of other scripts that are too long to be words.
    marks: that stripping accents takes off letters which are others with them.
    """

    chinese: float
    joined: float
    marks: float
    characters: Counter[str]

    @property
    def needs_marks(self) -> bool:
        """Tells whether accents had better not be stripped."""
        return self.marks > _WORTH_A_WORD


def sample(corpus: Corpus) -> Sample:
    """Looks at the starts of some files of a corpus. Raises UserError as reading it does."""
    files = corpus.files()
    chosen = files[:: max(1, len(files) // _SAMPLE_FILES)]
    lines: list[str] = []
    for file in chosen:
        for block in itertools.islice(corpus.read(file.name, block_bytes=_SAMPLE_CHARACTERS // len(chosen)), 1):
            lines += (line.decode() for line in block.lines)
    return sample_of("\n".join(lines)[:_SAMPLE_CHARACTERS])


def sample_of(text: str) -> Sample:
    characters = Counter(character for character in text if character > " " and not character.isspace())
    total = max(characters.total(), 1)
    stretches = [len(_LETTER.findall(word)) for word in text.split() if _IS_JOINED.search(word)]
    joined = sum(stretches)
    if joined <= _LONGEST_WORD * len(stretches):  # short on average: words that blanks divide
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
    """Tells whether a character is, or decomposes into, a mark that is dropped with accents but is no accent."""
    if letter < _FIRST_INDIC or "\u1e00" <= letter <= "\u20ff":  # Latin and Greek, with their accents
        return False
    return any(unicodedata.category(part) == "Mn" for part in unicodedata.normalize("NFD", letter))


def warnings_of(text: Sample, strip_accents: bool) -> list[str]:
    """Warnings of what WordPiece will do to such text that nobody may want, each with the way out."""
    warnings = []
    if text.joined > _WORTH_A_WORD:
        warnings.append(
            f"{100 * text.joined:.0f} % of the text are letters without blanks between words, and WordPiece takes all "
            "that stands between two blanks for one word: put blanks between words first (MeCab, PyThaiNLP, ...), here "
            "and in every text that the model is to read"
        )
    if strip_accents and text.needs_marks:
        common = [letter for letter, _ in text.characters.most_common() if _loses_a_mark(letter)]
        # A mark alone is hard to see in a message.
        letter = next((letter for letter in common if not unicodedata.combining(letter)), common[0])
        warnings.append(
            f"{100 * text.marks:.0f} % of the characters lose a sign that is no accent when accents are stripped "
            f"(such as that of {letter}): pass --no-strip-accents, and do_strip_accents false in --hparams"
        )
    return warnings
