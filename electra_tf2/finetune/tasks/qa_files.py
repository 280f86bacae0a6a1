"""Reads files of questions about documents: SQuAD's JSON, MRQA's JSON lines, tables."""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from electra_tf2.corpus.tokenization import Words
from electra_tf2.files import table_files, tables
from electra_tf2.files.cells import cell, is_failed_lookup, is_no_label, is_null
from electra_tf2.files.content import is_named_lines, is_object
from electra_tf2.files.reading import field, parse_json
from electra_tf2.finetune.tasks.left_out_questions import LISTED, LeftOut
from electra_tf2.finetune.tasks.qa_answer_fields import answer_records, mrqa_answers, mrqa_learned_answer
from electra_tf2.finetune.tasks.question_columns import USUAL_COLUMNS, QuestionColumns
from electra_tf2.finetune.tasks.questions import Question, is_inside_word, located, split_words
from electra_tf2.finetune.tasks.task import EmptyText
from electra_tf2.settings.columns import ANSWERS
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, track, warn


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
    left_out = LeftOut(path)
    inside_words: list[str] = []  # where, and the answer
    read = _questions(path, training, columns, left_out.empty)
    for number, question in enumerate(track(read, f"reading questions of {path.name}"), start=1):
        if not question.id:
            question = question._replace(id=str(number))
        if training and not question.answers:
            # Without an answer a question is impossible, also where the file does not mark it.
            question = question._replace(is_impossible=True)
        if question.is_impossible and not v2:
            left_out.num_impossible += 1
            continue
        if training and not question.is_impossible:
            try:
                question = located(question, compat)
            except ValueError as error:
                left_out.add_failure(question, error)
                continue
            if question.is_looked_up and is_inside_word(question):
                inside_words.append(f"{left_out.place_of(question)}: {question.answer!r}")
        questions.append(question)
    left_out.tell(len(questions))
    if inside_words:
        listed = "; ".join(inside_words[:LISTED])
        warn(f"{path}: {counted(len(inside_words), 'answer')} found only inside other words, and learned so: {listed}")
    if training and v2 and questions and all(question.is_impossible for question in questions):
        warn(f"{path}: no question has an answer, so that none can be learned")
    if not questions:
        raise UserError(f"{path} holds no questions")
    return questions


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
            identity = id_of_row(standard_row)
            has_id = bool(identity)
            if has_id:
                where = f"{where}, question {identity}"
            try:
                question = question_of(standard_row, standard_row, identity or number_of_row(where), where, words_of)
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
        is_of_mrqa = not of_squad and _is_of_mrqa(qa)
        id_field = "qid" if is_of_mrqa else "id"
        asked = qa.get("question", "") if isinstance(qa, dict) else ""
        place = f"{where}, question {shown(asked)}"
        identity = ""
        if not isinstance(qa, dict) or is_of_mrqa or not is_no_label(qa.get(id_field)):
            identity = str(field(qa, id_field, (str, int), place))
            place = f"{where}, question {identity}"
        try:
            question = question_of(entry, qa, identity, place, words_of, is_of_mrqa)
        except EmptyText as error:
            empty.append(str(error))
            continue
        yield question._replace(has_id=bool(identity))


def id_of_row(row: Mapping[str, Any]) -> str:
    """Takes the id of a row of a table; "": it has none."""
    identity = row.get("id")
    if is_no_label(identity):
        return ""
    return str(identity)


def number_of_row(where: str) -> str:
    """The number of a row, counted from 1: "5" of "questions.csv, line 5" or "texts[4]"; of any other place itself."""
    index = re.search(r"\[([0-9]+)\]$", where)
    if index is not None:
        return str(int(index[1]) + 1)
    return where.rpartition(" ")[2]


def _is_of_mrqa(qa: Any) -> bool:
    """Tells MRQA's questions from SQuAD's, both of which stand under "qas"."""
    return not isinstance(qa, dict) or bool({"qid", "detected_answers"} & qa.keys())


def _objects(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, object) of a table, of JSON lines, or of the list under "data" of one object.

    JSON lines are read one at a time: MRQA's larger files have gigabytes, most of them tokens that nobody needs here.
    """
    if table_files.format_of(path) != "json":
        table = tables.open_table(path)
        yield from ((table.where(row.line), row.values) for row in table.checked())
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
    if any(is_failed_lookup(qa.get(name)) for name in ANSWERS):
        raise EmptyText(f"{where}: in the place of the answer a spreadsheet's failed lookup, #N/A")
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
