"""Questions with candidates: multiple choice, and candidates each of which is right or wrong.

    an object of a file --passage--> Passage, its Items --one input of the encoder per candidate--> Features

`ChoiceTask` does everything but read a format and score it, which are a subclass each
(finetune.multiple_choice.formats). Where exactly one of a fixed number of candidates is right, they compete in a
softmax; else each is classified by itself.
"""

import abc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exchange.encoding import pack
from electra_tf2.finetune.results import write_json_lines
from electra_tf2.finetune.task import EmptyText, Features, Head, Label, Prediction, Split, Task
from electra_tf2.finetune.tasks.metrics import accuracy
from electra_tf2.finetune.text_heads import ChoiceHead, ClassificationHead
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track
from electra_tf2.util.reading import read_json_lines


class Item(NamedTuple):
    """A question.

    candidates: the two texts of each candidate's input.
    names: what each candidate is called in answers.
    right: the numbers of those that are right; None: unknown.
    gold: texts that are right, where the candidates' names are compared with them.
    """

    id: Any
    candidates: tuple[tuple[str, str], ...]
    names: tuple[Any, ...]
    right: tuple[int, ...] | None
    gold: tuple[str, ...] = ()


class Passage(NamedTuple):
    """An object of a file: questions about the same text; answered by one object. `kind` groups passages in scores."""

    id: Any
    items: tuple[Item, ...]
    kind: str = ""


class Judged(NamedTuple):
    """An item with the probability of each of its candidates."""

    item: Item
    probabilities: np.ndarray

    @property
    def best(self) -> int:
        return int(self.probabilities.argmax())


class ChoiceTask(Task):
    """Questions with candidates.

    Args:
      submission: file name of the test split's predictions on the benchmark's server; "" without one.
    """

    endings = ("jsonl",)
    predicts = "choice"
    choices = 1  # of a question, where they compete; 1: each candidate is right or wrong by itself

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        folders: Sequence[str] = (),
        file_names: Mapping[str, Sequence[str]] | None = None,
        submission: str = "",
    ) -> None:
        super().__init__(name, config, tokenizer, folders=folders, file_names=file_names)
        self.submission = submission

    @abc.abstractmethod
    def passage(self, row: dict[str, Any], number: int, labelled: bool) -> Passage:
        """An object of a file.

        Args:
          number: of the line, from 0 on, which is its id if it has none.
          labelled: the right candidates are needed; else they are taken if they are there.

        Raises:
          UserError: what is wrong with it; the caller says where it stands.
        """

    @abc.abstractmethod
    def measured(self, judged: Sequence[Judged], passages: Sequence[Passage]) -> dict[str, float]:
        """Scores of all items, in percent; `passages` holds the passage of each."""

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

    def has_labels(self, split: str) -> bool:
        return not self.submission and super().has_labels(split)

    def load(self, split: str) -> Split:
        labelled = split not in self.test_splits
        passages = []
        for where, number, row in self.objects(split):
            passages.append(self._read(row, where, number, labelled))
        if not passages:
            raise UserError(f"{self.name}: the {split} data holds no questions")
        return self._split(passages)

    def objects(self, split: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """(where it stands, its number, the object) of the objects of a split: lines of JSON."""
        path = self.path(split)
        for number, row in read_json_lines(path, "task"):
            yield f"{path}, line {number}", number - 1, row

    def parse(self, rows: Sequence[dict[str, Any]], where: str) -> Split:
        return self._split(
            [self._read(row, f"{where}, line {number + 1}", number, False) for number, row in enumerate(rows)]
        )

    def _read(self, row: dict[str, Any], where: str, number: int, labelled: bool) -> Passage:
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

    def _split(self, passages: Sequence[Passage]) -> Split:
        items = [item for passage in passages for item in passage.items]
        pieces = self._pieces(items)
        features = []
        for item in track(items, f"inputs of {self.name}", len(items)):
            for number, pair in enumerate(item.candidates):
                inputs = pack([pieces[text] for text in pair], self.tokenizer.special, self.config.max_seq_length)
                features.append(Features(*inputs, self._label_values(item, number)))
        counts = [sum(len(item.candidates) for item in passage.items) for passage in passages]
        return Split(passages, features, counts, all(item.right is not None for item in items))

    def _label_values(self, item: Item, number: int) -> dict[str, int]:
        right = item.right or ()
        if self.choices > 1:
            return {"right": right[0] if right else 0}
        return {"label_ids": int(number in right)}

    def _pieces(self, items: Sequence[Item]) -> dict[str, np.ndarray]:
        """int32 [pieces] ids of every text; one that stands in several inputs is tokenised once."""
        texts = list(dict.fromkeys(text for item in items for pair in item.candidates for text in pair))
        return dict(zip(texts, self.tokenizer.pieces(texts), strict=True))

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        scope, hidden_size = f"task_specific/{self.name}", encoder.architecture.hidden_size
        if self.choices > 1:
            return ChoiceHead(scope, hidden_size, self.choices, self.config, seed)
        return ClassificationHead(scope, hidden_size, 2, self.config, seed)

    def judged(self, split: Split, predictions: Sequence[Prediction]) -> list[list[Judged]]:
        """The items of every passage with the candidates' probabilities."""
        if self.choices > 1:
            log_probs = np.array([prediction["log_probs"] for prediction in predictions], np.float64)
        else:
            logits = np.array([prediction["logits"] for prediction in predictions], np.float64).reshape(-1, 2)
            log_probs = logits[:, 1] - np.logaddexp(logits[:, 0], logits[:, 1])
        probabilities = iter(np.exp(log_probs))
        return [
            [Judged(item, np.array([next(probabilities) for _ in item.candidates])) for item in passage.items]
            for passage in split.examples
        ]

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        judged = self.judged(split, predictions)
        passages = [passage for passage in split.examples for _ in passage.items]
        return self.measured([one for of_passage in judged for one in of_passage], passages)

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
        names = [
            str(item.names[number]) if self.choices > 1 else ("right" if number in (item.right or ()) else "wrong")
            for passage in split.examples
            for item in passage.items
            for number in ((item.right or ())[:1] if self.choices > 1 else range(len(item.candidates)))
        ]
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
            mostly_right = 2 * sum(len(item.right or ()) for item in items) > sum(
                len(item.candidates) for item in items
            )
            constant = [np.full(len(item.candidates), float(mostly_right)) for item in items]
        passages = [passage for passage in split.examples for _ in passage.items]
        return self.measured([Judged(*one) for one in zip(items, constant, strict=True)], passages)

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        judged = [one for of_passage in self.judged(split, predictions) for one in of_passage]
        if self.choices > 1:
            return [one.best for one in judged]
        return np.concatenate([one.probabilities > 0.5 for one in judged]).tolist()

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        if not self.submission or name not in self.test_splits:
            return []
        path = folder / self.submission
        judged = self.judged(split, predictions)
        write_json_lines(
            path,
            (
                line
                for passage, answers in zip(split.examples, judged, strict=True)
                for line in self.submitted(passage, answers)
            ),
        )
        return [path]


def chosen_rightly(judged: Sequence[Judged]) -> float:
    """Share of items whose most likely candidate is right, in percent."""
    right = np.array([one.item.right[0] if one.item.right else -1 for one in judged])
    return accuracy(right, np.array([one.best for one in judged]))
