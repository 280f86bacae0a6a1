"""Questions about documents: SQuAD's JSON and MRQA's lines; documents in windows that overlap, and answers in them."""

import gzip
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import Located, Words
from electra_tf2.util.errors import UserError, reason, shown
from electra_tf2.util.progress import track
from electra_tf2.util.reading import field, parse_json, read_json

_WORD = re.compile("[^ \t\r\n\u202f]+")
_SHOWN = 5  # how many questions a warning lists


class Question(NamedTuple):
    """A question about a paragraph.

    answers: acceptable texts; none if it is impossible, or unknown.
    start, end: first and last word of the answer that is learned; -1 if there is none.
    answer: its text. place: its first and last character.
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


def split_words(text: str) -> Words:
    """Splits at blanks, tabs, line ends and narrow no-break spaces, as SQuAD's tools do."""
    found = list(_WORD.finditer(text))
    # A word that occurs again is the same object: MRQA's training files have tens of millions.
    words = [sys.intern(word[0]) for word in found]
    return Words(text, words, np.array([word.start() for word in found], np.int32))


def read_questions(path: Path, mrqa: bool, v2: bool, training: bool, compat: bool = False) -> list[Question]:
    """The questions of a file.

    Args:
      mrqa: the file is MRQA's; else SQuAD's.
      v2: keep impossible questions; without it they are left out.
      training: find each answer's words; a question whose answer is not where the file says is left out, and
        mentioned.
      compat: compare answer and document as the original does, which fails at no-break spaces.

    Raises:
      UserError: unreadable file, missing fields, nothing left.
    """
    entries = _mrqa_entries(path) if mrqa else _squad_entries(path)
    questions: list[Question] = []
    failures: list[str] = []
    for question, place in track(entries, f"reading questions of {path.name}"):
        if question.is_impossible and not v2:
            continue
        if training and not question.is_impossible:
            located = _locate(question, place, compat)
            if isinstance(located, str):
                failures.append(f"question {question.id}: {located}")
                continue
            question = located
        questions.append(question)
    if failures:
        listed = "; ".join(failures[:_SHOWN]) + ("; ..." if len(failures) > _SHOWN else "")
        message = f"{path}: {len(failures):,} questions left out, whose answers are not in their contexts: {listed}"
        if not questions:
            raise UserError(message)
        print(f"WARNING: {message}", file=sys.stderr)
    if not questions:
        raise UserError(f"{path} holds no questions")
    return questions


def _locate(question: Question, place: tuple[int, int] | None, compat: bool) -> Question | str:
    """The question with its answer's words, or what is wrong."""
    if place is None:
        return "it has no answer"
    first, last = place
    paragraph = question.paragraph
    if not 0 <= first <= last < len(paragraph.text):
        return f"{question.answer!r} ends outside of the context"
    start, end = paragraph.word_at(first), paragraph.word_at(last)
    found, wanted = " ".join(paragraph.words[start : end + 1]), " ".join(question.answer.split())
    if not compat:
        found = " ".join(found.split())
    if wanted.lower() not in found.lower():
        return f"{question.answer!r} is not at character {first}, where {found!r} stands"
    return question._replace(start=start, end=end, place=place)


def _squad_entries(path: Path) -> Iterator[tuple[Question, tuple[int, int] | None]]:
    """Questions and the first answer's first and last character."""
    content = read_json(path, "task")
    for article in field(content, "data", list, str(path)):
        for entry in field(article, "paragraphs", list, str(path)):
            context = field(entry, "context", str, str(path))
            paragraph = split_words(context)
            for qa in field(entry, "qas", list, str(path)):
                identity = str(field(qa, "id", (str, int), str(path)))
                where = f"{path}, question {identity}"
                text = field(qa, "question", str, where)
                _check(paragraph, text, where)
                answers, impossible = _list(qa, "answers", where), bool(qa.get("is_impossible", False))
                texts = [field(answer, "text", str, where) for answer in answers]
                place, answer = None, ""
                if answers and not impossible:
                    first, answer = field(answers[0], "answer_start", int, where), texts[0]
                    place = first, first + len(answer) - 1
                yield Question(identity, paragraph, text, texts, impossible, answer=answer), place


