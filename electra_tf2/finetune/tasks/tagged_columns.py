"""The columns of tables of tagged words, and of texts with marked spans."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from electra_tf2.files.tables import columns_named
from electra_tf2.settings.columns import PART_OF_SPEECH, SENTENCE_OF_WORD, TAG, TAGS, TEXT, WORD
from electra_tf2.util.errors import UserError


class TaggedColumns(NamedTuple):
    """Names that a user gave to columns. A column without one has one of the usual names of settings.columns.

    words: the column of words, of lists of words, or of texts. sentence: that of the sentences' numbers.
    tags: that of tags or of marked spans; of lines without a header its number, from 0.
    task: the task's name, which the column of tags may have, too.
    """

    words: str = ""
    sentence: str = ""
    tags: str = ""
    task: str = ""

    def word_in(self, columns: Iterable[str]) -> str | None:
        """Finds the column of words or lists of words; None: there is none."""
        if self.words:
            return _first_named(columns, [self.words])
        return _first_named(columns, WORD)

    def text_in(self, columns: Iterable[str]) -> str | None:
        """Finds the column of texts, which may hold single words, too; None: there is none."""
        return _first_named(columns, [self.words or TEXT])

    def sentence_in(self, columns: Iterable[str]) -> str | None:
        """Finds the column with the numbers of sentences; None: there is none."""
        columns = list(columns)
        if self.sentence:
            return _first_named(columns, [self.sentence])
        # The first name in the list counts: a column "sentence" may hold the text beside one of numbers.
        for name in SENTENCE_OF_WORD:
            column = _first_named(columns, [name])
            if column is not None:
                return column
        return None

    def tags_in(self, columns: Iterable[str], where: str, of_words: str | None) -> str | None:
        """Finds the column of tags; None: there is none.

        Args:
          of_words: the column of the words, which a task may be called by, too.

        Raises:
          UserError: it may be one of several.
        """
        columns = [column for column in columns if column != of_words]
        if self.tags:
            return _first_named(columns, [self.tags])
        by_task: list[str] = []
        if self.task:
            by_task = [self.task, f"{self.task}_tag", f"{self.task}_tags"]
        for names in (by_task, (*TAG, *TAGS), PART_OF_SPEECH):
            named = columns_named(columns, names)
            if len(named) > 1:
                raise UserError(f"{where}: which tags are meant, {', '.join(named)}? Name them by label_column")
            if named:
                return named[0]
        return None


def _first_named(columns: Iterable[str], names: Sequence[str]) -> str | None:
    named = columns_named(columns, names)
    return named[0] if named else None
