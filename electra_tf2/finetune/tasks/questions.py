"""Questions about paragraphs, and the places of their answers in them."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from electra_tf2.corpus.scripts import WITHOUT_BLANKS
from electra_tf2.corpus.tokenization import Words, divided
from electra_tf2.util.errors import UserError

_LETTER_WITHOUT_BLANKS = re.compile(f"[{WITHOUT_BLANKS}]")  # of scripts without blanks between words
_WORD = re.compile("[^ \t\r\n\u202f]+")


class Question(NamedTuple):
    """A question about a paragraph.

    answers: acceptable texts; none if the question is impossible, or the answers are unknown.
    start, end: first and last word of the answer that is learned; -1 if there is none.
    answer: text of that answer. place: its first and last character.
    where: file, line and id for messages. SQuAD's files have no lines, a table may have no ids.
    has_id: whether the file gives the id; otherwise it is the number of the line, or of the question in the file.
    is_looked_up: whether the place of the answer was looked for in the paragraph.
    """

    id: str
    paragraph: Words
    text: str
    answers: list[str]
    is_impossible: bool
    start: int = -1
    end: int = -1
    answer: str = ""
    place: tuple[int, int] = (-1, -1)
    where: str = ""
    has_id: bool = True
    is_looked_up: bool = False

    @property
    def texts(self) -> tuple[str]:
        """The paragraph: questions about one share its words."""
        return (self.paragraph.text,)


def split_words(text: str) -> Words:
    """Splits at blanks, tabs, line ends and narrow no-break spaces, as SQuAD's tools do."""
    return divided(text, _WORD)


def is_inside_word(question: Question) -> bool:
    """Tells whether the answer begins or ends inside a word of its paragraph."""
    text = question.paragraph.text
    first, last = question.place
    begins_inside = first > 0 and _are_of_one_word(text[first - 1], text[first])
    ends_inside = last + 1 < len(text) and _are_of_one_word(text[last], text[last + 1])
    return begins_inside or ends_inside


def _are_of_one_word(left: str, right: str) -> bool:
    """Tells whether two neighbouring characters belong to one word. Chinese, for one, has no blanks between words."""
    if _LETTER_WITHOUT_BLANKS.match(left) or _LETTER_WITHOUT_BLANKS.match(right):
        return False
    return left.isalnum() and right.isalnum()


def located(question: Question, compat: bool) -> Question:
    """Looks up the words and characters of a question's answer. Raises ValueError: it is not where the file says."""
    text, words, word_starts = question.paragraph
    first, last = question.place
    if first < 0 and not question.answer:
        raise ValueError("it has no answer")
    if first < 0:
        raise ValueError(f"{question.answer!r} is not there")
    if not 0 <= first <= last < len(text):
        raise ValueError(f"{question.answer!r} ends outside of the context")
    start = question.paragraph.word_at(first)
    end = question.paragraph.word_at(last)
    stretch = " ".join(words[start : end + 1])
    if not compat:
        # A word may hold blanks that SQuAD's tools do not split at, as no-break spaces.
        stretch = " ".join(stretch.split())
    answer_words = question.answer.split()
    if " ".join(answer_words).lower() not in stretch.lower():
        form = ""
        if unicodedata.normalize("NFC", question.answer) in unicodedata.normalize("NFC", stretch):
            form = " in another form of Unicode (NFC or NFD)"
        raise ValueError(f"{question.answer!r} is not at character {first}, where {stretch!r} stands{form}")
    if text[first : last + 1].lower() != question.answer.lower():
        # The file's numbers are off: the nearest occurrence of the answer within these words.
        pattern = re.compile(r"\s+".join(map(re.escape, answer_words)), re.IGNORECASE)
        behind_words = int(word_starts[end]) + len(words[end])
        occurrences = [match.span() for match in pattern.finditer(text, int(word_starts[start]), behind_words)]
        if occurrences:
            first, behind = min(occurrences, key=lambda occurrence: abs(occurrence[0] - first))
            last = behind - 1
    return question._replace(start=start, end=end, place=(first, last))


def check_ids_are_unique(questions: Sequence[Question], path: str) -> None:
    """Raises UserError at the first id that occurs twice: predictions are written by id."""
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{path}: the question id {question.id} occurs twice")
        seen.add(question.id)


def with_ids(questions_of_files: Sequence[list[Question]]) -> list[Question]:
    """Joins the questions of several files. One without an id gets that of its file and line, such as 2-17.

    Of a single file it is the number of the line, unless other questions have ids.
    """
    all_questions = list(itertools.chain(*questions_of_files))
    are_lines_unique = len(questions_of_files) == 1 and not any(question.has_id for question in all_questions)
    if are_lines_unique:
        return all_questions
    joined: list[Question] = []
    for number, questions in enumerate(questions_of_files, start=1):
        for question in questions:
            if not question.has_id:
                question = question._replace(id=f"{number}-{question.id}")
            joined.append(question)
    return joined
