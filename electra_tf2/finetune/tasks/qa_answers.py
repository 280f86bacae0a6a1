"""Makes answers to questions from predictions on windows, as the document spells them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.normalization import TextNormalizer, basic_tokens
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer
from electra_tf2.finetune.tasks.qa_windows import DocumentWindow, QAExample, max_context
from electra_tf2.finetune.tasks.questions import Question, split_words
from electra_tf2.finetune.tasks.task import Prediction

_WINDOWS_AT_ONCE = 256  # in a call of `candidates`


class Candidate(NamedTuple):
    """An answer and its probability. start, end: its characters in the context, [start, end)."""

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
    """Lists the spans that may answer each input, by the head's outputs.

    Args:
      outputs: outputs of the head for B inputs.
      first, behind: int32 [B], the position of the document's first token, and the one behind its last.

    Returns:
      First and last positions, int32 [B, spans], and the sums of both ends' scores, float32 [B, spans], likelier starts
      first. The score of a span that cannot be an answer is -inf.
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
    """Lists the spans of each window that may be its answer."""
    # Outputs of equal shapes are stacked, so that many windows take one call of `candidates`.
    indices_by_shape: dict[Any, list[int]] = {}
    for index, prediction in enumerate(predictions):
        shapes = tuple(map(np.shape, prediction.values()))
        indices_by_shape.setdefault(shapes, []).append(index)
    spans: dict[int, CandidateSpans] = {}
    for indices in indices_by_shape.values():
        for start in range(0, len(indices), _WINDOWS_AT_ONCE):
            batch = indices[start : start + _WINDOWS_AT_ONCE]
            batch_spans = _batch_spans([windows[i] for i in batch], [predictions[i] for i in batch], config)
            spans.update(zip(batch, batch_spans, strict=True))
    return [spans[index] for index in range(len(predictions))]


def _batch_spans(
    windows: Sequence[DocumentWindow], predictions: Sequence[Prediction], config: FinetuningConfig
) -> list[CandidateSpans]:
    """Computes `candidate_spans` of windows whose outputs have the same shapes."""
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
    """A span of a document: the sum of both ends' scores, and its first and last piece."""

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
    """Makes the answers to a question from the predictions on its windows."""
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
    if not place_of_text:  # no span is legal
        nothing = NO_ANSWER
        if config.compat == "original":
            nothing = Candidate("empty", 1.0)
        return Decoded([nothing], null_odds)
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
    """Finds the spans of all windows in the document, the best first.

    Of a span in several windows, that of the window counts in which its first piece has the most context.
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
    """The score of there being no answer: the lowest of all windows, since an answer in one window is enough."""
    lowest = np.inf
    for prediction in predictions:
        score = prediction["answerable_logit"]
        if not config.answerable_classifier and "start_logits" in prediction:
            score = prediction["start_logits"][0] + prediction["end_logits"][0]  # of the span [CLS]
        lowest = min(lowest, float(score))
    return lowest


def _characters(document: Located, place: _Place) -> tuple[int, int]:
    """The characters [start, end) of a place in the context."""
    return document.spans[place.first, 0].item(), document.spans[place.last, 1].item()


def _original_text(question: Question, document: Located, first: int, last: int, tokenizer: WordpieceTokenizer) -> str:
    """Makes the original's answer: the part of the words there that looks like the pieces first to last."""
    tokens = tokenizer.convert_ids_to_tokens(document.ids[first : last + 1])
    predicted = " ".join(tokens).replace(" ##", "").replace("##", "")
    first_word = document.word_of_piece[first]
    last_word = document.word_of_piece[last]
    original = " ".join(question.paragraph.words[first_word : last_word + 1])
    return final_text(" ".join(predicted.split()), original, tokenizer.normalize)


def final_text(predicted: str, original: str, normalize: TextNormalizer) -> str:
    """Finds the part of the original text that equals the predicted, tokenised text; all of it if that is unclear.

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
