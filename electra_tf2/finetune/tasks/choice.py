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
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    id: within the object. gold: texts that are right, where the candidates' names are compared with them. kind: groups
    items in scores.
    shares: float64 [candidates], the probability of each to be right, once a model has said so.
    """

    candidates: tuple[tuple[str, str], ...]
    names: tuple[Any, ...]
    right: tuple[int, ...] | None
    id: Any = None
    gold: tuple[str, ...] = ()
    kind: str = ""
    shares: np.ndarray = np.zeros(0)

    @property
    def is_right(self) -> np.ndarray:
        """bool [candidates]."""
        return np.isin(np.arange(len(self.candidates)), self.right or ())

    @property
    def best(self) -> int:
        """Number of the likeliest candidate."""
        return int(self.shares.argmax())

    @property
    def answer(self) -> Any:
        """Name of the likeliest candidate."""
        return self.names[self.best]


class Passage(NamedTuple):
    """An object of a file: questions about the same text; answered by one object."""

    id: Any
    items: tuple[Item, ...]


class ChoiceTask(Task):
    """Questions with candidates."""

    endings = ("jsonl", "json", "parquet", "arrow")
    predicts = "choice"

    @abc.abstractmethod
    def items(self, row: dict[str, Any], labelled: bool) -> list[Item]:
        """The questions of an object of a file.

        Args:
          labelled: the right candidates are needed; else they are taken if they are there.

        Raises:
          UserError: what is wrong with it; the caller says where it stands.
        """

    def measured(self, items: Sequence[Item]) -> dict[str, float]:
        """Scores of all items, in percent: the share of those whose most likely candidate is right."""
        right = np.array([item.right[0] if item.right else -1 for item in items])
        return {"accuracy": accuracy(right, np.array([item.best for item in items]))}

    def answer(self, item: Item) -> dict[str, Any]:
        """An item's answer as JSON."""
        names = map(str, item.names)
        return {"label": item.answer, "probabilities": dict(zip(names, item.shares.tolist(), strict=True))}

    def submitted(self, passage: Passage) -> Iterable[dict[str, Any]]:
        """The lines of a passage in the server's format."""
        return ({"idx": passage.id, "label": item.answer} for item in passage.items)

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
            items = self.items(row, labelled)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        for item in items:
            if self.choices > 1 and len(item.candidates) != self.choices:
                raise UserError(f"{where}: {len(item.candidates)} candidates, but {self.choices} are needed")
            if not item.candidates or any(not text.strip() for pair in item.candidates for text in pair):
                raise EmptyText(f"{where}: a question without candidates, or an empty text")
        if not items:
            raise UserError(f"{where}: no question")
        return Passage(next((row[name] for name in _IDS if name in row), number), tuple(items))

    def split_of(self, passages: Sequence[Passage], split: str) -> Split:
        items = _items(passages)
        # A text that stands in several inputs is tokenised once.
        texts = list(dict.fromkeys(text for item in items for pair in item.candidates for text in pair))
        pieces = dict(zip(texts, self.tokenizer.pieces(texts), strict=True))
        features = []
        for item in track(items, f"inputs of {self.name}", len(items)):
            best = item.right[0] if item.right else 0
            for pair, is_right in zip(item.candidates, item.is_right, strict=True):
                row = pack([pieces[text] for text in pair], self.tokenizer.special, self.config.max_seq_length)
                label = best if self.choices > 1 else int(is_right)
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
        return self.split_of([Passage(0, (Item(of_item, names, None),)) for of_item in candidates], "new")

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
        return [{"probabilities": item.shares.tolist()} for item in _items(self.judged(split, predictions))]

    def _probabilities(self, outputs: Mapping[str, Any]) -> tf.Tensor:
        """float64 [B], of each candidate to be right; of those that compete they sum to 1."""
        if self.choices > 1:
            return tf.exp(tf.cast(outputs["log_probs"], tf.float64))
        return probabilities(outputs["logits"])[:, 1]

    def judged(self, split: Split, predictions: Sequence[Prediction]) -> list[Passage]:
        """The passages with their candidates' probabilities."""
        outputs = {name: np.array([prediction[name] for prediction in predictions]) for name in predictions[0]}
        shares = iter(self._probabilities(outputs).numpy())

        def judged(item: Item) -> Item:
            return item._replace(shares=np.array([next(shares) for _ in item.candidates]))

        return [passage._replace(items=tuple(map(judged, passage.items))) for passage in split.examples]

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        return self.measured(_items(self.judged(split, predictions)))

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for passage in split.examples:
            gold = [[item.names[i] for i in item.right or ()] for item in passage.items]
            rows.append({"id": passage.id} | ({"gold": gold} if split.labelled else {}))
        return rows

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """An item's answer, or of a passage with several a list of them under `answers`."""
        answers = [[self.answer(item) for item in passage.items] for passage in self.judged(split, predictions)]
        return [of_items[0] if len(of_items) == 1 else {"answers": of_items} for of_items in answers]

    def balance(self, split: Split) -> dict[str, float]:
        names: list[str] = []
        for item in _items(split.examples):
            if self.choices > 1:
                names += [str(item.names[number]) for number in item.right or ()]
            else:
                names += np.where(item.is_right, "right", "wrong").tolist()
        return dict(Counter(names).most_common())

    def majority(self, split: Split) -> dict[str, float]:
        """{} where candidates differ by their texts alone, as ReCoRD's entities do: none is the commonest."""
        items = _items(split.examples)
        if any(item.gold for item in items):
            return {}
        if self.choices > 1:
            commonest = np.sum([item.is_right for item in items], axis=0).argmax()
            return self.measured([item._replace(shares=np.eye(self.choices)[commonest]) for item in items])
        mostly_right = float(np.mean(np.concatenate([item.is_right for item in items])) > 0.5)
        return self.measured([item._replace(shares=np.full(len(item.names), mostly_right)) for item in items])

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        items = _items(self.judged(split, predictions))
        if self.choices > 1:
            return [item.best for item in items]
        return np.concatenate([item.shares > 0.5 for item in items]).tolist()

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        if name not in self.submission:
            return []
        path = folder / self.submission[name]
        write_json_lines(path, itertools.chain.from_iterable(map(self.submitted, self.judged(split, predictions))))
        return [path]


