"""Tags of spans in the encodings that files use, BIO, BIOES, BILOU and BMES, and the scores of tags."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from electra_tf2.finetune.tasks.conll import Sentence

_LETTERS = ("B", "I", "E", "S", "U", "L", "M")
_NO_TYPE = "_"  # seqeval's type of a tag that is a letter alone
_LIKE_BIOES = {"U": "S", "L": "E", "M": "I"}  # BILOU's and BMES's letters


class Span(NamedTuple):
    """Words start to end, both included."""

    start: int
    end: int
    type: str


class _Letters(NamedTuple):
    """The letters of an encoding of spans, by the place of a word in its span; the first of several words has B."""

    inside: str
    last: str
    single: str


# Encodings by the letters that files use.
ENCODINGS = {
    "BIO": _Letters("I", "I", "B"),
    "BIOES": _Letters("I", "E", "S"),
    "BILOU": _Letters("I", "L", "U"),
    "BMES": _Letters("M", "E", "S"),
}


def letters_in_file(encoding: str) -> dict[str, str]:
    """Maps the letters of BIOES to those of an encoding, as labels of whole spans are written in it."""
    letters = ENCODINGS[encoding]
    return {"B": "B", "I": letters.inside, "E": letters.last, "S": letters.single, "O": "O"}


def spelled_as_bioes(sentences: Sequence[Sentence], known_types: Collection[str] = ()) -> list[Sentence]:
    """Rewrites the span tags of a file in the letters of BIOES, before the type.

    It accepts BIO, IOB1 and BIOES; BILOU's, BMES's and lower-case letters; "B_PER"; letters behind the type ("PER-B");
    letters without a type, as in BioBERT's corpora (the type becomes "_", as in seqeval); and types without letters, as
    in Few-NERD, where neighbours of the same type are one span.

    Args:
      known_types: of the training data, where the sentences are others. A tag that is one of them, such as PER, is one
        of a word inside a span.
    """
    respelled = _with_letters_before_types(sentences, known_types)
    result = []
    for sentence in sentences:
        tags = [_in_bioes_letters(respelled.get(tag, tag)) for tag in sentence.tags]
        result.append(sentence._replace(tags=tags))
    return result


def _with_letters_before_types(sentences: Sequence[Sentence], known_types: Collection[str] = ()) -> dict[str, str]:
    """Maps tags that are not a letter, a dash and a type to tags that are."""
    tags: list[str] = []  # of words inside spans
    num_outside = 0
    for sentence in sentences:
        inside = [tag for tag in sentence.tags if tag not in ("O", "o")]
        tags += inside
        num_outside += len(sentence.tags) - len(inside)
    num_letters = sum(tag.upper() in _LETTERS for tag in tags)
    num_in_front = sum(tag[1:2] == "-" and tag[0].upper() in _LETTERS for tag in tags)
    num_underscores = sum(tag[1:2] == "_" and len(tag) > 2 and tag[0].upper() in _LETTERS for tag in tags)
    num_behind = sum(tag[-2:-1] == "-" and tag[-1].upper() in _LETTERS for tag in tags)
    if tags and num_letters == len(tags):
        return {tag: f"{tag}-{_NO_TYPE}" for tag in tags}
    if tags and num_underscores == len(tags):
        return {tag: f"{tag[0]}-{tag[2:]}" for tag in tags}
    if num_in_front < len(tags) and num_behind == len(tags):
        return {tag: f"{tag[-1]}-{tag[:-2]}" for tag in tags}
    # Types alone (PER) look like parts of speech (NN). They are types if the training data had them, or if most words
    # are O.
    are_types = set(tags) <= set(known_types) or num_outside > len(tags)
    if num_in_front == 0 and are_types:
        return {tag: f"I-{tag}" for tag in tags}
    return {}


def _in_bioes_letters(tag: str) -> str:
    """Gives a span tag the capital letter of BIOES. Other tags stay."""
    if tag == "o":
        return "O"
    letter, dash, kind = tag.partition("-")
    upper = letter.upper()
    if not dash or upper not in _LETTERS:
        return tag
    return f"{_LIKE_BIOES.get(upper, upper)}-{kind}"


def encoding_of(sentences: Sequence[Sentence]) -> str:
    """Names the encoding of the tags of spans in a file: BIO, BIOES, BILOU or BMES.

    IOB1, and types without letters, are BIO.
    """
    respelled = _with_letters_before_types(sentences)
    letters = set()
    for sentence in sentences:
        for tag in sentence.tags:
            letter, dash, _ = respelled.get(tag, tag).partition("-")
            if dash:
                letters.add(letter.upper())
    if letters & {"L", "U"}:
        return "BILOU"
    if "M" in letters:
        return "BMES"
    if letters & {"E", "S"}:
        return "BIOES"
    return "BIO"


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Finds the spans of tags in any encoding (also IOB1) by conlleval's rules: a change of type ends a span."""
    bioes_tags = [_in_bioes_letters(_with_a_type(tag)) for tag in tags]
    return [Span(start, end, kind) for kind, start, end in get_entities(bioes_tags)]


