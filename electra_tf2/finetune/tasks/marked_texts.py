"""Texts with marked spans of characters, as programs for annotation export them, as words with tags.

{"text": ..., "entities": [[0, 4, "PER"]]}                     spaCy; also objects with start, end and label
{"text": ..., "label": [[0, 4, "PER"]]}                        doccano; "labels", too, and start_offset, end_offset
{"text": ..., "spans": [{"start": 0, "end": 4, "label": ..}]}  Prodigy
{"text": ..., "label": [{"start": .., "labels": ["PER"]}]}     Label Studio, JSON_MIN
{"data": {"text": ...}, "annotations": [{"result": [..]}]}     Label Studio, JSON
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.scripts import words
from electra_tf2.corpus.tokenization import Words
from electra_tf2.files.cells import cell
from electra_tf2.settings.columns import MARKED_SPANS
from electra_tf2.util.errors import UserError, shown

_START = ("start", "start_offset")
_END = ("end", "end_offset")
_LABEL = ("label", "labels", "type", "entity_group")
_REJECTED = ("reject", "ignore")  # Prodigy's "answer", otherwise "accept"


class MarkedSpan(NamedTuple):
    """Characters start to end of a text, the latter not included."""

    start: int
    end: int
    type: str


class MarkedText(NamedTuple):
    """A text and the spans that are marked in it.

    is_annotated: False: nobody has looked at the text, or rejected what was marked in it; it has no spans then.
    """

    text: str
    spans: list[MarkedSpan]
    is_annotated: bool = True


def text_of(row: Mapping[str, Any], spans: Sequence[Any] = ()) -> str | None:
    """Takes the text of a row; None where it has none. Label Studio's stands in `data`, under any name.

    Args:
      spans: those that are marked in the text, as the file has them. If `data` holds several texts, and none is called
        `text`, it is the one that has the characters of all spans.
    """
    data = row.get("data")
    if isinstance(data, dict) and "text" not in row:
        texts = [value for value in data.values() if isinstance(value, str)]
        if "text" not in data:
            fitting = [text for text in texts if _fits(text, spans)]
            return fitting[0] if len(fitting) == 1 else None
        row = data
    text = row.get("text")
    return text if isinstance(text, str) else None


def _fits(text: str, spans: Sequence[Any]) -> bool:
    """Tells whether a text has the characters that spans are said to mark."""
    for span in spans:
        written = span.get("text") if isinstance(span, dict) else None
        if isinstance(written, str) and written not in text:
            return False
    return True


def marked_text(row: Mapping[str, Any], where: str) -> MarkedText | None:
    """Takes the text and the spans of a row; None of a row that is no text with spans.

    Raises:
      UserError: a span that is none, or that lies outside of the text.
    """
    spans = _spans_of_row(row, where)
    if spans is None:
        return None
    text = text_of(row, spans)
    if text is None:
        return None
    if not _is_annotated(row):
        return MarkedText(text, [], is_annotated=False)
    return MarkedText(text, [_span(span, text, where) for span in spans])


def _spans_of_row(row: Mapping[str, Any], where: str) -> list[Any] | None:
    """Takes the spans of a row as the file has them; [] if none are marked, None if there is no place for spans."""
    annotations = _annotations(row)
    if annotations:
        return _spans_of_annotations(annotations)
    names = [name for name in MARKED_SPANS if name in row]
    for name in names:
        spans = cell(dict(row), name, "list", where)
        if not spans:
            continue  # the next may have them
        are_spans = isinstance(spans, list) and all(isinstance(span, (list, tuple, dict)) for span in spans)
        return spans if are_spans else None
    if names or annotations is not None:
        return []
    return None


def _annotations(row: Mapping[str, Any]) -> list[Any] | None:
    """What annotators made of a row, each on his own, in Label Studio's JSON; None if the row has no such list."""
    annotations = row.get("annotations", row.get("completions"))
    return annotations if isinstance(annotations, list) else None


def _is_kept(annotation: Any) -> bool:
    """Tells whether an annotator of Label Studio submitted a result, be it empty."""
    if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
        return False
    return isinstance(annotation.get("result"), list)


def _spans_of_annotations(annotations: list[Any]) -> list[Any]:
    """Takes the spans of the first annotation that was kept."""
    for annotation in annotations:
        if isinstance(annotation, dict) and _first(annotation, _START) is not None:
            return annotations  # doccano's first versions have the spans there
        if _is_kept(annotation):
            # Relations and choices for the whole text stand beside the spans.
            values = [result.get("value") for result in annotation["result"] if isinstance(result, dict)]
            return [value for value in values if isinstance(value, dict) and "start" in value]
    return []


