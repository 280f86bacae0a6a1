"""Questions with candidates: COPA, MultiRC and ReCoRD as SuperGLUE distributes and scores them (Wang et al. 2019, table
1), and RACE (Lai et al. 2017), questions of school examinations with four answers each.

    an object of a file --passage--> Passage, its Items --one input of the encoder per candidate--> Features

`ChoiceTask` does everything but read a format and score it, which are a subclass each. Where exactly one of a fixed
number of candidates is right, they compete in a softmax; else each is classified by itself.

RACE's {train,dev,test}/{middle,high}/*.txt hold a JSON object each: `article`, `questions`, `options`, `answers`. JSON
lines of such objects, or with one `question`, `options` and `answer` each, are read too; `example_id` may stand for
`id`.
"""

import abc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import pack
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature
from electra_tf2.finetune.tasks.files import write_json_lines
from electra_tf2.finetune.tasks.heads import ChoiceHead, ClassificationHead, Head
from electra_tf2.finetune.tasks.qa_answers import answered_scores
from electra_tf2.finetune.tasks.targets import probabilities
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.metrics import accuracy, f1, with_average
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import track
from electra_tf2.util.reading import field, read_json
from electra_tf2.util.tables import open_table


class Item(NamedTuple):
    """A question.

    candidates: the two texts of each candidate's input.
    names: what each candidate is called in answers.
    right: the numbers of those that are right; None: unknown.
    gold: texts that are right, where the candidates' names are compared with them. kind: groups items in scores.
    """

    id: Any
    candidates: tuple[tuple[str, str], ...]
    names: tuple[Any, ...]
    right: tuple[int, ...] | None
    gold: tuple[str, ...] = ()
    kind: str = ""


class Passage(NamedTuple):
    """An object of a file: questions about the same text; answered by one object."""

    id: Any
    items: tuple[Item, ...]


class Judged(NamedTuple):
    """An item with the probability of each of its candidates."""

    item: Item
    probabilities: np.ndarray

    @property
    def best(self) -> int:
        return int(self.probabilities.argmax())


