"""COPA, MultiRC and ReCoRD as SuperGLUE distributes and scores them (Wang et al. 2019, table 1), and RACE (Lai et al.
2017), questions of school examinations with four answers each.

RACE's {train,dev,test}/{middle,high}/*.txt hold a JSON object each: `article`, `questions`, `options`, `answers`. JSON
lines of such objects, or with one `question`, `options` and `answer` each, are read too; `example_id` may stand for
`id`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.finetune.multiple_choice.tasks import ChoiceTask, Item, Judged, Passage, chosen_rightly
from electra_tf2.finetune.qa.scoring import exact, overlap_f1
from electra_tf2.finetune.tasks.metrics import f1, with_average
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import field, read_json

_PLACEHOLDER = "@placeholder"
_COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_LEVELS = ("middle", "high")
_LETTERS = "ABCD"
_BLANK = "_"


class Copa(ChoiceTask):
    """Choice of which of two sentences is the cause or the effect of a premise; accuracy.

    Input: premise and question, then a candidate. The wording of the question is ours.
    """

    primary_metric = "accuracy"
    choices = 2

    def passage(self, row: dict[str, Any], number: int, labelled: bool) -> Passage:
        question = field(row, "question", str)
        if question not in _COPA_QUESTIONS:
            raise UserError(f"the question must be cause or effect, got {shown(question)}")
        first = f"{field(row, 'premise', str)} {_COPA_QUESTIONS[question]}"
        candidates = tuple((first, field(row, f"choice{choice}", str)) for choice in (1, 2))
        right = None
        if labelled or "label" in row:
            label = field(row, "label", int)
            if label not in (0, 1):
                raise UserError(f"the label must be 0 or 1, got {label}")
            right = (label,)
        identity = row.get("idx", number)
        return Passage(identity, (Item(identity, candidates, (0, 1), right),))

    def measured(self, judged: Sequence[Judged], passages: Sequence[Passage]) -> dict[str, float]:
        return {"accuracy": chosen_rightly(judged)}


class MultiRc(ChoiceTask):
    """Choice of which of the answers to a question about a paragraph are right, any number of them.

    Scores: f1a, the F1 of right answers over all answers of all questions; exact_match, the share of questions all of
    whose answers are judged rightly; their average. Input: the paragraph, then question and answer.
    """

    primary_metric = "f1a"

    def passage(self, row: dict[str, Any], number: int, labelled: bool) -> Passage:
        content = field(row, "passage", dict)
        text = field(content, "text", str)
        items = []
        for place, asked in enumerate(field(content, "questions", list)):
            question, answers = field(asked, "question", str), field(asked, "answers", list)
            candidates = tuple((text, f"{question} {field(answer, 'text', str)}") for answer in answers)
            right = None
            if labelled or all("label" in answer for answer in answers):
                labels = [field(answer, "label", int) for answer in answers]
                if not set(labels) <= {0, 1}:
                    raise UserError(f"labels of answers must be 0 or 1, got {shown(labels)}")
                right = tuple(int(i) for i in np.flatnonzero(labels))
            names = tuple(answer.get("idx", i) for i, answer in enumerate(answers))
            items.append(Item(asked.get("idx", place), candidates, names, right))
        return Passage(row.get("idx", number), tuple(items))

    def measured(self, judged: Sequence[Judged], passages: Sequence[Passage]) -> dict[str, float]:
        gold, chosen = [], []
        for one in judged:
            gold.append(np.isin(np.arange(len(one.item.candidates)), one.item.right or ()))
            chosen.append(one.probabilities > 0.5)
        exactly = [float((g == c).all()) for g, c in zip(gold, chosen, strict=True)]
        f1a = f1(np.concatenate(gold), np.concatenate(chosen))
        return with_average({"f1a": f1a, "exact_match": 100.0 * float(np.mean(exactly))})

    def answer(self, judged: Judged) -> dict[str, Any]:
        answers = zip(judged.item.names, judged.probabilities, strict=True)
        return {
            "idx": judged.item.id,
            "answers": [{"idx": name, "label": int(p > 0.5), "probability": float(p)} for name, p in answers],
        }

    def submitted(self, passage: Passage, judged: Sequence[Judged]) -> Iterator[dict[str, Any]]:
        questions = []
        for one in judged:
            answers = zip(one.item.names, one.probabilities, strict=True)
            labels = [{"idx": name, "label": int(p > 0.5)} for name, p in answers]
            questions.append({"idx": one.item.id, "answers": labels})
        yield {"idx": passage.id, "passage": {"questions": questions}}


class Record(ChoiceTask):
    """Choice of which entity of a news text stands in the place of "@placeholder"; F1 and exact match with the nearest
    answer, and their average.

    Candidates are the different strings that the file marks as entities, each right or wrong by itself; the most likely
    one is the answer. Input: the text, then the sentence with the candidate in it.
    """

    primary_metric = "f1"

    def passage(self, row: dict[str, Any], number: int, labelled: bool) -> Passage:
        content = field(row, "passage", dict)
        text = field(content, "text", str)
        names = []
        for entity in field(content, "entities", list):
            start, end = field(entity, "start", int), field(entity, "end", int)
            if not 0 <= start <= end < len(text):
                raise UserError(f"an entity from {start} to {end} is not within the text of {len(text)} characters")
            names.append(text[start : end + 1])
        names = list(dict.fromkeys(names))
        items = []
        plain = text.replace("@highlight", "")
        for place, asked in enumerate(field(row, "qas", list)):
            query = field(asked, "query", str)
            if _PLACEHOLDER not in query:
                raise UserError(f"a query without {_PLACEHOLDER}: {shown(query)}")
            right, gold = None, tuple[str, ...]()
            if labelled or "answers" in asked:
                gold = tuple(field(answer, "text", str) for answer in field(asked, "answers", list))
                right = tuple(i for i, name in enumerate(names) if name in gold)
                if not gold:
                    raise UserError("a query without answers")
            candidates = tuple((plain, query.replace(_PLACEHOLDER, name)) for name in names)
            items.append(Item(asked.get("idx", place), candidates, tuple(names), right, gold))
        return Passage(row.get("idx", number), tuple(items))

    def measured(self, judged: Sequence[Judged], passages: Sequence[Passage]) -> dict[str, float]:
        chosen = [(str(one.item.names[one.best]), one.item.gold) for one in judged]
        best_f1 = [max(overlap_f1(gold, name) for gold in golds) for name, golds in chosen]
        best_exact = [max(exact(gold, name) for gold in golds) for name, golds in chosen]
        return with_average({"f1": 100.0 * float(np.mean(best_f1)), "exact_match": 100.0 * float(np.mean(best_exact))})

    def answer(self, judged: Judged) -> dict[str, Any]:
        return {"idx": judged.item.id} | super().answer(judged)


class Race(ChoiceTask):
    """Accuracy over all questions, and over those of middle and of high schools.

    Input: the article, then the question with an answer in place of its blank, or else behind it.
    """

    primary_metric = "accuracy"
    choices = len(_LETTERS)

    def has_labels(self, split: str) -> bool:
        return bool(self._files(split)) or super().has_labels(split)

    def files(self, split: str) -> list[Path]:
        return self._files(split) or super().files(split)

    def objects(self, split: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
        files = self._files(split)
        if not files:
            yield from super().objects(split)
        for number, path in enumerate(files):
            row = read_json(path, "task")
            yield str(path), number, {"level": path.parent.name, "id": path.name} | row

    def _files(self, split: str) -> list[Path]:
        for folder in self.folders:
            files = [path for level in _LEVELS for path in sorted((folder / split / level).glob("*.txt"))]
            if files:
                return files
        return []

    def passage(self, row: dict[str, Any], number: int, labelled: bool) -> Passage:
        article = field(row, "article", str)
        if "question" in row:
            row = row | {"questions": [row["question"]], "options": [row.get("options")]}
            row |= {"answers": [row["answer"]]} if "answer" in row else {}
        questions, options = field(row, "questions", list), field(row, "options", list)
        answers = field(row, "answers", list) if labelled or "answers" in row else None
        if len(questions) != len(options) or (answers is not None and len(answers) != len(questions)):
            raise UserError(f"{len(questions)} questions, but {len(options)} lists of options or not as many answers")
        identity = row.get("id", row.get("example_id", number))
        items = []
        for place, (question, choices) in enumerate(zip(questions, options, strict=True)):
            if not isinstance(question, str) or not isinstance(choices, list):
                raise UserError(f"a question must be text and its options a list, got {shown(question)}")
            if not all(isinstance(choice, str) for choice in choices):
                raise UserError(f"options must be texts, got {shown(choices)}")
            right = None
            if answers is not None:
                if not isinstance(answers[place], str) or answers[place] not in list(_LETTERS):
                    raise UserError(f"the answer must be one of {', '.join(_LETTERS)}, got {shown(answers[place])}")
                right = (_LETTERS.index(answers[place]),)
            candidates = tuple((article, _asked(question, choice)) for choice in choices)
            items.append(Item(place, candidates, tuple(_LETTERS), right))
        level = row.get("level") or next((one for one in _LEVELS if str(identity).startswith(one)), "")
        return Passage(identity, tuple(items), str(level))

    def measured(self, judged: Sequence[Judged], passages: Sequence[Passage]) -> dict[str, float]:
        scores = {"accuracy": chosen_rightly(judged)}
        for level in _LEVELS:
            of_level = [one for one, passage in zip(judged, passages, strict=True) if passage.kind == level]
            if of_level:
                scores[f"accuracy_{level}"] = chosen_rightly(of_level)
        return scores


def _asked(question: str, choice: str) -> str:
    return question.replace(_BLANK, choice) if _BLANK in question else f"{question} {choice}"
