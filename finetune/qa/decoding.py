"""Predictions on windows to answers: n-best lists, the answer's own spelling, the odds of no answer."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.normalization import TextNormalizer
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer
from electra_tf2.finetune.qa.data import Question
from electra_tf2.finetune.qa.windows import Window, max_context
from electra_tf2.finetune.task import Prediction

_ASCII_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")


class Candidate(NamedTuple):
    """An answer: its text, and the sum of its start's and end's score."""

    text: str
    score: float


class Decoded(NamedTuple):
    """Answers to a question: the best ones with their probabilities, and the score of there being none (SQuAD 2.0)."""

    nbest: list[tuple[str, float]]
    null_odds: float


class _Place(NamedTuple):
    score: float
    window: int
    start: int
    end: int


def decode(
    question: Question,
    document: Located,
    windows: Sequence[Window],
    predictions: Sequence[Prediction],
    config: FinetuningConfig,
    tokenizer: WordpieceTokenizer,
) -> Decoded:
    """The answers to a question from the predictions on its windows: what the document spells, not the tokenizer."""
    places: list[_Place] = []
    null_score = np.inf
    for number, (window, best, prediction) in enumerate(zip(windows, max_context(windows), predictions, strict=True)):
        places += _places(number, window, best, prediction, config)
        null = prediction["answerable_logit"]
        if not config.answerable_classifier and "start_logits" in prediction:
            null = prediction["start_logits"][0] + prediction["end_logits"][0]
        null_score = min(null_score, float(null))
    places.sort(key=lambda place: -place.score)
    found: list[Candidate] = []
    seen: set[str] = set()
    for place in places:
        if len(found) >= config.n_best_size:
            break
        text = _text(question, document, windows[place.window], place, tokenizer)
        if text not in seen:
            seen.add(text)
            found.append(Candidate(text, place.score))
    if not found:
        found.append(Candidate("empty", 0.0))  # the original's word where no valid span exists
    scores = np.array([candidate.score for candidate in found], np.float64)
    probabilities = np.exp(scores - np.logaddexp.reduce(scores))
    odds = null_score
    if not config.answerable_classifier:
        odds -= next((candidate.score for candidate in found if candidate.text), found[0].score)
    return Decoded([(c.text, float(p)) for c, p in zip(found, probabilities, strict=True)], float(odds))


def _places(
    number: int, window: Window, best: np.ndarray, prediction: Prediction, config: FinetuningConfig
) -> Iterator[_Place]:
    """Spans of a window that may be answers."""
    low, high = window.offset, window.offset + window.length
    for start, start_score, ends, end_scores in _beam(prediction, config):
        if not low <= start < high or not best[start - low]:
            continue
        for end, end_score in zip(ends, end_scores, strict=True):
            if start <= end < high and end - start < config.max_answer_length:
                yield _Place(float(start_score + end_score), number, int(start), int(end))


def _beam(
    prediction: Prediction, config: FinetuningConfig
) -> Iterator[tuple[int, np.floating, np.ndarray, np.ndarray]]:
    """Starts with their scores, and for each the ends and their scores, the best first."""
    if config.joint_prediction:
        yield from zip(
            prediction["start_top_index"],
            prediction["start_top_log_probs"],
            prediction["end_top_index"],
            prediction["end_top_log_probs"],
            strict=True,
        )
        return
    starts, ends = (_best(prediction[name], config.n_best_size) for name in ("start_logits", "end_logits"))
    for start in starts:
        yield start, prediction["start_logits"][start], ends, prediction["end_logits"][ends]


def _best(logits: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-logits, kind="stable")[:count]


def _text(
    question: Question,
    document: Located,
    window: Window,
    place: _Place,
    tokenizer: WordpieceTokenizer,
) -> str:
    first, last = (position - window.offset + window.start for position in (place.start, place.end))
    if document.spans is not None:
        return question.paragraph.text[document.spans[first, 0] : document.spans[last, 1]].strip()
    tokens = tokenizer.convert_ids_to_tokens(document.ids[first : last + 1])
    predicted = " ".join(tokens).replace(" ##", "").replace("##", "")
    words = question.paragraph.words[document.word_of_piece[first] : document.word_of_piece[last] + 1]
    return final_text(" ".join(predicted.split()), " ".join(words), tokenizer.normalize)


def final_text(predicted: str, original: str, normalize: TextNormalizer) -> str:
    """The part of the original text that the predicted, tokenised text stands for; all of it where that is unclear.

    "steve smith" in "Steve Smith's" is "Steve Smith".
    """
    normal = " ".join(basic_tokens(original, normalize))
    start = normal.find(predicted)
    if start < 0:
        return original
    end = start + len(predicted) - 1
    in_original = [place for place, character in enumerate(original) if character != " "]
    in_normal = [place for place, character in enumerate(normal) if character != " "]
    if len(in_original) != len(in_normal):
        return original
    number = {place: i for i, place in enumerate(in_normal)}
    if start not in number or end not in number:
        return original
    return original[in_original[number[start]] : in_original[number[end]] + 1]


def basic_tokens(text: str, normalize: TextNormalizer) -> list[str]:
    """Words as BERT's basic tokenizer splits them: at blanks, punctuation and Chinese characters."""
    # The normaliser has set Chinese characters and all but ASCII's punctuation apart.
    return _ASCII_PUNCTUATION.sub(r" \g<0> ", normalize([text.encode()])[0].decode()).split()
