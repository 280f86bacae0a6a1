"""Signatures of a fine-tuned model's SavedModel: strings in; labels, values, tags, answers or vectors out.

Each follows what `Task.answers` makes of the head's predictions, in TensorFlow operations (convert.saved_model). A
question's document is cut at the model's length: windows over long documents remain with run_finetuning.py --predict.
B batch, L length, W words.
"""

from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.convert.head_outputs import refuse_prompts
from electra_tf2.convert.saved_model import GraphTokenizer, Signature
from electra_tf2.convert.self_check import largest
from electra_tf2.finetune.classification.targets import Scale
from electra_tf2.finetune.classification.tasks import TextTask
from electra_tf2.finetune.embedding import EmbeddingTask
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.qa.data import Window
from electra_tf2.finetune.qa.tasks import QATask
from electra_tf2.finetune.spans import SpanTask
from electra_tf2.finetune.tagging.tasks import TaggingTask
from electra_tf2.finetune.task import Prediction, Task
from electra_tf2.inference.predictor import Predictor
from electra_tf2.util.errors import UserError

_TEXTS = (("A first text.", "And a second one, Müller's: 42!"), ("Short.", "Of it."))  # of the self-check
_IMPOSSIBLE = -1e9  # log-probability of spans that are none


def task_signatures(predictor: Predictor, tokenizer: GraphTokenizer) -> dict[str, Signature]:
    """A signature for each task, by its name; the first is the default. Raises UserError: a task whose input is no
    plain text."""
    refuse_prompts(predictor)
    signatures: dict[str, Signature] = {}
    for number, task in enumerate(predictor.tasks):
        run: Any = _Run(predictor.model, number, task, tokenizer)
        if isinstance(task, SpanTask):
            raise UserError(
                f"{task.name}: a SavedModel reads texts, not the places of parts in them: --format onnx does"
            )
        if isinstance(task, TextTask):
            two = len(task.spec.json_columns.texts) == 2
            signatures[task.name] = (("text", "text_pair") if two else ("text",), run.text)
        elif isinstance(task, TaggingTask):
            signatures[task.name] = (("text",), run.tags)
        elif isinstance(task, QATask):
            signatures[task.name] = (("question", "context"), run.span)
        elif isinstance(task, EmbeddingTask):
            signatures[task.name] = (("text",), run.predictions)
        else:
            raise UserError(f"{task.name}: there is no signature for a task of this kind: try --format onnx")
    return signatures


def difference_from_strings(predictor: Predictor, folder: str | Path) -> float:
    """The largest difference between a SavedModel's numbers and those of `predict`, on fixed texts."""
    loaded = tf.saved_model.load(str(folder))
    differences: list[float] = []
    for number, task in enumerate(predictor.tasks):
        signature = loaded.signatures[task.name]
        names = sorted(signature.structured_input_signature[1], key=("text", "question", "text_pair", "context").index)
        columns = [tf.constant([row[place] for row in _TEXTS]) for place in range(len(names))]
        found = {key: value.numpy() for key, value in signature(**dict(zip(names, columns, strict=True))).items()}
        rows = [{key: value[row] for key, value in found.items()} for row in range(len(_TEXTS))]
        if isinstance(task, QATask):
            differences.append(_difference_of_spans(rows, predictor, number, task))
            continue
        answers = predictor([row if len(names) == 2 else row[0] for row in _TEXTS], task.name)
        differences += [_difference(row, answer) for row, answer in zip(rows, answers, strict=True)]
    return largest(differences)


def _difference(found: dict[str, Any], answer: dict[str, Any]) -> float:
    if "value" in found:
        return abs(float(found["value"]) - answer["label"])
    if "embedding" in found:
        return largest(np.abs(found["embedding"] - answer["embedding"]))
    theirs, ours = found["probabilities"], answer["probabilities"]  # by label, or of each word
    if "label" in found:
        ours = [ours[name.decode()] for name in found["labels"]]
    return largest(abs(float(a) - b) for a, b in zip(theirs[: len(ours)], ours, strict=True))


