"""Schemes of tags: each tag is learned and scored by itself, or the spans that tags mean are."""

import abc
from collections.abc import Collection, Sequence

import numpy as np

from electra_tf2.finetune.tasks.conll import Sentence
from electra_tf2.finetune.tasks.tag_decoding import SpanDecoder, likeliest_of_each_word
from electra_tf2.finetune.tasks.tags import (
    as_written,
    bioes,
    is_span_tag,
    letters_in_file,
    originals_spans,
    spans_of,
    spelled_as_bioes,
    tagging_scores,
    with_all_positions,
)
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, say, warn

_MANY_TAGS = 3


class TagScheme(abc.ABC):
    """Turns the tags of files into the labels that a head learns, and labels into tags.

    has_spans: whether tags mean spans. metric: the score by which trials are compared. label_of_no_window: the label of
    a word that no input holds.
    """

    has_spans: bool
    metric: str
    label_of_no_window: str

    # Reading.

    def spelled(self, sentences: Sequence[Sentence], known_types: Collection[str]) -> Sequence[Sentence]:
        """Spells tags as `labels_of` reads them. known_types: those of the training data."""
        return sentences

    @abc.abstractmethod
    def check(self, sentence: Sentence) -> None:
        """Raises UserError for a tag that the scheme cannot read."""

    @abc.abstractmethod
    def labels_of(self, tags: list[str]) -> list[str]:
        """The labels of a sentence's words."""

    def complete(self, labels: set[str]) -> set[str]:
        """Adds the labels that the training data lack, but that a text may need."""
        return labels

    def type_of(self, label: str) -> str:
        """The part of a label that the training data must have had."""
        return label

    # Answering.

    @abc.abstractmethod
    def tags_of(self, labels: list[str]) -> list[str]:
        """The tags of a sentence's words, spelled as in the training data."""

    def tag_of(self, label: str) -> str:
        """The tag that files have for one label. It may be that of several, as B and S are in BIO."""
        return label

    def likeliest(self, log_probabilities: np.ndarray, label_names: Sequence[str]) -> list[int]:
        """The likeliest labels of a sentence's words, as ids. log_probabilities: float [words, labels]."""
        return likeliest_of_each_word(log_probabilities)

    def well_formed(self, labels: list[str]) -> list[str]:
        """Makes predicted labels consistent with each other."""
        return labels

    def scores(self, gold_tags: list[list[str]], predicted_tags: list[list[str]]) -> dict[str, float]:
        return tagging_scores(gold_tags, predicted_tags, self.has_spans)


class SingleTags(TagScheme):
    """Tags that are learned and scored word by word, such as parts of speech."""

    has_spans = False
    metric = "accuracy"
    label_of_no_window = ""

    def check(self, sentence: Sentence) -> None:
        pass  # any text may be a tag

    def labels_of(self, tags: list[str]) -> list[str]:
        return tags

    def tags_of(self, labels: list[str]) -> list[str]:
        return list(labels)


class SpanTags(TagScheme):
    """Tags of spans, which are learned as BIOES of every type, and scored by whole spans.

    Args:
      encoding: that of the training data, one of `tags.ENCODINGS`, in which answers are written.
    """

    has_spans = True
    metric = "f1"
    label_of_no_window = "O"

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self._decoder: SpanDecoder | None = None

    def spelled(self, sentences: Sequence[Sentence], known_types: Collection[str]) -> Sequence[Sentence]:
        return spelled_as_bioes(sentences, known_types)

    def check(self, sentence: Sentence) -> None:
        for tag in sentence.tags:
            if not is_span_tag(tag):
                raise UserError(f"{sentence.where}: {shown(tag)} {_why_no_span_tag(tag, sentence.tags)}")

    def labels_of(self, tags: list[str]) -> list[str]:
        return bioes(spans_of(tags), len(tags))

    def complete(self, labels: set[str]) -> set[str]:
        return with_all_positions(labels)

    def type_of(self, label: str) -> str:
        return label.partition("-")[2]

    def tags_of(self, labels: list[str]) -> list[str]:
        return as_written(spans_of(labels), len(labels), self.encoding)

    def tag_of(self, label: str) -> str:
        letters = letters_in_file(self.encoding)
        return letters.get(label[0], label[0]) + label[1:]

    def likeliest(self, log_probabilities: np.ndarray, label_names: Sequence[str]) -> list[int]:
        if self._decoder is None:
            self._decoder = SpanDecoder(label_names)
        return self._decoder(log_probabilities)


class OriginalsSpanTags(SpanTags):
    """Tags of spans as google-research/electra reads and predicts them (compat original)."""

    def spelled(self, sentences: Sequence[Sentence], known_types: Collection[str]) -> Sequence[Sentence]:
        return sentences

    def labels_of(self, tags: list[str]) -> list[str]:
        return bioes(originals_spans(tags), len(tags))

    def complete(self, labels: set[str]) -> set[str]:
        return labels

    def likeliest(self, log_probabilities: np.ndarray, label_names: Sequence[str]) -> list[int]:
        return likeliest_of_each_word(log_probabilities)

    def well_formed(self, labels: list[str]) -> list[str]:
        return bioes(originals_spans(labels), len(labels))


def check_single_tags(name: str, sentences: Sequence[Sentence]) -> None:
    """Prints that tags are no spans. Raises UserError if words seem to stand in the place of tags."""
    words: set[str] = set()
    tags: set[str] = set()
    num_words = 0
    for sentence in sentences:
        words.update(sentence.words)
        tags.update(sentence.tags)
        num_words += len(sentence.words)
    if tags and all(tag.isdecimal() for tag in tags):
        raise UserError(
            f"{name}: all tags are numbers: give their names in the order of the numbers, "
            '"labels": ["O", "B-PER", ...] in the task\'s description, or say that they are no spans, "spans": false'
        )
    if len(tags) > len(words):
        raise UserError(
            f"{name}: there are more different tags ({len(tags):,}) than different words ({len(words):,}): on a line "
            "the word is the first column and its tag the last"
        )
    if len(tags) == 1:
        raise UserError(
            f"{name}: all words of the training data have the same tag, {shown(min(tags))}: is another column meant "
            "(--label-column)?"
        )
    if len(tags) > _MANY_TAGS and len(tags) > num_words / 2:
        warn(f"{name}: most tags occur once, as if lines were texts, whose last words are no tags")
    number_of_tags = counted(len(tags), "tag")
    say(f"{name}: {number_of_tags} of single words, since none begins with B- or I-: they are scored word by word")


def _why_no_span_tag(tag: str, tags: Sequence[str]) -> str:
    if all(other.isdecimal() for other in tags):
        return (
            "is the number of a tag: give their names in the order of the numbers, "
            '"labels": ["O", "B-PER", ...] in the task\'s description'
        )
    if tag == "0":
        return "is the digit: tag words outside of spans by the letter O"
    return (
        "is neither O nor B-, I-, E- or S- and a type, as other tags are: "
        '"spans": false in the task\'s description learns and scores single tags'
    )
