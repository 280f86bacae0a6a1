"""Cuts documents into overlapping windows, and finds the answer to a question in them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import Located
from electra_tf2.finetune.tasks.questions import Question


class DocumentWindow(NamedTuple):
    """Pieces start to start + length of a document, after a question of `question_length` pieces."""

    start: int
    length: int
    question_length: int

    @property
    def offset(self) -> int:
        """Position of the window's first piece in the input: after [CLS], the question and [SEP]."""
        return self.question_length + 2

    def positions(self, first: int, last: int) -> tuple[int, int] | None:
        """Positions in the input of a document's pieces first to last; None if the window does not hold them all."""
        if first < self.start or last > self.start + self.length - 1:
            return None
        to_input = self.offset - self.start
        return first + to_input, last + to_input


class QAExample(NamedTuple):
    """A question, its tokenised document, and its windows, one feature each."""

    question: Question
    document: Located
    windows: list[DocumentWindow]


def document_windows(pieces: int, room: int, stride: int, question_length: int) -> list[DocumentWindow]:
    """Makes windows of at most `room` pieces, each `stride` pieces (or its length, if that is less) after the last."""
    windows = []
    start = 0
    while start < pieces:
        length = min(pieces - start, room)
        windows.append(DocumentWindow(start, length, question_length))
        if start + length == pieces:
            break
        start += min(length, stride)
    return windows


def max_context(windows: Sequence[DocumentWindow]) -> list[np.ndarray]:
    """Tells in which window each piece has the most context: bool [length] for each window.

    Context is the smaller number of pieces to either side, plus a hundredth of the window's length. Of equals the first
    wins.
    """
    pieces = max(window.start + window.length for window in windows)
    best_score = np.full(pieces, -np.inf)
    best_window = np.full(pieces, -1)
    for index, (start, length, _) in enumerate(windows):
        held = slice(start, start + length)
        place = np.arange(length)
        score = np.minimum(place, length - 1 - place) + 0.01 * length
        is_better = score > best_score[held]
        best_window[held][is_better] = index
        best_score[held][is_better] = score[is_better]
    has_most_context = []
    for index, (start, length, _) in enumerate(windows):
        has_most_context.append(best_window[start : start + length] == index)
    return has_most_context


def answer_pieces(question: Question, document: Located) -> tuple[int, int]:
    """Finds the first and the last piece of a question's answer, which it must have."""
    first, last = question.place
    starts, ends = document.spans.T
    # The first piece that ends behind the answer's first character, and the last that starts at or before its last.
    first_piece = int(np.searchsorted(ends, first, "right"))
    last_piece = int(np.searchsorted(starts, last, "right")) - 1
    # Characters without a piece, as control characters at either end, leave the nearest.
    first_piece = min(first_piece, len(ends) - 1)
    return first_piece, max(last_piece, first_piece)


def original_answer_pieces(question: Question, document: Located, answer_ids: np.ndarray) -> tuple[int, int]:
    """Finds the first and the last piece of an answer as the original does (BERT's _improve_answer_span).

    They are the first stretch within the answer's words that equals the pieces of the answer alone, so that "1895" is
    found in "(1895-1943)."; without such a stretch, all pieces of the words.
    """
    first = int(document.first_piece[question.start])
    last = len(document.ids) - 1
    if question.end + 1 < len(document.first_piece):
        last = int(document.first_piece[question.end + 1]) - 1
    size = len(answer_ids)
    if not size:
        return first, last
    # A stretch equals the answer only if it has its length: the ids of equal texts are equal.
    for start in range(first, last - size + 2):
        if np.array_equal(document.ids[start : start + size], answer_ids):
            return start, start + size - 1
    return first, last