def _items(passages: Iterable[Passage]) -> list[Item]:
    return [item for passage in passages for item in passage.items]


_PLACEHOLDER = "@placeholder"
_COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_LEVELS = ("middle", "high")
_LETTERS = "ABCD"
_BLANK = "_"
_IDS = ("idx", "id", "example_id")  # names of an object's


class Copa(ChoiceTask):
    """Choice of which of two sentences is the cause or the effect of a premise; accuracy.

    Input: premise and question, then a candidate. The wording of the question is ours.
    """

    primary_metric = "accuracy"
    choices = 2

    def items(self, row: dict[str, Any], labelled: bool) -> list[Item]:
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
        return [Item(candidates, (0, 1), right)]


class MultiRc(ChoiceTask):
    """Choice of which of the answers to a question about a paragraph are right, any number of them.

    Scores: f1a, the F1 of right answers over all answers of all questions; exact_match, the share of questions all of
    whose answers are judged rightly; their average. Input: the paragraph, then question and answer.
    """

    primary_metric = "f1a"

    def items(self, row: dict[str, Any], labelled: bool) -> list[Item]:
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
            items.append(Item(candidates, names, right, asked.get("idx", place)))
        return items

    def measured(self, items: Sequence[Item]) -> dict[str, float]:
        gold, chosen = [item.is_right for item in items], [item.shares > 0.5 for item in items]
        exactly = [float((g == c).all()) for g, c in zip(gold, chosen, strict=True)]
        f1a = f1(np.concatenate(gold), np.concatenate(chosen))
        return with_average({"f1a": f1a, "exact_match": 100.0 * float(np.mean(exactly))})

    def answer(self, item: Item) -> dict[str, Any]:
        answers = zip(item.names, item.shares.tolist(), strict=True)
        labels = [{"idx": name, "label": int(p > 0.5), "probability": p} for name, p in answers]
        return {"idx": item.id, "answers": labels}

    def submitted(self, passage: Passage) -> Iterable[dict[str, Any]]:
        questions = list(map(self.answer, passage.items))
        for answer in (answer for question in questions for answer in question["answers"]):
            del answer["probability"]
        return [{"idx": passage.id, "passage": {"questions": questions}}]


class Record(ChoiceTask):
    """Choice of which entity of a news text stands in the place of "@placeholder"; F1 and exact match with the nearest
    answer, and their average.

    Candidates are the different strings that the file marks as entities, each right or wrong by itself; the most likely
    one is the answer. Input: the text, then the sentence with the candidate in it.
    """

    primary_metric = "f1"

    def items(self, row: dict[str, Any], labelled: bool) -> list[Item]:
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
            items.append(Item(candidates, names, right, asked.get("idx", place), gold))
        return items

    def measured(self, items: Sequence[Item]) -> dict[str, float]:
        golds = {str(number): item.gold for number, item in enumerate(items)}
        chosen = {str(number): str(item.answer) for number, item in enumerate(items)}
        return with_average(answered_scores(golds, chosen))

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        return [item.answer for item in _items(self.judged(split, predictions))]

    def answer(self, item: Item) -> dict[str, Any]:
        return {"idx": item.id} | super().answer(item)

    def submitted(self, passage: Passage) -> Iterable[dict[str, Any]]:
        return ({"idx": item.id, "label": item.answer} for item in passage.items)


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

    def items(self, row: dict[str, Any], labelled: bool) -> list[Item]:
        article = field(row, "article", str)
        if "question" in row:
            row = row | {"questions": [row["question"]], "options": [row.get("options")]}
            row |= {"answers": [row["answer"]]} if "answer" in row else {}
        questions, options = field(row, "questions", list), field(row, "options", list)
        answers = field(row, "answers", list) if labelled or "answers" in row else None
        if len(questions) != len(options) or (answers is not None and len(answers) != len(questions)):
            raise UserError(f"{len(questions)} questions, but {len(options)} lists of options or not as many answers")
        identity = str(row.get("id", row.get("example_id", "")))
        level = row.get("level") or next((one for one in _LEVELS if identity.startswith(one)), "")
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
            items.append(Item(candidates, tuple(_LETTERS), right, kind=str(level)))
        return items

    def measured(self, items: Sequence[Item]) -> dict[str, float]:
        scores = super().measured(items)
        for level in _LEVELS:
            of_level = [item for item in items if item.kind == level]
            scores |= {f"accuracy_{level}": super().measured(of_level)["accuracy"]} if of_level else {}
        return scores
