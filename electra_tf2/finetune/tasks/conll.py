"""Files of tagged words, whatever their layout, and spans of tags in the BIO and BIOES encodings."""

import collections
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqeval.metrics.sequence_labeling import get_entities

from electra_tf2.corpus.tokenization import Words, divided
from electra_tf2.files.reading import read_text
from electra_tf2.files.tables import cell, format_of, open_table
from electra_tf2.util.errors import UserError, shown

_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")
_WORD = re.compile("[^ \t\n\v\f\r]+")
_COMMENT = re.compile(r"#\s*[\w.:-]+\s*=(\s|$)")  # of CoNLL-U: "# text = ..."
_CONLL_U = 10  # columns
_NODE = re.compile(r"\d+([-.]\d+)?")
_OF_WORDS, _OF_TAGS = ("words", "tokens"), ("tags", "ner_tags", "chunk_tags", "pos_tags", "labels")
_LETTERS = ("B", "I", "E", "S", "U", "L", "M")
_NO_TYPE = "_"
_LIKE_BIOES = {"U": "S", "L": "E", "M": "I"}  # BILOU's and BMES's letters


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


def split_words(text: str) -> Words:
    """Splits at ASCII's white space, as tf.strings.split does in a SavedModel."""
    return divided(text, _WORD)


def read_sentences(
    path: Path, tagged: bool = True, unended: bool = True, columns: tuple[str, ...] = (), labels: Sequence[str] = ()
) -> list[Sentence]:
    """The sentences of a file: a word a line with its tag, blank lines between sentences; CoNLL-U; or a table with
    lists of words and tags, as `datasets` has them.

    The word is the first column, or the second where words are numbered, as in GermEval's files; the tag is the last,
    of CoNLL-U the part of speech. Columns are divided by tabs, or where not every line has one by blanks.

    Args:
      tagged: whether every word must have a tag; else lines of a word alone are fine.
      unended: keep a last sentence that no blank line follows; the original loses it.
      columns: of a table: names that that of the tags may have; (): any of the usual names, of which one is there.
      labels: names of tags that a table holds as numbers.

    Raises:
      UserError: names file and line.
    """
    if format_of(path) in ("json", "columnar"):
        sentences = list(_of_table(path, tagged, columns, labels))
    else:
        lines = read_text(path, "task").split("\n")
        if unended:
            lines.append("")
        elif lines[-1] == "":  # what follows the last line end is no line
            lines.pop()
        sentences = list(_of_lines([line.rstrip("\r") for line in lines], path, tagged))
    if not sentences:
        raise UserError(f"{path} holds no sentences")
    return sentences


class _Layout(NamedTuple):
    """Where a file has its words and tags.

    tabs: whether columns are divided by tabs. width: number of columns. word, tag: places of both.
    tags: those of the lines that do not begin with "#".
    """

    tabs: bool
    width: int
    word: int = 0
    tag: int = -1
    tags: frozenset[str] = frozenset()

    def columns(self, line: str) -> list[str]:
        return line.split("\t") if self.tabs else [cell for cell in _BLANKS.split(line) if cell]

    def is_comment(self, line: str, inside: bool) -> bool:
        """Tells a comment from a word that begins with "#", such as a hashtag.

        Args:
          inside: words of the same sentence stand before it.
        """
        if not line.startswith("#"):
            return False
        if self.word or _COMMENT.match(line):
            # Where words are numbered, none begins its line.
            return True
        columns = self.columns(line)
        has_known_tag = len(columns) > 1 and columns[self.tag] in self.tags
        if len(columns) != self.width:
            # Rows may be of different lengths, but only a comment stands before a sentence.
            return not (inside and has_known_tag)
        # "# 12" in a file of two columns: a first "#" by itself, with a tag that no other word has.
        return len(columns) > 1 and columns[0] == "#" and not inside and not has_known_tag


def _layout(lines: Sequence[str]) -> _Layout:
    words = [line for line in lines if line.strip(" \t") and not line.startswith(("#", _DOCUMENT))]
    tabs = bool(words) and all("\t" in line for line in words)
    rows = [_Layout(tabs, 0).columns(line) for line in words]
    width = collections.Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    numbered = width > 2 and all(_NODE.fullmatch(row[0]) for row in rows) and rows[0][0] in ("1", "1-2")
    if numbered and width == _CONLL_U:
        return _Layout(tabs, width, 1, 3)
    if not numbered:
        tags = frozenset(row[-1] for row in rows if len(row) > 1)
        return _Layout(tabs, width, tags=tags)
    two_levels = width > 3 and all(
        len(row) == width and _may_be_span(row[-1]) and _may_be_span(row[-2]) for row in rows
    )
    return _Layout(tabs, width, 1, -2 if two_levels else -1)  # GermEval: outer names before inner ones


