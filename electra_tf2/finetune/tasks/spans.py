"""Classes of two parts of texts: is it the same sense of a word (WiC), does a pronoun mean a phrase (WSC).

As other tasks over texts, but that their files say where the parts are and the head reads their states beside that of
[CLS].
"""

import abc
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import pack
from electra_tf2.corpus.tokenization import undivided
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature, strings
from electra_tf2.finetune.tasks.heads import NUM_SPANS, Head, SpanHead, span_label
from electra_tf2.finetune.tasks.task import Features, Label, Split
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_files import Span, TextExample
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError, shown


class SpanTask(TextTask):
    """Classification of two spans of one or two texts."""

    further_inputs = tuple(map(span_label, range(NUM_SPANS)))
    text_keys = ()

    @staticmethod
    @abc.abstractmethod
    def spans_in(row: dict[str, Any], where: str) -> tuple[Span, ...]:
        """The spans that an object of a file names. Raises UserError."""

    @property
    def labels(self) -> dict[str, Label]:
        return super().labels | {name: Label("int32", per_token=True) for name in self.further_inputs}

    def completed(self, example: TextExample, row: dict[str, Any]) -> TextExample:
        spans = self.spans_in(row, example.where)
        for text, start, end in spans:
            if end > (size := len(example.texts[text])):
                raise UserError(
                    f"{example.where}: characters {start} to {end} are beyond the text of {size} characters"
                )
        return example._replace(spans=spans)

    def features(self, examples: Sequence[TextExample]) -> list[Features]:
        """One per example, as of any texts; a piece is of a span if it holds one of its characters."""
        special, length = self.tokenizer.special, self.config.max_seq_length
        located = iter(self.tokenizer.located([undivided(text) for example in examples for text in example.texts]))
        features = []
        for example in examples:
            texts = [next(located) for _ in example.texts]
            row = pack([text.ids for text in texts], special, length)
            labels = self._label_values(example)
            for number, span in enumerate(example.spans):
                marks = [np.zeros(len(text.ids), np.int32) for text in texts]
                starts, ends = texts[span.text].spans.T
                marks[span.text][(starts < span.end) & (span.start < ends)] = 1
                # Packed as the ids are, with 0 for [CLS] and [SEP].
                labels[span_label(number)] = pack(marks, special._replace(cls=0, sep=0), length).input_ids
            features.append(Features(row.input_ids, row.segment_ids, labels, row.cut))
        return features

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        hidden_size = encoder.architecture.hidden_size
        return SpanHead(self.scope, hidden_size, len(self.label_names), self.config, seed)

    def samples(self, texts: Sequence[tuple[str, str]]) -> Split:
        spans = (Span(0, 0, 1), Span(self.num_texts - 1, 2, 5))
        return self.split_of([TextExample(pair[: self.num_texts], None, spans=spans) for pair in texts], "new")

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """As of other texts, and the characters [start, end) of either span, int32 [B]: the first in `text`, the second
        in the last of the texts."""
        names, places = ("text", "text_pair")[: self.num_texts], ("start1", "end1", "start2", "end2")

        def answer(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            parts, marks = [], [list[tf.RaggedTensor]() for _ in range(NUM_SPANS)]
            for number, name in enumerate(names):
                ends = [inputs[place] for place in places]
                if self.num_texts == 2:  # a span in each text
                    ends = [end * int(place // 2 == number) for place, end in enumerate(ends)]
                pieces, inside = tokenizer.marked(inputs[name], [ends[:2], ends[2:]])
                parts.append(pieces)
                for of_span, mark in zip(marks, inside, strict=True):
                    of_span.append(-mark)  # no id of a special token
            rows = [tf.cast(tokenizer.packed(of_span)["input_ids"] == -1, tf.int32) for of_span in marks]
            labels = dict(zip(self.further_inputs, rows, strict=True))
            return self.target.served(predict(tokenizer.packed(parts), **labels))

        def example(one: TextExample) -> dict[str, Any]:
            ends = [end for span in one.spans for end in (span.start, span.end)]
            return dict(zip(names, one.texts, strict=True)) | dict(zip(places, ends, strict=True))

        numbers = {name: tf.TensorSpec([None], tf.int32, name=name) for name in places}
        return Signature(strings(*names) | numbers, answer, example)


class Wic(SpanTask):
    """Is it the same sense of a word in two sentences."""

    @staticmethod
    def spans_in(row: dict[str, Any], where: str) -> tuple[Span, ...]:
        """`start1`, `end1`, `start2`, `end2`: characters of the word in either sentence."""
        spans = []
        for number in (1, 2):
            start, end = (_place(row, f"{end}{number}", where) for end in ("start", "end"))
            if start >= end:
                raise UserError(f"{where}: start{number} {start} must be before end{number} {end}")
            spans.append(Span(number - 1, start, end))
        return tuple(spans)


class Wsc(SpanTask):
    """Does a pronoun mean a phrase of the same text."""

    @staticmethod
    def spans_in(row: dict[str, Any], where: str) -> tuple[Span, ...]:
        """`target`: the number of the first word (between blanks) and the text of either mention.

        The distributed files want some forbearance: numbers are off by a word or two, so the mention's occurrence that
        is nearest to the word is taken; mentions have other blanks than the text, or the full stop behind them; and of
        one that does not occur at all ("Kamenev and Zinoviev", of a text with more between the two), as many words as
        it has are taken from the numbered one on.
        """
        target, text = row.get("target"), row.get("text")
        if not isinstance(target, dict) or not isinstance(text, str):
            raise UserError(f"{where}: `text` and an object `target` are needed; it has {shown(', '.join(row))}")
        words = [match.span() for match in re.finditer(r"\S+", text)]
        spans = []
        for number in (1, 2):
            index, mention = _place(target, f"span{number}_index", where), target.get(f"span{number}_text")
            if index >= len(words):
                raise UserError(f"{where}: span{number}_index {index} is beyond the {len(words)} words of the text")
            parts = mention.rstrip(" \t\r\n.,").split() if isinstance(mention, str) else []
            if not parts:
                raise UserError(f"{where}: span{number}_text must be a mention, got {shown(mention)}")
            # At the border of a word, so that "he" is not found in "the".
            pattern = r"\s+".join(map(re.escape, parts))
            found = [match.span() for match in re.finditer(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)]
            start, last = words[index][0], words[min(index + len(parts), len(words)) - 1]
            spans.append(Span(0, *min(found, key=lambda span: abs(span[0] - start), default=(start, last[1]))))
        return tuple(spans)


def _place(row: dict[str, Any], name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{where}: {name} must be a number from 0 on, got {shown(value)}")
    return value
