"""Collects the questions of a file that are left out, and warns of them."""

from pathlib import Path

from electra_tf2.finetune.tasks.questions import Question
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import counted, warn

LISTED = 5  # questions in a warning
_MARKS_OF_NONE = ("n/a", "na", "none", "null", "no answer", "unanswerable")


class LeftOut:
    """Collects the questions of a file that are left out, by reason.

    Attributes:
      empty: a message of each question without a text or a context.
      num_impossible: number of those without an answer, where each needs one.
    """

    def __init__(self, path: Path) -> None:
        self.empty: list[str] = []
        self.num_impossible = 0
        self._path = path
        self._failures: list[str] = []  # where, and why the answer is not in the context
        self._num_in_question = 0  # answers that stand in the question
        self._num_marks = 0  # answers that seem to say that there is none

    def place_of(self, question: Question) -> str:
        """Says where a question stands in the file."""
        return question.where.removeprefix(f"{self._path}, ")

    def add_failure(self, question: Question, error: ValueError) -> None:
        """Adds a question whose answer is not in the context."""
        self._failures.append(f"{self.place_of(question)}: {error}")
        self._num_marks += question.answer.strip().lower() in _MARKS_OF_NONE
        self._num_in_question += bool(question.answer) and question.answer.lower() in question.text.lower()

    def tell(self, num_kept: int) -> None:
        """Warns of the questions that are left out. Raises UserError if no other is kept, or columns are swapped."""
        self._tell_empty(num_kept)
        if self._num_in_question > num_kept:
            raise UserError(
                f"{self._path}: {counted(self._num_in_question, 'answer')} stand in the question, not in the context: "
                "are the two columns swapped? --text-column QUESTION,CONTEXT"
            )
        if self.num_impossible:
            warn(
                f"{self._path}: {counted(self.num_impossible, 'question')} without an answer left out: a task with v2 "
                "learns them, as squad or one of your own (train_file)"
            )
        self._tell_failures(num_kept)

    def _tell_empty(self, num_kept: int) -> None:
        if not self.empty:
            return
        first = self.empty[0].removeprefix(f"{self._path}, ")
        message = f"{self._path}: {counted(len(self.empty), 'question')} left out: {first}"
        if not num_kept and not self._failures:
            raise UserError(f"{message} (so no question is left)")
        warn(message)

    def _tell_failures(self, num_kept: int) -> None:
        if not self._failures:
            return
        listed = "; ".join(self._failures[:LISTED])
        if len(self._failures) > LISTED:
            listed += "; ..."
        left_out = counted(len(self._failures), "question")
        message = f"{self._path}: {left_out} left out, since the answer is not in the context: {listed}"
        if self._num_marks:
            message += (
                f". Leave the cell empty where there is no answer: {self._num_marks:,} have n/a, none or the like"
            )
        if not num_kept:
            raise UserError(f"{message} (so no question is left)")
        warn(message)
