"""Answers from predictions on windows, in the document's own spelling, and the official scripts' scores of them."""

import collections
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.normalization import TextNormalizer, basic_tokens
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer
from electra_tf2.finetune.tasks.qa_files import QAExample, Question, Window, max_context, split_words
from electra_tf2.finetune.tasks.task import Prediction

_TOGETHER = 256  # windows


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


def candidates(
    outputs: Mapping[str, Any], first: tf.Tensor, behind: tf.Tensor, config: FinetuningConfig
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The spans of each input that may be its answer, by what the head says of it; of windows and in SavedModels.

    Args:
      outputs: the head's on B inputs.
      first, behind: int32 [B], the position of the document's first token, and the one behind its last.

    Returns:
      First and last position int32 [B, spans], and the sum of both ends' scores float32 [B, spans], the likelier starts
      first; -inf of spans that cannot be answers.
    """
    if config.joint_prediction:
        names = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")
        start_scores, starts, end_scores, ends = (outputs[name] for name in names)
    else:
        of_start, of_end = outputs["start_logits"], outputs["end_logits"]
        start_scores, starts = tf.math.top_k(of_start, tf.minimum(config.n_best_size, tf.shape(of_start)[1]))
        end_scores, ends = tf.math.top_k(of_end[:, tf.newaxis], tf.shape(starts)[1])
    scores = start_scores[:, :, tf.newaxis] + end_scores
    starts, ends = (
        tf.broadcast_to(tf.cast(places, tf.int32), tf.shape(scores)) for places in (starts[:, :, tf.newaxis], ends)
    )
    first, behind = first[:, tf.newaxis, tf.newaxis], behind[:, tf.newaxis, tf.newaxis]
    legal = (first <= starts) & (starts <= ends) & (ends < behind) & (ends - starts < config.max_answer_length)
    scores = tf.where(legal, scores, -np.inf)
    starts, ends, scores = (tf.reshape(value, [tf.shape(scores)[0], -1]) for value in (starts, ends, scores))
    return starts, ends, scores


Spans = tuple[np.ndarray, np.ndarray, np.ndarray]  # `candidates` of an input that may be its answer: [spans] each


def spans_of(windows: Sequence[Window], predictions: Sequence[Prediction], config: FinetuningConfig) -> list[Spans]:
    """The spans of each window that may be its answer; many windows are looked at together."""
    alike: dict[Any, list[int]] = {}
    for number, prediction in enumerate(predictions):
        alike.setdefault(tuple(map(np.shape, prediction.values())), []).append(number)
    found: dict[int, Spans] = {}
    for batch in (numbers[i : i + _TOGETHER] for numbers in alike.values() for i in range(0, len(numbers), _TOGETHER)):
        outputs = {name: np.stack([predictions[i][name] for i in batch]) for name in predictions[batch[0]]}
        ends = [(windows[i].offset, windows[i].offset + windows[i].length) for i in batch]
        first, behind = np.array(ends, np.int32).T
        starts, lasts, scores = candidates(outputs, first, behind, config)
        for number, *of_row in zip(batch, starts.numpy(), lasts.numpy(), scores.numpy(), strict=True):
            legal = of_row[2] > -np.inf
            found[number] = of_row[0][legal], of_row[1][legal], of_row[2][legal]
    return [found[number] for number in range(len(predictions))]


def decode(
    example: QAExample,
    predictions: Sequence[Prediction],
    spans: Sequence[Spans],
    config: FinetuningConfig,
    tokenizer: WordpieceTokenizer,
) -> Decoded:
    """The answers to a question from the predictions on its windows: what the document spells, not the tokenizer."""
    question, document, windows = example
    places: list[tuple[float, int, int]] = []  # score, first and last piece of the document
    null_score = np.inf
    rows = zip(windows, max_context(windows), predictions, spans, strict=True)
    for window, best, prediction, (starts, ends, scores) in rows:
        kept = best[starts - window.offset]
        pieces = ((place[kept] - window.offset + window.start).tolist() for place in (starts, ends))
        places += zip(scores[kept].tolist(), *pieces, strict=True)
        null = prediction["answerable_logit"]
        if not config.answerable_classifier and "start_logits" in prediction:
            null = prediction["start_logits"][0] + prediction["end_logits"][0]
        null_score = min(null_score, float(null))
    places.sort(key=lambda place: -place[0])
    found: dict[str, tuple[float, int, int]] = {}  # text -> its best place, the best first
    for place in places:
        if len(found) >= config.n_best_size:
            break
        if config.compat == "original":
            text = _original_text(question, document, *place[1:], tokenizer)
        else:
            said = question.paragraph.text[document.spans[place[1], 0] : document.spans[place[2], 1]]
            text = " ".join(split_words(said).words)
        found.setdefault(text, place)
    odds = null_score
    if found and not config.answerable_classifier:
        odds -= found[next((text for text in found if text), next(iter(found)))][0]
    if not found:  # no valid span exists
        return Decoded([Candidate("empty", 1.0)], float(odds))  # the original's word
    log_odds = np.array([score for score, _, _ in found.values()], np.float64)
    probabilities = np.exp(log_odds - np.logaddexp.reduce(log_odds)).tolist()
    said_at = [(document.spans[first, 0].item(), document.spans[last, 1].item()) for _, first, last in found.values()]
    nbest = zip(found, probabilities, said_at, strict=True)
    return Decoded([Candidate(text, probability, *place) for text, probability, place in nbest], float(odds))


def _original_text(question: Question, document: Located, first: int, last: int, tokenizer: WordpieceTokenizer) -> str:
    """The original's answer: the part of the words there that looks like the pieces first to last."""
    tokens = tokenizer.convert_ids_to_tokens(document.ids[first : last + 1])
    predicted = " ".join(tokens).replace(" ##", "").replace("##", "")
    words = document.word_of_piece[first], document.word_of_piece[last]
    original = " ".join(question.paragraph.words[words[0] : words[1] + 1])
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
