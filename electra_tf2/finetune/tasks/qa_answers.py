"""Answers from predictions on windows, in the document's own spelling, and the official scripts' scores of them."""

import collections
import functools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.normalization import TextNormalizer, basic_tokens
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer
from electra_tf2.finetune.tasks.qa_files import Question, Window, max_context, split_words
from electra_tf2.finetune.tasks.task import Prediction


class Candidate(NamedTuple):
    """An answer, its probability, and the characters of the context, from and to, that its pieces stand for."""

    text: str
    probability: float
    start: int | None = None
    end: int | None = None


NO_ANSWER = Candidate("", 0.0)


class Decoded(NamedTuple):
    """Answers to a question, the best first, and the score of there being none (SQuAD 2.0)."""

    nbest: list[Candidate]
    null_odds: float

    @property
    def best(self) -> Candidate:
        """The best answer that is not empty."""
        return next((one for one in self.nbest if one.text), NO_ANSWER)


class _Place(NamedTuple):
    """Pieces of the document, from first to last, and the sum of both ends' scores."""

    score: float
    first: int
    last: int


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
    for window, best, prediction in zip(windows, max_context(windows), predictions, strict=True):
        places += _places(window, best, prediction, config)
        null = prediction["answerable_logit"]
        if not config.answerable_classifier and "start_logits" in prediction:
            null = prediction["start_logits"][0] + prediction["end_logits"][0]
        null_score = min(null_score, float(null))
    places.sort(key=lambda place: -place.score)
    text_of = functools.partial(_original_text, tokenizer=tokenizer) if config.compat == "original" else _text
    found: dict[str, _Place] = {}  # text -> its best place, the best first
    for place in places:
        if len(found) >= config.n_best_size:
            break
        found.setdefault(text_of(question, document, place), place)
    scores = np.array([place.score for place in found.values()] or [0.0], np.float64)
    odds = null_score
    if not config.answerable_classifier:
        odds -= next((place.score for text, place in found.items() if text), scores[0])
    if not found:  # no valid span exists
        return Decoded([Candidate("empty", 1.0)], float(odds))  # the original's word
    probabilities = np.exp(scores - np.logaddexp.reduce(scores)).tolist()
    spans = [(document.spans[first, 0].item(), document.spans[last, 1].item()) for _, first, last in found.values()]
    rows = zip(found, probabilities, spans, strict=True)
    return Decoded([Candidate(text, probability, *span) for text, probability, span in rows], float(odds))


def _places(window: Window, best: np.ndarray, prediction: Prediction, config: FinetuningConfig) -> Iterator[_Place]:
    """Spans of a window that may be answers."""
    low, high, before = window.offset, window.offset + window.length, window.start - window.offset
    beam: Iterable[tuple[int, float, np.ndarray, np.ndarray]]  # starts, their scores, for each the ends and theirs
    if config.joint_prediction:
        names = ("start_top_index", "start_top_log_probs", "end_top_index", "end_top_log_probs")
        beam = zip(*(prediction[name] for name in names), strict=True)
    else:
        of_start, of_end = prediction["start_logits"], prediction["end_logits"]
        starts, best_ends = (np.argsort(-logits, kind="stable")[: config.n_best_size] for logits in (of_start, of_end))
        beam = ((start, of_start[start], best_ends, of_end[best_ends]) for start in starts)
    for start, start_score, ends, end_scores in beam:
        if not low <= start < high or not best[start - low]:
            continue
        for end, end_score in zip(ends, end_scores, strict=True):
            if start <= end < high and end - start < config.max_answer_length:
                yield _Place(float(start_score + end_score), int(start) + before, int(end) + before)


def _text(question: Question, document: Located, place: _Place) -> str:
    """The document's own words there, a blank between them."""
    said = question.paragraph.text[document.spans[place.first, 0] : document.spans[place.last, 1]]
    return " ".join(split_words(said).words)


def _original_text(question: Question, document: Located, place: _Place, tokenizer: WordpieceTokenizer) -> str:
    """The original's answer: the part of the words there that looks like the pieces."""
    tokens = tokenizer.convert_ids_to_tokens(document.ids[place.first : place.last + 1])
    predicted = " ".join(tokens).replace(" ##", "").replace("##", "")
    first, last = document.word_of_piece[place.first], document.word_of_piece[place.last]
    original = " ".join(question.paragraph.words[first : last + 1])
    return final_text(" ".join(predicted.split()), original, tokenizer.normalize)


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


