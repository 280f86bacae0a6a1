"""Reads files of questions about documents: SQuAD's JSON, MRQA's JSON lines, tables."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.corpus.tokenization import Words, divided
from electra_tf2.files import table_files, tables
from electra_tf2.files.cells import cell, is_no_label, is_null
from electra_tf2.files.content import is_named_lines, is_object
from electra_tf2.files.reading import field, parse_json
from electra_tf2.finetune.tasks.qa_answer_fields import answer_records, mrqa_answers, mrqa_learned_answer
from electra_tf2.finetune.tasks.question_columns import USUAL_COLUMNS, QuestionColumns
from electra_tf2.finetune.tasks.task import EmptyText
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, track, warn

_WORD = re.compile("[^ \t\r\n\u202f]+")
_LISTED = 5  # questions in a warning
_MARKS_OF_NONE = ("n/a", "na", "none", "null", "no answer", "unanswerable")


class Question(NamedTuple):
    """A question about a paragraph.

    answers: acceptable texts; none if the question is impossible, or the answers are unknown.
    start, end: first and last word of the answer that is learned; -1 if there is none.
    answer: text of that answer. place: its first and last character.
    where: file, line and id for messages. SQuAD's files have no lines, a table may have no ids.
    has_id: whether the file gives the id; otherwise it is the number of the line.
    is_looked_up: whether the place of the answer was looked for in the paragraph.
    """

    id: str
    paragraph: Words
    text: str
    answers: list[str]
    is_impossible: bool
    start: int = -1
    end: int = -1
    answer: str = ""
    place: tuple[int, int] = (-1, -1)
    where: str = ""
    has_id: bool = True
    is_looked_up: bool = False

    @property
    def texts(self) -> tuple[str]:
        """The paragraph: questions about one share its words."""
        return (self.paragraph.text,)


def split_words(text: str) -> Words:
    """Splits at blanks, tabs, line ends and narrow no-break spaces, as SQuAD's tools do."""
    return divided(text, _WORD)


def read_questions(
    path: Path, v2: bool, training: bool, compat: bool = False, columns: QuestionColumns = USUAL_COLUMNS
) -> list[Question]:
    """Reads the questions of a file: SQuAD's JSON; MRQA's JSON lines; or a table with the columns id, question, context
    and answers, as `datasets` has them, or with the text of an answer, which is then looked for in the context.

    Args:
      v2: whether impossible questions stay. Otherwise they are left out, with a warning that counts them.
      training: whether each answer's words are looked up. Questions whose answer is not where the file says are left
        out, with a warning.
      compat: whether answer and document are compared as in the original, which fails at no-break spaces.
      columns: of a table.

    Raises:
      UserError: unreadable file, missing fields, nothing left.
    """
    questions: list[Question] = []
    failures: list[str] = []
    impossible = 0
    num_in_question = 0  # answers that stand in the question, not in the context
    num_marks = 0  # answers that seem to say that there is none
    inside_words: list[str] = []  # where, and the answer
    empty: list[str] = []  # messages of those without a text or a context
    for question in track(_questions(path, training, columns, empty), f"reading questions of {path.name}"):
        if training and not question.answers:
            # Without an answer a question is impossible, also where the file does not mark it.
            question = question._replace(is_impossible=True)
        if question.is_impossible and not v2:
            impossible += 1
            continue
        if training and not question.is_impossible:
            try:
                question = _located(question, compat)
            except ValueError as error:
                place = question.where.removeprefix(f"{path}, ")
                failures.append(f"{place}: {error}")
                num_marks += question.answer.strip().lower() in _MARKS_OF_NONE
                num_in_question += question.answer.lower() in question.text.lower()
                continue
            if question.is_looked_up and _is_inside_word(question):
                inside_words.append(f"{question.where.removeprefix(f'{path}, ')}: {question.answer!r}")
        questions.append(question)
    if empty:
        message = f"{path}: {counted(len(empty), 'question')} left out: {empty[0].removeprefix(f'{path}, ')}"
        if not questions and not failures:
            raise UserError(message)
        warn(message)
    if num_in_question > len(questions):
        raise UserError(
            f"{path}: {counted(num_in_question, 'answer')} stand in the question, not in the context: are the two "
            "columns swapped? --text-column QUESTION,CONTEXT"
        )
    if inside_words:
        listed = "; ".join(inside_words[:_LISTED])
        warn(f"{path}: {counted(len(inside_words), 'answer')} found only inside other words, and learned so: {listed}")
    if training and v2 and questions and all(question.is_impossible for question in questions):
        warn(f"{path}: no question has an answer, so that none can be learned")
    if impossible:
        warn(
            f"{path}: {counted(impossible, 'question')} without an answer left out: a task with v2 learns them, as "
            "squad or one of your own (train_file)"
        )
    if failures:
        listed = "; ".join(failures[:_LISTED])
        if len(failures) > _LISTED:
            listed += "; ..."
        left_out = counted(len(failures), "question")
        message = f"{path}: {left_out} left out, since the answer is not in the context: {listed}"
        if num_marks:
            message += f". Leave the cell empty where there is no answer: {num_marks:,} have n/a, none or the like"
        if not questions:
            raise UserError(message)
        warn(message)
    if not questions:
        raise UserError(f"{path} holds no questions")
    return questions


