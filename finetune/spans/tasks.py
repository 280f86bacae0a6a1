"""Classes of parts of texts: is it the same sense of a word (WiC), does a pronoun mean a phrase (WSC).

As the tasks over texts in finetune.classification, but that JSON lines say where the parts are and the head reads their
states beside that of [CLS].
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exchange.encoding import pack
from electra_tf2.finetune.classification.reading import Row, row_from_json
from electra_tf2.finetune.classification.tasks import TextExample, TextTask
from electra_tf2.finetune.spans.head import NUM_SPANS, SpanHead, span_label
from electra_tf2.finetune.task import Features, Head, Label
from electra_tf2.finetune.tasks.spec import TextTaskSpec
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.catalogue import load
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_json_lines


class SpanTask(TextTask):
    """Classification of two spans of one or two texts.

    Args:
      find_spans: "module:function" that finds the spans of a JSON object: (object, place) -> spans.
    """

    def __init__(
        self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, spec: TextTaskSpec, find_spans: str
    ) -> None:
        super().__init__(name, config, tokenizer, spec)
        self._find_spans = load(find_spans)

    @property
    def labels(self) -> dict[str, Label]:
        marks = {span_label(number): Label("int32", per_token=True) for number in range(NUM_SPANS)}
        return super().labels | marks

    def _read_rows(self, split: str) -> list[Row]:
        path, test = self._path(split), split in self.test_splits
        columns = self.spec.json_columns
        if split in self.spec.submission:
            columns = columns._replace(label=None)
        rows = []
        for number, row in read_json_lines(path, "task"):
            where = f"{path}, line {number}"
            found = row_from_json(row, columns, where, number, test)
            rows.append(self._with_spans(found, row, where))
        if not rows:
            raise UserError(f"{path} holds no examples")
        return rows

    def unlabelled(self, row: dict[str, Any], where: str, number: int) -> Row:
        return self._with_spans(super().unlabelled(row, where, number), row, where)

    def _with_spans(self, found: Row, row: dict[str, Any], where: str) -> Row:
        if not all(text.strip() for text in found.texts):
            raise UserError(f"{where}: an empty sentence")
        spans = self._find_spans(row, where)
        for text, start, end in spans:
            if end > len(found.texts[text]):
                raise UserError(
                    f"{where}: characters {start} to {end} are beyond the text of {len(found.texts[text])} characters"
                )
        return found._replace(spans=spans)

    def features(self, examples: Sequence[TextExample]) -> list[Features]:
        """One per example, as of any texts. Texts are tokenised between the borders of their spans."""
        cut = [[_parts(example, text) for text in range(len(example.texts))] for example in examples]
        pieces = iter(self.pieces([part for texts in cut for parts in texts for part, _ in parts]))
        special, length = self.tokenizer.special, self.config.max_seq_length
        features = []
        for example, texts in zip(examples, cut, strict=True):
            ids: list[np.ndarray] = []
            marks: list[list[np.ndarray]] = [[] for _ in range(NUM_SPANS)]
            for parts in texts:
                found = [(next(pieces), inside) for _, inside in parts]
                ids.append(np.concatenate([piece for piece, _ in found]))
                for number in range(NUM_SPANS):
                    of_parts = [np.full(len(piece), number in inside, np.int32) for piece, inside in found]
                    marks[number].append(np.concatenate(of_parts))
            labels = self._label_values(example)
            for number in range(NUM_SPANS):  # packed as the ids are, with 0 for [CLS] and [SEP]
                labels[span_label(number)] = pack(marks[number], special._replace(cls=0, sep=0), length)[0]
            features.append(Features(*pack(ids, special, length), labels))
        return features

    def row_of_line(self, line: str) -> dict[str, Any]:
        del line
        raise UserError(f"--predict: {self.name} needs JSON lines with the fields of its own files")

    def make_head(self, encoder: Encoder, seed: int) -> Head:
        hidden_size = encoder.architecture.hidden_size
        return SpanHead(f"task_specific/{self.name}", hidden_size, len(self.label_names), self.config, seed)


def _parts(example: TextExample, text: int) -> list[tuple[str, set[int]]]:
    """A text cut at the borders of its spans, and the numbers of the spans that each part belongs to."""
    spans = [(number, span.start, span.end) for number, span in enumerate(example.spans) if span.text == text]
    borders = sorted({0, len(example.texts[text]), *(place for _, start, end in spans for place in (start, end))})
    parts = []
    for start, end in itertools.pairwise(borders):
        inside = {number for number, first, last in spans if first <= start and end <= last}
        parts.append((example.texts[text][start:end], inside))
    return parts
