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
from electra_tf2.finetune.tasks.qa_files import DocumentWindow, QAExample, Question, max_context, split_words
from electra_tf2.finetune.tasks.task import Prediction

_WINDOWS_AT_ONCE = 256  # in a call of `candidates`


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
        for candidate in self.nbest:
            if candidate.text:
                return candidate
        return NO_ANSWER


def candidates(
    outputs: Mapping[str, Any], first: tf.Tensor, behind: tf.Tensor, config: FinetuningConfig
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The spans of each input that may be its answer, by the head's outputs. SavedModels trace this function, too.

    Args:
      outputs: of the head, for B inputs.
      first, behind: int32 [B], the position of the document's first token, and the one behind its last.

    Returns:
      First and last position int32 [B, spans], and the sum of both ends' scores float32 [B, spans], the likelier starts
      first; -inf of spans that cannot be answers.
    """
    if config.joint_prediction:
        # A beam: the best starts, and the best ends after each of them.
        start_scores = outputs["start_top_log_probs"]
        starts = outputs["start_top_index"]
        end_scores = outputs["end_top_log_probs"]
        ends = outputs["end_top_index"]
    else:
        # Starts and ends are independent: the best ends are the same after each start.
        start_logits = outputs["start_logits"]
        end_logits = outputs["end_logits"][:, tf.newaxis]
        start_scores, starts = tf.math.top_k(start_logits, tf.minimum(config.n_best_size, tf.shape(start_logits)[1]))
        end_scores, ends = tf.math.top_k(end_logits, tf.shape(starts)[1])
    # [B, starts, ends]: each start with each of its ends.
    scores = start_scores[:, :, tf.newaxis] + end_scores
    starts = tf.broadcast_to(tf.cast(starts[:, :, tf.newaxis], tf.int32), tf.shape(scores))
    ends = tf.broadcast_to(tf.cast(ends, tf.int32), tf.shape(scores))
    first = first[:, tf.newaxis, tf.newaxis]
    behind = behind[:, tf.newaxis, tf.newaxis]
    in_document = (first <= starts) & (ends < behind)
    in_order = starts <= ends
    short_enough = ends - starts < config.max_answer_length
    scores = tf.where(in_document & in_order & short_enough, scores, -np.inf)
    flat = [tf.shape(scores)[0], -1]
    return tf.reshape(starts, flat), tf.reshape(ends, flat), tf.reshape(scores, flat)


# First and last positions, and scores, of the spans of one input that may be its answer: [spans] each.
CandidateSpans = tuple[np.ndarray, np.ndarray, np.ndarray]


def candidate_spans(
    windows: Sequence[DocumentWindow], predictions: Sequence[Prediction], config: FinetuningConfig
) -> list[CandidateSpans]:
    """The spans of each window that may be its answer."""
    # Outputs of equal shapes are stacked, so that many windows take one call of `candidates`.
    numbers_by_shape: dict[Any, list[int]] = {}
    for number, prediction in enumerate(predictions):
        shapes = tuple(map(np.shape, prediction.values()))
        numbers_by_shape.setdefault(shapes, []).append(number)
    spans: dict[int, CandidateSpans] = {}
    for numbers in numbers_by_shape.values():
        for start in range(0, len(numbers), _WINDOWS_AT_ONCE):
            batch = numbers[start : start + _WINDOWS_AT_ONCE]
            batch_spans = _batch_spans([windows[i] for i in batch], [predictions[i] for i in batch], config)
            spans.update(zip(batch, batch_spans, strict=True))
    return [spans[number] for number in range(len(predictions))]


def _batch_spans(
    windows: Sequence[DocumentWindow], predictions: Sequence[Prediction], config: FinetuningConfig
) -> list[CandidateSpans]:
    """`candidate_spans` of windows whose outputs have the same shapes."""
    outputs = {}
    for name in predictions[0]:
        outputs[name] = np.stack([prediction[name] for prediction in predictions])
    first = np.array([window.offset for window in windows], np.int32)
    behind = np.array([window.offset + window.length for window in windows], np.int32)
    starts, ends, scores = (tensor.numpy() for tensor in candidates(outputs, first, behind, config))
    spans = []
    for row in range(len(windows)):
        legal = scores[row] > -np.inf
        spans.append((starts[row][legal], ends[row][legal], scores[row][legal]))
    return spans


class _Place(NamedTuple):
    """A span of a document: the sum of both ends' scores, its first and its last piece."""

    score: float
    first: int
    last: int


def decode(
    example: QAExample,
    predictions: Sequence[Prediction],
    spans: Sequence[CandidateSpans],
    config: FinetuningConfig,
    tokenizer: WordpieceTokenizer,
) -> Decoded:
    """The answers to a question from the predictions on its windows: what the document spells, not the tokenizer."""
    question, document, windows = example
    place_of_text: dict[str, _Place] = {}  # the best place of each text, the best text first
    for place in _places(windows, spans):
        if len(place_of_text) >= config.n_best_size:
            break
        if config.compat == "original":
            text = _original_text(question, document, place.first, place.last, tokenizer)
        else:
            start, end = _characters(document, place)
            text = " ".join(split_words(question.paragraph.text[start:end]).words)
        place_of_text.setdefault(text, place)
    null_odds = _null_score(predictions, config)
    if not place_of_text:
        return Decoded([Candidate("empty", 1.0)], null_odds)  # the original's word where no span is legal
    if not config.answerable_classifier:
        # Without a classifier the odds are the null span's score less the best answer's, as in BERT.
        best_text = next(iter(place_of_text))
        for text in place_of_text:
            if text:
                best_text = text
                break
        null_odds -= place_of_text[best_text].score
    log_odds = np.array([place.score for place in place_of_text.values()], np.float64)
    probabilities = np.exp(log_odds - np.logaddexp.reduce(log_odds)).tolist()
    nbest = []
    for (text, place), probability in zip(place_of_text.items(), probabilities, strict=True):
        start, end = _characters(document, place)
        nbest.append(Candidate(text, probability, start, end))
    return Decoded(nbest, null_odds)


def _places(windows: Sequence[DocumentWindow], spans: Sequence[CandidateSpans]) -> list[_Place]:
    """The spans of all windows as places in the document, the best first.

    A span that several windows hold is taken from the one where its first piece has the most context.
    """
    places: list[_Place] = []
    for window, has_most_context, (starts, ends, scores) in zip(windows, max_context(windows), spans, strict=True):
        kept = has_most_context[starts - window.offset]
        to_document = window.start - window.offset
        first = (starts[kept] + to_document).tolist()
        last = (ends[kept] + to_document).tolist()
        places += map(_Place, scores[kept].tolist(), first, last)
    places.sort(key=lambda place: -place.score)
    return places


def _null_score(predictions: Sequence[Prediction], config: FinetuningConfig) -> float:
    """The score of there being no answer, in the window where it is lowest: an answer in one window is enough."""
    lowest = np.inf
    for prediction in predictions:
        score = prediction["answerable_logit"]
        if not config.answerable_classifier and "start_logits" in prediction:
            score = prediction["start_logits"][0] + prediction["end_logits"][0]  # of the span [CLS]
        lowest = min(lowest, float(score))
    return lowest


def _characters(document: Located, place: _Place) -> tuple[int, int]:
    """First character of a place in the context, and the one behind its last."""
    return document.spans[place.first, 0].item(), document.spans[place.last, 1].item()


def _original_text(question: Question, document: Located, first: int, last: int, tokenizer: WordpieceTokenizer) -> str:
    """The original's answer: the part of the words there that looks like the pieces first to last."""
    tokens = tokenizer.convert_ids_to_tokens(document.ids[first : last + 1])
    predicted = " ".join(tokens).replace(" ##", "").replace("##", "")
    first_word = document.word_of_piece[first]
    last_word = document.word_of_piece[last]
    original = " ".join(question.paragraph.words[first_word : last_word + 1])
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
    # Both texts have the same characters but for blanks: the n-th of one is the n-th of the other.
    in_original = [place for place, character in enumerate(original) if character != " "]
    in_normal = [place for place, character in enumerate(normal) if character != " "]
    if len(in_original) != len(in_normal):
        return original
    original_place = dict(zip(in_normal, in_original, strict=True))
    if start not in original_place or end not in original_place:
        return original
    return original[original_place[start] : original_place[end] + 1]


_PUNCTUATION = set(string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_KORQUAD_SIGNS = str.maketrans("'\"《》<>〈〉()‘’", " " * 12)
_CMRC_SIGNS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CMRC_TOKENS = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+(?:[.,'][^\W\u4e00-\u9fa5]+)*|[^\w\s]")


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and surplus blanks."""
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
    """Length of the longest stretch that stands in both."""
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
    """A way to compare an answer with an acceptable one; `COMPARISONS` lists them.

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
    """SQuAD 1.1, MRQA, ReCoRD, of acceptable answers and predictions by id: one without a prediction counts 0."""
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
) -> dict[str, float]:
    """SQuAD 2.0: exact and F1 with no answer above `threshold`, and at the thresholds that suit them best.

    Args:
      answers: id -> acceptable answers, none for an impossible question.
      predictions: id -> text of the best answer.
      null_odds: id -> score of there being no answer.
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
        best_score, best_threshold = _best_threshold(answers, predictions, raw, null_odds)
        best[f"best_{name}"] = best_score
        best[f"best_{name}_thresh"] = best_threshold
    return result | best


def _best_threshold(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    raw: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The highest score over all thresholds, and the first threshold that reaches it."""
    # Below the lowest odds nothing is answered, which is right for every impossible question.
    score = float(sum(1 for texts in answers.values() if not texts))
    best = score
    threshold = 0.0
    # The threshold rises past one question after another, whose answer then counts.
    for identity in sorted(null_odds, key=lambda i: null_odds[i]):
        if identity not in raw:
            continue
        if answers[identity]:
            score += raw[identity]
        elif predictions[identity]:
            score -= 1.0
        if score > best:
            best = score
            threshold = null_odds[identity]
    return 100.0 * best / len(raw), threshold
