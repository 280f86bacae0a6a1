"""Sequence tagging: chunking, named entities, parts of speech, and one's own.

words and tags --conll--> TaggedSentence --encode--> windows, the word of each first piece --TaggingHead--> tags
"""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from seqeval.metrics import f1_score, precision_score, recall_score

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import Row, windows_of
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer, Words, joined
from electra_tf2.corpus.vocabulary import SpecialIds
from electra_tf2.files.writing import write_atomically
from electra_tf2.finetune.tasks import conll
from electra_tf2.finetune.tasks.head import Classifier, Head, HeadInput, HeadOutput
from electra_tf2.finetune.tasks.targets import check_same_names
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import SeedStream
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import say


class Window(NamedTuple):
    """An input of a text: the numbers of the words that it answers for, and the positions of their first pieces."""

    words: np.ndarray
    positions: np.ndarray


class TaggedSentence(NamedTuple):
    """Words in their text, and the labels that are learned (BIOES for spans); None for text without tags.

    windows: the inputs that were made of it, one or, of a long text, several.
    """

    text: Words
    labels: list[str] | None
    windows: Sequence[Window] = ()

    @property
    def words(self) -> Sequence[str]:
        return self.text.words

    @property
    def texts(self) -> tuple[str]:
        return (" ".join(self.text.words),)


