"""Reads tagged words in CoNLL's layouts: a word and its tag on each line, a blank line between sentences.

The word is the first column, or the second where words are numbered, as in GermEval's files and CoNLL-U. The tag is the
last column, in CoNLL-U that of the part of speech, in GermEval's files that of the outer names. Tabs divide columns if
every line has one, otherwise blanks do.
"""

import collections
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from electra_tf2.corpus.tokenization import Words, divided
from electra_tf2.files.delimited import numbered_lines
from electra_tf2.files.tables import WordRow
from electra_tf2.util.errors import UserError

_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")
_TABS_AND_LINE_ENDS = re.compile("[\t\n\v\f\r]")
_WORD = re.compile("[^ \t\n\v\f\r]+")
_SIGN_AT_END = re.compile(r"\w[,;:!?)]+$")
_STOP_AT_END = re.compile(r"\w\.+$")
_COMMENT = re.compile(r"#\s*[\w.:-]+\s*=(\s|$)")  # CoNLL-U's "# text = ..."
_CONLL_U_COLUMNS = 10
_GERM_EVAL_COLUMNS = 4
_FIRST_NUMBER = re.compile(r"[01]([-.]\d+)?")
_WORD_NUMBER = re.compile(r"\d+([-.]\d+)?")  # of CoNLL-U also "1-2", written as one word, and "1.1", not written at all


class Divided(NamedTuple):
    """A text in which marked spans begin or end inside words, divided there, too.

    tags: one of each of its words. spans: (start, end, type) of the marked characters.
    """

    text: Words
    tags: list[str]
    spans: list[tuple[int, int, str]]


class Sentence(NamedTuple):
    """Words and their tags.

    tags: one of each word; fewer, in a file that may be untagged, where words have none.
    where: file and line of the first word, for messages.
    text: the text of these words; None: the file has words alone.
    divided: the same text, divided at the ends of its marked spans, too, if some end inside words. Training uses it.
      Answers and scores use `words` and `text`, since nobody knows such ends of new text.
    rows: of a table with a word in each row, those of the sentence, rows without a word before, among and behind its
      words, too; () of any other file.
    """

    words: list[str]
    tags: list[str]
    where: str
    text: Words | None = None
    divided: Divided | None = None
    rows: Sequence[WordRow] = ()


def split_words(text: str) -> Words:
    """Splits at ASCII's white space, as tf.strings.split does in a SavedModel."""
    return divided(text, _WORD)


def word_with_sign(words: Sequence[str]) -> str:
    """The first word of a text with a sign of punctuation at its end, such as "Paris,"; "" if there is none.

    Full stops count at the end of the text alone, since abbreviations have them everywhere.
    """
    for word in words:
        if _SIGN_AT_END.search(word):
            return word
    if words and _STOP_AT_END.search(words[-1]):
        return words[-1]
    return ""


def sentences_in_text(
    text: str, name: str, tagged: bool, tag_column: int | None = None, as_original: bool = False
) -> list[Sentence]:
    """Reads the sentences of a text.

    Args:
      name: of the file, for messages.
      tagged: whether every word must have a tag; otherwise lines of a word alone are accepted.
      tag_column: index of the column with the tags, from 0; default: as the layout has it.
      as_original: lose a last sentence that no blank line follows, and read lines with too many columns.

    Raises:
      UserError: names file and line.
    """
    lines = _lines(text)
    if not as_original:
        lines.append("")  # ends the last sentence
    elif lines[-1] == "":
        # The empty text after the last line end is no blank line.
        lines.pop()
    return list(_sentences_in_lines(lines, name, tagged, tag_column, as_original))


def sentences_by_look(
    text: str, name: str, tag_column: int | None = None, may_lack_tags: bool = False
) -> list[Sentence]:
    """Reads the sentences of a text that looks like a file of tagged words; [] of any other text.

    Such a file has several lines with the same number of columns, at least two.

    Args:
      name, tag_column: as in `sentences_in_text`.
      may_lack_tags: whether some lines may hold a word alone. Most have its tag.
    """
    lines = _lines(text)
    layout = _layout(lines)
    widths = []
    for line in _word_lines(lines):
        widths.append(len(_without_empty_end(_columns(line, layout.tabs), layout.width)))
    allowed = {layout.width}
    if may_lack_tags:
        allowed.add(1)
    if len(widths) < 2 or not set(widths) <= allowed or layout.width < 2:
        return []
    try:
        return list(_sentences_in_lines([*lines, ""], name, tagged=not may_lack_tags, tag_column=tag_column))
    except UserError:  # a line that is no word with a tag
        return []


