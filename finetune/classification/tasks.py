"""Sentences and pairs of sentences to classes or numbers: GLUE, and tasks of one's own described by hparams."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configure_finetuning import FinetuningConfig
from corpus.tokenization import WordpieceTokenizer
from finetune.classification.head import ClassificationHead
from finetune.classification.metrics import METRICS, REGRESSION_METRICS, is_constant
from finetune.classification.reading import Columns, Row, find_file, read_rows, row_from_json
from finetune.task import Features, Label, Prediction, Split, Task
from model.encoder import Encoder
from util.errors import UserError
from util.files import write_atomically
from util.hparams import closest

FEW_SHOT_DEV = "few_shot_dev"  # K examples of each label, of the training data, beside the K that train


class TextExample(NamedTuple):
    """One or two texts, and a label: a name, a number, or None."""

    texts: tuple[str, ...]
    label: str | float | None


_TEXT_AND_LABEL = Columns(("text",), "label")


@dataclasses.dataclass(frozen=True)
class TextTaskSpec:
    """What a task over texts needs to know.

    columns: of tsv and csv files; those of a split in `columns_of` win.
    json_columns: of JSON lines.
    labels: names in the order of their ids; None: those of the training data, sorted; () with a range for regression.
    metrics: of METRICS, the first is the primary one.
    value_range: least and greatest value of a regression task; None for classification.
    double_unordered: the order of the two texts means nothing, so training may see both.
    folders: other names of the task's folder.
    submission: split -> file name of GLUE's server.
    """

    columns: Columns = _TEXT_AND_LABEL
    json_columns: Columns = _TEXT_AND_LABEL
    metrics: tuple[str, ...] = ("accuracy",)
    labels: tuple[str, ...] | None = None
    columns_of: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    value_range: tuple[float, float] | None = None
    double_unordered: bool = False
    evaluation_splits: tuple[str, ...] = ("dev",)
    optional_splits: tuple[str, ...] = ()
    test_splits: tuple[str, ...] = ("test",)
    folders: tuple[str, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    submission: Mapping[str, str] = dataclasses.field(default_factory=dict)


class TextTask(Task):
    """Classification or regression over one or two texts."""

    def __init__(self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, spec: TextTaskSpec) -> None:
        super().__init__(name, config, tokenizer)
        self.spec = spec
        self.primary_metric = spec.metrics[0]
        self.test_splits = spec.test_splits
        self.folders = [self.data_dir, *(self.data_dir.parent / folder for folder in spec.folders)]
        optional = tuple(split for split in spec.optional_splits if self._exists(split))
        self.evaluation_splits = spec.evaluation_splits + optional
        if config.few_shot:
            self.selection_splits = (FEW_SHOT_DEV,)
            self.evaluation_splits = self.selection_splits + self.evaluation_splits
        self._label_names = spec.labels
        self._rows_of: dict[str, list[Row]] = {}

    @property
    def label_names(self) -> tuple[str, ...]:
        """Of classification, in the order of their ids; those of the training data are known once it is loaded."""
        if self._label_names is None:
            rows = self._rows("train")
            names = tuple(sorted({str(row.label) for row in rows}))
            if len(names) < 2:
                raise UserError(f"{self.name}: the training data has one label only: {', '.join(names)}")
            self._label_names = names
        return self._label_names

    @property
    def is_regression(self) -> bool:
        return self.spec.value_range is not None

    @property
    def labels(self) -> dict[str, Label]:
        return {"targets": Label("float32")} if self.is_regression else {"label_ids": Label("int32")}

    # Files to features.

    def _exists(self, split: str) -> bool:
        try:
            self._path(split)
        except UserError:
            return False
        return True

    def _path(self, split: str) -> Path:
        if split in self.spec.files:
            path = Path(self.spec.files[split])
            if not path.is_file():
                raise UserError(f"tasks: {self.name}: files: there is no file {path}")
            return path
        return find_file(self.folders, split)

    def _rows(self, split: str) -> list[Row]:
        """The rows of a split's file, read once: labels, few-shot splits and demonstrations want the training data."""
        if split not in self._rows_of:
            self._rows_of[split] = self._read_rows(split)
        return self._rows_of[split]

    def _read_rows(self, split: str) -> list[Row]:
        columns, json_columns = self.spec.columns_of.get(split, self.spec.columns), self.spec.json_columns
        if split in self.test_splits:
            columns, json_columns = columns._replace(label=None), json_columns._replace(label=None)
        return read_rows(self._path(split), columns, json_columns, tolerant=self.config.compat == "original")

    def examples(self, split: str) -> list[TextExample]:
        """The examples of a split's file, or those of a few-shot split."""
        few = self.config.few_shot and split in ("train", FEW_SHOT_DEV)
        source = "train" if few else split
        examples = [TextExample(row.texts, self._label(row, source)) for row in self._rows(source)]
        if few:
            train, dev = few_shot_split(self.groups(examples), self.config.few_shot, self.config.few_shot_seed)
            examples = [examples[i] for i in (train if split == "train" else dev)]
        return examples

    def groups(self, examples: Sequence[TextExample]) -> np.ndarray:
        """int64 [examples]: the label's number; for regression 0 and 1, the halves of the scale."""
        if self.spec.value_range is not None:
            middle = sum(self.spec.value_range) / 2
            return np.array([float(example.label or 0.0) >= middle for example in examples], np.int64)
        return np.array([self.label_names.index(str(example.label)) for example in examples], np.int64)

    def load(self, split: str) -> Split:
        examples = self.examples(split)
        if split == "train" and self.spec.double_unordered and self.config.double_unordered:
            examples += [TextExample(example.texts[::-1], example.label) for example in examples]
        return self.split_of(examples, split)

    def split_of(self, examples: Sequence[TextExample], split: str) -> Split:
        """The examples with what the network sees of them; `split` is "new" for --predict."""
        del split
        return Split(examples, self.features(examples))

    def _label(self, row: Row, split: str) -> str | float | None:
        """A checked label."""
        if row.label is None:
            return None
        where = f"{self._path(split)}, line {row.line}"
        if self.spec.value_range is not None:
            low, high = self.spec.value_range
            try:
                value = float(row.label)
            except (TypeError, ValueError):
                raise UserError(f"{where}: the label must be a number, got {row.label!r}") from None
            if not low <= value <= high:
                raise UserError(f"{where}: the label {value:g} is not between {low:g} and {high:g}")
            return value
        name = str(row.label)
        if name in self.label_names:
            return name
        if isinstance(row.label, int) and 0 <= row.label < len(self.label_names):  # a class number in JSON lines
            return self.label_names[row.label]
        raise UserError(
            f"{where}: unknown label {name!r}{closest(name, self.label_names)} (one of {', '.join(self.label_names)})"
        )

    def parse(self, rows: Sequence[dict[str, Any]], where: str) -> Split:
        columns = self.spec.json_columns._replace(label=None)
        examples = []
        for number, row in enumerate(rows, start=1):
            texts = row_from_json(row, columns, f"{where}, line {number}", number).texts
            if not all(text.strip() for text in texts):
                raise UserError(f"{where}, line {number}: an empty sentence")
            examples.append(TextExample(texts, None))
        return self.split_of(examples, "new")

    def features(self, examples: Sequence[TextExample]) -> list[Features]:
        """One per example: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]; of a pair the longer text gives way."""
        texts = [text.replace("\n", " ").encode() for example in examples for text in example.texts]
        ids, lengths = self.tokenizer.tokenize(texts)
        pieces = iter(np.split(ids, np.cumsum(lengths)[:-1]))
        special, room = self.tokenizer.special, self.config.max_seq_length
        features = []
        for example in examples:
            parts = [next(pieces) for _ in example.texts]
            kept = truncated_lengths([len(part) for part in parts], room - 1 - len(parts))
            input_ids, segment_ids = [np.array([special.cls], np.int32)], [np.zeros(1, np.int32)]
            for segment, (part, length) in enumerate(zip(parts, kept, strict=True)):
                if segment and not len(part):  # an empty second text has no [SEP] of its own
                    continue
                input_ids += [part[:length], np.array([special.sep], np.int32)]
                segment_ids.append(np.full(length + 1, segment, np.int32))
            labels = self._label_values(example)
            features.append(Features(np.concatenate(input_ids), np.concatenate(segment_ids), labels))
        return features

    def _label_values(self, example: TextExample) -> dict[str, Any]:
        if self.spec.value_range is not None:
            low, high = self.spec.value_range
            return {"targets": 0.0 if example.label is None else (float(example.label) - low) / (high - low)}
        return {"label_ids": 0 if example.label is None else self.label_names.index(str(example.label))}

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> ClassificationHead:
        classes = None if self.is_regression else len(self.label_names)
        config = self.config
        scope, hidden_size = f"task_specific/{self.name}", encoder.architecture.hidden_size
        return ClassificationHead(scope, hidden_size, classes, config.classifier, config.classifier_dropout, seed)

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        name = "targets" if self.is_regression else "label_ids"
        labels = np.array([feature.labels[name] for feature in split.features])
        predicted = np.array([prediction["predictions"] for prediction in predictions])
        return {metric: METRICS[metric](labels, predicted) for metric in self.spec.metrics}

    def complaint(self, split: Split, predictions: Sequence[Prediction]) -> str | None:
        predicted = np.array([prediction["predictions"] for prediction in predictions])
        if not is_constant(predicted):
            return None
        what = "value" if self.is_regression else "label"
        return (
            f"collapsed: the same {what} is predicted for all {len(predicted):,} examples; try another seed or a lower "
            "learning_rate"
        )

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        if self.spec.value_range is not None:
            low, high = self.spec.value_range
            return [{"score": low + (high - low) * float(prediction["predictions"])} for prediction in predictions]
        result = []
        for prediction in predictions:
            logits = prediction["logits"].astype(np.float64)
            probabilities = np.exp(logits - np.logaddexp.reduce(logits))
            scores = dict(zip(self.label_names, map(float, probabilities), strict=True))
            result.append({"label": self.label_names[int(prediction["predictions"])], "scores": scores})
        return result

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """The file that GLUE's server wants, for test splits."""
        if name not in self.spec.submission:
            return []
        lines = ["index\tprediction\n"]
        for index, answer in enumerate(self.answers(split, predictions)):
            if self.spec.value_range is not None:
                low, high = self.spec.value_range
                shown = f"{min(high, max(low, answer['score'])):.3f}"
            else:
                shown = answer["label"]
            lines.append(f"{index}\t{shown}\n")
        path = folder / self.spec.submission[name]
        write_atomically(path, "".join(lines))
        return [path]

    def state(self) -> dict[str, Any]:
        return {} if self.is_regression else {"labels": list(self.label_names)}

    def check_state(self, saved: dict[str, Any]) -> None:
        if self.is_regression:
            return
        names = tuple(saved.get("labels", ()))
        if self._label_names is None and not self.config.do_train:
            self._label_names = names
        if self.label_names != names:
            raise UserError(
                f"{self.name}: the model was trained on the labels {', '.join(names)}, "
                f"but the data has {', '.join(self.label_names)}"
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


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """How much of one or two texts is kept: tokens go one by one from the longer, the second if they are equal."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]


# GLUE

_SENTENCE = ("sentence", "text")
_FIRST = ("sentence1", "premise", "question1", "question", "text1")
_SECOND = ("sentence2", "hypothesis", "question2", "sentence", "text2")


def _pair(first: int, second: int, label: int | None) -> Columns:
    return Columns((first, second), label)


_ONE_JSON, _PAIR_JSON = Columns((_SENTENCE,), ("label",)), Columns((_FIRST, _SECOND), ("label", "gold_label", "score"))
_ENTAILMENT = ("entailment", "not_entailment")
GLUE: dict[str, TextTaskSpec] = {
    "cola": TextTaskSpec(
        Columns((3,), 1, header=False),
        _ONE_JSON,
        ("mcc", "accuracy"),
        ("0", "1"),
        columns_of={"test": Columns((1,), None)},
        folders=("CoLA",),
        submission={"test": "CoLA.tsv"},
    ),
    "sst": TextTaskSpec(
        Columns((0,), 1),
        _ONE_JSON,
        ("accuracy",),
        ("0", "1"),
        columns_of={"test": Columns((1,), None)},
        folders=("SST-2",),
        submission={"test": "SST-2.tsv"},
    ),
    "mrpc": TextTaskSpec(
        _pair(3, 4, 0),
        _PAIR_JSON,
        ("accuracy", "f1"),
        ("0", "1"),
        double_unordered=True,
        folders=("MRPC",),
        submission={"test": "MRPC.tsv"},
    ),
    "qqp": TextTaskSpec(
        _pair(3, 4, 5),
        _PAIR_JSON,
        ("accuracy", "f1"),
        ("0", "1"),
        columns_of={"test": _pair(1, 2, None)},
        folders=("QQP",),
        submission={"test": "QQP.tsv"},
    ),
    "mnli": TextTaskSpec(
        _pair(8, 9, -1),
        _PAIR_JSON,
        ("accuracy",),
        ("contradiction", "entailment", "neutral"),
        columns_of={"diagnostic": _pair(1, 2, None)},
        evaluation_splits=("dev_matched",),
        optional_splits=("dev_mismatched",),
        test_splits=("test_matched", "test_mismatched", "diagnostic"),
        folders=("MNLI",),
        submission={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
    ),
    "qnli": TextTaskSpec(
        _pair(1, 2, 3), _PAIR_JSON, ("accuracy",), _ENTAILMENT, folders=("QNLI",), submission={"test": "QNLI.tsv"}
    ),
    "rte": TextTaskSpec(
        _pair(1, 2, 3), _PAIR_JSON, ("accuracy",), _ENTAILMENT, folders=("RTE",), submission={"test": "RTE.tsv"}
    ),
    "wnli": TextTaskSpec(
        _pair(1, 2, 3), _PAIR_JSON, ("accuracy",), ("0", "1"), folders=("WNLI",), submission={"test": "WNLI.tsv"}
    ),
    "sts": TextTaskSpec(
        _pair(7, 8, -1),
        _PAIR_JSON,
        ("spearman", "pearson"),
        value_range=(0.0, 5.0),
        double_unordered=True,
        folders=("STS-B",),
        submission={"test": "STS-B.tsv"},
    ),
}

# Tasks of one's own

_OWN_KEYS: dict[str, type | tuple[type, ...]] = {
    "type": str,
    "text_columns": list,
    "label_column": (str, int),
    "labels": list,
    "metric": str,
    "header": bool,
    "min": (int, float),
    "max": (int, float),
    "double_unordered": bool,
    "files": dict,
}


def own_spec(name: str, described: Mapping[str, Any]) -> TextTaskSpec:
    """The spec of an entry of the hparam `tasks` (README, Your own task).

    Raises:
      UserError: unknown keys, wrong types, what is missing.
    """
    where = f"tasks: {name}"
    for key, value in described.items():
        if key not in _OWN_KEYS:
            raise UserError(f"{where}: unknown key {key!r}{closest(key, _OWN_KEYS)} (one of {', '.join(_OWN_KEYS)})")
        if not isinstance(value, _OWN_KEYS[key]):
            raise UserError(f"{where}: {key} is {value!r}, which is no {_OWN_KEYS[key]}")
    texts = described.get("text_columns", ["text"])
    if len(texts) not in (1, 2):
        raise UserError(f"{where}: text_columns must be one or two columns, got {texts!r}")
    regression = described["type"] == "regression"
    metric = described.get("metric", "spearman" if regression else "accuracy")
    valid = REGRESSION_METRICS if regression else tuple(set(METRICS) - set(REGRESSION_METRICS))
    if metric not in valid:
        raise UserError(f"{where}: metric {metric!r}{closest(metric, valid)} (one of {', '.join(sorted(valid))})")
    low, high = float(described.get("min", 0.0)), float(described.get("max", 1.0))
    if low >= high:
        raise UserError(f"{where}: min {low:g} must be below max {high:g}")
    columns = Columns(tuple(texts), described.get("label_column", "label"), described.get("header", True))
    labels = described.get("labels")
    return TextTaskSpec(
        columns,
        columns._replace(texts=tuple(map(str, texts)), label=str(columns.label)),
        tuple(dict.fromkeys([metric, *(("pearson",) if regression else ("accuracy",))])),
        tuple(map(str, labels)) if labels else None,
        value_range=(low, high) if regression else None,
        double_unordered=described.get("double_unordered", False),
        files=described.get("files", {}),
    )