class TaggingTask(Task):
    """One label per word of {train,dev,test}.txt in CoNLL columns, or of tables with lists of words and tags.

    Args:
      spans: the tags are BIO or BIOES; learned as BIOES and scored by spans (precision, recall, F1). Otherwise the
        tags are scored word by word.
      labels: names of tags, in the order of the numbers by which a table holds them.
      label_column: of a table, that of the tags; default: tags or <task>_tags, or the only one of a usual name.

    The label set is that of the training data, for spans with all of B, I, E and S of every type. Texts longer than
    max_seq_length are read in windows that overlap by half, each word where it has the most text around it. (compat
    original: words beyond max_seq_length are left out.)
    """

    text_keys = (("text",),)
    endings = ("txt", "conll", "conllu", "jsonl", "json", "parquet", "arrow", "tsv")
    target: list[str] | None = None  # the labels' names, in the order of their ids

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        spans: bool = True,
        labels: Sequence[str] = (),
        label_column: str = "",
        **files: Any,
    ) -> None:
        super().__init__(name, config, tokenizer, **files)
        self.spans = spans
        self.primary_metric = "f1" if spans else "accuracy"
        self._names_of_numbers = labels
        self._columns: tuple[str, ...] = ()
        if label_column:
            self._columns = (label_column,)
        elif name in ("ner", "chunk", "pos"):
            self._columns = ("tags", f"{name}_tags")
        self._as_original = config.compat == "original"

    @property
    def label_names(self) -> list[str]:
        assert self.target is not None
        return self.target

    # Files to examples.

    def read(self, split: str) -> list[TaggedSentence]:
        sentences = self._sentences(split)
        if self.target is None and split == "train":
            self.target = self._labels_in(sentences)
        labels: list[list[str] | None] = [None] * len(sentences)
        if any(sentence.tags for sentence in sentences):
            try:
                labels = [self._checked_labels(sentence, split) for sentence in sentences]
            except UserError as error:
                if split not in self.test_splits:
                    raise
                print(f"WARNING: the {split} data is not scored: {error}", file=sys.stderr)
        unknown = Counter(label for tags in labels for label in tags or () if label not in self.label_names)
        if unknown:
            say(
                f"WARNING: {self.name} {split}: {sum(unknown.values()):,} words have labels that are not in the "
                f"training data ({shown(', '.join(unknown))}) and count as wrong"
            )
        return [TaggedSentence(joined(sentence.words), tags) for sentence, tags in zip(sentences, labels, strict=True)]

    def _sentences(self, split: str) -> list[conll.Sentence]:
        tagged = split not in self.test_splits
        sentences: list[conll.Sentence] = []
        for path in self.files.paths(split):
            in_file = conll.read_sentences(path, tagged, not self._as_original, self._columns, self._names_of_numbers)
            if self.spans and not self._as_original:
                in_file = conll.spelled_as_bioes(in_file)
            sentences += in_file
        return sentences

    def _labels_in(self, sentences: Sequence[conll.Sentence]) -> list[str]:
        """The labels that can be learned of the training data."""
        sentences = list(sentences)
        if self._as_original:  # which takes them from all files
            for split in ("dev", "test"):
                sentences += self._sentences(split) if self.files.exists(split) else []
        labels = {label for sentence in sentences for label in self._labels_of(sentence)}
        if self.spans and not self._as_original:
            types = {label.split("-", 1)[1] for label in labels if label != "O"}
            labels = {"O"} | {f"{position}-{kind}" for kind in types for position in "BIES"}
        return sorted(labels)

    def _labels_of(self, sentence: conll.Sentence) -> list[str]:
        if not self.spans:
            return sentence.tags
        spans_of = conll.originals_spans if self._as_original else conll.spans_of
        return conll.bioes(spans_of(sentence.tags), len(sentence.words))

    def _checked_labels(self, sentence: conll.Sentence, split: str) -> list[str]:
        where = f"{self.files.path(split)}, line {sentence.line}"
        if len(sentence.tags) < len(sentence.words):
            raise UserError(f"{where}: a sentence with fewer tags than words")
        for tag in sentence.tags if self.spans else ():
            if tag != "O" and (tag[:2] not in ("B-", "I-", "E-", "S-") or len(tag) < 3):
                raise UserError(
                    f"{where}: {shown(tag)} is neither O nor B-, I-, E- or S- and a type: "
                    '"spans": false in the task\'s description learns and scores single tags'
                )
        return self._labels_of(sentence)

    def files_of(self, split: str) -> list[Path]:
        """The split's file; as the original does all of them, which its label set is of."""
        if not self._as_original:
            return super().files_of(split)
        return [path for name in ("train", "dev", "test") if self.files.exists(name) for path in super().files_of(name)]

    def example(self, row: dict[str, Any], where: str, number: int) -> TaggedSentence:
        """Reads `words`, a list, or `text`, split at blanks."""
        words = row.get("words", row.get("tokens"))
        if words is None and isinstance(row.get("text"), str):
            text = conll.split_words(row["text"])
        elif isinstance(words, list) and all(isinstance(word, str) for word in words):
            text = joined(words)
        else:
            raise UserError(f"{where}: `words`, a list of words, or `text` is needed")
        if not any(text.words):
            raise EmptyText(f"{where}: there are no words")
        return TaggedSentence(text, None)

    # Examples to features.

    @property
    def labels(self) -> dict[str, Label]:
        types = {"labels": "int32", "labels_mask": "float32", "labeled_positions": "int32"}
        return {name: Label(dtype, per_token=True) for name, dtype in types.items()}

    def encode(self, examples: Sequence[TaggedSentence], split: str) -> Split:
        id_of = {label: number for number, label in enumerate(self.label_names)}
        encoded: list[TaggedSentence] = []
        features: list[Features] = []
        # Words are divided by one blank, whatever is between them in the text: so they are learned.
        located = self.tokenizer.located([joined(example.words) for example in examples])
        for example, pieces in zip(examples, located, strict=True):
            inputs = self._inputs(example.words, pieces)
            for row, window in inputs:
                labels = np.zeros(len(window.words), np.int32)
                mask = np.ones(len(window.words), np.float32)
                if example.labels:
                    tags = [example.labels[word] for word in window.words]
                    labels[:] = [id_of.get(tag, 0) for tag in tags]
                    mask[:] = [tag in id_of for tag in tags]
                positions = np.array(window.positions, np.int32)
                values = {"labels": labels, "labels_mask": mask, "labeled_positions": positions}
                features.append(Features(row.input_ids, row.segment_ids, values, row.cut))
            encoded.append(example._replace(windows=[window for _, window in inputs]))
        labelled = all(example.labels is not None for example in encoded)
        return Split(encoded, features, [len(example.windows) for example in encoded], labelled)

    def _inputs(self, words: Sequence[str], pieces: Located) -> list[tuple[Row, Window]]:
        """The windows of a text."""
        special, length = self.tokenizer.special, self.config.max_seq_length
        if self._as_original:
            return [original_input(words, pieces, special, length)]
        inputs = []
        for start, row, kept in windows_of(pieces.ids, special, length):
            behind = kept.stop + (kept.stop == len(pieces.ids))  # a last word without pieces is behind all of them
            inside = np.flatnonzero((kept.start <= pieces.first_piece) & (pieces.first_piece < behind))
            inside = inside[: len(row.input_ids)]  # of more words than tokens most have no pieces
            inputs.append((row, Window(inside, 1 + pieces.first_piece[inside] - start)))
        return inputs

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> "TaggingHead":
        return TaggingHead(self.scope, encoder.architecture.hidden_size, len(self.label_names), self.config, seed)

    # Scores and answers.

    def _of_words(self, split: Split, predictions: Sequence[Prediction], name: str, missing: Any) -> list[list[Any]]:
        """A predicted value for every word of every example; `missing` for those that no input answers for."""
        result = []
        for example, inputs in zip(split.examples, split.by_example(predictions), strict=True):
            values = [missing] * len(example.words)
            for window, prediction in zip(example.windows, inputs, strict=True):
                for word, position in zip(window.words, window.positions, strict=True):
                    values[word] = prediction[name][position]
            result.append(values)
        return result

    def predicted_labels(self, split: Split, predictions: Sequence[Prediction]) -> list[list[str]]:
        """A label for every word of every example; "O", or "" without spans, for those that were left out."""
        missing = "O" if self.spans else ""
        result = []
        for numbers in self._of_words(split, predictions, "predictions", None):
            result.append([missing if number is None else self.label_names[number] for number in numbers])
        return result

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        gold = [list(example.labels) for example in split.examples]
        predicted = self.predicted_labels(split, predictions)
        if self._as_original:  # words that did not fit are not scored
            counts = [len(example.windows[0].words) for example in split.examples]
            gold = [labels[:count] for labels, count in zip(gold, counts, strict=True)]
            predicted = [labels[:count] for labels, count in zip(predicted, counts, strict=True)]
        return tagging_scores(gold, predicted, self.spans)

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Each text's `words`, and lists of their `tags`, `probabilities`, `starts` and `ends`: the characters of
        the text between which a word stands, or of the words with a blank between them where words were given.

        Of spans also `entities`: the `type`, `text`, `start` and `end` of each.
        """
        answers = []
        all_labels = self.predicted_labels(split, predictions)
        all_shares = self._of_words(split, predictions, "scores", 0.0)
        for example, labels, shares in zip(split.examples, all_labels, all_shares, strict=True):
            text = example.text
            starts = text.starts.tolist()
            ends = [start + len(word) for start, word in zip(starts, text.words, strict=True)]
            answer = {
                "words": list(text.words),
                "tags": self._as_read(labels),
                "probabilities": [round(float(share), 6) for share in shares],
                "starts": starts,
                "ends": ends,
            }
            if self.spans:
                entities = []
                for span in conll.spans_of(labels):
                    start, end = starts[span.start], ends[span.end]
                    entities.append({"type": span.type, "text": text.text[start:end], "start": start, "end": end})
                answer["entities"] = entities
            answers.append(answer)
        return answers

    def _as_read(self, labels: Sequence[str]) -> list[str]:
        """Tags in the encoding of files: BIO for spans."""
        return conll.bio(conll.spans_of(labels), len(labels)) if self.spans else list(labels)

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        return [{"gold": self._as_read(example.labels)} if split.labelled else {} for example in split.examples]

    def golds(self, examples: Sequence[TaggedSentence]) -> list[str]:
        return [label for example in examples for label in example.labels or ()]

    def majority(self, split: Split) -> dict[str, float]:
        gold = [list(example.labels) for example in split.examples]
        commonest = Counter(label for labels in gold for label in labels).most_common(1)[0][0]
        return tagging_scores(gold, [[commonest] * len(labels) for labels in gold], self.spans)

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """A CoNLL file: word and predicted tag, a blank between them or, where words hold blanks, a tab."""
        path = folder / f"{self.name}_{name}.txt"
        words = [word for example in split.examples for word in example.words]
        between = " " if all(len(conll.split_words(word).words) == 1 for word in words) else "\t"
        text = ""
        for answer in self.answers(split, predictions):
            for word, tag in zip(answer["words"], answer["tags"], strict=True):
                text += f"{word}{between}{tag or 'O'}\n"
            text += "\n"
        write_atomically(path, text)
        return [path]

    def state(self) -> dict[str, Any]:
        return {"labels": self.label_names}

    def check_state(self, saved: dict[str, Any]) -> None:
        names = list(saved.get("labels", []))
        if self.target is None:
            self.target = names
        check_same_names(self.target, names, self.name)


def original_input(words: Sequence[str], pieces: Located, special: SpecialIds, max_length: int) -> tuple[Row, Window]:
    """The one input that the original makes of a text, of the words that fit by its count."""
    input_ids = [special.cls]
    positions: list[int] = []
    cut = 0
    for word, word_ids in zip(words, np.split(pieces.ids, pieces.first_piece[1:]), strict=True):
        ids = list(word_ids)
        # It counts the sentence's words, not this word's pieces.
        if cut or len(words) + 2 + len(input_ids) + 1 > max_length:
            cut += len(ids)
            continue
        if word in ("[CLS]", "[SEP]"):
            input_ids.append(special.cls if word == "[CLS]" else special.sep)
            continue
        if len(ids) > 1 and all(token == special.unk for token in ids):  # no blanks around Chinese characters
            ids = [special.unk]
        positions.append(len(input_ids))
        input_ids += ids
    row = np.array([*input_ids, special.sep], np.int32)
    return Row(row, np.ones_like(row), cut), Window(np.arange(len(positions)), np.array(positions))


class TaggingHead(Head):
    """A softmax over the labels at words' first pieces (BERT, section 5.3), always of one dense layer."""

    def __init__(self, scope: str, hidden_size: int, outputs: int, config: FinetuningConfig, seed: int) -> None:
        super().__init__(scope, seed)
        self.expected_loss = f"{math.log(outputs):.2f} (ln {outputs}) for each word, summed over those of a text,"
        self.classifier = Classifier(scope, hidden_size, outputs, config, seed, deep=False)

    def logits(self, inputs: HeadInput, seeds: SeedStream | None) -> tf.Tensor:
        """float32 [B, L, labels], at every token."""
        return self.classifier(inputs.sequence, seeds)

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Losses are sums over a row's words.

        Labels: int32 [B, L] `labels` and `labeled_positions`, float32 [B, L] `labels_mask`, entry i of word i.
        Predictions at every token: int32 [B, L] `predictions`, float32 [B, L] `scores`, their probabilities.
        """
        labels = inputs.labels
        positions = labels["labeled_positions"]
        if training:
            of_words = self.classifier(tf.gather(inputs.sequence, positions, batch_dims=1), seeds)
            return HeadOutput(_losses(of_words, labels), {})
        logits = self.logits(inputs, seeds)
        losses = _losses(tf.gather(logits, positions, batch_dims=1), labels)
        scores = tf.reduce_max(tf.nn.softmax(logits), -1)
        return HeadOutput(losses, {"predictions": tf.argmax(logits, -1, tf.int32), "scores": scores})


def _losses(logits: tf.Tensor, labels: dict[str, tf.Tensor]) -> tf.Tensor:
    """float32 [B], of the logits [B, L, labels] of words."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["labels"], logits)
    return tf.reduce_sum(losses * labels["labels_mask"], -1)


def tagging_scores(gold: list[list[str]], predicted: list[list[str]], spans: bool) -> dict[str, float]:
    """In percent: accuracy of words; for spans also precision, recall and F1 (seqeval, conlleval's rules)."""
    is_right = []
    for right, answered in zip(gold, predicted, strict=True):
        is_right += [a == b for a, b in zip(right, answered, strict=True)]
    scores = {"accuracy": 100.0 * float(np.mean(is_right))}
    if spans:
        # Spans first, so that an ill-formed prediction counts for the spans that conlleval finds in it.
        predicted = [conll.bio(conll.spans_of(labels), len(labels)) for labels in predicted]
        gold = [conll.bio(conll.spans_of(labels), len(labels)) for labels in gold]
        for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            scores[name] = 100.0 * float(score(gold, predicted, zero_division=0))
    return scores