def _is_annotated(row: Mapping[str, Any]) -> bool:
    """Tells whether somebody looked at a text and kept what is marked in it."""
    if row.get("answer") in _REJECTED:
        return False
    annotations = _annotations(row)
    is_label_studio = isinstance(row.get("data"), dict) and annotations is not None
    return not is_label_studio or any(_is_kept(annotation) for annotation in annotations or ())


def _span(item: Any, text: str, where: str) -> MarkedSpan:
    """A span of a text, without the blanks at its ends."""
    start = end = kind = written = None
    if isinstance(item, dict):
        start = _first(item, _START)
        end = _first(item, _END)
        kind = _first(item, _LABEL)
        written = item.get("text")
    elif len(item) >= 3:
        start, end, kind = item[:3]
    if isinstance(kind, list) and kind:  # Label Studio's
        kind = kind[0]
    if type(kind) is int:
        kind = str(kind)
    if type(start) is not int or type(end) is not int or not isinstance(kind, str) or not kind:
        raise UserError(f'{where}: a span must be like [0, 4, "PER"], or have start, end and label; got {shown(item)}')
    if isinstance(written, str) and text[start:end] != written:
        # Programs in JavaScript count characters beyond 16 bits, such as emoji, twice.
        in_halves = text.encode("utf-16-le", "surrogatepass")
        before = in_halves[: 2 * start].decode("utf-16-le", "replace")
        within = in_halves[2 * start : 2 * end].decode("utf-16-le", "replace")
        if within == written:
            start = len(before)
            end = start + len(within)
    if not 0 <= start <= end <= len(text):
        raise UserError(f"{where}: the span from {start} to {end} is none of a text of {len(text):,} characters")
    marked = text[start:end]
    start += len(marked) - len(marked.lstrip())
    end -= len(marked) - len(marked.rstrip())
    return MarkedSpan(start, max(start, end), kind)


def _first(item: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        if name in item:
            return item[name]
    return None


class TaggedText(NamedTuple):
    """The words of a text with marked spans.

    tags: B-, I- and O, one of each word.
    left_out: number of spans that are empty, or lie inside or across others.
    cut_words: the texts of spans that begin or end inside a word.
    """

    text: Words
    tags: list[str]
    left_out: int
    cut_words: list[str]


def words_and_tags(marked: MarkedText) -> TaggedText:
    """Splits a text into words with tags.

    Of spans that overlap the one that begins first is kept, of those that begin together the longest.
    """
    kept: list[MarkedSpan] = []
    left_out = 0
    for span in sorted(marked.spans, key=lambda span: (span.start, -span.end)):
        if span.start == span.end or (kept and span.start < kept[-1].end):
            left_out += 1
        else:
            kept.append(span)
    borders = {span.start for span in kept} | {span.end for span in kept}
    text_words = split_at_signs(marked.text, borders)
    tags = ["O"] * len(text_words.words)
    for span in kept:
        first, behind = np.searchsorted(text_words.starts, [span.start, span.end])
        tags[first:behind] = [f"I-{span.type}"] * (behind - first)
        if first < behind:
            tags[first] = f"B-{span.type}"
    # Splitting at the borders made words that are none.
    inside_words = set(text_words.starts.tolist()) - set(split_at_signs(marked.text).starts.tolist())
    cut_words = [marked.text[span.start : span.end] for span in kept if {span.start, span.end} & inside_words]
    return TaggedText(text_words, tags, left_out, cut_words)


def split_at_signs(text: str, borders: Iterable[int] = ()) -> Words:
    """Splits at blanks, at each sign of punctuation, between the letters of scripts without blanks, and at borders."""
    wanted = set(borders)
    places: list[int] = []
    pieces: list[str] = []
    at = 0
    for unit in words(text):
        behind = at + len(unit)
        word = unit.lstrip()
        begin = behind - len(word)
        at = behind
        for place in range(begin, behind):
            is_first = place == begin
            if is_first or place in wanted or _is_sign(text[place]) or _is_sign(text[place - 1]):
                places.append(place)
                pieces.append("")
            pieces[-1] += text[place]
    return Words(text, pieces, np.array(places, np.int32))


def _is_sign(character: str) -> bool:
    """Tells punctuation as BERT's tokenizer does, which takes ASCII's symbols for it as well."""
    if character.isascii():
        return not character.isalnum()
    return unicodedata.category(character).startswith("P")
