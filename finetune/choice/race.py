"""RACE (Lai et al. 2017): questions of school examinations with four answers each.

As distributed, {train,dev,test}/{middle,high}/*.txt hold a JSON object each: `article`, `questions`, `options`,
`answers`. JSON lines of such objects, or with one `question`, `options` and `answer` each, are read too; `example_id`
may stand for `id`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.finetune.choice.tasks import ChoiceTask, Item, Judged, Passage, chosen_rightly, field
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import read_json

_LEVELS = ("middle", "high")
_LETTERS = "ABCD"
_BLANK = "_"


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
