"""Questions with candidates: COPA, MultiRC and ReCoRD of SuperGLUE, and RACE.

    an object of a file --choice_files--> Passage, its Items --encode--> an input for each candidate --head--> which are
    right

If exactly one of a fixed number of candidates is right, they compete in a softmax (ChoiceHead). Otherwise each is
classified by itself, as any text.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import pack
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.files.reading import read_json
from electra_tf2.files.tables import open_table
from electra_tf2.finetune.tasks.choice_files import FORMS, Item, Passage, items_of
from electra_tf2.finetune.tasks.files import write_json_lines
from electra_tf2.finetune.tasks.head import Classifier, Head, HeadInput, HeadOutput
from electra_tf2.finetune.tasks.targets import probabilities
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task, TaskData
from electra_tf2.finetune.tasks.text import ClassificationHead
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import SeedStream
from electra_tf2.model.pooling import text_state
from electra_tf2.settings import columns
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import track


class ChoiceTask(Task):
    """Questions with candidates.

    Args:
      form: form of the files and of the scores, one of choice_files.FORMS.
    """

    def __init__(
        self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, *, form: str, **files: Any
    ) -> None:
        super().__init__(name, config, tokenizer, endings=("jsonl", "json", "parquet", "arrow"), **files)
        self.form = FORMS[form]
        self.primary_metric = self.form.primary_metric
        self.choices = self.form.choices
        self.compete = self.choices > 1  # exactly one of a question's candidates is right

    # Files to examples.

    def read(self, split: str) -> TaskData:
        labelled = split not in self.test_splits
        passages = []
        for index, (where, row) in enumerate(self._objects(split)):
            passages.append(self._passage(row, where, index, labelled))
        if not passages:
            raise UserError(f"{self.name}: the {split} data holds no questions")
        return TaskData(passages)

    def _objects(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields (place, object) of the files of a split."""
        for path in self.files.paths(split):
            if path.suffix == ".txt":  # RACE's, in a folder of the school's level
                yield str(path), {"level": path.parent.name, "id": path.name} | read_json(path, "task")
                continue
            table = open_table(path)
            for row in table.checked():
                yield table.where(row.line), row.values

    def example(self, row: dict[str, Any], where: str, index: int) -> Passage:
        return self._passage(row, where, index, labelled=False)

    def _passage(self, row: dict[str, Any], where: str, index: int, labelled: bool) -> Passage:
        try:
            items = self.form.items(row, labelled)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        for item in items:
            if self.compete and len(item.candidates) != self.choices:
                raise UserError(f"{where}: {len(item.candidates)} candidates, but {self.choices} are needed")
            texts = _texts([item])
            if not texts or not all(text.strip() for text in texts):
                raise EmptyText(f"{where}: a question without candidates, or an empty text")
        if not items:
            raise UserError(f"{where}: no question")
        for name in columns.IDENTITY:
            if name in row:
                return Passage(row[name], tuple(items))
        return Passage(index, tuple(items))

    # Examples to features.

    @property
    def labels(self) -> dict[str, Label]:
        """`right`: the index of a question's right candidate; `label_ids`: 1 of a candidate that is right, else 0."""
        name = "right" if self.compete else "label_ids"
        return {name: Label("int32")}

    def encode(self, examples: Sequence[Passage], split: str) -> Split:
        """[CLS] text [SEP] text [SEP] for each candidate of each question."""
        items = items_of(examples)
        # A text that stands in several inputs, as a passage does, is tokenised once.
        texts = list(dict.fromkeys(_texts(items)))
        pieces = dict(zip(texts, self.tokenizer.pieces(texts), strict=True))
        (label_name,) = self.labels
        features = []
        for item in track(items, f"inputs of {self.name}", len(items)):
            if self.compete:
                # Each candidate's input has the index of the right one.
                right = item.right[0] if item.right else 0
                labels = [right] * len(item.candidates)
            else:
                labels = [int(is_right) for is_right in item.is_right]
            for pair, label in zip(item.candidates, labels, strict=True):
                row = pack([pieces[text] for text in pair], self.tokenizer.special, self.config.max_seq_length)
                features.append(Features(row.input_ids, row.segment_ids, {label_name: label}, row.cut))
        counts = []
        for passage in examples:
            counts.append(sum(len(item.candidates) for item in passage.items))
        labelled = all(item.right is not None for item in items)
        golds: list[str] = []
        if labelled:
            for item in items:
                golds += self._golds(item)
        return Split(examples, features, counts, labelled, self.choices, golds)

    def _golds(self, item: Item) -> list[str]:
        """Lists the name of the right candidate; if they do not compete, "right" or "wrong" for each."""
        if self.compete:
            return [str(name) for name in _right_names(item)]
        return ["right" if is_right else "wrong" for is_right in item.is_right]

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        width = encoder.architecture.hidden_size
        if self.compete:
            return ChoiceHead(self.scope, width, self.choices, self.config, seed)
        return ClassificationHead(self.scope, width, 2, self.config, seed)

    # Scores and answers.

    def judged(self, split: Split, predictions: Sequence[Prediction]) -> list[Passage]:
        """Adds to passages the probability of each candidate to be right. Those of competing candidates sum to 1."""
        if self.compete:
            log_probs = np.array([prediction["log_probs"] for prediction in predictions])
            shares = np.exp(log_probs.astype(np.float64))
        else:
            logits = np.array([prediction["logits"] for prediction in predictions])
            shares = probabilities(logits).numpy()[:, 1]
        passages = []
        start = 0  # of the question's candidates among all
        for passage in split.examples:
            items = []
            for item in passage.items:
                end = start + len(item.candidates)
                items.append(item._replace(shares=shares[start:end]))
                start = end
            passages.append(passage._replace(items=tuple(items)))
        return passages

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        return self.form.scores(items_of(self.judged(split, predictions)))

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Makes the answer of a passage's item, or a list under `answers` if it has several items."""
        result = []
        for passage in self.judged(split, predictions):
            answers = [self.form.answer(item) for item in passage.items]
            result.append(answers[0] if len(answers) == 1 else {"answers": answers})
        return result

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        rows = []
        for passage in split.examples:
            row: dict[str, Any] = {"id": passage.id}
            if split.labelled:
                row["gold"] = [_right_names(item) for item in passage.items]
            rows.append(row)
        return rows

    def majority(self, split: Split) -> dict[str, float]:
        """Computes the scores of the place that is right most often, or of the same verdict on all candidates.

        {} for ReCoRD, whose candidates are different names in every passage.
        """
        items = items_of(split.examples)
        if any(item.gold for item in items):
            return {}
        judged = []
        if self.compete:
            commonest = np.sum([item.is_right for item in items], axis=0).argmax()
            for item in items:
                judged.append(item._replace(shares=np.eye(self.choices)[commonest]))
        else:
            mostly_right = float(np.mean(np.concatenate([item.is_right for item in items])) > 0.5)
            for item in items:
                judged.append(item._replace(shares=np.full(len(item.names), mostly_right)))
        return self.form.scores(judged)

    def write_submission(self, name: str, split: Split, answers: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        if name not in self.files.submission:
            return []
        path = folder / self.files.submission[name]
        lines: list[Mapping[str, Any]] = []
        for passage, answer in zip(split.examples, answers, strict=True):
            answers_of_items = [answer]
            if len(passage.items) > 1:
                answers_of_items = answer["answers"]  # as `answers` makes them
            lines += self.form.submitted(passage.id, answers_of_items)
        write_json_lines(path, map(dict, lines))
        return [path]


def _texts(items: Sequence[Item]) -> list[str]:
    """Lists both texts of each candidate's input."""
    texts: list[str] = []
    for item in items:
        for pair in item.candidates:
            texts += pair
    return texts


def _right_names(item: Item) -> list[Any]:
    """Lists the names of the right candidates; none if they are unknown."""
    return [item.names[index] for index in item.right or ()]


class ChoiceHead(Head):
    """One logit for each candidate (GPT, section 3.3; as every encoder since does for RACE).

    Args:
      choices: number of a question's candidates, which are neighbouring rows.
    """

    def __init__(self, scope: str, hidden_size: int, choices: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.choices = choices
        self.expected_loss = f"{math.log(choices):.2f} (ln {choices})"
        self.pooling = config.classifier_pooling
        self.classifier = Classifier(scope, hidden_size, 1, config, seed, "choice")

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, 1]."""
        return self.classifier(text_state(inputs.sequence, inputs.input_mask, self.pooling), seeds)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `right`, the index of the question's right candidate on each of its rows.

        Losses: the question's, in equal parts on its rows. Predictions: float32 [B] log-probability of each candidate.
        """
        logits = tf.reshape(self.logits(inputs, seeds), [-1, self.choices])
        right = tf.reshape(inputs.labels["right"], [-1, self.choices])[:, 0]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, logits)
        losses = tf.repeat(losses / self.choices, self.choices)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"log_probs": tf.reshape(tf.nn.log_softmax(logits), [-1])})