def _mrqa_entries(path: Path) -> Iterator[tuple[Question, tuple[int, int] | None]]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        entry = parse_json(line, where)
        if "header" in entry:
            continue
        paragraph = split_words(field(entry, "context", str, where))
        for qa in field(entry, "qas", list, where):
            text = field(qa, "question", str, where)
            _check(paragraph, text, where)
            place, answer = None, ""
            detected, answers = _list(qa, "detected_answers", where), _list(qa, "answers", where)
            for one in answers:
                if not isinstance(one, str):
                    raise UserError(f"{where}: an answer must be text, got {shown(one)}")
            if detected:
                answer = field(detected[0], "text", str, where)
                place = _span(field(detected[0], "char_spans", list, where), where)
            identity = str(field(qa, "qid", (str, int), where))
            yield Question(identity, paragraph, text, answers, False, answer=answer), place


def _lines(path: Path) -> Iterator[bytes]:
    """One at a time: MRQA's larger files are gigabytes, most of it tokens that are not needed here."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {reason(error)}") from None


def _span(spans: Any, where: str) -> tuple[int, int]:
    """First and last character of the first of MRQA's spans."""
    try:
        first, last = spans[0]
        return int(first), int(last)
    except (IndexError, KeyError, OverflowError, TypeError, ValueError):
        raise UserError(f"{where}: char_spans must be like [[first, last]], got {shown(spans)}") from None


def _check(paragraph: Words, question: str, where: str) -> None:
    if not paragraph.words:
        raise UserError(f"{where}: an empty context")
    if not question.strip():
        raise UserError(f"{where}: an empty question")


def _list(record: dict[str, Any], name: str, where: str) -> list[Any]:
    """A list that may be missing or null."""
    value = record.get(name)
    if value is None or isinstance(value, list):
        return value or []
    raise UserError(f"{where}: {name} must be a list, got {shown(value)}")


def ids_are_unique(questions: Sequence[Question], path: str) -> None:
    """Raises UserError at the first id that occurs twice: predictions are written by id."""
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{path}: the question id {question.id} occurs twice")
        seen.add(question.id)


class Window(NamedTuple):
    """Pieces start to start + length of a document, after a question of `question_length` pieces."""

    start: int
    length: int
    question_length: int

    @property
    def offset(self) -> int:
        """Position of the window's first piece in the input: after [CLS], the question and [SEP]."""
        return self.question_length + 2


def windows_of(pieces: int, room: int, stride: int, question_length: int) -> list[Window]:
    """Windows of at most `room` pieces, each `stride` after the last (or its length, if that is less)."""
    windows, start = [], 0
    while start < pieces:
        length = min(pieces - start, room)
        windows.append(Window(start, length, question_length))
        if start + length == pieces:
            break
        start += min(length, stride)
    return windows


def max_context(windows: Sequence[Window]) -> list[np.ndarray]:
    """bool [length] per window: whether a piece has the most context there of all windows that hold it.

    Context is the smaller number of pieces to either side, plus a hundredth of the window's length; the first of equals
    wins.
    """
    pieces = max(window.start + window.length for window in windows)
    best = np.full(pieces, -np.inf)
    owner = np.full(pieces, -1)
    for number, (start, length, _) in enumerate(windows):
        place = np.arange(length)
        score = np.minimum(place, length - 1 - place) + 0.01 * length
        better = score > best[start : start + length]
        owner[start : start + length][better] = number
        best[start : start + length][better] = score[better]
    return [owner[start : start + length] == number for number, (start, length, _) in enumerate(windows)]


def answer_pieces(question: Question, document: Located, answer_ids: np.ndarray) -> tuple[int, int]:
    """First and last piece of the answer to a question that has one.

    Where pieces have their places in the text, those that hold the answer's first and last character. Else, within the
    answer's words, the first stretch that equals the answer's own pieces, so that "1895" is found in "(1895-1943)."
    (BERT's _improve_answer_span).
    """
    if document.spans is not None:
        starts, ends = document.spans.T
        first = min(int(np.searchsorted(ends, question.place[0], "right")), len(ends) - 1)
        return first, max(int(np.searchsorted(starts, question.place[1], "right")) - 1, first)
    first = int(document.first_piece[question.start])
    last = len(document.ids) - 1
    if question.end + 1 < len(document.first_piece):
        last = int(document.first_piece[question.end + 1]) - 1
    size = len(answer_ids)
    if size:
        for start in range(first, last + 1):
            # A stretch equals the answer only if it has its length: the ids of equal texts are equal.
            if start + size - 1 <= last and np.array_equal(document.ids[start : start + size], answer_ids):
                return start, start + size - 1
    return first, last


def positions(window: Window, first: int, last: int) -> tuple[int, int] | None:
    """The answer's positions in the input; None if the window does not hold all of it."""
    if first < window.start or last > window.start + window.length - 1:
        return None
    return first - window.start + window.offset, last - window.start + window.offset
