"""Scores answers to questions as the official scripts of SQuAD, MRQA, KorQuAD and CMRC do."""

import collections
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_PUNCTUATION = set(string.punctuation)
_MOST_DECIMALS = 17  # beyond which a float holds none
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_KORQUAD_SIGNS = str.maketrans("'\"《》<>〈〉()‘’", " " * 12)
_CMRC_SIGNS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CMRC_TOKENS = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+(?:[.,'][^\W\u4e00-\u9fa5]+)*|[^\w\s]")


def normalize_answer(text: str) -> str:
    """Puts an answer in lower case, without punctuation, articles and surplus blanks."""
    text = _without(_PUNCTUATION, text.lower())
    return " ".join(_ARTICLES.sub(" ", text).split())


def _normalize_korquad(text: str) -> str:
    text = text.translate(_KORQUAD_SIGNS).lower()
    return " ".join(_without(_PUNCTUATION, text).split())


def _normalize_cmrc(text: str) -> str:
    return _without(_CMRC_SIGNS, text.lower().strip())


def _without(signs: set[str], text: str) -> str:
    return "".join(character for character in text if character not in signs)


def _in_common(gold: Sequence[str], predicted: Sequence[str]) -> int:
    return sum((collections.Counter(gold) & collections.Counter(predicted)).values())


def _longest_run(gold: Sequence[str], predicted: Sequence[str]) -> int:
    """Computes the length of the longest common stretch."""
    longest = 0
    # runs[i + 1]: length of the common stretch that ends at the current token of gold and at predicted[i].
    runs = [0] * (len(predicted) + 1)
    for token in gold:
        previous = runs
        runs = [0] * (len(predicted) + 1)
        for i, predicted_token in enumerate(predicted):
            if token == predicted_token:
                runs[i + 1] = previous[i] + 1
        longest = max(longest, max(runs))
    return longest


class Comparison(NamedTuple):
    """A way to compare an answer with an acceptable one, one of COMPARISONS.

    normalized: makes of an answer what exact match compares. tokens: makes of that what F1 counts. in_common: counts
    the tokens that two answers share.
    """

    normalized: Callable[[str], str]
    tokens: Callable[[str], Sequence[str]]
    in_common: Callable[[Sequence[str], Sequence[str]], int] = _in_common

    def exact(self, gold: str, predicted: str) -> float:
        return float(self.normalized(gold) == self.normalized(predicted))

    def f1(self, gold: str, predicted: str) -> float:
        """Computes F1. Two empty answers agree (SQuAD 2.0)."""
        if not self.normalized(gold) or not self.normalized(predicted):
            return self.exact(gold, predicted)
        return self.overlap_f1(gold, predicted)

    def overlap_f1(self, gold: str, predicted: str) -> float:
        """Computes F1. Empty answers agree with nothing (SQuAD 1.1, MRQA)."""
        gold_tokens = self.tokens(self.normalized(gold))
        predicted_tokens = self.tokens(self.normalized(predicted))
        shared = self.in_common(gold_tokens, predicted_tokens)
        if not shared:
            return 0.0
        return 2 * shared / (len(gold_tokens) + len(predicted_tokens))


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
    """Computes the scores of SQuAD 1.1, MRQA and ReCoRD. An answer without a prediction counts 0.

    Args:
      answers: acceptable answers by id. predictions: texts by id.
    """
    exact = []
    f1 = []
    for identity, text in predictions.items():
        if identity in answers:
            golds = answers[identity]
            exact.append(max(comparison.exact(gold, text) for gold in golds))
            f1.append(max(comparison.overlap_f1(gold, text) for gold in golds))
    return {"exact_match": 100.0 * sum(exact) / len(answers), "f1": 100.0 * sum(f1) / len(answers)}


def squad_v2_scores(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    threshold: float,
    comparison: Comparison = WORDS,
    *,
    official_thresholds: bool = False,
) -> dict[str, float]:
    """Computes the scores of SQuAD 2.0, at a threshold and at the thresholds that suit exact match and F1 best.

    Args:
      answers: acceptable answers by id, none for an impossible question.
      predictions: text of the best answer by id.
      null_odds: score of there being no answer by id.
      threshold: score above which no answer is given.
      official_thresholds: whether the best thresholds are those that the official script prints: one of the odds, in
        full, and 0 where answering nothing is best, which answers nothing only if the odds are probabilities.
    """
    answered = [identity for identity in answers if identity in predictions]
    possible = [identity for identity in answered if answers[identity]]
    impossible = [identity for identity in answered if not answers[identity]]
    golds = {}
    for identity in answered:
        # As in the official script: what normalises to nothing is no answer, and without any, "" is the answer.
        golds[identity] = [text for text in answers[identity] if comparison.normalized(text)] or [""]
    result: dict[str, float] = {}
    best: dict[str, float] = {}
    for name, function in (("exact", comparison.exact), ("f1", comparison.f1)):
        raw = {}  # scores of the answers, whatever the odds of there being none
        scores = {}  # with "" as the answer where these odds are above the threshold
        for identity in answered:
            raw[identity] = max(function(gold, predictions[identity]) for gold in golds[identity])
            scores[identity] = raw[identity]
            if null_odds[identity] > threshold:
                scores[identity] = float(not answers[identity])
        for prefix, chosen in (("", answered), ("HasAns_", possible), ("NoAns_", impossible)):
            if chosen:
                result[f"{prefix}{name}"] = 100.0 * sum(scores[identity] for identity in chosen) / len(chosen)
                result[f"{prefix}total"] = len(chosen)
        best_score, best_threshold = _best_threshold(answers, predictions, raw, null_odds, official_thresholds)
        best[f"best_{name}"] = best_score
        best[f"best_{name}_thresh"] = best_threshold
    return result | best


def _best_threshold(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    raw: Mapping[str, float],
    null_odds: Mapping[str, float],
    is_official: bool,
) -> tuple[float, float]:
    """Finds the highest score over all thresholds, and the lowest threshold that reaches it.

    Args:
      raw: scores of the answers, whatever the odds of there being none.
      is_official: as `official_thresholds` of `squad_v2_scores`.
    """
    # Below the lowest odds nothing is answered, which is right for every impossible question.
    score = float(sum(1 for texts in answers.values() if not texts))
    best = score
    by_odds = sorted(raw, key=lambda identity: null_odds[identity])
    # Thresholds from `lowest` to below `behind` give the best score.
    lowest = -math.inf
    behind = null_odds[by_odds[0]]
    # The threshold rises past one question after another, whose answer then counts.
    for index, identity in enumerate(by_odds):
        if answers[identity]:
            score += raw[identity]
        elif predictions[identity]:
            score -= 1.0
        next_odds = math.inf
        if index + 1 < len(by_odds):
            next_odds = null_odds[by_odds[index + 1]]
        # Questions with the same odds are answered together, which the official script overlooks.
        is_possible = is_official or next_odds > null_odds[identity]
        if score > best and is_possible:
            best = score
            lowest = null_odds[identity]
            behind = next_odds
    threshold = _short_number(lowest, behind)
    if is_official:
        threshold = lowest
        if lowest == -math.inf:
            threshold = 0.0
    return 100.0 * best / len(raw), threshold


def _short_number(lowest: float, behind: float) -> float:
    """Finds a number in [lowest, behind) with as few decimals as possible, so that it can be typed as it is printed.

    Args:
      lowest, behind: one of them may be infinite. The number is finite also if odds are not, after a training that
        diverged.
    """
    if math.isfinite(behind) and lowest == -math.inf:
        return math.ceil(behind) - 1.0
    if math.isfinite(lowest) and behind == math.inf:
        return float(math.ceil(lowest))
    if not math.isfinite(lowest) or not math.isfinite(behind):
        return 0.0
    for decimals in range(_MOST_DECIMALS):
        scale = 10**decimals
        number = math.ceil(lowest * scale) / scale
        if lowest <= number < behind:
            return number
    return lowest
