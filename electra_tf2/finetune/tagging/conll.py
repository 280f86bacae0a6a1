"""CoNLL column files, and spans of tags in the BIO and BIOES encodings."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqeval.metrics.sequence_labeling import get_entities

from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_text

_DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    """Words, their tags ([] where the file has none), and the line of the first word."""

    words: list[str]
    tags: list[str]
    line: int


class Span(NamedTuple):
    """Words start to end, both included."""

    start: int
    end: int
    type: str


def read_sentences(path: Path, tagged: bool = True, unended: bool = True) -> list[Sentence]:
    """The sentences of a file: word first, tag last, a blank line between sentences.

    Args:
      tagged: whether every line must have a tag; else lines of a word alone are fine.
      unended: keep a last sentence that no blank line follows; the original loses it.

    Raises:
      UserError: names file and line.
    """
    lines = read_text(path, "task").split("\n")
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    if unended:
        lines.append("")
    elif lines[-1] == "":  # what follows the last line end is no line
        lines.pop()
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        if not columns:
            if words:
                sentences.append(Sentence(words, tags, number - len(words)))
            words, tags = [], []
            continue
        if columns[0] == _DOCUMENT:
            continue
        if len(columns) < 2 and tagged:
            raise UserError(f"{path}, line {number}: a word and a tag are needed, got {line.strip()!r}")
        words.append(columns[0])
        if len(columns) > 1:
            tags.append(columns[-1])
    if not sentences:
        raise UserError(f"{path} holds no sentences")
    return sentences


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of BIO (also IOB1) or BIOES tags, by conlleval's rules: a change of type ends a span."""
    return [Span(start, end, kind) for kind, start, end in get_entities(list(tags))]


def originals_spans(tags: Sequence[str]) -> list[Span]:
    """The spans that the original finds: I-X before I-Y goes on, and the last tag's type is the span's."""
    spans, start, last = [], -1, "O"
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
    """One tag per word: S for a span of one word, else B, I ..., E; O outside."""
    tags = ["O"] * length
    for start, end, kind in spans:
        if start == end:
            tags[start] = f"S-{kind}"
        else:
            tags[start : end + 1] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1), f"E-{kind}"]
    return tags


def bio(spans: Sequence[Span], length: int) -> list[str]:
    """One tag per word: B for a span's first word, I for the others; O outside."""
    tags = ["O"] * length
    for start, end, kind in spans:
        tags[start : end + 1] = [f"B-{kind}", *[f"I-{kind}"] * (end - start)]
    return tags
