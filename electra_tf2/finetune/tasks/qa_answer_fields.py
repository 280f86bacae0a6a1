"""Reads the answers to a question from the fields of a file, and looks for answers that have no place in their context.

A file has SQuAD's lists of objects, the lists of texts and of places that `datasets` writes, MRQA's fields, or the text
of an answer alone.
"""

import re
import unicodedata
from typing import Any

from electra_tf2.files.cells import cell, is_no_label
from electra_tf2.files.reading import field
from electra_tf2.settings.columns import ANSWERS
from electra_tf2.util.errors import UserError, shown


def mrqa_answers(qa: dict[str, Any], where: str) -> list[str]:
    """Reads the acceptable answers to a question of MRQA."""
    answers = _list(qa, "answers", where)
    for answer in answers:
        if not isinstance(answer, str):
            raise UserError(f"{where}: an answer must be text, got {shown(answer)}")
    return answers


def mrqa_learned_answer(qa: dict[str, Any], where: str) -> tuple[str, tuple[int, int]]:
    """Reads the first answer that MRQA detected in the context, and its first and last character; "" and -1: none."""
    detected = _list(qa, "detected_answers", where)
    if not detected:
        return "", (-1, -1)
    answer = field(detected[0], "text", str, where)
    spans = field(detected[0], "char_spans", list, where)
    try:
        first = int(spans[0][0])
        last = int(spans[0][1])
    except (IndexError, KeyError, OverflowError, TypeError, ValueError):
        raise UserError(f"{where}: char_spans must be like [[first, last]], got {shown(spans)}") from None
    return answer, (first, last)


def answer_records(qa: dict[str, Any], context: str, where: str) -> list[Any]:
    """Reads the answers to a question that are not blank, each with its `text` and `answer_start`, -1 if the context
    lacks the text."""
    records = []
    for record in _all_answer_records(qa, context, where):
        is_blank = isinstance(record, dict) and not str(record.get("text", "?")).strip()
        if not is_blank:
            records.append(record)
    return records


def _all_answer_records(qa: dict[str, Any], context: str, where: str) -> list[Any]:
    names = [name for name in ANSWERS if qa.get(name) is not None]
    if not names:
        return []
    answers = _answers_as_list(qa, names[0], where)
    if not isinstance(answers, dict):
        records = []
        for answer in answers:
            if isinstance(answer, str) and is_no_label(answer):
                continue
            if isinstance(answer, str):
                answer = _answer_in_context(_as_in_context(answer, context), qa, context, where)
            records.append(answer)
        return records
    if isinstance(answers.get("text"), str):  # a single one
        return [answers]
    # As `datasets` has them: lists of all texts and of all places.
    texts = _list(answers, "text", where)
    starts = _list(answers, "answer_start", where)
    if len(texts) != len(starts):
        raise UserError(f"{where}: answers have {len(texts)} texts, but {len(starts)} places in answer_start")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _answers_as_list(qa: dict[str, Any], name: str, where: str) -> list[Any] | dict[str, Any]:
    """The field of the answers: a list, of one where it is a text alone, or an object."""
    try:
        answers = cell(qa, name, "list", where)
    except UserError:
        if name == "answers":
            raise
        answers = qa[name]  # a text that begins with a bracket
    is_bracketed_text = name != "answers" and isinstance(qa[name], str) and isinstance(answers, list)
    if is_bracketed_text and not all(isinstance(answer, (str, dict)) for answer in answers):
        answers = qa[name]  # such as [2010]
    is_number = isinstance(answers, (int, float)) and name != "answers"
    if isinstance(answers, str) or is_number:
        return [str(answers)]
    if isinstance(answers, dict):
        return answers
    return _list({name: answers}, name, where)


def _as_in_context(answer: str, context: str) -> str:
    """Writes a whole number without ".0" if the context has it so: pandas adds that where other answers are missing."""
    whole = answer.removesuffix(".0")
    is_whole_number = whole != answer and whole.removeprefix("-").isdigit()
    if is_whole_number and place_of(answer, context) is None and place_of(whole, context) is not None:
        return whole
    return answer


_QUOTED = (('"', '"'), ("'", "'"), ("“", "”"), ("„", "“"), ("„", "”"), ("‘", "’"), ("«", "»"))


def _answer_in_context(answer: str, qa: dict[str, Any], context: str, where: str) -> dict[str, Any]:
    """An answer that is a text alone, with its place: that of the row, else the first in the context, else -1.

    `learned` is the context's own spelling of the answer, which may have other accents, quotes or blanks. Quotes around
    an answer, and a full stop behind it, are left out if the context lacks them.
    """
    first = cell(qa, "answer_start", "whole", where)
    if first is not None and first >= 0:
        return {"text": answer, "answer_start": first}
    for spelled in _spellings(answer):
        place = place_of(spelled, context)
        if place is not None:
            first, behind = place
            return {"text": spelled, "answer_start": first, "learned": context[first:behind]}
    return {"text": answer, "answer_start": -1}


def _spellings(answer: str) -> list[str]:
    """An answer, then without a full stop behind it, without quotes around it, and without a full stop inside them."""
    spellings = [answer]
    for _ in range(2):
        without_stop = spellings[-1].removesuffix(".")
        spellings.append(without_stop)
        if len(without_stop) > 2 and (without_stop[0], without_stop[-1]) in _QUOTED:
            spellings.append(without_stop[1:-1])
    return spellings


def place_of(answer: str, context: str) -> tuple[int, int] | None:
    """The characters between which an answer stands in its context for the first time, by itself rather than within a
    word, and in its own case rather than in another; None if it is not there.

    Composed and decomposed accents are the same, and straight and curly quotes.
    """
    plain, places = _plain(context)
    pattern = r"\s+".join(re.escape(word) for word in _plain(answer)[0].split())
    for spelled in (rf"(?<!\w){pattern}(?!\w)", pattern):
        for flags in (0, re.IGNORECASE):
            match = re.search(spelled, plain, flags)
            if match and pattern:
                return places[match.start()], places[match.end()]
    return None


_QUOTES = str.maketrans("‘’‚‛“”„‟‐‑–—\u00a0\u202f", "'" * 4 + '"' * 4 + "-" * 4 + "  ")


def _plain(text: str) -> tuple[str, list[int]]:
    """A text with composed accents and straight quotes, and the place in the original of each character and of the
    end."""
    plain = ""
    places: list[int] = []
    at = 0
    while at < len(text):
        behind = at + 1
        while behind < len(text) and unicodedata.combining(text[behind]):
            behind += 1
        letter = unicodedata.normalize("NFC", text[at:behind]).translate(_QUOTES)
        plain += letter
        places += [at] * len(letter)
        at = behind
    return plain, [*places, len(text)]


def _list(record: dict[str, Any], name: str, where: str) -> list[Any]:
    """Reads a list that may be missing or null."""
    value = cell(record, name, "list", where)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"{where}: {name} must be a list, got {shown(value)}")
    return value