def _is_inside_word(question: Question) -> bool:
    """Tells whether the answer begins or ends inside a word of its paragraph."""
    text = question.paragraph.text
    first, last = question.place
    begins_inside = first > 0 and text[first - 1].isalnum() and text[first].isalnum()
    ends_inside = last + 1 < len(text) and text[last].isalnum() and text[last + 1].isalnum()
    return begins_inside or ends_inside


def _located(question: Question, compat: bool) -> Question:
    """Looks up the words and characters of a question's answer. Raises ValueError: it is not where the file says."""
    text, words, word_starts = question.paragraph
    first, last = question.place
    if first < 0 and not question.answer:
        raise ValueError("it has no answer")
    if first < 0:
        raise ValueError(f"{question.answer!r} is not there")
    if not 0 <= first <= last < len(text):
        raise ValueError(f"{question.answer!r} ends outside of the context")
    start = question.paragraph.word_at(first)
    end = question.paragraph.word_at(last)
    stretch = " ".join(words[start : end + 1])
    if not compat:
        # A word may hold blanks that SQuAD's tools do not split at, as no-break spaces.
        stretch = " ".join(stretch.split())
    answer_words = question.answer.split()
    if " ".join(answer_words).lower() not in stretch.lower():
        form = ""
        if unicodedata.normalize("NFC", question.answer) in unicodedata.normalize("NFC", stretch):
            form = " in another form of Unicode (NFC or NFD)"
        raise ValueError(f"{question.answer!r} is not at character {first}, where {stretch!r} stands{form}")
    if text[first : last + 1].lower() != question.answer.lower():
        # The file's numbers are off: the nearest occurrence of the answer within these words.
        pattern = re.compile(r"\s+".join(map(re.escape, answer_words)), re.IGNORECASE)
        behind_words = int(word_starts[end]) + len(words[end])
        occurrences = [match.span() for match in pattern.finditer(text, int(word_starts[start]), behind_words)]
        if occurrences:
            first, behind = min(occurrences, key=lambda occurrence: abs(occurrence[0] - first))
            last = behind - 1
    return question._replace(start=start, end=end, place=(first, last))


def _questions(path: Path, training: bool, columns: QuestionColumns, empty: list[str]) -> Iterator[Question]:
    """Reads the questions of a file, whose objects' fields tell its form. Places of answers are not checked.

    Args:
      empty: receives a message of each question without a text or a context, which is passed over.

    Raises:
      UserError: among others, a table to train on whose first row has no field for answers.
    """
    words_of = functools.cache(split_words)  # the same object for the same text
    is_first_row = True
    for where, row in _objects(path):
        if not isinstance(row, dict):
            field(row, "paragraphs", list, where)  # raises the error about SQuAD's articles
        if "paragraphs" in row:  # an article of SQuAD
            for entry in field(row, "paragraphs", list, where):
                yield from _listed_questions(entry, True, where, words_of, empty)
        elif "qas" in row:  # a line of MRQA, or a paragraph of SQuAD by itself
            yield from _listed_questions(row, False, where, words_of, empty)
        elif row.keys() != {"header"}:  # MRQA's first line; any other object is a row of a table
            standard_row = columns.standard(row)
            if is_first_row:
                columns.check_data(row, standard_row, where, training)
                is_first_row = False
            columns.check(row, standard_row, where)
            line_number = where.rpartition(" ")[2]
            identity = id_of_row(standard_row)
            has_id = bool(identity)
            if has_id:
                where = f"{where}, question {identity}"
            try:
                question = question_of(standard_row, standard_row, identity or line_number, where, words_of)
            except EmptyText as error:
                empty.append(str(error))
                continue
            yield question._replace(has_id=has_id)


def _listed_questions(
    entry: Any, of_squad: bool, where: str, words_of: Callable[[str], Words], empty: list[str]
) -> Iterator[Question]:
    """Makes the questions in the list of a paragraph.

    Args:
      of_squad: whether they are known to be SQuAD's. Else each tells whether it is SQuAD's or MRQA's.
      empty: as in `_questions`.
    """
    for qa in field(entry, "qas", list, where):
        id_field = "id" if of_squad or _is_of_squad(qa) else "qid"
        asked = qa.get("question", "") if isinstance(qa, dict) else ""
        identity = str(field(qa, id_field, (str, int), f"{where}, question {shown(asked)}"))
        is_of_mrqa = id_field == "qid"
        try:
            yield question_of(entry, qa, identity, f"{where}, question {identity}", words_of, is_of_mrqa)
        except EmptyText as error:
            empty.append(str(error))