class ChoiceTask(Task):
    """Questions with candidates."""

    endings = ("jsonl", "json", "parquet", "arrow")
    predicts = "choice"

    @abc.abstractmethod
    def passage(self, row: dict[str, Any], number: int, labelled: bool) -> Passage:
        """An object of a file.

        Args:
          number: of the object, from 0 on, which is its id if it has none.
          labelled: the right candidates are needed; else they are taken if they are there.

        Raises:
          UserError: what is wrong with it; the caller says where it stands.
        """

    def measured(self, judged: Sequence[Judged]) -> dict[str, float]:
        """Scores of all items, in percent: the share of those whose most likely candidate is right."""
        right = np.array([one.item.right[0] if one.item.right else -1 for one in judged])
        return {"accuracy": accuracy(right, np.array([one.best for one in judged]))}

    def answer(self, judged: Judged) -> dict[str, Any]:
        """An item's answer as JSON."""
        names = map(str, judged.item.names)
        return {
            "label": judged.item.names[judged.best],
            "probabilities": dict(zip(names, map(float, judged.probabilities), strict=True)),
        }

    def submitted(self, passage: Passage, judged: Sequence[Judged]) -> Iterator[dict[str, Any]]:
        """The lines of a passage in the server's format."""
        for one in judged:
            yield {"idx": one.item.id, "label": one.item.names[one.best]}

    # Files to features.

    @property
    def labels(self) -> dict[str, Label]:
        return {"right" if self.choices > 1 else "label_ids": Label("int32")}

    def load(self, split: str) -> Split:
        labelled = split not in self.test_splits
        rows = enumerate(self.objects(split))
        passages = [self.example(row, where, number, labelled) for number, (where, row) in rows]
        if not passages:
            raise UserError(f"{self.name}: the {split} data holds no questions")
        return self.split_of(passages, split)

    def objects(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """(where it stands, the object) of the objects of a split."""
        for table in map(open_table, self.paths(split)):
            yield from ((table.where(line), row) for line, row in table.readable())

    def example(self, row: dict[str, Any], where: str, number: int, labelled: bool = False) -> Passage:
        try:
            passage = self.passage(row, number, labelled)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        for item in passage.items:
            if self.choices > 1 and len(item.candidates) != self.choices:
                raise UserError(f"{where}: {len(item.candidates)} candidates, but {self.choices} are needed")
            if not item.candidates or any(not text.strip() for pair in item.candidates for text in pair):
                raise EmptyText(f"{where}: a question without candidates, or an empty text")
        if not passage.items:
            raise UserError(f"{where}: no question")
        return passage

    def split_of(self, passages: Sequence[Passage], split: str) -> Split:
        items = [item for passage in passages for item in passage.items]
        # A text that stands in several inputs is tokenised once.
        texts = list(dict.fromkeys(text for item in items for pair in item.candidates for text in pair))
        pieces = dict(zip(texts, self.tokenizer.pieces(texts), strict=True))
        features = []
        for item in track(items, f"inputs of {self.name}", len(items)):
            right = item.right or ()
            for number, pair in enumerate(item.candidates):
                row = pack([pieces[text] for text in pair], self.tokenizer.special, self.config.max_seq_length)
                label = next(iter(right), 0) if self.choices > 1 else int(number in right)
                features.append(Features(row.input_ids, row.segment_ids, dict.fromkeys(self.labels, label), row.cut))
        counts = [sum(len(item.candidates) for item in passage.items) for passage in passages]
        return Split(passages, features, counts, all(item.right is not None for item in items))

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        cls, outputs = (ChoiceHead, self.choices) if self.choices > 1 else (ClassificationHead, 2)
        return cls(self.scope, encoder.architecture.hidden_size, outputs, self.config, seed)

    def samples(self, texts: Sequence[tuple[str, str]]) -> Split:
        names = tuple(range(self.choices if self.choices > 1 else 3))
        candidates = [tuple((first, f"{second} {number}") for number in names) for first, second in texts]
        return self.split_of([Passage(0, (Item(0, of_item, names, None),)) for of_item in candidates], "new")

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """string [B, C] twice, the texts of each candidate's input -> probabilities float32 [B, C], and the number of
        the likeliest, best int32 [B]."""

        def answer(text: tf.Tensor, text_pair: tf.Tensor) -> dict[str, tf.Tensor]:
            found = predict(tokenizer.rows(tf.reshape(text, [-1]), tf.reshape(text_pair, [-1])))
            judged = tf.reshape(self._probabilities(found), tf.shape(text))
            return {"probabilities": tf.cast(judged, tf.float32), "best": tf.argmax(judged, -1, tf.int32)}

        def example(passage: Passage) -> dict[str, Any]:
            first, second = zip(*passage.items[0].candidates, strict=True)
            return {"text": first, "text_pair": second}

        choices = self.choices if self.choices > 1 else None
        names = ("text", "text_pair")
        specs = {name: tf.TensorSpec([None, choices], tf.string, name=name) for name in names}
        return Signature(specs, answer, example)

    def served_numbers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        return [{"probabilities": one.probabilities.tolist()} for one in self._all_judged(split, predictions)]

    def _probabilities(self, outputs: Mapping[str, Any]) -> tf.Tensor:
        """float64 [B], of each candidate to be right; of those that compete they sum to 1."""
        if self.choices > 1:
            return tf.exp(tf.cast(outputs["log_probs"], tf.float64))
        return probabilities(outputs["logits"])[:, 1]

    def judged(self, split: Split, predictions: Sequence[Prediction]) -> list[list[Judged]]:
        """The items of every passage with the candidates' probabilities."""
        if not predictions:
            return []
        outputs = {name: np.array([prediction[name] for prediction in predictions]) for name in predictions[0]}
        shares = iter(self._probabilities(outputs).numpy())
        return [
            [Judged(item, np.array([next(shares) for _ in item.candidates])) for item in passage.items]
            for passage in split.examples
        ]

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        return self.measured(self._all_judged(split, predictions))

    def _all_judged(self, split: Split, predictions: Sequence[Prediction]) -> list[Judged]:
        return [one for of_passage in self.judged(split, predictions) for one in of_passage]

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for passage in split.examples:
            gold = [[item.names[i] for i in item.right or ()] for item in passage.items]
            rows.append({"id": passage.id} | ({"gold": gold} if split.labelled else {}))
        return rows

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """An item's answer, or of a passage with several a list of them under `answers`."""
        rows = []
        for judged in self.judged(split, predictions):
            answers = [self.answer(one) for one in judged]
            rows.append(answers[0] if len(answers) == 1 else {"answers": answers})
        return rows

    def balance(self, split: Split) -> dict[str, float]:
        names: list[str] = []
        for right, item in ((item.right or (), item) for passage in split.examples for item in passage.items):
            if self.choices > 1:
                names += [str(item.names[number]) for number in right[:1]]
            else:
                names += ["right" if number in right else "wrong" for number in range(len(item.candidates))]
        return dict(Counter(names).most_common())

    def majority(self, split: Split) -> dict[str, float]:
        """{} where candidates differ by their texts alone, as ReCoRD's entities do: none is the commonest."""
        items = [item for passage in split.examples for item in passage.items]
        if any(item.gold for item in items):
            return {}
        if self.choices > 1:
            commonest = np.bincount([(item.right or (0,))[0] for item in items]).argmax()
            constant = [np.eye(self.choices)[commonest]] * len(items)
        else:
            right = sum(len(item.right or ()) for item in items)
            mostly_right = float(2 * right > sum(len(item.candidates) for item in items))
            constant = [np.full(len(item.candidates), mostly_right) for item in items]
        return self.measured([Judged(*one) for one in zip(items, constant, strict=True)])

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        judged = self._all_judged(split, predictions)
        if self.choices > 1:
            return [one.best for one in judged]
        return np.concatenate([one.probabilities > 0.5 for one in judged]).tolist()

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        if name not in self.submission:
            return []
        path = folder / self.submission[name]
        judged = zip(split.examples, self.judged(split, predictions), strict=True)
        write_json_lines(path, (line for passage, answers in judged for line in self.submitted(passage, answers)))
        return [path]


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

    def measured(self, judged: Sequence[Judged]) -> dict[str, float]:
        gold, chosen = [], []
        for one in judged:
            gold.append(np.isin(np.arange(len(one.item.candidates)), one.item.right or ()))
            chosen.append(one.probabilities > 0.5)
        exactly = [float((g == c).all()) for g, c in zip(gold, chosen, strict=True)]
        f1a = f1(np.concatenate(gold), np.concatenate(chosen))
        return with_average({"f1a": f1a, "exact_match": 100.0 * float(np.mean(exactly))})

    def answer(self, judged: Judged) -> dict[str, Any]:
        answers = zip(judged.item.names, judged.probabilities.tolist(), strict=True)
        labels = [{"idx": name, "label": int(p > 0.5), "probability": p} for name, p in answers]
        return {"idx": judged.item.id, "answers": labels}

    def submitted(self, passage: Passage, judged: Sequence[Judged]) -> Iterator[dict[str, Any]]:
        questions = list(map(self.answer, judged))
        for answer in (answer for question in questions for answer in question["answers"]):
            del answer["probability"]
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
        found: dict[str, None] = {}
        for entity in field(content, "entities", list):
            start, end = field(entity, "start", int), field(entity, "end", int)
            if not 0 <= start <= end < len(text):
                raise UserError(f"an entity from {start} to {end} is not within the text of {len(text)} characters")
            found[text[start : end + 1]] = None
        names, items = tuple(found), []
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
            items.append(Item(asked.get("idx", place), candidates, names, right, gold))
        return Passage(row.get("idx", number), tuple(items))

    def measured(self, judged: Sequence[Judged]) -> dict[str, float]:
        golds = {str(number): one.item.gold for number, one in enumerate(judged)}
        chosen = {str(number): str(one.item.names[one.best]) for number, one in enumerate(judged)}
        return with_average(answered_scores(golds, chosen))

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        return [one.item.names[one.best] for one in self._all_judged(split, predictions)]

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

    def objects(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        files = self._files(split)
        if not files:
            yield from super().objects(split)
        for path in files:
            yield str(path), {"level": path.parent.name, "id": path.name} | read_json(path, "task")

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
        level = row.get("level") or next((one for one in _LEVELS if str(identity).startswith(one)), "")
        items = []
        for place, (question, choices) in enumerate(zip(questions, options, strict=True)):
            given = choices if isinstance(choices, list) else [None]
            if not all(isinstance(text, str) for text in (question, *given)):
                raise UserError(f"a question and its options must be texts, got {shown(question)}, {shown(choices)}")
            right = None
            if answers is not None:
                if not isinstance(answers[place], str) or answers[place] not in list(_LETTERS):
                    raise UserError(f"the answer must be one of {', '.join(_LETTERS)}, got {shown(answers[place])}")
                right = (_LETTERS.index(answers[place]),)
            blank = question if _BLANK in question else f"{question} {_BLANK}"
            candidates = tuple((article, blank.replace(_BLANK, choice)) for choice in choices)
            items.append(Item(place, candidates, tuple(_LETTERS), right, kind=str(level)))
        return Passage(identity, tuple(items))

    def measured(self, judged: Sequence[Judged]) -> dict[str, float]:
        scores = super().measured(judged)
        for level in _LEVELS:
            of_level = [one for one in judged if one.item.kind == level]
            scores |= {f"accuracy_{level}": super().measured(of_level)["accuracy"]} if of_level else {}
        return scores