def num_columns(text: str) -> int:
    """The usual number of columns of a text's lines."""
    return _layout(_lines(text)).width


def has_parted_sentences(text: str) -> bool:
    """Tells whether blank lines part groups of several lines, as they part the sentences of a file of words."""
    lines = [line.strip(" \t") for line in _lines(text.strip())]
    num_groups = 1 + lines.count("")
    num_words = len(lines) - lines.count("")
    return num_groups > 1 and num_words >= 2 * num_groups


def has_a_word_a_line(text: str) -> bool:
    """Tells whether a text has a word on each line, without a tag, and blank lines between sentences."""
    lines = [line.strip(" \t") for line in _lines(text.strip())]
    has_blanks = any(_BLANKS.search(line) for line in lines)
    return "" in lines and not has_blanks


def tagged_lines(sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Makes lines of a word and its tag, and a blank line behind each sentence.

    A blank divides the columns, or a tab if a word or a tag holds blanks. Tabs and line ends in them become blanks.

    Args:
      sentences: the words and the tags of each. A word with the tag "" has none, and is written with "O".
    """
    lines: list[list[str]] = []  # the cells of each; none between sentences
    for words, tags in sentences:
        for word, tag in zip(words, tags, strict=True):
            lines.append([_TABS_AND_LINE_ENDS.sub(" ", cell) for cell in (word, tag or "O")])
        lines.append([])
    between = " "
    if any(len(split_words(cell).words) != 1 for cell in itertools.chain(*lines)):
        between = "\t"
    return "".join(between.join(cells) + "\n" for cells in lines)


def _lines(text: str) -> list[str]:
    return [line for _, line in numbered_lines(text)]


class _Layout(NamedTuple):
    """The columns of a file.

    Fields:
      tabs: whether columns are divided by tabs.
      width: the usual number of columns.
      word, tag: indices of the columns with the words and the tags.
      tags: the tags of lines that do not begin with "#".
    """

    tabs: bool
    width: int
    word: int = 0
    tag: int = -1
    tags: frozenset[str] = frozenset()

    @property
    def has_numbers(self) -> bool:
        """True if each line begins with the number of its word."""
        return self.word > 0

    @property
    def is_conll_u(self) -> bool:
        return self.width == _CONLL_U_COLUMNS and self.has_numbers

    def is_comment(self, line: str, inside: bool) -> bool:
        """Tells a comment from a word that begins with "#", such as a hashtag.

        Args:
          inside: whether words of the same sentence stand before the line. Comments stand before a sentence.
        """
        if not line.startswith("#"):
            return False
        if self.has_numbers or _COMMENT.match(line):
            return True  # "# sent_id = 3"
        columns = _without_empty_end(_columns(line, self.tabs), self.width)
        has_usual_width = len(columns) == self.width
        has_known_tag = len(columns) > max(1, self.tag) and columns[self.tag] in self.tags
        if has_known_tag and (inside or has_usual_width):
            return False  # "#NLProc O"
        if not has_usual_width:
            return True  # "# a note of some words"
        # "# 12", in a file of two columns. "#12 NUM" may be the only word with its tag.
        return len(columns) > 1 and columns[0] == "#" and not inside


def _columns(line: str, tabs: bool) -> list[str]:
    """Splits a line at its tabs or blanks. Blanks around a column are left out."""
    if not tabs:
        return [column for column in _BLANKS.split(line) if column]
    return [column.strip(" ") for column in line.split("\t")]


def _without_empty_end(columns: list[str], width: int) -> list[str]:
    """Leaves out empty columns beyond the usual width, which tabs at the end of a line make."""
    while len(columns) > width and not columns[-1]:
        columns = columns[:-1]
    return columns


def _word_lines(lines: Sequence[str]) -> list[str]:
    """Picks the lines with words, except those that begin with "#": the layout tells whether these are comments."""
    return [line for line in lines if line.strip(" \t") and not line.startswith(("#", _DOCUMENT))]


def _layout_of_tags(lines: Sequence[str], name: str, tag_column: int | None) -> _Layout:
    """Infers the layout of a file, with the tags in a column that the user chose, or None.

    Raises:
      UserError: there is no such column.
    """
    layout = _layout(lines)
    if tag_column is None:
        return layout
    if tag_column >= layout.width or tag_column == layout.word:
        raise UserError(
            f"{name}: label_column {tag_column} is no column of tags: lines have {layout.width} columns, counted from "
            f"0, and the words are column {layout.word}"
        )
    tags = set()
    for line in _word_lines(lines):
        columns = _columns(line, layout.tabs)
        if tag_column < len(columns):
            tags.add(columns[tag_column])
    return layout._replace(tag=tag_column, tags=frozenset(tags))


def _layout(lines: Sequence[str]) -> _Layout:
    """Infers the layout of a file from its lines."""
    word_lines = _word_lines(lines)
    if not word_lines:
        return _Layout(tabs=False, width=0)
    tabs = all("\t" in line for line in word_lines)
    rows = [_columns(line, tabs) for line in word_lines]
    while all(len(row) > 1 and not row[-1] for row in rows):
        rows = [row[:-1] for row in rows]  # every line ends with a tab
    widths = collections.Counter(len(row) for row in rows)
    width = widths.most_common(1)[0][0]
    if not _is_numbered(rows, width):
        tags = frozenset(row[-1] for row in rows if len(row) > 1)
        return _Layout(tabs, width, tags=tags)
    if width == _CONLL_U_COLUMNS:
        return _Layout(tabs, width, word=1, tag=3)
    if width == _GERM_EVAL_COLUMNS and _has_two_levels(rows, width):
        # The tags of outer names stand before those of the names inside them. (CoNLL-2003's, where its words were
        # numbered, stand behind those of chunks.)
        return _Layout(tabs, width, word=1, tag=-2)
    return _Layout(tabs, width, word=1, tag=-1)


def _is_numbered(rows: Sequence[list[str]], width: int) -> bool:
    """Tells whether the first column holds the numbers of words."""
    if width < 3 or not _FIRST_NUMBER.fullmatch(rows[0][0]):
        return False
    return all(_WORD_NUMBER.fullmatch(row[0]) for row in rows)


def _has_two_levels(rows: Sequence[list[str]], width: int) -> bool:
    """Tells whether the last two columns hold tags of spans."""
    if any(len(row) != width for row in rows):
        return False
    return all(_may_be_span(row[-1]) and _may_be_span(row[-2]) for row in rows)


def _may_be_span(tag: str) -> bool:
    return tag == "O" or tag.startswith(("B-", "I-"))


def _sentences_in_lines(
    lines: Sequence[str], name: str, tagged: bool, tag_column: int | None = None, as_original: bool = False
) -> Iterator[Sentence]:
    """Reads the sentences of lines. A blank line must follow each. Arguments as in `sentences_in_text`."""
    layout = _layout_of_tags(lines, name, tag_column)
    words: list[str] = []
    tags: list[str] = []
    begins_at = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip(" \t"):
            if words:
                yield Sentence(words, tags, f"{name}, line {begins_at}")
            words = []
            tags = []
            continue
        columns = _without_empty_end(_columns(line, layout.tabs), layout.width)
        if line.startswith(_DOCUMENT) or layout.is_comment(line, inside=bool(words)):
            continue
        if layout.is_conll_u and not columns[0].isdecimal():
            # "1-2", whose words follow on lines of their own, or "1.1", which does not stand in the text.
            continue
        has_tag = len(columns) > max(1, layout.tag) and columns[layout.tag] != ""
        if tagged and not has_tag:
            raise UserError(f"{name}, line {number}: a word and a tag are needed, got {line.strip()!r}")
        is_too_wide = not as_original and len(columns) > layout.width
        if is_too_wide or (layout.has_numbers and len(columns) != layout.width):
            expected = f"{layout.width} are expected (between tabs, words may hold blanks)"
            raise UserError(f"{name}, line {number}: {len(columns)} columns, but {expected}: {line.strip()!r}")
        if not words:
            begins_at = number
        words.append(columns[layout.word])
        if has_tag:
            tags.append(columns[layout.tag])
