"""Documents to windows of wordpieces that overlap, and answers to positions in them (BERT, section 4.2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import Located
from electra_tf2.finetune.qa.data import Question


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
    """First and last piece of the answer; -1, -1 for an impossible question.

    Where pieces have their places in the text, those that hold the answer's first and last character. Else, within the
    answer's words, the first stretch that equals the answer's own pieces, so that "1895" is found in "(1895-1943)."
    (BERT's _improve_answer_span).
    """
    if question.is_impossible:
        return -1, -1
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
