"""One or two texts to a class or a number: what GLUE's tasks and tasks of one's own have in common.

table --util.tables--> TextExample --Target--> TextExample --packing--> Features
"""

import dataclasses
import itertools
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import pack
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature, strings
from electra_tf2.finetune.tasks.files import same_text, write_json_lines
from electra_tf2.finetune.tasks.heads import ClassificationHead, Head
from electra_tf2.finetune.tasks.targets import Classes, Scale, Target, is_no_label, label_text
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task
from electra_tf2.finetune.tasks.text_files import TOLERATED, TextExample, example_of, open_texts, read_texts
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.settings.metrics import measured
from electra_tf2.util import tables
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.files import write_atomically
from electra_tf2.util.progress import Progress, say
from electra_tf2.util.reading import parse_json
from electra_tf2.util.tables import Table, names_of

FEW_SHOT_DEV = "few_shot_dev"  # K examples of each label, of the training data, beside the K that train
_CHUNK = 20_000  # texts that are tokenised at a time
_NUMBER = re.compile(r"-?\d*\.?\d+")


class TextTask(Task):
    """Classification or regression over one or two texts."""

    takes_share = True  # of the file's examples, before pairs are turned around; demonstrations are of the share, too

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        settings: TextSettings = TextSettings(),
        **own: Any,
    ) -> None:
        super().__init__(name, config, tokenizer, **own)
        self.settings, self.primary_metric = settings, settings.metrics[0]
        if settings.value_range is not None:
            self.predicts = "value"
        self.evaluation_splits = settings.evaluation_splits + tuple(filter(self.exists, settings.optional_splits))
        self.test_splits = settings.test_splits + tuple(filter(self.exists, settings.optional_test_splits))
        if config.few_shot:
            self.selection_splits = (FEW_SHOT_DEV,)
            self.evaluation_splits = self.selection_splits + self.evaluation_splits
        self._target: Target | None = None
        if settings.value_range is not None and not (settings.range_of_data and np.isinf(settings.value_range).any()):
            self._target = Scale(*settings.value_range)
        elif settings.labels is not None:
            self._target = self._classes(settings.labels, settings.numbers or ())
        self._rows_of: dict[str, list[TextExample]] = {}

    @property
    def target(self) -> Target:
        """Target that is learned; labels that the task does not name are those of the training data, sorted, and so are
        the ends of a scale."""
        if self._target is None and self.settings.value_range is not None:
            any_number = Scale(*self.settings.value_range)
            values = [any_number.checked(row.label, row.where) for row in self._rows("train")]
            ends = zip(self.settings.value_range, (min(values), max(values)), strict=True)
            low, high = (of_data if math.isinf(end) else end for end, of_data in ends)
            if low >= high:
                raise UserError(f"{self.name}: the training data has one label only: {low:g}")
            self._target = Scale(low, high, strict=False)
        if self._target is None:
            names = set()
            for row in self._rows("train"):
                name = label_text(row.label)
                if not name:
                    raise UserError(f"{row.where}: a label is needed, got {shown(row.label)}")
                names.add(name)
            if len(names) < 2:
                raise UserError(f"{self.name}: the training data has one label only: {', '.join(names)}")
            if alike := [name for name in sorted(names) if name.lower() != name and name.lower() in names]:
                say(f"WARNING: {self.name}: labels that differ in case alone are different classes: {shown(alike[0])}")
            if any("." in name for name in names) and all(map(_NUMBER.fullmatch, names)):
                say(
                    f"WARNING: {self.name}: each of {len(names)} numbers is a class of its own: "
                    "where their size counts, give --task-type regression"
                )
            self._target = self._classes(sorted(names))
        return self._target

    @property
    def num_texts(self) -> int:  # type: ignore[override]
        return len(self.settings.texts)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their ids."""
        assert isinstance(self.target, Classes)
        return self.target.names

    @property
    def is_regression(self) -> bool:
        return self.settings.value_range is not None

    @property
    def labels(self) -> dict[str, Label]:
        return {Scale.key: Scale.label} if self.is_regression else {Classes.key: Classes.label}

    # Files to features.

    def files(self, split: str) -> list[Path]:
        return super().files("train" if split == FEW_SHOT_DEV else split)

    def _rows(self, split: str) -> list[TextExample]:
        """The rows of a split's file, read once: labels, few-shot splits and demonstrations want the training data."""
        if split not in self._rows_of:
            self._rows_of[split] = self._read_rows(split)
        return self._rows_of[split]

    def _read_rows(self, split: str) -> list[TextExample]:
        settings = self.settings
        test, tolerated = split in self.test_splits, 1 if self.config.compat == "original" else TOLERATED
        if split in self.submission:  # whose server counts the lines, so that none may be passed over
            settings, tolerated = dataclasses.replace(settings, label=None), 0
        read = (read_texts(path, settings, tolerated, test, self.completed) for path in self.paths(split))
        rows = list(itertools.chain.from_iterable(read))
        return rows if test else self._with_labels(rows)

    def completed(self, example: TextExample, row: dict[str, Any]) -> TextExample:
        """The example of a row with what else the task wants of that. Raises UserError."""
        del row
        return example

    def _with_labels(self, rows: list[TextExample]) -> list[TextExample]:
        """The rows that have a label, after a word on the others. Raises UserError where it is not clear whether -1 is
        one."""
        if self.settings.label is None:
            return rows
        found = {label_text(row.label) for row in rows} - {None}
        named = self.settings.labels or (("-",) if "+" in found else ())
        others = {label for label in found if not is_no_label(label)} - {"-1"}
        counted = len(others) > 1 and others == set(map(str, range(len(others))))
        minus_one = "-1" in found and not self.is_regression and "-1" not in named and bool(named or counted)
        if minus_one and counted and len(others) == 2 and not named:
            raise UserError(
                f"{self.name}: the label -1 beside 0 and 1 is a class or means none: name the labels in the "
                'description, "labels": ["-1", "0", "1"], or leave these rows out'
            )

        def has_label(label: Any) -> bool:
            text = label_text(label)
            return text in named or not (is_no_label(label) or (minus_one and text == "-1"))

        kept = [row for row in rows if has_label(row.label)]
        if len(kept) < len(rows):
            first = next(row for row in rows if not has_label(row.label))
            say(
                f"WARNING: {self.name}: {len(rows) - len(kept):,} of {len(rows):,} examples are left out, which have "
                f"no label; the first: {first.where}, {shown(first.label)}"
            )
        if rows and not kept:
            raise UserError(f"{rows[0].where}: a label is needed, got {shown(rows[0].label)}")
        return kept

    def _classes(self, names: Sequence[str], numbers: Sequence[str] = ()) -> Classes:
        if "f1" in self.settings.metrics and len(names) > 2:
            raise UserError(f"{self.name}: the metric f1 is for two labels, there are {len(names)}: choose macro_f1")
        return Classes(names, numbers)

    def read_examples(self, split: str) -> list[TextExample]:
        """All examples of a split; a task whose files are of another kind overrides this."""
        file = self.file_of(split)
        rows = zip(self._rows(file), self._labels_of(file), strict=True)
        examples = [row._replace(label=label) for row, label in rows]
        class_of = (lambda example: None) if self.is_regression else (lambda example: example.label)
        return self.part_of(split, examples, lambda example: same_text(*example.texts), class_of)

    def examples(self, split: str) -> list[TextExample]:
        """The examples of a split that are used: the share or the few of the training data that are asked for."""
        few = self.config.few_shot and split in ("train", FEW_SHOT_DEV)
        examples = self.read_examples("train" if few else split)
        if split == "train" and self.config.train_share < 1:
            examples = [examples[i] for i in self.share(len(examples))]
        if few:
            train, dev = few_shot_split(self.groups(examples), self.config.few_shot, self.config.few_shot_seed)
            examples = [examples[i] for i in (train if split == "train" else dev)]
        return examples

    def _labels_of(self, split: str) -> Sequence[str | float | None]:
        """The checked labels of a split's file; those of a test file may be missing, or something else."""
        rows = self._rows(split)
        if split in self.test_splits and all(is_no_label(row.label) or row.label in (-1, "-1") for row in rows):
            return [None] * len(rows)
        try:
            return [self.target.checked(row.label, row.where) for row in rows]
        except UserError as error:
            if split not in self.test_splits:
                raise
            print(f"WARNING: the {split} data is not scored: {error}", file=sys.stderr)
            return [None] * len(rows)

    def groups(self, examples: Sequence[TextExample]) -> np.ndarray:
        """int64 [examples]: the label's number; for regression 0 and 1, the halves of the scale."""
        return np.array([self.target.group(example.label or 0.0) for example in examples], np.int64)

    def load(self, split: str) -> Split:
        examples = self.examples(split)
        if split == "train" and self.settings.double_unordered and self.config.double_unordered:
            examples += [_turned(example) for example in examples]
        return self.split_of(examples, split)

    def split_of(self, examples: Sequence[TextExample], split: str) -> Split:
        labelled = all(example.label is not None for example in examples)
        return Split(examples, self.features(examples), labelled=labelled)

    def example(self, row: dict[str, Any], where: str, number: int) -> TextExample:
        example = example_of(row, dataclasses.replace(self.settings, label=None), where)
        if not all(text.strip() for text in example.texts):
            raise EmptyText(f"{where}: an empty sentence")
        return self.completed(example, row)

    def features(self, examples: Sequence[TextExample]) -> list[Features]:
        """One per example: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""
        pieces = iter(self.pieces([text for example in examples for text in example.texts]))
        features = []
        for example in examples:
            texts = [next(pieces) for _ in example.texts]
            row = pack(texts, self.tokenizer.special, self.config.max_seq_length)
            features.append(Features(row.input_ids, row.segment_ids, self._label_values(example), row.cut))
        return features

    def pieces(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int32 [pieces] ids of each text."""
        pieces: list[np.ndarray] = []
        with Progress(f"tokenizing {self.name}: text", len(texts)) as progress:
            for start in range(0, len(texts), _CHUNK):
                pieces += self.tokenizer.pieces(texts[start : start + _CHUNK])
                progress.update(len(pieces))
        return pieces

    def _label_values(self, example: TextExample) -> dict[str, Any]:
        return {self.target.key: self.target.encoded(example.label)}

    @property
    def text_keys(self) -> Sequence[tuple[str, ...]]:  # type: ignore[override]
        return (tuple(names_of(column)[0] for column in self.settings.texts),)

    def opened(self, path: str | Path, what: str, content: str | None = None) -> Table:
        return open_texts(Path(path), self.settings, content, what, of_line=self.row_of_line)

    def located(self, table: Table) -> Callable[[dict[str, Any]], dict[str, Any]]:
        places = tables.place(table, self.settings.texts)
        if places is None:
            return lambda row: row
        keys = [names_of(column)[0] for column in self.settings.texts]
        return lambda row: row | {key: row[name] for key, name in zip(keys, places, strict=True)}

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        scope, hidden_size = self.scope, encoder.architecture.hidden_size
        value = self.target.value if isinstance(self.target, Scale) else tf.identity
        settings = self.config, seed, self.class_weights(), value
        return ClassificationHead(scope, hidden_size, self.target.num_classes, *settings)

    def class_weights(self) -> list[float] | None:
        """Weights of the classes' losses in training, in their order; None where all examples count alike.

        "balanced" weighs a class by examples / (classes * examples of it), so that the mean over the examples is 1.
        """
        given = self.config.class_weights
        if given == "none" or not self.config.do_train:
            return None
        if given == "balanced":
            counts = np.bincount(self.groups(self.examples("train")), minlength=len(self.label_names))
            return [float(counts.sum() / (len(counts) * max(count, 1))) for count in counts]
        weights = parse_json(given, "class_weights") if given.lstrip().startswith("{") else None
        if weights is None:
            raise UserError(f"class_weights must be none, balanced or a JSON object of labels, got {shown(given)}")
        for label, weight in weights.items():
            self.target.checked(label, "class_weights")
            if type(weight) not in (int, float) or weight < 0:
                raise UserError(f"class_weights: {label} must be a number from 0 on, got {shown(weight)}")
        return [float(weights.get(label, 1.0)) for label in self.label_names]

    def samples(self, texts: Sequence[tuple[str, str]]) -> Split:
        return self.split_of([TextExample(pair[: self.num_texts], None) for pair in texts], "new")

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """string [B], or twice -> label string [B] and probabilities [B, C] of `labels`, or value float32 [B]."""
        names = ("text", "text_pair")[: self.num_texts]

        def answer(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
            given = [texts[name] for name in names]
            return self.target.served(predict(tokenizer.rows(*given)))

        return Signature(strings(*names), answer, lambda example: dict(zip(names, example.texts, strict=True)))

    def served_numbers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        answers = self.answers(split, predictions)
        return [{"value": answer["label"]} for answer in answers] if self.is_regression else answers

    def averaged(self, split: Split, predictions: Sequence[Prediction]) -> tuple[Split, list[Prediction]]:
        """One feature and one prediction per example: the mean of the logits, or of the numbers, of its features."""
        if split.counts is None:
            return split, list(predictions)
        averaged = []
        for own in split.by_example(predictions):
            means = {name: np.mean([one[name] for one in own], axis=0) for name in own[0]}
            averaged.append(self.mean_prediction(means))
        first = [features[0] for features in split.by_example(split.features)]
        return Split(split.examples, first, labelled=split.labelled), averaged

    def mean_prediction(self, means: Prediction) -> Prediction:
        """The prediction that the means of some predictions amount to."""
        return means

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        split, predictions = self.averaged(split, predictions)
        labels = np.array([feature.labels[self.target.key] for feature in split.features])
        predicted = np.array([self.target.predicted(prediction) for prediction in predictions])
        return measured(self.settings.metrics, labels, predicted, self.target.num_classes)

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        return [answer["label"] for answer in self.answers(split, predictions)]

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        rows = []
        for example in split.examples:
            names = ["text"] if len(example.texts) == 1 else ["text1", "text2"]
            gold = {"gold": example.label} if split.labelled else {}
            rows.append(dict(zip(names, example.texts, strict=True)) | gold)
        return rows

    def balance(self, split: Split) -> dict[str, float]:
        return self.target.balance([example.label for example in split.examples])

    def majority(self, split: Split) -> dict[str, float]:
        if self.is_regression:
            return {}
        labels = np.array([self.target.encoded(example.label) for example in split.examples])
        constant = np.full_like(labels, np.bincount(labels).argmax())
        return measured(self.settings.metrics, labels, constant, self.target.num_classes)

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        return self.target.answers(self.averaged(split, predictions)[1])

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """The file that GLUE's or SuperGLUE's server wants, for test splits."""
        if name not in self.submission:
            return []
        found = (self.target.submitted(answer) for answer in self.answers(split, predictions))
        labels = [self.settings.submitted_labels.get(label, label) for label in found]
        path = folder / self.submission[name]
        if path.suffix == ".jsonl":
            ids = [number if example.id is None else example.id for number, example in enumerate(split.examples)]
            write_json_lines(path, ({"idx": i, "label": label} for i, label in zip(ids, labels, strict=True)))
        else:
            rows = "".join(f"{number}\t{label}\n" for number, label in enumerate(labels))
            write_atomically(path, f"index\tprediction\n{rows}")
        return [path]

    def state(self) -> dict[str, Any]:
        if isinstance(self.target, Scale):
            return {"range": [self.target.low, self.target.high]} if self.settings.range_of_data else {}
        return {"labels": list(self.label_names)}

    def check_state(self, saved: dict[str, Any]) -> None:
        adopts = self._target is None and not self.config.do_train
        if not self.is_regression:
            names = tuple(saved.get("labels", ()))
            if adopts:
                self._target = self._classes(names)
            self.check_names(self.label_names, names)
        elif self.settings.range_of_data:
            low, high = map(float, saved["range"])
            if adopts:
                self._target = Scale(low, high, strict=False)
            assert isinstance(self.target, Scale)
            if (low, high) != (self.target.low, self.target.high):
                raise UserError(
                    f"{self.name}: the model was trained on labels from {low:g} to {high:g}, they are now from "
                    f"{self.target.low:g} to {self.target.high:g}: give the task's min and max, or train it again"
                )


def few_shot_split(groups: np.ndarray, size: int, seed: int) -> tuple[list[int], list[int]]:
    """Training and development examples of a few-shot experiment (LM-BFF, section 3): disjoint, a function of the seed.

    Args:
      groups: int64 [examples], the label's number of each.
      size: K, examples of each label in either split.

    Raises:
      UserError: a label has fewer than 2 K examples.
    """
    order = np.random.default_rng(seed).permutation(len(groups))
    train, dev = [], []
    for group in np.unique(groups):
        members = [int(i) for i in order if groups[i] == group]
        if len(members) < 2 * size:
            raise UserError(
                f"few_shot {size} needs {2 * size} training examples of each label, half of them to choose the best "
                f"checkpoint; one has {len(members)}"
            )
        train += members[:size]
        dev += members[size : 2 * size]
    return train, dev


def _turned(example: TextExample) -> TextExample:
    """The texts in the other order."""
    return example._replace(texts=example.texts[::-1])
