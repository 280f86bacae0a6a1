"""Sequence tagging: chunking, named entities, parts of speech, and one's own."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from seqeval.metrics import f1_score, precision_score, recall_score

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import Row, windows_of
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer, Words, joined
from electra_tf2.finetune.tasks import conll
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature, strings
from electra_tf2.finetune.tasks.files import same_text
from electra_tf2.finetune.tasks.heads import TaggingHead
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.files import write_atomically
from electra_tf2.util.progress import say


class TaggedSentence(NamedTuple):
    """Words in their text, and the labels that are learned (BIOES for spans); None for text without tags.

    answered: of each input the numbers of the words that it answers for: one input, or the windows of a long text.
    """

    text: Words
    labels: list[str] | None
    answered: Sequence[np.ndarray] = ()

    @property
    def words(self) -> Sequence[str]:
        return self.text.words


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

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        spans: bool = True,
        labels: Sequence[str] = (),
        label_column: str = "",
        **own: Any,
    ) -> None:
        super().__init__(name, config, tokenizer, **own)
        self.spans, self._named = spans, labels
        by_name = (f"{name}_tags",) if name in ("ner", "chunk", "pos") else ()
        self._columns = (label_column,) if label_column else ("tags", *by_name) if by_name else ()
        self.primary_metric = "f1" if spans else "accuracy"
        self._as_original = config.compat == "original"
        self._label_names: list[str] | None = None

    @property
    def labels(self) -> dict[str, Label]:
        types = {"labels": "int32", "labels_mask": "float32", "labeled_positions": "int32"}
        return {name: Label(dtype, per_token=True) for name, dtype in types.items()}

    @property
    def label_names(self) -> list[str]:
        """In the order of their ids."""
        if self._label_names is None:
            others = ("dev", "test") if self._as_original else ()  # which takes them from all files
            splits = ["train", *filter(self.exists, others)]
            found = {label for split in splits for s in self._sentences(split) for label in self._labels_of(s)}
            if self.spans and not self._as_original:
                types = {label.split("-", 1)[1] for label in found if label != "O"}
                found = {"O"} | {f"{position}-{kind}" for kind in types for position in "BIES"}
            self._label_names = sorted(found)
        return self._label_names

    # Files to features.

    def files(self, split: str) -> list[Path]:
        """The split's file; as the original does all of them, which its label set is of."""
        splits = ("train", "dev", "test") if self._as_original else (split,)
        found = [super(TaggingTask, self).files(one) for one in splits if self.exists(self.file_of(one))]
        return [path for files in found for path in files]

    def _sentences(self, split: str) -> list[conll.Sentence]:
        tagged, found = split not in self.test_splits, []
        for path in self.paths(split):
            sentences = conll.read_sentences(path, tagged, not self._as_original, self._columns, self._named)
            if self.spans and not self._as_original:
                sentences = conll.spelled_as_bioes(sentences)
            found += sentences
        return found

    def _labels_of(self, sentence: conll.Sentence) -> list[str]:
        if not self.spans:
            return sentence.tags
        spans = (conll.originals_spans if self._as_original else conll.spans_of)(sentence.tags)
        return conll.bioes(spans, len(sentence.words))

    def load(self, split: str) -> Split:
        read = self._sentences(self.file_of(split))
        sentences = self.part_of(split, read, lambda sentence: same_text(" ".join(sentence.words)))
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
        rows = [TaggedSentence(joined(one.words), tags) for one, tags in zip(sentences, labels, strict=True)]
        return self.split_of(rows, split)

    def _checked_labels(self, sentence: conll.Sentence, split: str) -> list[str]:
        where = f"{self.path(self.file_of(split))}, line {sentence.line}"
        if len(sentence.tags) < len(sentence.words):
            raise UserError(f"{where}: a sentence with fewer tags than words")
        for tag in sentence.tags if self.spans else ():
            if tag != "O" and (tag[:2] not in ("B-", "I-", "E-", "S-") or len(tag) < 3):
                raise UserError(
                    f"{where}: {shown(tag)} is neither O nor B-, I-, E- or S- and a type: "
                    '"spans": false in the task\'s description learns and scores single tags'
                )
        return self._labels_of(sentence)

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

    def row_of(self, text: Any) -> dict[str, Any]:
        """A text, divided at blanks, or a list of words."""
        return {"words": list(text)} if isinstance(text, (list, tuple)) else super().row_of(text)

    def row_of_line(self, line: str) -> dict[str, Any]:
        return {"text": line}

    def split_of(self, sentences: Sequence[TaggedSentence], split: str) -> Split:
        index = {label: number for number, label in enumerate(self.label_names)}
        examples, features = [], []
        # Words are divided by one blank, whatever is between them in the text: so they are learned.
        for example, found in zip(sentences, self.tokenizer.located([joined(s.words) for s in sentences]), strict=True):
            inputs = [self._original_input(example.words, found)] if self._as_original else self._inputs(found)
            for row, inside, positions in inputs:
                tags = [example.labels[word] for word in inside] if example.labels else []
                values = {"labels": np.zeros(len(inside), np.int32), "labels_mask": np.ones(len(inside), np.float32)}
                if tags:
                    values["labels"][:] = [index.get(tag, 0) for tag in tags]
                    values["labels_mask"][:] = [tag in index for tag in tags]
                values["labeled_positions"] = np.array(positions, np.int32)
                features.append(Features(row.input_ids, row.segment_ids, values, row.cut))
            examples.append(example._replace(answered=[inside for _, inside, _ in inputs]))
        labelled = all(example.labels is not None for example in examples)
        return Split(examples, features, [len(example.answered) for example in examples], labelled)

    def _inputs(self, found: Located) -> list[tuple[Row, np.ndarray, np.ndarray]]:
        """The windows of a text, the numbers of the words that each answers for, and the positions of their first
        pieces."""
        inputs = []
        for start, row, kept in windows_of(found.ids, self.tokenizer.special, self.config.max_seq_length):
            behind = kept.stop + (kept.stop == len(found.ids))  # a last word without pieces is behind all of them
            inside = np.flatnonzero((kept.start <= found.first_piece) & (found.first_piece < behind))
            inside = inside[: len(row.input_ids)]  # of more words than tokens most have no pieces
            inputs.append((row, inside, 1 + found.first_piece[inside] - start))
        return inputs

    def _original_input(self, words: Sequence[str], found: Located) -> tuple[Row, np.ndarray, np.ndarray]:
        """The same of the one input that the original makes, of the words that fit by its count."""
        special = self.tokenizer.special
        input_ids, positions, cut = [special.cls], list[int](), 0
        for word, word_ids in zip(words, np.split(found.ids, found.first_piece[1:]), strict=True):
            ids = list(word_ids)
            # It counts the sentence's words, not this word's pieces.
            if cut or len(words) + 2 + len(input_ids) + 1 > self.config.max_seq_length:
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
        return Row(row, np.ones_like(row), cut), np.arange(len(positions)), np.array(positions)

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> TaggingHead:
        return TaggingHead(self.scope, encoder.architecture.hidden_size, len(self.label_names), self.config, seed)

    def no_labels(self, input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Every token is a word of its own: an answer for each wordpiece, a word's is that of its first."""
        every = tf.zeros_like(input_ids) + tf.range(tf.shape(input_ids)[1])
        return super().no_labels(input_ids) | {"labeled_positions": every}

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """string [B], words separated by blanks -> words, tags string [B, W] and probabilities [B, W]; "" and 0 beyond
        a row's words, and for words that do not fit. Tags are as they were learned, spans in BIOES."""

        def tags(text: tf.Tensor) -> dict[str, tf.Tensor]:
            words = tf.strings.split(text)
            of_words = tokenizer.pieces(words.values)
            pieces = words.with_values(of_words).merge_dims(1, 2)
            lengths = tf.cast(words.with_values(of_words.row_lengths()).to_tensor(0), tf.int32)  # [B, W]
            ends = tf.cumsum(lengths, 1)
            fits = (ends <= tokenizer.max_length - 2) & tf.sequence_mask(words.row_lengths(), tf.shape(ends)[1])
            inputs = tokenizer.padded([tokenizer.head_of(pieces, tf.reduce_sum(tf.where(fits, lengths, 0), 1))])
            last = tf.shape(inputs["input_ids"])[1] - 1  # a word without pieces at the end has no position of its own
            starts = tf.minimum(tf.where(fits, ends - lengths + 1, 0), last)
            none = {"labels": tf.zeros_like(starts), "labels_mask": tf.zeros_like(starts, tf.float32)}
            found = predict(inputs, labeled_positions=starts, **none)
            return {
                "words": words.to_tensor(""),
                "tags": tf.where(fits, tf.gather(tf.constant(self.label_names), found["predictions"]), ""),
                "probabilities": tf.where(fits, found["scores"], 0.0),
            }

        return Signature(strings("text"), tags, lambda example: {"text": " ".join(example.words)})

    def of_batch(self, outputs: Prediction, batch: Mapping[str, np.ndarray]) -> Prediction:
        positions = batch[f"{self.name}/labeled_positions"]
        return {name: np.take_along_axis(value, positions, 1) for name, value in outputs.items()}

    def served_numbers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """{} of texts that a SavedModel cuts, and `predict` reads in windows."""
        answers = zip(split.examples, self.answers(split, predictions), strict=True)
        return [{"probabilities": one["probabilities"]} if len(text.answered) == 1 else {} for text, one in answers]

    def _of_words(self, split: Split, predictions: Sequence[Prediction], name: str, missing: Any) -> list[list[Any]]:
        """A predicted value for every word of every example; `missing` for those that no input answers for."""
        result = []
        for example, own in zip(split.examples, split.by_example(predictions), strict=True):
            values = [missing] * len(example.words)
            for inside, prediction in zip(example.answered, own, strict=True):
                for word, value in zip(inside, prediction[name], strict=False):
                    values[word] = value
            result.append(values)
        return result

    def predicted_labels(self, split: Split, predictions: Sequence[Prediction]) -> list[list[str]]:
        """A label for every word of every example; "O", or "" without spans, for those that were left out."""
        names, missing = self.label_names, "O" if self.spans else ""
        found = self._of_words(split, predictions, "predictions", None)
        return [[missing if number is None else names[number] for number in of_words] for of_words in found]

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        gold = [list(example.labels) for example in split.examples]
        predicted = self.predicted_labels(split, predictions)
        if self._as_original:  # words that did not fit are not scored
            counts = [len(example.answered[0]) for example in split.examples]
            gold = [labels[:count] for labels, count in zip(gold, counts, strict=True)]
            predicted = [labels[:count] for labels, count in zip(predicted, counts, strict=True)]
        return tagging_scores(gold, predicted, self.spans)

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        return [label for labels in self.predicted_labels(split, predictions) for label in labels]

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        return [{"gold": self._as_read(example.labels)} if split.labelled else {} for example in split.examples]

    def balance(self, split: Split) -> dict[str, float]:
        return dict(Counter(label for example in split.examples for label in example.labels or ()).most_common())

    def majority(self, split: Split) -> dict[str, float]:
        gold = [list(example.labels) for example in split.examples]
        commonest = Counter(label for labels in gold for label in labels).most_common(1)[0][0]
        return tagging_scores(gold, [[commonest] * len(labels) for labels in gold], self.spans)

    def _as_read(self, labels: Sequence[str]) -> list[str]:
        """Tags in the encoding of files: BIO for spans."""
        return conll.bio(conll.spans_of(labels), len(labels)) if self.spans else list(labels)

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Each text's `words`, and lists of their `tags`, `probabilities`, `starts` and `ends`: the characters of
        the text between which a word stands, or of the words with a blank between them where words were given.

        Of spans also `entities`: the `type`, `text`, `start` and `end` of each.
        """
        result, shares = [], self._of_words(split, predictions, "scores", 0.0)
        rows = zip(split.examples, self.predicted_labels(split, predictions), shares, strict=True)
        for (text, _, _), labels, of_words in rows:
            starts = text.starts.tolist()
            ends = [start + len(word) for start, word in zip(starts, text.words, strict=True)]
            answer = {"words": list(text.words), "tags": self._as_read(labels)}
            answer |= {"probabilities": [round(float(share), 6) for share in of_words], "starts": starts, "ends": ends}
            if self.spans:
                places = [(span.type, starts[span.start], ends[span.end]) for span in conll.spans_of(labels)]
                answer["entities"] = [
                    {"type": kind, "text": text.text[start:end], "start": start, "end": end}
                    for kind, start, end in places
                ]
            result.append(answer)
        return result

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """A CoNLL file: word and predicted tag, a blank between them or, where words hold blanks, a tab."""
        path, text = folder / f"{self.name}_{name}.txt", ""
        plain = all(len(conll.split_words(word).words) == 1 for example in split.examples for word in example.words)
        between = " " if plain else "\t"
        for answer in self.answers(split, predictions):
            pairs = zip(answer["words"], answer["tags"], strict=True)
            text += "".join(f"{word}{between}{tag or 'O'}\n" for word, tag in pairs) + "\n"
        write_atomically(path, text)
        return [path]

    def state(self) -> dict[str, Any]:
        return {"labels": self.label_names}

    def check_state(self, saved: dict[str, Any]) -> None:
        names = list(saved.get("labels", []))
        if self._label_names is None and not self.config.do_train:
            self._label_names = names
        self.check_names(self.label_names, names)


def tagging_scores(gold: list[list[str]], predicted: list[list[str]], spans: bool) -> dict[str, float]:
    """In percent: accuracy of words; for spans also precision, recall and F1 (seqeval, conlleval's rules)."""
    words = [(a, b) for one, other in zip(gold, predicted, strict=True) for a, b in zip(one, other, strict=True)]
    scores = {"accuracy": 100.0 * float(np.mean([a == b for a, b in words]))}
    if spans:
        # Spans first, so that an ill-formed prediction counts for the spans that conlleval finds in it.
        predicted = [conll.bio(conll.spans_of(labels), len(labels)) for labels in predicted]
        gold = [conll.bio(conll.spans_of(labels), len(labels)) for labels in gold]
        for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            scores[name] = 100.0 * float(score(gold, predicted, zero_division=0))
    return scores
