"""Texts with marked spans of characters, as programs for annotation export them, as words with tags.

{"text": ..., "entities": [[0, 4, "PER"]]}                     spaCy; also objects with start, end and label
{"text": ..., "label": [[0, 4, "PER"]]}                        doccano; "labels", too, and start_offset, end_offset
{"text": ..., "spans": [{"start": 0, "end": 4, "label": ..}]}  Prodigy
{"text": ..., "label": [{"start": .., "labels": ["PER"]}]}     Label Studio, JSON_MIN
{"data": {"text": ...}, "annotations": [{"result": [..]}]}     Label Studio, JSON
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.tokenization import Words
from electra_tf2.files.cells import cell, is_null
from electra_tf2.files.tables import columns_named
from electra_tf2.finetune.tasks.conll import Divided
from electra_tf2.finetune.tasks.signs import words_at_signs
from electra_tf2.settings.columns import MARKED_SPANS
from electra_tf2.util.errors import UserError, shown

_START = ("start", "start_offset", "begin")
_END = ("end", "end_offset")
_LABEL = ("label", "labels", "type", "entity_group")
ANNOTATIONS = ("annotations", "completions")  # Label Studio's, doccano's first versions
_MAY_BE_CLASS = ("label", "labels")  # names of spans in doccano's files, in others that of a text's class
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


def text_of(row: Mapping[str, Any], spans: Sequence[Any] = (), name: str = "") -> str | None:
    """Takes the text of a row, "" if it is null; None: it has none. Label Studio's stands in `data`, under any name.

    Args:
      spans: those that are marked in the text, as the file has them. Of several texts in `data`, the one that has the
        name is taken, else the only one in which the characters of every span occur.
      name: of the field; "": text.
    """
    name = name or "text"
    data = row.get("data")
    if not isinstance(data, dict):
        data = {}
    for fields in (row, data):
        for column in columns_named(fields, [name]):
            if isinstance(fields[column], str):
                return fields[column]
            if is_null(fields[column]):  # a text, but an empty one
                return ""
    fitting = [text for text in data.values() if isinstance(text, str) and _fits(text, spans)]
    if len(fitting) != 1:
        return None
    return fitting[0]


def _fits(text: str, spans: Sequence[Any]) -> bool:
    """Tells whether a text has the characters that spans are said to mark."""
    for span in spans:
        written = span.get("text") if isinstance(span, dict) else None
        if isinstance(written, str) and written not in text:
            return False
    return True


def marked_text(row: Mapping[str, Any], where: str, label_column: str = "", text_column: str = "") -> MarkedText | None:
    """Takes the text and the spans of a row; None of a row that is no text with spans.

    Args:
      label_column: name of the field of spans; "": it is one of the usual names.
      text_column: name of the field of the text; "": text.

    Raises:
      UserError: a span that is none, or that lies outside of the text, or several texts of which one may be marked.
    """
    spans = _spans_of_row(row, where, label_column)
    if spans is None:
        return None
    text = text_of(row, spans, text_column)
    if text is None and not _is_annotated(row):
        return MarkedText("", [], is_annotated=False)
    if text == "":
        return MarkedText("", [])
    if text is None:
        if isinstance(row.get("data"), dict) and row["data"]:
            raise UserError(
                f"{where}: which text of `data` is marked, {', '.join(map(str, row['data']))}? Name it by --text-column"
            )
        return None
    if not _is_annotated(row):
        return MarkedText(text, [], is_annotated=False)
    return MarkedText(text, [_span(span, text, where) for span in spans])


def _spans_of_row(row: Mapping[str, Any], where: str, label_column: str) -> list[Any] | None:
    """Takes the spans of a row as the file has them, in the first field that has some.

    [] if none are marked; None: the row has no field in which spans could stand, or null there.
    """
    has_field = False
    for column in _columns_of_spans(row, label_column):
        values = cell(dict(row), column, "list", where)
        if values is None:
            continue  # as data frames have it where nobody annotated
        if values == []:
            has_field = True
        elif isinstance(values, list) and any(map(_is_annotation, values)):
            return _spans_of_annotations(values)
        elif isinstance(values, list) and all(map(_is_like_span, values)):
            return values
        elif column in ANNOTATIONS and not _has_marked_spans(row):
            raise _unreadable(where, column, values)
    if has_field:
        return []
    return None


def refuse_other_spans(row: Mapping[str, Any], where: str, label_column: str = "") -> None:
    """Raises UserError for a field of spans that holds something else. A class may be called `label`, too."""
    for column in _columns_of_spans(row, label_column):
        values = cell(dict(row), column, "list", where)
        may_be_class = column != label_column and column.lower() in _MAY_BE_CLASS
        if isinstance(values, (dict, list)):
            may_be_class = False
        if values and not may_be_class:
            raise _unreadable(where, column, values)


def _columns_of_spans(row: Mapping[str, Any], label_column: str) -> list[str]:
    """Lists the fields in which spans may stand, in the order in which they count."""
    if label_column:
        return columns_named(row, [label_column])
    columns = []
    for name in (*ANNOTATIONS, *MARKED_SPANS):
        columns += columns_named(row, [name])
    return columns


def _unreadable(where: str, column: str, values: Any) -> UserError:
    return UserError(f'{where}: {column} has no spans that can be read: write [0, 4, "PER"], got {shown(values)}')


def _is_like_span(value: Any) -> bool:
    if isinstance(value, dict):
        return _first(value, _START) is not None
    return isinstance(value, (list, tuple))


def _has_marked_spans(row: Mapping[str, Any]) -> bool:
    return any(row[column] for column in columns_named(row, MARKED_SPANS))


def _is_annotation(value: Any) -> bool:
    """Tells what an annotator of Label Studio made of a text."""
    return isinstance(value, dict) and ("result" in value or "was_cancelled" in value)


def _is_kept(annotation: Any) -> bool:
    """Tells whether an annotator of Label Studio submitted a result, be it empty."""
    if not _is_annotation(annotation) or annotation.get("was_cancelled"):
        return False
    return isinstance(annotation.get("result"), list)


def _spans_of_annotations(annotations: list[Any]) -> list[Any]:
    """Takes the spans of the first annotation of Label Studio's that was kept."""
    spans: list[Any] = []
    kept = [annotation for annotation in annotations if _is_kept(annotation)]
    if kept:
        for result in kept[0]["result"]:
            value = result.get("value") if isinstance(result, dict) else None
            # Relations, choices and comments stand beside the spans.
            if isinstance(value, dict) and "start" in value and value.get("labels"):
                spans.append(value)
    return spans


