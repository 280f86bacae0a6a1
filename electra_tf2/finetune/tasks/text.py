"""One or two texts to a class or a number: GLUE's tasks, most of SuperGLUE's, and tasks of one's own.

    table --text_files--> TextExample --encode--> [CLS] a [SEP] or [CLS] a [SEP] b [SEP] --ClassificationHead--> logits

A `Target` (targets) says what a label means, one of several classes or a number on a scale. In tasks about two parts of
the texts (WiC, WSC) the head reads the states of these parts beside that of [CLS].
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import pack
from electra_tf2.corpus.tokenization import WordpieceTokenizer, undivided
from electra_tf2.files.reading import parse_json
from electra_tf2.files.tables import names_of
from electra_tf2.files.writing import write_atomically
from electra_tf2.finetune.tasks.files import FEW_SHOT_DEV, write_json_lines
from electra_tf2.finetune.tasks.head import Classifier, Head, HeadInput, HeadOutput
from electra_tf2.finetune.tasks.labels import have_no_labels, labelled_rows, test_rows, warn_of_contradictions
from electra_tf2.finetune.tasks.targets import Classes, Scale, Target, adopted, known_target
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task, TaskData
from electra_tf2.finetune.tasks.text_files import TOLERATED, TextExample, example_of, read_texts, texts_of
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import SeedStream
from electra_tf2.model.pooling import mean_state, text_state
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.settings.metrics import mae, measured
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import Progress, counted, say

NUM_SPANS = 2
_CHUNK = 20_000  # texts that are tokenised at a time


class TextTask(Task):
    """Classification or regression over one or two texts."""

    settings: TextSettings
    target: Target | None

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        settings: TextSettings = TextSettings(),
        **files: Any,
    ) -> None:
        super().__init__(name, config, tokenizer, **files)
        self.settings = settings
        self.primary_metric = settings.metrics[0]
        self.evaluation_splits = settings.evaluation_splits + tuple(filter(self.files.exists, settings.optional_splits))
        self.test_splits = settings.test_splits + tuple(filter(self.files.exists, settings.optional_test_splits))
        if config.few_shot:
            self.evaluation_splits = (FEW_SHOT_DEV, *self.evaluation_splits)
        if not settings.spans:  # which no plain text says
            self.text_keys = (tuple(names_of(column)[0] for column in settings.texts),)
        self.target = known_target(name, settings)

    def name_columns(self, texts: Sequence[str], label: str = "") -> None:
        settings = self.settings
        if texts and len(texts) != len(settings.texts):
            self.keys_of_texts(len(texts))  # raises the error about their number
        self.settings = dataclasses.replace(
            settings, texts=tuple(texts) or settings.texts, label=label or settings.label
        )
        if texts and self.text_keys:
            self.text_keys = (tuple(texts),)

    @property
    def is_regression(self) -> bool:
        return self.settings.value_range is not None

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their ids."""
        assert isinstance(self.target, Classes)
        return self.target.names

    # Files to examples.

    def read(self, split: str) -> TaskData:
        settings = self.settings
        tolerated: float = TOLERATED
        if self.config.compat == "original":
            tolerated = 1  # it passes over what it cannot read
        if split in self.files.submission:
            # The server counts lines: none may be passed over, and labels are its own.
            settings = dataclasses.replace(settings, label=None)
            tolerated = 0
        is_test = split in self.test_splits
        rows: list[TextExample] = []
        for path in self.files.paths(split):
            rows += read_texts(path, settings, tolerated, is_test)
        if is_test:
            assert self.target is not None
            keeps_all = self.config.write_test_outputs or split in self.files.submission
            if have_no_labels(rows, self.target):
                self.warn_of_no_labels(split)
            return TaskData(test_rows(rows, split, self.target, keeps_all))
        examples, target = labelled_rows(rows, self.name, self.settings, self.target)
        if split == "train" and self.name in self.config.tasks and not self.is_regression:
            warn_of_contradictions(examples, self.name)
        return TaskData(examples, target)

    def example(self, row: dict[str, Any], where: str, index: int) -> TextExample:
        texts = texts_of(row, self.settings, where)
        if not all(text.strip() for text in texts):
            raise EmptyText(f"{where}: an empty text")
        return example_of(row, dataclasses.replace(self.settings, label=None), where)

    # Examples to features.

    @property
    def labels(self) -> dict[str, Label]:
        labels = {Classes.key: Classes.label}
        if self.is_regression:
            labels = {Scale.key: Scale.label}
        if self.settings.spans:
            for index in range(NUM_SPANS):
                labels[span_label(index)] = Label("int32", per_token=True, is_input=True)
        return labels

    def encode(self, examples: Sequence[TextExample], split: str) -> Split:
        """Makes an input of each example; in training two, of both orders, if the order of the texts means nothing."""
        if split == "train" and self.settings.double_unordered and self.config.double_unordered:
            turned = [example._replace(texts=example.texts[::-1]) for example in examples]
            say(f"{self.name}: each of {counted(len(examples), 'pair')} is learned in both orders (double_unordered)")
            examples = [*examples, *turned]
        labelled = all(example.label is not None for example in examples)
        features = self._marked(examples) if self.settings.spans else self._packed(examples)
        return Split(examples, features, labelled=labelled, golds=golds_of(examples, labelled))

    def _packed(self, examples: Sequence[TextExample]) -> list[Features]:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]."""
        pieces = iter(self.pieces(_texts(examples)))
        features = []
        for example in examples:
            texts = [next(pieces) for _ in example.texts]
            row = pack(texts, self.tokenizer.special, self.config.max_seq_length)
            features.append(Features(row.input_ids, row.segment_ids, self.label_values(example), row.cut))
        return features

    def _marked(self, examples: Sequence[TextExample]) -> list[Features]:
        """As `_packed`, with labels that mark the parts: the pieces that hold one of a part's characters."""
        special = self.tokenizer.special
        length = self.config.max_seq_length
        located = iter(self.tokenizer.located([undivided(text) for text in _texts(examples)]))
        features = []
        for example in examples:
            texts = [next(located) for _ in example.texts]
            row = pack([text.ids for text in texts], special, length)
            labels = self.label_values(example)
            for index, span in enumerate(example.spans):
                marks = [np.zeros(len(text.ids), np.int32) for text in texts]
                starts, ends = texts[span.text].spans.T
                marks[span.text][(starts < span.end) & (span.start < ends)] = 1
                # Packed as the ids are, with 0 for [CLS] and [SEP].
                labels[span_label(index)] = pack(marks, special._replace(cls=0, sep=0), length).input_ids
            features.append(Features(row.input_ids, row.segment_ids, labels, row.cut))
        return features

    def pieces(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Tokenises texts, int32 [pieces] each."""
        pieces: list[np.ndarray] = []
        with Progress(f"tokenizing {self.name}: text", len(texts)) as progress:
            for start in range(0, len(texts), _CHUNK):
                pieces += self.tokenizer.pieces(texts[start : start + _CHUNK])
                progress.update(len(pieces))
        return pieces

    def label_values(self, example: TextExample) -> dict[str, Any]:
        """The label as the head learns it."""
        assert self.target is not None
        return {self.target.key: self.target.encoded(example.label)}

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        assert self.target is not None
        value: Callable[[tf.Tensor], tf.Tensor] = tf.identity
        if isinstance(self.target, Scale):
            value = self.target.value
        return ClassificationHead(
            self.scope,
            encoder.architecture.hidden_size,
            self.target.num_classes,
            self.config,
            seed,
            weights=self.class_weights(),
            value=value,
            spans=NUM_SPANS if self.settings.spans else 0,
        )

    def class_weights(self) -> list[float] | None:
        """Weights of the classes' losses in training, in their order; None where all examples count alike.

        "balanced" weighs a class by examples / (classes * examples of it), so that the mean over the examples is 1.
        """
        class_weights = self.config.class_weights
        if class_weights == "none" or not self.config.do_train:
            return None
        names = self.label_names
        if class_weights == "balanced":
            indices = [names.index(example.label) for example in self.training]
            counts = np.bincount(indices, minlength=len(names))
            return [float(counts.sum() / (len(counts) * max(count, 1))) for count in counts]
        if not class_weights.lstrip().startswith("{"):
            raise UserError(
                f"class_weights must be none, balanced or a JSON object of labels, got {shown(class_weights)}"
            )
        assert isinstance(self.target, Classes)
        weights = dict.fromkeys(names, 1.0)
        for label, weight in parse_json(class_weights, "class_weights").items():
            name = self.target.checked(label, "class_weights")
            if type(weight) not in (int, float) or not 0 <= weight < math.inf:
                raise UserError(f"class_weights: {label} must be a number from 0 on, got {shown(weight)}")
            weights[name] = float(weight)
        return list(weights.values())

    # Scores and answers.

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        assert self.target is not None
        labels: list[Any] = [example.label for example in split.examples]
        if not self.is_regression:
            labels = [self.target.encoded(label) for label in labels]
        predicted = [self.target.predicted(prediction) for prediction in predictions]
        return measured(self.settings.metrics, np.array(labels), np.array(predicted))

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        assert self.target is not None
        return self.target.answers(predictions)

    def majority(self, split: Split) -> dict[str, float]:
        if self.is_regression:
            numbers = np.array([example.label for example in split.examples], float)
            if "mae" not in self.settings.metrics:
                return {}
            return {"mae": mae(numbers, np.full_like(numbers, np.median(numbers)))}
        labels = np.array([self.label_names.index(example.label) for example in split.examples])
        constant = np.full_like(labels, np.bincount(labels).argmax())
        return measured(self.settings.metrics, labels, constant)

    def write_submission(self, name: str, split: Split, answers: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        """The file that GLUE's or SuperGLUE's server wants, for test splits."""
        if name not in self.files.submission:
            return []
        assert self.target is not None
        labels = []
        for answer in answers:
            label = self.target.submitted(answer)
            labels.append(self.settings.submitted_labels.get(label, label))
        path = folder / self.files.submission[name]
        if path.suffix == ".jsonl":
            lines = []
            for index, (example, label) in enumerate(zip(split.examples, labels, strict=True)):
                identity = index if example.id is None else example.id
                lines.append({"idx": identity, "label": label})
            write_json_lines(path, lines)
        else:
            rows = "".join(f"{index}\t{label}\n" for index, label in enumerate(labels))
            write_atomically(path, f"index\tprediction\n{rows}")
        return [path]

    def state(self) -> dict[str, Any]:
        assert self.target is not None
        if self.is_regression and not self.settings.range_of_data:
            return {}  # the task's settings say the scale
        return self.target.state()

    def check_state(self, saved: dict[str, Any]) -> None:
        self.target = adopted(self.target, saved, self.name, self.settings)


def _texts(examples: Sequence[TextExample]) -> list[str]:
    """Lists the texts of all examples in their order."""
    texts: list[str] = []
    for example in examples:
        texts += example.texts
    return texts


def golds_of(examples: Sequence[TextExample], labelled: bool) -> list[Any]:
    """`Split.golds` of examples: their labels, if they have some."""
    return [example.label for example in examples] if labelled else []


def span_label(index: int) -> str:
    """Name of the label that marks the tokens of a part of the texts."""
    return f"span_{index + 1}"


class ClassificationHead(Head):
    """Classes of a softmax, or a number with squared error (ELECTRA, section 3.1).

    With `spans` it reads the mean state of each marked part beside that of the text, zeros for one that was cut off, as
    the baselines of SuperGLUE classify the two words of WiC and the two mentions of WSC (Wang et al. 2019, 4.1).

    Args:
      num_classes: None for regression.
      config: with `classifier_pooling` "mean" the head reads the mean of all tokens' states, not the state of [CLS].
      weights: of the classes' losses in training; None: all 1.
      value: puts what is learned of a number back on the task's scale.
    """

    def __init__(
        self,
        scope: str,
        hidden_size: int,
        num_classes: int | None,
        config: FinetuningConfig,
        seed: int,
        weights: Sequence[float] | None = None,
        value: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
        spans: int = 0,
    ) -> None:
        super().__init__(scope, seed)
        self.num_classes = num_classes
        self.pooling = config.classifier_pooling
        self.class_weights = weights
        self.value = value
        self.spans = spans
        if num_classes is not None:
            # All classes are about equally likely.
            self.expected_loss = f"{math.log(num_classes):.2f} (ln {num_classes})"
        width = (1 + spans) * hidden_size
        last = "spans" if spans else "dense"
        self.classifier = Classifier(scope, width, num_classes or 1, config, seed, last)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, outputs]."""
        states = [text_state(inputs.sequence, inputs.input_mask, self.pooling)]
        for index in range(self.spans):
            states.append(mean_state(inputs.sequence, inputs.labels[span_label(index)]))
        return self.classifier(tf.concat(states, -1), seeds)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `label_ids`, or float32 [B] `targets`; int32 [B, L] `span_1`, `span_2`, 1 at the tokens of
        a part.

        Predictions: float32 `logits` [B, C], or `value` [B].
        """
        logits = self.logits(inputs, seeds)
        if self.num_classes is None:
            shares = tf.squeeze(logits, -1)  # of the scale
            losses = tf.square(shares - inputs.labels["targets"])
            return HeadOutput(losses, {} if training else {"value": self.value(shares)})
        label_ids = inputs.labels["label_ids"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(label_ids, logits)
        if training and self.class_weights is not None:
            losses *= tf.gather(tf.constant(self.class_weights, tf.float32), label_ids)
        return HeadOutput(losses, {} if training else {"logits": logits})
