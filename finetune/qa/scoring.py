"""Exact match and F1 as the official scripts of SQuAD 1.1, SQuAD 2.0 and MRQA compute them, in percent."""

import collections
import re
import string
from collections.abc import Mapping, Sequence

_PUNCTUATION = set(string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and surplus blanks."""
    text = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact(gold: str, predicted: str) -> float:
    return float(normalize_answer(gold) == normalize_answer(predicted))


def f1(gold: str, predicted: str) -> float:
    """F1 of words; two empty answers agree (SQuAD 2.0)."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(predicted).split()
    if not gold_words or not words:
        return float(gold_words == words)
    return overlap_f1(gold, predicted)


def overlap_f1(gold: str, predicted: str) -> float:
    """F1 of words; empty answers agree with nothing (SQuAD 1.1, MRQA)."""
    gold_words, words = normalize_answer(gold).split(), normalize_answer(predicted).split()
    same = sum((collections.Counter(gold_words) & collections.Counter(words)).values())
    if not same:
        return 0.0
    precision, recall = same / len(words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def answered_scores(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """SQuAD 1.1 and MRQA, of acceptable answers and predictions by id: a question without a prediction counts 0."""
    totals = {"exact_match": 0.0, "f1": 0.0}
    for identity, golds in answers.items():
        if identity in predictions:
            totals["exact_match"] += max(exact(gold, predictions[identity]) for gold in golds)
            totals["f1"] += max(overlap_f1(gold, predictions[identity]) for gold in golds)
    return {name: 100.0 * total / len(answers) for name, total in totals.items()}


def squad_v2_scores(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    threshold: float,
) -> dict[str, float]:
    """SQuAD 2.0: exact and F1 with no answer above `threshold`, and at the thresholds that suit them best.

    Args:
      answers: id -> acceptable answers, none for an impossible question.
      predictions: id -> text of the best answer.
      null_odds: id -> score of there being no answer.
    """
    golds = {
        identity: [text for text in texts if normalize_answer(text)] or [""] for identity, texts in answers.items()
    }
    answered = [identity for identity in answers if identity in predictions]
    result: dict[str, float] = {}
    best: dict[str, float] = {}
    for name, function in (("exact", exact), ("f1", f1)):
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
