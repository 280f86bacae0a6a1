"""Finds the columns of questions, contexts and answers in a table, by the names that the user gave or the usual."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from electra_tf2.files.tables import columns_named
from electra_tf2.settings.columns import ANSWERS, CONTEXT, QUESTION
from electra_tf2.util.errors import UserError, closest, shown


class QuestionColumns(NamedTuple):
    """Names that the user gave for a table's columns; "": the column has one of the usual names, in any case."""

    question: str = ""
    context: str = ""
    answer: str = ""

    def standard(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Adds to a row its values under the names that `question_of` reads."""
        result = dict(row)
        for name, usual_names in _USUAL_NAMES.items():
            columns = columns_named(row, usual_names)
            if name not in result and columns:
                result[name] = row[columns[0]]
        for name, column in (("question", self.question), ("context", self.context)):
            if column and column in row:
                result[name] = row[column]
        if self.answer and self.answer in row:
            for name in ANSWERS:
                result.pop(name, None)
            name_to_read = "answer"
            if self.answer in ANSWERS:
                name_to_read = self.answer
            result[name_to_read] = row[self.answer]
        return result

    def check(self, row: Mapping[str, Any], standard_row: Mapping[str, Any], where: str) -> None:
        """Raises UserError if a row of data lacks the column of questions or of contexts.

        Args:
          standard_row: the row as `standard` gives it.
        """
        for name, column in (("question", self.question), ("context", self.context)):
            if name not in standard_row:
                raise _missing(where, column or name, "", row)

    def check_new(self, row: Mapping[str, Any], standard_row: Mapping[str, Any], where: str) -> None:
        """Raises UserError if a row to be answered lacks the question or the context. Arguments as of `check`."""
        for name, column in (("question", self.question), ("context", self.context)):
            if name in standard_row:
                continue
            in_training = ""
            if column:
                in_training = f" (in training: {column!r})"
            raise UserError(f"{where}: no field {name!r}{in_training}; it has {shown(', '.join(row))}")

    def check_data(self, row: Mapping[str, Any], standard_row: Mapping[str, Any], where: str, training: bool) -> None:
        """Raises UserError if the first row of a file of data lacks a column that it must have.

        These are those that the user named, of data to score also under the usual names, and to be learned a column of
        answers. Arguments as in `check`.
        """
        for name, column in (("question", self.question), ("context", self.context), ("answer", self.answer)):
            has_usual = name in standard_row or name == "answer"
            is_needed = training or not has_usual
            if column and is_needed and column not in row:
                raise _missing(where, column, closest(column, row), row)
        if training and not {*ANSWERS, "is_impossible"} & standard_row.keys():
            # Else all its questions would be learned as such without an answer.
            further = ", which holds the text of an answer, and none 'answers', of texts and their first characters"
            raise _missing(where, "answer", further, row)


def _missing(where: str, column: str, further: str, row: Mapping[str, Any]) -> UserError:
    """Makes the error about a column that a row lacks. further: more about it."""
    return UserError(
        f"{where}: no column {column!r}{further}; it has {shown(', '.join(row))}. Rename the "
        "columns to question, context and answer, or name yours when training: --text-column QUESTION,CONTEXT "
        "--label-column ANSWER"
    )


USUAL_COLUMNS = QuestionColumns()
# Fields that `question_of` reads, and the names of columns that may hold them, in any case.
_USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "question": QUESTION,
    "context": CONTEXT,
    **{name: (name,) for name in (*ANSWERS, "answer_start", "is_impossible", "id")},
}
