"""Answers of a tagger, and their scores.

logits of a text's windows --labelled_words--> labels --answer--> tags, and spans with the places of their characters
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.finetune.tasks.tag_decoding import log_softmax
from electra_tf2.finetune.tasks.tag_schemes import TagScheme
from electra_tf2.finetune.tasks.tagging_windows import TaggedSentence
from electra_tf2.finetune.tasks.tags import scores_of_places, spans_of
from electra_tf2.finetune.tasks.task import Prediction, Split


class LabelledWords(NamedTuple):
    """The labels of a text's words.

    probabilities: of each word's tag as files write it. Several labels may be one tag there, as S and B are in BIO.
    """

    labels: list[str]
    probabilities: list[float]


def labelled_words(
    split: Split, predictions: Sequence[Prediction], scheme: TagScheme, label_names: Sequence[str]
) -> list[LabelledWords]:
    """Lists the labels of the words of each example of a split.

    Labels of spans are the likeliest that make up whole ones; with compat original those that the original makes of
    each word's likeliest. A word that is in no window has the label "O", or "" without spans, and probability 0.
    """
    same_tag = _labels_of_the_same_tag(scheme, label_names)
    result = []
    for example, inputs in zip(split.examples, split.by_example(predictions), strict=True):
        labels = [scheme.label_of_no_window] * len(example.words)
        probabilities = [0.0] * len(example.words)
        words = np.concatenate([window.words for window in example.windows])
        word_logits = []
        for window, prediction in zip(example.windows, inputs, strict=True):
            word_logits.append(prediction["logits"][window.positions])
        log_probabilities = log_softmax(np.concatenate(word_logits))
        tag_probabilities = np.exp(log_probabilities) @ same_tag
        for row, label_id in enumerate(scheme.likeliest(log_probabilities, label_names)):
            labels[words[row]] = label_names[label_id]
            probabilities[words[row]] = float(tag_probabilities[row, label_id])
        result.append(LabelledWords(scheme.well_formed(labels), probabilities))
    return result


def _labels_of_the_same_tag(scheme: TagScheme, label_names: Sequence[str]) -> np.ndarray:
    """Tells which labels are one tag in the files, float64 [labels, labels]: in BIO B and S are, and I and E."""
    tag_of_label = np.array([scheme.tag_of(label) for label in label_names])
    return (tag_of_label[:, np.newaxis] == tag_of_label).astype(np.float64)


def answer(example: TaggedSentence, words: LabelledWords, scheme: TagScheme) -> dict[str, Any]:
    """Makes lists of a text's `words`, `tags`, `probabilities`, `starts` and `ends`.

    `starts` and `ends` count characters of the text, or of words given as a list, joined by blanks. With spans there
    are also `entities`, each with `type`, `text`, `start`, `end`, and as `probability` the least one of its words.
    """
    text = example.text
    result = {
        "words": list(text.words),
        "tags": scheme.tags_of(words.labels),
        "probabilities": [round(probability, 6) for probability in words.probabilities],
        "starts": text.starts.tolist(),
        "ends": text.ends.tolist(),
    }
    if scheme.has_spans:
        entities = []
        for span, place in zip(spans_of(words.labels), example.places(words.labels), strict=True):
            least = min(words.probabilities[span.start : span.end + 1])
            entities.append(entity(text.text, *place) | {"probability": round(least, 6)})
        result["entities"] = entities
    return result


def entity(text: str, start: int, end: int, kind: str) -> dict[str, Any]:
    """Makes the JSON object of a span of characters."""
    return {"type": kind, "text": text[start:end], "start": start, "end": end}


def scores_by_characters(examples: Sequence[TaggedSentence], labels: Sequence[Sequence[str]]) -> dict[str, float]:
    """Scores the spans of labels by their characters. Marked spans may end inside words, where no tag can say it."""
    gold: list[tuple] = []
    predicted: list[tuple] = []
    for number, (example, predicted_labels) in enumerate(zip(examples, labels, strict=True)):
        gold += [(number, *place) for place in example.gold_places]
        predicted += [(number, *place) for place in example.places(predicted_labels)]
    return scores_of_places(gold, predicted)


def scores_of_other_words(
    split: Split, answered: Split, answers: Sequence[Mapping[str, Any]]
) -> dict[str, float] | None:
    """Scores the spans in answers whose texts are divided into other words than those of a split.

    Args:
      answered: what the answers belong to.

    Returns:
      None: one of the split's texts has no answer.
    """
    answer_of_text: dict[str, Mapping[str, Any]] = {}
    for example, answer_to_it in zip(answered.examples, answers, strict=True):
        answer_of_text[example.text.text] = answer_to_it
    gold: list[tuple] = []
    predicted: list[tuple] = []
    for number, example in enumerate(split.examples):
        text = example.text.text
        if text not in answer_of_text:
            return None
        gold += [(number, *place) for place in example.gold_places]
        for span in answer_of_text[text]["entities"]:
            predicted.append((number, span["start"], span["end"], span["type"]))
    return scores_of_places(gold, predicted)