def _may_be_span(tag: str) -> bool:
    return tag == "O" or tag[:2] in ("B-", "I-")


def _of_lines(lines: Sequence[str], path: Path, tagged: bool) -> Iterator[Sentence]:
    layout = _layout(lines)
    words: list[str] = []
    tags: list[str] = []
    first = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip(" \t"):
            if words:
                yield Sentence(words, tags, first)
            words, tags = [], []
            continue
        columns = layout.columns(line)
        if columns[0] == _DOCUMENT or layout.is_comment(line, inside=bool(words)):
            continue
        if layout.width == _CONLL_U and layout.word and not columns[0].isdecimal():  # several words, or none
            continue
        if len(columns) < 2 and tagged:
            raise UserError(f"{path}, line {number}: a word and a tag are needed, got {line.strip()!r}")
        if layout.word and len(columns) != layout.width:
            raise UserError(f"{path}, line {number}: {len(columns)} columns, but {layout.width} are expected")
        first = first if words else number
        words.append(columns[layout.word])
        if len(columns) > 1:
            tags.append(columns[layout.tag])


def _of_table(path: Path, tagged: bool, columns: tuple[str, ...], labels: Sequence[str]) -> Iterator[Sentence]:
    """The sentences of rows with lists of words and tags."""
    table = open_table(path)
    for line, row in table.readable():
        where = table.where(line)
        named = [name for name in _OF_WORDS if name in row]
        words = cell(row, named[0], "list", where) if named else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(
                f"{where}: a list of words is needed, called words or tokens; it has {shown(', '.join(row))}"
            )
        there = [name for name in columns or _OF_TAGS if name in row]
        if len(there) > 1:
            raise UserError(f"{where}: which tags are meant, {', '.join(there)}? Name them by label_column")
        tags = cell(row, there[0], "list", where) if there else None
        if tags is None and not tagged:
            tags = []
        if not isinstance(tags, list) or (tags and len(tags) != len(words)):
            raise UserError(f"{where}: as many tags as words are needed, in a list; it has {shown(', '.join(row))}")
        yield Sentence(words, [_tag(tag, labels, where) for tag in tags], line)


def _tag(tag: Any, labels: Sequence[str], where: str) -> str:
    if type(tag) is int and 0 <= tag < len(labels):
        return labels[tag]
    if isinstance(tag, str) or (type(tag) is int and not labels):
        return str(tag)
    raise UserError(f"{where}: a tag must be a name, or the number of one of the task's labels, got {shown(tag)}")


def spelled_as_bioes(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The sentences of a file with their tags of spans in the letters of BIOES, before the type.

    Read are BIO, IOB1 and BIOES; BILOU's, BMES's and lower-case letters; letters behind the type ("PER-B"); letters
    without a type, as BioBERT's corpora have (the type is then "_", as seqeval says); and types without letters, as
    Few-NERD has: neighbours of one type are one span there.
    """
    tags = [tag for sentence in sentences for tag in sentence.tags if tag not in ("O", "o")]
    outside = sum(len(sentence.tags) for sentence in sentences) - len(tags)
    in_front = [tag for tag in tags if tag[1:2] == "-" and tag[0].upper() in _LETTERS]
    behind = [tag for tag in tags if tag[-2:-1] == "-" and tag[-1].upper() in _LETTERS]
    if tags and all(tag.upper() in _LETTERS for tag in tags):
        spelled = {tag: f"{tag}-{_NO_TYPE}" for tag in tags}
    elif len(in_front) < len(tags) == len(behind):
        spelled = {tag: f"{tag[-1]}-{tag[:-2]}" for tag in tags}
    elif not in_front and outside > len(tags):  # most words are outside of names, none of parts of speech
        spelled = {tag: f"I-{tag}" for tag in tags}
    else:
        spelled = {}
    return [
        sentence._replace(tags=[_bioes_spelled(spelled.get(tag, tag)) for tag in sentence.tags])
        for sentence in sentences
    ]


def _bioes_spelled(tag: str) -> str:
    """A tag of spans with the letters of BIOES, in capitals."""
    letter, dash, kind = tag.partition("-")
    upper = letter.upper()
    return f"{_LIKE_BIOES.get(upper, upper)}{dash}{kind}" if len(letter) == 1 and (dash or upper == "O") else tag


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
    return _tags(spans, length, "S", "E")


def bio(spans: Sequence[Span], length: int) -> list[str]:
    """One tag per word: B for a span's first word, I for the others; O outside."""
    return _tags(spans, length, "B", "I")


def _tags(spans: Sequence[Span], length: int, single: str, last: str) -> list[str]:
    tags = ["O"] * length
    for start, end, kind in spans:
        letters = single if start == end else f"B{'I' * (end - start - 1)}{last}"
        tags[start : end + 1] = [f"{letter}-{kind}" for letter in letters]
    return tags