def id_of_row(row: Mapping[str, Any]) -> str:
    """Takes the id of a row of a table; "": it has none."""
    identity = row.get("id")
    if is_no_label(identity):
        return ""
    return str(identity)


def _is_of_squad(qa: Any) -> bool:
    """Tells SQuAD's questions from MRQA's, both of which stand under "qas"."""
    return isinstance(qa, dict) and "id" in qa and not {"qid", "detected_answers"} & qa.keys()


def _objects(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, object) of a table, of JSON lines, or of the list under "data" of one object.

    JSON lines are read one at a time: MRQA's larger files have gigabytes, most of them tokens that nobody needs here.
    """
    if table_files.format_of(path) != "json":
        table = tables.open_table(path)
        yield from ((table.where(row.line), row.values) for row in table.readable())
        return
    lines = table_files.read_lines(path)
    first = next(lines, "")
    second = next(lines, "")
    # A whole object in the first line and another line behind it are JSON lines, whatever the file is called.
    are_json_lines = is_named_lines(path) or (bool(second.strip()) and is_object(first))
    if not are_json_lines:
        content = parse_json("".join([first, second, *lines]), f"task {path}", object)
        for number, row in enumerate(_rows_of_content(content, path), start=1):
            where = str(path)
            if isinstance(row, dict) and "paragraphs" not in row:  # a row of a table, no article of SQuAD
                where = f"{path}, row {number}"
            yield where, row
        return
    for number, line in enumerate(itertools.chain([first, second], lines), start=1):
        if line.strip():
            yield f"{path}, line {number}", parse_json(line, f"{path}, line {number}")


def _rows_of_content(content: Any, path: Path) -> list[Any]:
    """Lists the rows of a file that is one JSON value: SQuAD's object with the list `data`, or a list of objects."""
    if isinstance(content, dict):
        return field(content, "data", list, str(path))
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return content
    raise UserError(f"task {path}: a JSON object is needed, or a list of objects, got {shown(content)}")


def question_of(
    entry: dict[str, Any],
    qa: dict[str, Any],
    identity: str,
    where: str,
    words_of: Callable[[str], Words],
    mrqa: bool = False,
) -> Question:
    """Makes a question about an entry's context. Raises UserError: a missing or wrong field; EmptyText."""
    for record, name in ((entry, "context"), (qa, "question")):
        if isinstance(record, dict) and name in record and is_null(record[name]):  # as data frames have it
            raise EmptyText(f"{where}: an empty {name}")
    paragraph = words_of(field(entry, "context", str, where))
    text = field(qa, "question", str, where)
    if not _is_readable(paragraph.text):
        raise EmptyText(f"{where}: an empty context")
    if not text.strip():
        raise EmptyText(f"{where}: an empty question")
    impossible = bool(cell(qa, "is_impossible", "truth", where))
    if mrqa:
        answers = mrqa_answers(qa, where)
        answer, place = mrqa_learned_answer(qa, where)
        return Question(identity, paragraph, text, answers, False, answer=answer, place=place, where=where)
    records = answer_records(qa, paragraph.text, where)
    answers = []
    is_looked_up = False
    for record in records:
        text_of_answer = field(record, "text", str, where)
        if "learned" in record:
            is_looked_up = True
            text_of_answer = record["learned"]  # as the context spells it
        answers.append(text_of_answer)
    answer = ""
    place = (-1, -1)
    if answers and not impossible:
        # The first is learned, as in the original.
        answer = records[0].get("learned", answers[0])
        first = cell(records[0], "answer_start", "whole", where)
        if first is None:
            raise UserError(f"{where}: the field 'answer_start' is missing beside {shown(answer)}")
        place = first, first + len(answer) - 1
    question = Question(identity, paragraph, text, answers, impossible, answer=answer, place=place, where=where)
    return question._replace(is_looked_up=is_looked_up)


def _is_readable(text: str) -> bool:
    """Tells whether a text has characters that the tokenizer does not drop as blanks or control characters."""
    return any(character.isprintable() and character not in " \ufffd" for character in text)


def check_ids_are_unique(questions: Sequence[Question], path: str) -> None:
    """Raises UserError at the first id that occurs twice: predictions are written by id."""
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(f"{path}: the question id {question.id} occurs twice")
        seen.add(question.id)


def with_ids(questions_of_files: Sequence[list[Question]]) -> list[Question]:
    """Joins the questions of several files. One without an id gets that of its file and line, such as 2-17.

    Of a single file it is the number of the line, unless other questions have ids.
    """
    all_questions = list(itertools.chain(*questions_of_files))
    are_lines_unique = len(questions_of_files) == 1 and not any(question.has_id for question in all_questions)
    if are_lines_unique:
        return all_questions
    joined: list[Question] = []
    for number, questions in enumerate(questions_of_files, start=1):
        for question in questions:
            if not question.has_id:
                question = question._replace(id=f"{number}-{question.id}")
            joined.append(question)
    return joined