def _difference_of_spans(rows: list[dict[str, Any]], predictor: Predictor, number: int, task: QATask) -> float:
    """Largest difference of the answers' probabilities and of the logits of there being none, on a document's first
    window, which is all that a SavedModel reads of it."""
    split = task.parse([dict(zip(("question", "context"), row, strict=True)) for row in _TEXTS], "texts")
    predictions = iter(predictor.predictions(number, split))
    differences = []
    for row, example in zip(rows, split.examples, strict=True):
        first, *_ = [next(predictions) for _ in example.windows]
        scores = _span_scores(first, example.windows[0], task.config)
        stop = len(scores)
        of_found = scores[row["start"], row["end"]] if max(row["start"], row["end"]) < stop else -np.inf
        differences += [
            row["probability"] - np.exp(of_found),
            row["probability"] - np.exp(scores.max()),
            row["no_answer_logit"] - first["answerable_logit"],
        ]
    return largest(abs(float(difference)) for difference in differences)


def _span_scores(prediction: Prediction, window: Window, config: FinetuningConfig) -> np.ndarray:
    """float [start, end], the log-probabilities of a window's spans; -inf of those that are no answers."""
    stop = window.offset + window.length
    start, end = np.arange(stop)[:, np.newaxis], np.arange(stop)
    legal = (window.offset <= start) & (start <= end) & (end - start < config.max_answer_length)
    if config.joint_prediction:
        scores = np.full([config.max_seq_length] * 2, -np.inf)
        places = prediction["start_top_index"][:, np.newaxis], prediction["end_top_index"]
        scores[places] = prediction["start_top_log_probs"][:, np.newaxis] + prediction["end_top_log_probs"]
    else:
        starts, ends = (tf.nn.log_softmax(prediction[name]).numpy() for name in ("start_logits", "end_logits"))
        scores = starts[:, np.newaxis] + ends
    return np.where(legal, scores[:stop, :stop], -np.inf)


T = TypeVar("T", bound=Task)


