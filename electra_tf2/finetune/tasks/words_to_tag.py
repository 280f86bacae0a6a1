"""Recognises files of words that are to be tagged: tables and lines of words, whose tags may stand beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electra_tf2.files.content import is_json
from electra_tf2.finetune.tasks.conll import (
    Sentence,
    has_a_word_a_line,
    has_parted_sentences,
    num_columns,
    sentences_by_look,
    sentences_in_text,
)
from electra_tf2.finetune.tasks.tag_schemes import TagScheme
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.finetune.tasks.tagged_files import sentences_of_a_word_a_row
from electra_tf2.finetune.tasks.tags import is_span_tag, types_of
from electra_tf2.util.progress import warn

_KNOWN_TAGS = 0.9  # the least share of a column's tags that must be known for it to be the column of tags


class KnownTags(NamedTuple):
    """The tags that a task has learned, by which those of a file are recognised."""

    scheme: TagScheme
    labels: Sequence[str]
    columns: TaggedColumns

    def covers(self, sentences: Sequence[Sentence]) -> bool:
        """Tells whether nearly all tags of sentences are the task's."""
        tags: list[str] = []
        for sentence in self.scheme.spelled(sentences, types_of(self.labels)):
            tags += sentence.tags
        # Texts of as many words may all end in a full stop, which is a tag of parts of speech.
        is_varied = len(set(tags)) > 1 or set(tags) == {"O"}
        if self.scheme.has_spans:
            # Words outside of spans say nothing of the types: those of another task may be as many.
            tags = [tag for tag in tags if tag != "O"]
        return is_varied and self._num_known(tags) >= _KNOWN_TAGS * len(tags)

    def _num_known(self, tags: Sequence[str]) -> int:
        """Counts the tags that are the task's; of spans the tags whose type is."""
        if not self.scheme.has_spans:
            known_tags = set(self.labels)
            return sum(tag in known_tags for tag in tags)
        known_types = types_of(self.labels)
        return sum(is_span_tag(tag) and tag[2:] in known_types for tag in tags)


def sentences_to_tag(text: str, name: str, known: KnownTags, splits_at_signs: bool) -> list[Sentence] | None:
    """Reads the sentences of a file of words, one on each line or in each row of a table.

    Their tags are those of the column that has nearly only tags of the task. If none has, words alone are read where a
    table has a word in each row, or blank lines part the sentences.

    Args:
      text: the file's content. name: its name.
      splits_at_signs: whether the task reads raw text, split at signs. Then short lines are texts.

    Returns:
      Sentences, without tags where these are not the task's; None for another file, such as one of raw texts.
    """
    if is_json(text):
        return None
    in_rows = sentences_of_a_word_a_row(Path(name), text, known.columns)
    if in_rows is not None:
        if not known.covers(in_rows):
            return _untagged(in_rows)
        return [_with_all_tags(sentence) for sentence in in_rows]
    if not splits_at_signs and has_a_word_a_line(text):
        return sentences_in_text(text, name, tagged=False)
    return _sentences_in_lines(text, name, known)


def _sentences_in_lines(text: str, name: str, known: KnownTags) -> list[Sentence] | None:
    """Reads sentences of lines, with the tags of the task, or without any. Warns of tags that are left out.

    None: the text is no file of tagged words.
    """
    tagged = lines_with_tags(text, name, known)
    if tagged is not None:
        return tagged.sentences
    partly_tagged = sentences_by_look(text, name, _named_column(known), may_lack_tags=True)
    if known.covers(partly_tagged):
        warn(f"{name}: some words have no tag, so that nothing is scored")
        return _untagged(partly_tagged)
    sentences = sentences_by_look(text, name)
    if not sentences or not has_parted_sentences(text):
        return None
    others = f"with other tags than {known.columns.task} has"
    warn(f"{name} looks like a file of tagged words, {others}: words alone are read")
    return _untagged(sentences)


class TaggedLines(NamedTuple):
    """The sentences of a file of lines. column: of their tags, from 0; None: the usual one of the layout."""

    column: int | None
    sentences: list[Sentence]


def lines_with_tags(text: str, name: str, known: KnownTags) -> TaggedLines | None:
    """Reads a file of lines by the column that has nearly only tags of the task; the usual one is looked at first.

    None: no column has them, or the text is no file of tagged words.
    """
    all_outside = None
    for column in (_named_column(known), *range(1, num_columns(text))):
        sentences = sentences_by_look(text, name, column)
        if not known.covers(sentences):
            continue
        found = TaggedLines(column, sentences)
        if any(set(sentence.tags) != {"O"} for sentence in sentences):
            return found
        if all_outside is None:  # O may be the tag of another task: a column with more counts before it
            all_outside = found
    return all_outside


def _named_column(known: KnownTags) -> int | None:
    """The number of the column of tags that the user named; None: the layout tells it."""
    if known.columns.tags.isdecimal():
        return int(known.columns.tags)
    return None


def _with_all_tags(sentence: Sentence) -> Sentence:
    """The sentence, or one without tags if some word has none."""
    if len(sentence.tags) < len(sentence.words):
        return sentence._replace(tags=[])
    return sentence


def _untagged(sentences: Sequence[Sentence]) -> list[Sentence]:
    return [sentence._replace(tags=[]) for sentence in sentences]