def _with_a_type(tag: str) -> str:
    """Gives a tag that is a letter alone the type that it has in seqeval."""
    if tag.upper() in _LETTERS:
        return f"{tag}-{_NO_TYPE}"
    return tag


def originals_spans(tags: Sequence[str]) -> list[Span]:
    """Finds spans by the original's rules: a span goes on at a change of type, and has the type of its last tag."""
    spans = []
    start = -1
    last = "O"
    for place, tag in enumerate(tags):
        begins = tag[:1] in ("B", "S") and tag != "O"
        if last != "O" and (begins or tag == "O"):
            spans.append(Span(start, place - 1, _type(last)))
        if begins or last == "O":
            start = place
        last = tag
    if last != "O":
        spans.append(Span(start, len(tags) - 1, _type(last)))
    return spans


def _type(tag: str) -> str:
    return tag.split("-", 1)[-1]


def bioes(spans: Sequence[Span], length: int) -> list[str]:
    """Makes a tag for each word: S for a span of one word, else B, I, ..., E; O outside."""
    return encoded(spans, length, "BIOES")


def bio(spans: Sequence[Span], length: int) -> list[str]:
    """Makes a tag for each word: B for a span's first word, I for its others; O outside."""
    return encoded(spans, length, "BIO")


def encoded(spans: Sequence[Span], length: int, encoding: str) -> list[str]:
    """One tag per word in the encoding of that name; O outside of spans."""
    letters_of = ENCODINGS[encoding]
    tags = ["O"] * length
    for start, end, kind in spans:
        if start == end:
            letters = letters_of.single
        else:
            inside = letters_of.inside * (end - start - 1)
            letters = f"B{inside}{letters_of.last}"
        tags[start : end + 1] = [f"{letter}-{kind}" for letter in letters]
    return tags


def as_written(spans: Sequence[Span], length: int, encoding: str) -> list[str]:
    """The same tags as files have them: those of spans without a type are a letter alone."""
    return [tag.removesuffix(f"-{_NO_TYPE}") for tag in encoded(spans, length, encoding)]


def with_all_positions(labels: set[str]) -> set[str]:
    """Completes labels of spans: O, and B, I, E and S of every type."""
    complete = {"O"}
    for label in labels:
        if label != "O":
            kind = label.split("-", 1)[1]
            complete.update(f"{position}-{kind}" for position in "BIES")
    return complete


def has_span_tags(sentences: Sequence[Sentence]) -> bool:
    """Tells whether the tags of a file mean spans: one of them does, in any spelling, or all are O."""
    has_others = False
    for sentence in spelled_as_bioes(sentences):
        for tag in sentence.tags:
            if tag == "O":
                continue
            if is_span_tag(tag):
                return True
            has_others = True
    return not has_others


def types_of(labels: Iterable[str]) -> set[str]:
    """The types of spans among labels: the part behind the letter and its sign."""
    return {label[2:] for label in labels if label != "O"}


def is_span_tag(tag: str) -> bool:
    if tag == "O":
        return True
    return tag.startswith(("B-", "I-", "E-", "S-")) and len(tag) > 2


def scores_of_places(gold: Collection[tuple], predicted: Collection[tuple]) -> dict[str, float]:
    """Computes precision, recall and F1, in percent, of spans that are given by text, place and type."""
    hits = len(set(gold) & set(predicted))
    precision = 100.0 * hits / max(len(predicted), 1)
    recall = 100.0 * hits / max(len(gold), 1)
    f1 = 200.0 * hits / max(len(gold) + len(predicted), 1)
    return {"precision": precision, "recall": recall, "f1": f1}


def tagging_scores(gold: list[list[str]], predicted: list[list[str]], spans: bool) -> dict[str, float]:
    """Computes accuracy of words and, for spans, precision, recall and F1 (seqeval, conlleval's rules), in percent."""
    is_right: list[bool] = []
    for gold_labels, predicted_labels in zip(gold, predicted, strict=True):
        is_right += [right == answer for right, answer in zip(gold_labels, predicted_labels, strict=True)]
    scores = {"accuracy": 100.0 * float(np.mean(is_right))}
    if not spans:
        return scores
    # By way of spans, so that an ill-formed prediction counts for the spans that conlleval sees in it.
    gold = [bio(spans_of(labels), len(labels)) for labels in gold]
    predicted = [bio(spans_of(labels), len(labels)) for labels in predicted]
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        scores[name] = 100.0 * float(score(gold, predicted, zero_division=0))
    return scores