class _Run(Generic[T]):
    """The signature functions of one task; each is of one kind of tasks."""

    def __init__(self, model: FinetuningModel, number: int, task: T, tokenizer: GraphTokenizer) -> None:
        self.model, self.number, self.task, self.tokenizer = model, number, task, tokenizer

    def _predict(self, inputs: dict[str, tf.Tensor], labels: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The head's predictions; labels are only there because heads ask for them."""
        batch = inputs | {f"{self.task.name}/{name}": value for name, value in labels.items()}
        return self.model.predict(batch, self.number).predictions

    def _no_labels(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return {name: tf.zeros([rows], label.dtype) for name, label in self.task.labels.items()}

    def text(self: "_Run[TextTask]", text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """string [B] -> label string [B] and probabilities [B, C], or value float32 [B]."""
        target = self.task.target
        key = "predictions" if isinstance(target, Scale) else "logits"
        found = self.predictions(text, text_pair)[key]
        if self.task.averages_orders:
            found = (found + self.predictions(text_pair, text)[key]) / 2
        if isinstance(target, Scale):
            return {"value": target.low + (target.high - target.low) * found}
        names = tf.constant(target.names)
        return {
            "label": tf.gather(names, tf.argmax(found, -1)),
            "probabilities": tf.nn.softmax(found),
            "labels": tf.tile(names[tf.newaxis], [tf.shape(text)[0], 1]),
        }

    def predictions(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """string [B] -> the head's predictions: `embedding` float32 [B, H or the projection's width], of length 1."""
        return self._predict(self.tokenizer.rows(text, text_pair), self._no_labels(tf.shape(text)[0]))

    def tags(self: "_Run[TaggingTask]", text: tf.Tensor) -> dict[str, tf.Tensor]:
        """string [B], words separated by blanks -> words, tags string [B, W] and probabilities [B, W]; "" and 0 beyond
        a row's words, and for words that do not fit. Tags are as they were learned, spans in BIOES."""
        words = tf.strings.split(text)
        of_words = self.tokenizer.pieces(words.values)
        pieces, lengths = words.with_values(of_words), words.with_values(of_words.row_lengths())
        sums = tf.concat([[0], tf.cumsum(lengths.values)], 0)
        before = tf.repeat(tf.gather(sums, words.row_starts()), words.row_lengths())  # pieces of the rows before
        ends = lengths.with_values(sums[1:] - before)
        fits = ends + 2 <= self.tokenizer.max_length
        kept = tf.ragged.boolean_mask(pieces, fits)
        inputs = self.tokenizer.padded([tf.cast(kept.merge_dims(1, 2), tf.int32)])
        starts = tf.cast(tf.ragged.boolean_mask(ends - lengths + 1, fits).to_tensor(0), tf.int32)
        last = tf.shape(inputs["input_ids"])[1] - 1  # a word without pieces at the end has no position of its own
        labels = {"labeled_positions": tf.minimum(starts, last), "labels": tf.zeros_like(starts),
                  "labels_mask": tf.zeros_like(starts, tf.float32)}  # fmt: skip
        found = self._predict(inputs, labels)
        width = words.bounding_shape()[1]
        tagged = tf.ragged.boolean_mask(tf.ones_like(lengths), fits).to_tensor(0)
        names = tf.where(tagged == 1, tf.gather(tf.constant(self.task.label_names), found["predictions"]), "")
        scores = found["scores"] * tf.cast(tagged, tf.float32)
        missing = [[0, 0], [0, width - tf.shape(names, out_type=width.dtype)[1]]]
        missing_names = tf.fill([tf.shape(names, out_type=width.dtype)[0], missing[1][1]], "")
        return {
            "words": words.to_tensor(""),
            "tags": tf.concat([names, missing_names], 1),
            "probabilities": tf.pad(scores, missing),
        }

    def span(self: "_Run[QATask]", question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """string [B] twice -> answer string [B] as wordpieces spell it, its probability, start and end in tokens
        [B, L], and the logit of there being no answer (positive: none)."""
        config = self.task.config
        inputs = self._question_rows(question, context)
        rows = tf.shape(question)[0]
        found = self._predict(inputs, self._no_labels(rows))
        if config.joint_prediction:
            starts, start_scores = found["start_top_index"][:, :, tf.newaxis], found["start_top_log_probs"]
            ends, scores = found["end_top_index"], start_scores[:, :, tf.newaxis] + found["end_top_log_probs"]
        else:
            length = tf.shape(inputs["input_ids"])[1]
            starts, ends = tf.range(length)[tf.newaxis, :, tf.newaxis], tf.range(length)[tf.newaxis, tf.newaxis]
            log_probs = [tf.nn.log_softmax(found[name]) for name in ("start_logits", "end_logits")]
            scores = log_probs[0][:, :, tf.newaxis] + log_probs[1][:, tf.newaxis]
        starts, ends = tf.broadcast_to(starts, tf.shape(scores)), tf.broadcast_to(ends, tf.shape(scores))
        # The document's tokens, without the [SEP] after it.
        inside = inputs["segment_ids"] * inputs["input_mask"]
        inside *= tf.cast(inputs["input_ids"] != self.tokenizer.special.sep, tf.int32)
        flat = [tf.reshape(value, [rows, -1]) for value in (starts, ends, scores)]
        legal = (flat[1] >= flat[0]) & (flat[1] - flat[0] < config.max_answer_length)
        legal &= tf.gather(inside, flat[0], batch_dims=1) * tf.gather(inside, flat[1], batch_dims=1) == 1
        best = tf.argmax(tf.where(legal, flat[2], _IMPOSSIBLE), -1, tf.int32)[:, tf.newaxis]
        start, end, score = (tf.gather(value, best, batch_dims=1)[:, 0] for value in flat)
        tokens = self.tokenizer.tokens(inputs["input_ids"], inputs["input_mask"])
        places = tf.ragged.range(start, end + 1)
        words = tf.strings.reduce_join(tf.gather(tokens, places, batch_dims=1), separator=" ", axis=-1)
        return {
            "answer": tf.strings.regex_replace(words, "(^| )##", ""),
            "probability": tf.exp(score),
            "start": start,
            "end": end,
            "tokens": tokens,
            "no_answer_logit": found["answerable_logit"],
        }

    def _question_rows(self: "_Run[QATask]", question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Questions are cut to their own limit, documents to what remains."""
        asked = self.tokenizer.pieces(question)[:, : self.task.config.max_query_length]
        document = self.tokenizer.pieces(context)
        room = self.tokenizer.max_length - 3 - asked.row_lengths()
        places = tf.ragged.range(document.row_lengths())
        return self.tokenizer.padded([asked, tf.ragged.boolean_mask(document, places < room[:, tf.newaxis])])
