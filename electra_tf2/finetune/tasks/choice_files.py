"""Questions with candidates as benchmarks distribute and score them: COPA, MultiRC, ReCoRD and RACE.

    an object of a file --Form.items--> Items --(a model's probabilities)--> scores, answers, the server's lines

COPA, MultiRC and ReCoRD are SuperGLUE's (Wang et al. 2019, table 1). RACE (Lai et al. 2017), questions of school
examinations with four answers each, is distributed as {train,dev,test}/{middle,high}/*.txt of a JSON object each:
`article`, `questions`, `options`, `answers`. JSON lines of such objects, or with one `question`, `options` and `answer`
each, are read too; `example_id` may stand for `id`.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.files.cells import cell
from electra_tf2.files.reading import field
from electra_tf2.finetune.tasks.qa_scores import answered_scores
from electra_tf2.settings.metrics import accuracy, f1, with_average
from electra_tf2.util.errors import UserError, shown


class Item(NamedTuple):
    """A question.

    candidates: the two texts of each candidate's input.
    names: name of each candidate in answers.
    right: indices of the right candidates; None: unknown.
    id: id within the object. gold: right texts, with which ReCoRD compares the candidates' names. level: RACE's level
    of the school.
    shares: float64 [candidates], the probability of each to be right; empty before a model has predicted it.
    """

    candidates: tuple[tuple[str, str], ...]
    names: tuple[Any, ...]
    right: tuple[int, ...] | None
    id: Any = None
    gold: tuple[str, ...] = ()
    level: str = ""
    shares: np.ndarray = np.zeros(0)

    @property
    def is_right(self) -> np.ndarray:
        """bool [candidates]."""
        return np.isin(np.arange(len(self.candidates)), self.right or ())

    @property
    def best(self) -> int:
        """Index of the likeliest candidate."""
        return int(self.shares.argmax())

    @property
    def answer(self) -> Any:
        """Name of the likeliest candidate."""
        return self.names[self.best]


class Passage(NamedTuple):
    """An object of a file, questions about the same text. Its answer is one object, too."""

    id: Any
    items: tuple[Item, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.items[0].candidates[0][0],)


class Form(NamedTuple):
    """A benchmark's form of questions with candidates.

    choices: number of candidates, of which exactly one is right; 1: any number, each judged by itself.
    primary_metric: the one of `scores` by which trials are compared.
    items: reads the questions of an object, and which candidates are right; the flag says whether that must be there.
      Raises UserError without a place, which the caller adds.
    scores: scores all items, in percent.
    answer: makes an item's answer as JSON.
    submitted: makes the server's lines of an object's id and the answers to its items.
    """

    choices: int
    primary_metric: str
    items: Callable[[dict[str, Any], bool], list[Item]]
    scores: Callable[[Sequence[Item]], dict[str, float]]
    answer: Callable[[Item], dict[str, Any]]
    submitted: Callable[[Any, Sequence[dict[str, Any]]], list[dict[str, Any]]]


def _whole(record: dict[str, Any], name: str) -> int:
    """Reads a whole number, which tables hold as text. Raises UserError: it is missing or wrong."""
    if isinstance(record, dict):
        number = cell(record, name, "whole", f"the field {name!r}")
        if number is not None:
            return number
    # The field is missing: `field` words that as for every other field.
    return field(record, name, int)


def _list(record: dict[str, Any], name: str) -> list[Any]:
    """Reads a list, which tables hold as text. Raises UserError: it is missing or wrong."""
    if isinstance(record, dict) and isinstance(record.get(name), str):
        record = record | {name: cell(record, name, "list", f"the field {name!r}")}
    return field(record, name, list)


def likeliest_scores(items: Sequence[Item]) -> dict[str, float]:
    """Computes the share of questions whose likeliest candidate is right."""
    right = []
    for item in items:
        right.append(item.right[0] if item.right else -1)  # -1 equals no candidate
    best = [item.best for item in items]
    return {"accuracy": accuracy(np.array(right), np.array(best))}


def likeliest_answer(item: Item) -> dict[str, Any]:
    names = map(str, item.names)
    probabilities = dict(zip(names, item.shares.tolist(), strict=True))
    return {"label": item.answer, "probabilities": probabilities}


def likeliest_submitted(identity: Any, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"idx": identity, "label": answer["label"]} for answer in answers]


# COPA: which of two sentences is the cause or the effect of a premise. Input: premise and question, then a candidate.

_COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}  # worded by us


def copa_items(row: dict[str, Any], labelled: bool) -> list[Item]:
    question = field(row, "question", str)
    if question not in _COPA_QUESTIONS:
        raise UserError(f"the question must be cause or effect, got {shown(question)}")
    premise = field(row, "premise", str)
    first = f"{premise} {_COPA_QUESTIONS[question]}"
    candidates = (
        (first, field(row, "choice1", str)),
        (first, field(row, "choice2", str)),
    )
    right = None
    if labelled or "label" in row:
        label = _whole(row, "label")
        if label not in (0, 1):
            raise UserError(f"the label must be 0 or 1, got {label}")
        right = (label,)
    return [Item(candidates, (0, 1), right)]


# MultiRC: which of the answers to a question about a paragraph are right, any number of them. Input: the paragraph,
# then question and answer.


def multirc_items(row: dict[str, Any], labelled: bool) -> list[Item]:
    passage = field(row, "passage", dict)
    text = field(passage, "text", str)
    items = []
    for place, asked in enumerate(_list(passage, "questions")):
        question = field(asked, "question", str)
        answers = _list(asked, "answers")
        candidates = []
        for answer in answers:
            answer_text = field(answer, "text", str)
            candidates.append((text, f"{question} {answer_text}"))
        right = None
        if labelled or all("label" in answer for answer in answers):
            labels = [_whole(answer, "label") for answer in answers]
            if not set(labels) <= {0, 1}:
                raise UserError(f"labels of answers must be 0 or 1, got {shown(labels)}")
            right = tuple(int(i) for i in np.flatnonzero(labels))
        names = tuple(answer.get("idx", i) for i, answer in enumerate(answers))
        items.append(Item(tuple(candidates), names, right, asked.get("idx", place)))
    return items


def multirc_scores(items: Sequence[Item]) -> dict[str, float]:
    """Computes f1a, the F1 over all answers of all questions, exact_match, the share of questions with all answers
    judged rightly, and their average."""
    right = []
    judged_right = []
    exact_matches = []
    for item in items:
        judged = item.shares > 0.5
        right.append(item.is_right)
        judged_right.append(judged)
        exact_matches.append(float(np.array_equal(judged, item.is_right)))
    f1a = f1(np.concatenate(right), np.concatenate(judged_right))
    return with_average({"f1a": f1a, "exact_match": 100.0 * float(np.mean(exact_matches))})


def multirc_answer(item: Item) -> dict[str, Any]:
    answers = []
    for name, share in zip(item.names, item.shares.tolist(), strict=True):
        answers.append({"idx": name, "label": int(share > 0.5), "probability": share})
    return {"idx": item.id, "answers": answers}


def multirc_submitted(identity: Any, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    questions = []
    for question in answers:
        labels = [{"idx": answer["idx"], "label": answer["label"]} for answer in question["answers"]]
        questions.append({"idx": question["idx"], "answers": labels})
    return [{"idx": identity, "passage": {"questions": questions}}]


# ReCoRD: which entity of a news text stands in the place of "@placeholder". Candidates are the different strings that
# the file marks as entities, each right or wrong by itself; the likeliest one is the answer. Input: the text, then the
# sentence with the candidate in it.

_PLACEHOLDER = "@placeholder"


def record_items(row: dict[str, Any], labelled: bool) -> list[Item]:
    passage = field(row, "passage", dict)
    text = field(passage, "text", str)
    names = _entities(passage, text)
    plain = text.replace("@highlight", "")
    items = []
    for place, asked in enumerate(_list(row, "qas")):
        query = field(asked, "query", str)
        if _PLACEHOLDER not in query:
            raise UserError(f"a query without {_PLACEHOLDER}: {shown(query)}")
        right = None
        gold: tuple[str, ...] = ()
        if labelled or "answers" in asked:
            gold = tuple(field(answer, "text", str) for answer in _list(asked, "answers"))
            if not gold:
                raise UserError("a query without answers")
            right = tuple(i for i, name in enumerate(names) if name in gold)
        candidates = tuple((plain, query.replace(_PLACEHOLDER, name)) for name in names)
        items.append(Item(candidates, names, right, asked.get("idx", place), gold))
    return items


def _entities(passage: dict[str, Any], text: str) -> tuple[str, ...]:
    """Lists the different strings that a passage marks as entities."""
    names: dict[str, None] = {}  # an ordered set: the same name is marked at several places
    for entity in _list(passage, "entities"):
        start = _whole(entity, "start")
        end = _whole(entity, "end")
        if not 0 <= start <= end < len(text):
            raise UserError(f"an entity from {start} to {end} is not within the text of {len(text)} characters")
        names[text[start : end + 1]] = None
    return tuple(names)


def record_scores(items: Sequence[Item]) -> dict[str, float]:
    """Computes F1 and exact match with the nearest answer, and their average."""
    golds = {}
    chosen = {}
    for index, item in enumerate(items):
        golds[str(index)] = item.gold
        chosen[str(index)] = str(item.answer)
    return with_average(answered_scores(golds, chosen))


def record_answer(item: Item) -> dict[str, Any]:
    return {"idx": item.id} | likeliest_answer(item)


def record_submitted(identity: Any, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    del identity  # the server counts queries
    return [{"idx": answer["idx"], "label": answer["label"]} for answer in answers]


# RACE. Input: the article, then the question with an answer in place of its blank, or else behind it.

_LEVELS = ("middle", "high")
_LETTERS = "ABCD"
_BLANK = "_"


def race_items(row: dict[str, Any], labelled: bool) -> list[Item]:
    article = field(row, "article", str)
    if "question" in row:
        # One question an object: lists of one.
        row = row | {"questions": [row["question"]], "options": [_list(row, "options")]}
        if "answer" in row:
            row["answers"] = [row["answer"]]
    questions = _list(row, "questions")
    options = _list(row, "options")
    answers = None
    if labelled or "answers" in row:
        answers = _list(row, "answers")
    if len(questions) != len(options) or (answers is not None and len(answers) != len(questions)):
        raise UserError(f"{len(questions)} questions, but {len(options)} lists of options or not as many answers")
    level = _race_level(row)
    items = []
    for place, (question, choices) in enumerate(zip(questions, options, strict=True)):
        are_texts = isinstance(choices, list) and all(isinstance(text, str) for text in [question, *choices])
        if not are_texts:
            raise UserError(f"a question and its options must be texts, got {shown(question)}, {shown(choices)}")
        right = None
        if answers is not None:
            letter = answers[place]
            if not isinstance(letter, str) or letter not in tuple(_LETTERS):  # "AB" is in the string
                raise UserError(f"the answer must be one of {', '.join(_LETTERS)}, got {shown(letter)}")
            right = (_LETTERS.index(letter),)
        with_blank = question
        if _BLANK not in question:
            with_blank = f"{question} {_BLANK}"
        candidates = tuple((article, with_blank.replace(_BLANK, choice)) for choice in choices)
        items.append(Item(candidates, tuple(_LETTERS), right, level=level))
    return items


def _race_level(row: dict[str, Any]) -> str:
    """Reads the school's level from its field, or from the beginning of the id; "": neither has it."""
    if row.get("level"):
        return str(row["level"])
    identity = str(row.get("id", row.get("example_id", "")))
    for level in _LEVELS:
        if identity.startswith(level):
            return level
    return ""


def race_scores(items: Sequence[Item]) -> dict[str, float]:
    """Computes accuracy over all questions, and over those of middle and of high schools."""
    scores = likeliest_scores(items)
    for level in _LEVELS:
        level_items = [item for item in items if item.level == level]
        if level_items:
            scores[f"accuracy_{level}"] = likeliest_scores(level_items)["accuracy"]
    return scores


FORMS = {
    "copa": Form(2, "accuracy", copa_items, likeliest_scores, likeliest_answer, likeliest_submitted),
    "multirc": Form(1, "f1a", multirc_items, multirc_scores, multirc_answer, multirc_submitted),
    "record": Form(1, "f1", record_items, record_scores, record_answer, record_submitted),
    "race": Form(len(_LETTERS), "accuracy", race_items, race_scores, likeliest_answer, likeliest_submitted),
}


def items_of(passages: Iterable[Passage]) -> list[Item]:
    return list(itertools.chain.from_iterable(passage.items for passage in passages))
