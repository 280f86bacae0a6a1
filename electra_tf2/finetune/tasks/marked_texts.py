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


class MarkedSpan(NamedTuple):
    """Characters start to end of a text, the latter not included."""

    start: int
    end: int
    type: str


class MarkedText(NamedTuple):
    """A text and the spans that are marked in it."""

    text: str
    spans: list[MarkedSpan]


def text_of(row: Mapping[str, Any]) -> str | None:
    """The text of a row; None where it has none. Label Studio's stands in `data`, under any name."""
    data = row.get("data")
    if isinstance(data, dict) and "text" not in row:
        row = data
        texts = [value for value in data.values() if isinstance(value, str)]
        if "text" not in data and len(texts) == 1:
            return texts[0]
    text = row.get("text")
    return text if isinstance(text, str) else None


def marked_text(row: Mapping[str, Any], where: str) -> MarkedText | None:
    """The text and the spans of a row; None of a row that is no text with spans.

    Raises:
      UserError: a span that is none, or that lies outside of the text.
    """
    text = text_of(row)
    if text is None:
        return None
    items = _items(row, where)
    if items is None:
        return None
    return MarkedText(text, [_span(item, text, where) for item in items])


def _items(row: Mapping[str, Any], where: str) -> Sequence[Any] | None:
    """The spans of a row as the file has them."""
    annotations = row.get("annotations", row.get("completions"))
    if isinstance(annotations, list):
        for annotation in annotations:
            if isinstance(annotation, dict) and _first(annotation, _START) is not None:
                return annotations  # doccano's first versions have the spans there
            is_cancelled = not isinstance(annotation, dict) or annotation.get("was_cancelled")
            if not is_cancelled and isinstance(annotation.get("result"), list):
                # Relations and choices for the whole text stand beside the spans.
                values = [result.get("value") for result in annotation["result"] if isinstance(result, dict)]
                return [value for value in values if isinstance(value, dict) and "start" in value]
        return []
    for name in MARKED_SPANS:
        if name in row:
            items = cell(dict(row), name, "list", where)
            if items is None:
                return []
            are_spans = isinstance(items, list) and all(isinstance(item, (list, tuple, dict)) for item in items)
            return items if are_spans else None
    return None


def _span(item: Any, text: str, where: str) -> MarkedSpan:
    """A span of a text, without the blanks at its ends."""
    written = None
    if isinstance(item, dict):
        start = _first(item, _START)
        end = _first(item, _END)
        kind = _first(item, _LABEL)
        written = item.get("text")
        if isinstance(kind, list):
            kind = kind[0] if kind else None
    else:
        start, end, kind = (*item, None, None, None)[:3]
    if type(kind) is int:
        kind = str(kind)
    are_places = type(start) is int and type(end) is int
    if not are_places or not isinstance(kind, str) or not kind:
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


def tagged(marked: MarkedText) -> tuple[Words, list[str], int]:
    """A text as words with the tags B-, I- and O, and the number of spans that are left out.

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
    return text_words, tags, left_out


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