_PUNCTUATION = set(string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_KORQUAD_SIGNS = str.maketrans("'\"《》<>〈〉()‘’", " " * 12)
_CMRC_SIGNS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CMRC_TOKENS = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+(?:[.,'][^\W\u4e00-\u9fa5]+)*|[^\w\s]")


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and surplus blanks."""
    text = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def _normalize_korquad(text: str) -> str:
    text = text.translate(_KORQUAD_SIGNS).lower()
    return " ".join("".join(character for character in text if character not in _PUNCTUATION).split())


def _normalize_cmrc(text: str) -> str:
    return "".join(character for character in text.lower().strip() if character not in _CMRC_SIGNS)


def _in_common(gold: Sequence[str], predicted: Sequence[str]) -> int:
    return sum((collections.Counter(gold) & collections.Counter(predicted)).values())


def _longest_run(gold: Sequence[str], predicted: Sequence[str]) -> int:
    """Length of the longest stretch that stands in both."""
    longest, before = 0, [0] * (len(predicted) + 1)
    for token in gold:
        now = [0, *(before[i] + 1 if token == other else 0 for i, other in enumerate(predicted))]
        longest, before = max(longest, *now), now
    return longest


class Comparison(NamedTuple):
    """A way to compare an answer with an acceptable one; `COMPARISONS` has those that there are.

    normalized: what exact match compares. tokens: of a normalised text, what F1 counts. in_common: how many of them two
    answers share.
    """

    normalized: Callable[[str], str]
    tokens: Callable[[str], Sequence[str]]
    in_common: Callable[[Sequence[str], Sequence[str]], int] = _in_common

    def exact(self, gold: str, predicted: str) -> float:
        return float(self.normalized(gold) == self.normalized(predicted))

    def f1(self, gold: str, predicted: str) -> float:
        """F1; two empty answers agree (SQuAD 2.0)."""
        if not self.normalized(gold) or not self.normalized(predicted):
            return self.exact(gold, predicted)
        return self.overlap_f1(gold, predicted)

    def overlap_f1(self, gold: str, predicted: str) -> float:
        """F1; empty answers agree with nothing (SQuAD 1.1, MRQA)."""
        golds, tokens = (self.tokens(self.normalized(text)) for text in (gold, predicted))
        same = self.in_common(golds, tokens)
        return 2 * same / (len(golds) + len(tokens)) if same else 0.0


WORDS = Comparison(normalize_answer, str.split)  # SQuAD and MRQA
COMPARISONS = {
    "words": WORDS,
    # KorQuAD 1.0 (Lim et al. 2019): of Korean words one may be right but for its particle.
    "characters": Comparison(_normalize_korquad, lambda text: text.replace(" ", "")),
    # CMRC 2018 (Cui et al. 2019): a Chinese character is a token; the longest stretch counts.
    "chinese": Comparison(_normalize_cmrc, _CMRC_TOKENS.findall, _longest_run),
}


def answered_scores(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str], comparison: Comparison = WORDS
) -> dict[str, float]:
    """SQuAD 1.1, MRQA, ReCoRD, of acceptable answers and predictions by id: one without a prediction counts 0."""
    scores = {}
    for name, function in (("exact_match", comparison.exact), ("f1", comparison.overlap_f1)):
        found = [max(function(gold, text) for gold in answers[i]) for i, text in predictions.items() if i in answers]
        scores[name] = 100.0 * sum(found) / len(answers)
    return scores


def squad_v2_scores(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    threshold: float,
    comparison: Comparison = WORDS,
) -> dict[str, float]:
    """SQuAD 2.0: exact and F1 with no answer above `threshold`, and at the thresholds that suit them best.

    Args:
      answers: id -> acceptable answers, none for an impossible question.
      predictions: id -> text of the best answer.
      null_odds: id -> score of there being no answer.
    """
    golds = {i: [text for text in texts if comparison.normalized(text)] or [""] for i, texts in answers.items()}
    answered = [identity for identity in answers if identity in predictions]
    result: dict[str, float] = {}
    best: dict[str, float] = {}
    for name, function in (("exact", comparison.exact), ("f1", comparison.f1)):
        raw = {i: max(function(gold, predictions[i]) for gold in golds[i]) for i in answered}
        scores = {i: (float(not answers[i]) if null_odds[i] > threshold else raw[i]) for i in answered}
        for prefix, wanted in (("", None), ("HasAns_", True), ("NoAns_", False)):
            chosen = [i for i in answered if wanted is None or bool(answers[i]) == wanted]
            if chosen:
                result[prefix + name] = 100.0 * sum(scores[i] for i in chosen) / len(chosen)
                result[f"{prefix}total"] = len(chosen)
        best[f"best_{name}"], best[f"best_{name}_thresh"] = _best_threshold(answers, predictions, raw, null_odds)
    return result | best


def _best_threshold(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    raw: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The highest score over all thresholds, and the first threshold that reaches it."""
    score = best = float(sum(1 for texts in answers.values() if not texts))
    threshold = 0.0
    for identity in sorted(null_odds, key=lambda i: null_odds[i]):
        if identity not in raw:
            continue
        score += raw[identity] if answers[identity] else (-1.0 if predictions[identity] else 0.0)
        if score > best:
            best, threshold = score, null_odds[identity]
    return 100.0 * best / len(raw), threshold