def _is_annotated(row: Mapping[str, Any]) -> bool:
    """Tells whether somebody looked at a text and kept what is marked in it."""
    if row.get("answer") in _REJECTED:
        return False
    annotations = _first(row, ANNOTATIONS)
    is_label_studio = isinstance(row.get("data"), dict) and isinstance(annotations, list)
    return not is_label_studio or any(map(_is_kept, annotations))


def says_annotated(row: Mapping[str, Any]) -> bool:
    """Tells whether a row without a field of spans says that somebody looked at its text and marked nothing.

    Prodigy and Label Studio's JSON_MIN leave the field out.
    """
    return row.get("answer") == "accept" or "annotator" in row or "annotation_id" in row


def _span(item: Any, text: str, where: str) -> MarkedSpan:
    """Makes a span of a text, without the blanks at its ends. Raises UserError."""
    start, end, kind, written = _fields_of_span(item)
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
        counted_in = "another text"
        if not text.isascii() and max(text) > "\uffff":
            counted_in += ", or in UTF-16 units, of which an emoji has two (programs in JavaScript count them)"
        raise UserError(
            f"{where}: the span from {start} to {end} lies outside of its text, which has {len(text):,} characters: "
            f"its places were counted in {counted_in}"
        )
    marked = text[start:end]
    if isinstance(written, str) and marked.split() != written.split():
        raise UserError(
            f"{where}: from {start} to {end} the text has {shown(marked)}, but the span is said to be "
            f"{shown(written)}: its places were counted in another text"
        )
    start += len(marked) - len(marked.lstrip())
    end -= len(marked) - len(marked.rstrip())
    return MarkedSpan(start, max(start, end), kind)


def _fields_of_span(item: Any) -> tuple[Any, Any, Any, Any]:
    """Takes start, end, type and text of a span from an object or a list; None for what it lacks."""
    if isinstance(item, dict):
        return _first(item, _START), _first(item, _END), _first(item, _LABEL), item.get("text")
    if len(item) >= 3:
        start, end, kind = item[:3]
        return start, end, kind, None
    return None, None, None, None


def _first(item: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        if name in item:
            return item[name]
    return None


class TaggedText(NamedTuple):
    """The words of a text with marked spans.

    tags: B-, I- and O, one of each word. A word of which a span marks a part has the span's tag.
    left_out: number of spans that are empty, or lie inside or across others.
    cut_words: the texts of spans that begin or end inside a word, each with the words of which they are parts.
    divided: the text divided at these ends, too; None if there are none.
    """

    text: Words
    tags: list[str]
    left_out: int
    cut_words: list[tuple[str, str]]
    divided: Divided | None


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
    text_words = split_at_signs(marked.text)
    borders = {span.start for span in kept} | {span.end for span in kept}
    divided_words = split_at_signs(marked.text, borders)
    # Splitting at the borders made words that are none.
    inside_words = set(divided_words.starts.tolist()) - set(text_words.starts.tolist())
    cut_words = []
    for span in kept:
        if {span.start, span.end} & inside_words:
            whole = marked.text[_start_of_word(text_words, span.start) : _end_of_word(text_words, span.end)]
            cut_words.append((marked.text[span.start : span.end], whole))
    divided = None
    if cut_words:
        places = [(span.start, span.end, span.type) for span in kept]
        divided = Divided(divided_words, _tags(divided_words, kept), places)
    return TaggedText(text_words, _tags(text_words, kept), left_out, cut_words, divided)


def _start_of_word(text: Words, place: int) -> int:
    """The first character of the word in which a character stands."""
    return int(text.starts[text.word_at(place)])


def _end_of_word(text: Words, place: int) -> int:
    """The character behind the word in which the one before a place stands."""
    return int(text.ends[text.word_at(place - 1)])


def _tags(text: Words, spans: Sequence[MarkedSpan]) -> list[str]:
    """Makes the tags of a text's words. A word that two spans share has the tag of the first."""
    ends = text.ends
    tags = ["O"] * len(text.words)
    for span in spans:
        first = np.searchsorted(ends, span.start, side="right")
        behind = np.searchsorted(text.starts, span.end)
        letter = "B"
        for place in range(first, behind):
            if tags[place] == "O":
                tags[place] = f"{letter}-{span.type}"
                letter = "I"
    return tags


def split_at_signs(text: str, borders: Iterable[int] = ()) -> Words:
    """Splits at blanks, at each sign, between the letters of scripts without blanks, and at borders."""
    places: list[int] = []
    pieces: list[str] = []
    for start, end in itertools.pairwise(sorted({0, *borders, len(text)})):
        for place, word in words_at_signs(text[start:end]):
            places.append(start + place)
            pieces.append(word)
    return Words(text, pieces, np.array(places, np.int32))
