"""Files of questions about documents (SQuAD's JSON, MRQA's lines, tables), and documents in overlapping windows."""

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import Located, Words, divided
from electra_tf2.util import tables
from electra_tf2.util.content import is_object, says_lines
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import say, track
from electra_tf2.util.reading import field, parse_json

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
    return divided(text, _WORD)


def read_questions(path: Path, v2: bool, training: bool, compat: bool = False) -> list[Question]:
    """The questions of a file: SQuAD's JSON; MRQA's JSON lines; or a table with the columns id, question, context and
    answers, as `datasets` has them.

    Args:
      v2: keep impossible questions; without it they are left out, and counted.
      training: find each answer's words; a question whose answer is not where the file says is left out, and
        mentioned.
      compat: compare answer and document as the original does, which fails at no-break spaces.

    Raises:
      UserError: unreadable file, missing fields, nothing left.
    """
    questions: list[Question] = []
    failures: list[str] = []
    impossible = 0
    for question, place in track(_entries(path), f"reading questions of {path.name}"):
        if training and not (question.is_impossible or question.answers):
            question = question._replace(is_impossible=True)  # of a file that does not say so
        if question.is_impossible and not v2:
            impossible += 1
            continue
        if training and not question.is_impossible:
            located = _locate(question, place, compat)
            if isinstance(located, str):
                failures.append(f"question {question.id}: {located}")
                continue
            question = located
        questions.append(question)
    if impossible:
        say(f"WARNING: {path}: {impossible:,} questions without an answer are left out: v2, as of squad, learns them")
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
    return question._replace(start=start, end=end, place=_exact_place(question, place, start, end))


def _exact_place(question: Question, place: tuple[int, int], start: int, end: int) -> tuple[int, int]:
    """First and last character of the answer: where the file says, or, where its numbers are off within the words start
    to end, the nearest occurrence of the answer in these."""
    (first, last), (text, words, starts) = place, question.paragraph
    if text[first : last + 1].lower() == question.answer.lower():
        return place
    pattern = r"\s+".join(map(re.escape, question.answer.split()))
    found = re.compile(pattern, re.IGNORECASE).finditer(text, int(starts[start]), int(starts[end]) + len(words[end]))
    spans = [match.span() for match in found]
    begin, behind = min(spans, key=lambda span: abs(span[0] - first), default=(first, last + 1))
    return begin, behind - 1


_Entry = tuple[Question, tuple[int, int] | None]  # a question, and the first and last character of its first answer


def _entries(path: Path) -> Iterator[_Entry]:
    """The questions of a file, by what its objects hold."""
    paragraphs: dict[str, Words] = {}

    def paragraph_of(text: str) -> Words:  # the same object for the same text
        return paragraphs[text] if text in paragraphs else paragraphs.setdefault(text, split_words(text))

    for where, row in _objects(path):
        if not isinstance(row, dict) or "paragraphs" in row or not {"qas", "question", "header"} & row.keys():
            yield from _squad_entries(row, path)
        elif "qas" in row:
            yield from _mrqa_entries(row, where)
        elif "header" not in row:
            yield _of_row(row, where, paragraph_of)


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where it stands, object) of a table, of JSON lines, or of the list under "data" of one object.

    JSON lines are read one at a time: MRQA's larger files are gigabytes, most of it tokens that are not needed here.
    """
    if tables.format_of(path) != "json":
        table = tables.open_table(path)
        for number, values in table.readable():
            yield table.where(number), values
        return
    lines = tables.lines_of(path)
    first, second = next(lines, ""), next(lines, "")
    if not says_lines(path) and not (second.strip() and is_object(first)):
        content = parse_json("".join([first, second, *lines]), f"task {path}", object)
        if not isinstance(content, (dict, list)) or (isinstance(content, list) and not all(map(_is_dict, content))):
            raise UserError(f"task {path}: a JSON object is needed, or a list of objects, got {shown(content)}")
        data = field(content, "data", list, str(path)) if isinstance(content, dict) else content
        yield from ((str(path), row) for row in data)
        return
    for number, line in enumerate(itertools.chain([first, second], lines), start=1):
        if line.strip():
            yield f"{path}, line {number}", parse_json(line, f"{path}, line {number}")


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _of_row(row: dict[str, Any], where: str, paragraph_of: Callable[[str], Words]) -> _Entry:
    """A question of a table: answers are {text: [...], answer_start: [...]}, or a list of {text, answer_start}."""
    paragraph = paragraph_of(field(row, "context", str, where))
    text, identity = field(row, "question", str, where), str(row.get("id", where.rpartition(" ")[2]))
    _check(paragraph, text, where)
    found = row.get("answers")
    if isinstance(found, str):  # a cell of a delimited table
        found = parse_json(found, f"{where}: answers", object)
    if isinstance(found, dict):
        texts, starts = _list(found, "text", where), _list(found, "answer_start", where)
        if len(texts) != len(starts):
            raise UserError(f"{where}: answers have {len(texts)} texts, but {len(starts)} places in answer_start")
        found = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    return _with_answers(identity, paragraph, text, found or [], bool(row.get("is_impossible", False)), where)


def _with_answers(
    identity: str, paragraph: Words, text: str, answers: list[Any], impossible: bool, where: str
) -> _Entry:
    texts = [field(answer, "text", str, where) for answer in answers]
    place, answer = None, ""
    if answers and not impossible:
        first, answer = field(answers[0], "answer_start", int, where), texts[0]
        place = first, first + len(answer) - 1
    return Question(identity, paragraph, text, texts, impossible, answer=answer), place


def _squad_entries(article: dict[str, Any], path: Path) -> Iterator[_Entry]:
    for entry in field(article, "paragraphs", list, str(path)):
        paragraph = split_words(field(entry, "context", str, str(path)))
        for qa in field(entry, "qas", list, str(path)):
            identity = str(field(qa, "id", (str, int), str(path)))
            where = f"{path}, question {identity}"
            text = field(qa, "question", str, where)
            _check(paragraph, text, where)
            impossible = bool(qa.get("is_impossible", False))
            yield _with_answers(identity, paragraph, text, _list(qa, "answers", where), impossible, where)


def _mrqa_entries(entry: dict[str, Any], where: str) -> Iterator[_Entry]:
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


def answer_pieces(question: Question, document: Located) -> tuple[int, int]:
    """First and last of the pieces that hold the answer to a question that has one."""
    first, last = question.place
    starts, ends = document.spans.T
    piece = min(int(np.searchsorted(ends, first, "right")), len(ends) - 1)
    return piece, max(int(np.searchsorted(starts, last, "right")) - 1, piece)


def original_answer_pieces(question: Question, document: Located, answer_ids: np.ndarray) -> tuple[int, int]:
    """First and last piece of an answer as the original finds them: in its words the first stretch that equals the
    answer's own pieces, so that "1895" is found in "(1895-1943)." (BERT's _improve_answer_span), else all of them."""
    first = int(document.first_piece[question.start])
    last = len(document.ids) - 1
    if question.end + 1 < len(document.first_piece):
        last = int(document.first_piece[question.end + 1]) - 1
    size = len(answer_ids)
    # A stretch equals the answer only if it has its length: the ids of equal texts are equal.
    for start in range(first, last - size + 2 if size else first):
        if np.array_equal(document.ids[start : start + size], answer_ids):
            return start, start + size - 1
    return first, last


def positions(window: Window, first: int, last: int) -> tuple[int, int] | None:
    """The answer's positions in the input; None if the window does not hold all of it."""
    if first < window.start or last > window.start + window.length - 1:
        return None
    return first - window.start + window.offset, last - window.start + window.offset
