"""Sequence tagging: chunking, named entities, parts of speech, and tasks that a user describes.

words and tags --tagged_files--> TaggedSentence --encode--> windows, the word of each first piece --TaggingHead--> tags
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import Row
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer, Words, joined
from electra_tf2.files.reading import read_text
from electra_tf2.files.table_files import format_of
from electra_tf2.files.tables import TableRow
from electra_tf2.files.writing import write_atomically
from electra_tf2.finetune.tasks import conll
from electra_tf2.finetune.tasks.marked_texts import ANNOTATIONS, split_at_signs
from electra_tf2.finetune.tasks.sentence_rows import words_or_text
from electra_tf2.finetune.tasks.tag_schemes import OriginalsSpanTags, SingleTags, SpanTags, TagScheme, check_single_tags
from electra_tf2.finetune.tasks.tagged_columns import TaggedColumns
from electra_tf2.finetune.tasks.tagged_files import has_header, read_sentences
from electra_tf2.finetune.tasks.tagging_answers import (
    LabelledWords,
    answer,
    entity,
    labelled_words,
    scores_by_characters,
    scores_of_other_words,
)
from electra_tf2.finetune.tasks.tagging_head import TaggingHead
from electra_tf2.finetune.tasks.tagging_windows import (
    PredictedWords,
    TaggedSentence,
    label_values,
    original_input,
    overlapping_inputs,
)
from electra_tf2.finetune.tasks.tags import (
    ENCODINGS,
    encoding_of,
    has_span_tags,
    tagging_scores,
    types_of,
)
from electra_tf2.finetune.tasks.targets import check_same_names
from electra_tf2.finetune.tasks.task import (
    EmptyText,
    Features,
    Label,
    Prediction,
    Split,
    Task,
    TaskData,
)
from electra_tf2.finetune.tasks.words_to_tag import KnownTags, lines_with_tags, sentences_to_tag
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.columns import MARKED_SPANS, PART_OF_SPEECH, TAG, TAGS, WORD
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted, say, warn


class TaggingTask(Task):
    """One label for each word of {train,dev,test}.txt in CoNLL columns, of tables, or of texts with marked spans.

    The labels are those of the training data, for spans with all of B, I, E and S of every type. A text longer than
    max_seq_length is read in windows that overlap by half. A word's label is taken from the window where it has the
    most context. (compat original: words beyond max_seq_length are left out.)

    Args:
      spans: whether tags are BIO or BIOES. They are learned as BIOES and scored by spans (precision, recall, F1). Other
        tags are scored word by word. None: the training data show it.
      labels: names of the tags that a file holds as the numbers 0, 1, ...
      text_columns: a table's column of words, lists of words or texts, and that of the sentences' numbers; default:
        those with a usual name.
      label_column: a table's column of tags, or of marked spans; default: the one called by the task (<task>,
        <task>_tags), or the only one with a usual name. Of lines of words without a header its number, from 0.
    """

    text_keys = (("text",),)
    holds_tabs = True
    list_key = "words"
    target: list[str] | None = None  # the labels' names, in the order of their ids

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        spans: bool | None = None,
        labels: Sequence[str] = (),
        text_columns: Sequence[str] = (),
        label_column: str = "",
        **files: Any,
    ) -> None:
        endings = ("txt", "conll", "conllu", "jsonl", "json", "parquet", "arrow", "tsv", "csv", "ndjson", "tab")
        super().__init__(name, config, tokenizer, endings=endings, **files)
        self._has_told_of_signs = False
        self._other_columns = TaggedColumns()  # that rows to be answered may have in the place of the training data's
        self._splits_at_signs = False  # raw text, as that of the training data was; else at blanks alone
        self._names_of_numbers = labels
        self.columns = TaggedColumns(tags=label_column, task=name)
        if text_columns:
            self.columns = self._with_text_columns(text_columns)
        self._as_original = config.compat == "original"
        self.primary_metric = "f1"
        self._scheme: TagScheme | None = None
        if spans is not None:
            self._set_scheme(spans, "BIO")  # until the training data show their encoding
        # The predictions that were decoded last, and what came of them.
        self._decoded_predictions: Sequence[Prediction] | None = None
        self._decoded: list[LabelledWords] = []

    @property
    def label_names(self) -> list[str]:
        assert self.target is not None
        return self.target

    @property
    def scheme(self) -> TagScheme:
        """The scheme of the tags, which the training data or a saved state tell."""
        assert self._scheme is not None
        return self._scheme

    @property
    def spans(self) -> bool | None:
        """True if tags mean spans; None: nothing tells it yet."""
        if self._scheme is None:
            return None
        return self._scheme.has_spans

    def _set_scheme(self, spans: bool, encoding: str) -> None:
        self._scheme = SingleTags()
        if spans:
            self._scheme = OriginalsSpanTags(encoding) if self._as_original else SpanTags(encoding)
        self.primary_metric = self._scheme.metric

    # Files to examples.

    def read(self, split: str) -> TaskData:
        sentences = self._sentences(split)
        labels = self._labels_of_split(sentences, split)
        label_names = self.target
        if label_names is None:
            label_names = self._labels_in(sentences)
        self._warn_of_unknown_labels(labels, label_names, split)
        examples = []
        for sentence, sentence_labels in zip(sentences, labels, strict=True):
            example = TaggedSentence(sentence.text or joined(sentence.words), sentence_labels)
            if sentence.divided is not None and sentence_labels is not None:
                divided_labels = self.scheme.labels_of(sentence.divided.tags)
                learned = TaggedSentence(sentence.divided.text, divided_labels)
                example = example._replace(learned=learned, marked=sentence.divided.spans)
            examples.append(example)
        return TaskData(examples, label_names)

    def _labels_of_split(self, sentences: Sequence[conll.Sentence], split: str) -> Sequence[list[str] | None]:
        """Lists the labels of each sentence; None for all if the split has no tags, or a test split wrong ones."""
        if any(sentence.tags for sentence in sentences):
            try:
                return [self._checked_labels(sentence) for sentence in sentences]
            except UserError as error:
                # Test data can still be predicted.
                if split not in self.test_splits:
                    raise
                warn(f"the {split} data is not scored: {error}")
        elif split in self.test_splits:
            self.warn_of_no_labels(split)
        return [None] * len(sentences)

    def _warn_of_unknown_labels(
        self, labels: Sequence[list[str] | None], label_names: Sequence[str], split: str
    ) -> None:
        unknown: Counter[str] = Counter()
        for sentence_labels in labels:
            for label in sentence_labels or ():
                if label not in label_names:
                    unknown[self.scheme.type_of(label)] += 1
        if unknown:
            warn(
                f"{self.name} {split}: labels of {counted(sum(unknown.values()), 'word')} are not in the training data "
                f"({shown(', '.join(unknown))}) and count as wrong"
            )

    def _sentences(self, split: str) -> list[conll.Sentence]:
        files: list[list[conll.Sentence]] = []
        for path in self.files.paths(split):
            sentences_of_file = read_sentences(
                path,
                tagged=split not in self.test_splits,
                as_original=self._as_original,
                columns=self._columns_of_file(path, split),
            )
            files.append([self._with_names(sentence) for sentence in sentences_of_file])
        if split == "train":
            self._learn_form(files)
        sentences: list[conll.Sentence] = []
        for sentences_of_file in files:
            # The types are not known while the training data are read.
            sentences += self.scheme.spelled(sentences_of_file, types_of(self.target or ()))
        return sentences

    def _columns_of_file(self, path: Path, split: str) -> TaggedColumns:
        """The columns of a file. In lines to be scored, other tags may stand in the usual place of the task's."""
        is_learned = split == "train" or self.target is None
        is_settled = is_learned or self._as_original or bool(self.columns.tags)
        if is_settled or format_of(path) in ("json", "columnar"):
            return self.columns
        text = read_text(path, "task")
        if has_header(path, text, self.columns):
            return self.columns
        lines = lines_with_tags(text, str(path), self._known_tags())
        if lines is None or lines.column is None:
            return self.columns
        say(f"note: {path}: the tags of {self.name} stand in column {lines.column}, counted from 0")
        return self.columns._replace(tags=str(lines.column))

    def _known_tags(self) -> KnownTags:
        return KnownTags(self.scheme, self.label_names, self.columns)

    def _with_names(self, sentence: conll.Sentence) -> conll.Sentence:
        """Puts the names of `labels` in the place of tags that are numbers."""
        if not self._names_of_numbers:
            return sentence
        tags = []
        for tag in sentence.tags:
            if tag.isdecimal() and tag not in self._names_of_numbers:
                if int(tag) >= len(self._names_of_numbers):
                    raise UserError(
                        f"{sentence.where}: a tag must be a name, or the number of one of the task's labels, got {tag}"
                    )
                tag = self._names_of_numbers[int(tag)]
            tags.append(tag)
        return sentence._replace(tags=tags)

    def _learn_form(self, files: Sequence[list[conll.Sentence]]) -> None:
        """Learns from the sentences of the training files what tags are, and how new text is to be split."""
        spans = self.spans
        if spans is None:
            spans = any(has_span_tags(sentences) for sentences in files)
            if not spans:
                check_single_tags(self.name, list(itertools.chain(*files)))
        encoding = "BIO"
        if spans:
            all_sentences = list(itertools.chain(*files))
            encoding = encoding_of(all_sentences)
            self._splits_at_signs = any(sentence.text is not None for sentence in all_sentences)
        self._set_scheme(spans, encoding)

    def _labels_in(self, sentences: Sequence[conll.Sentence]) -> list[str]:
        """Lists all labels in the training data."""
        sentences = list(sentences)
        if self._as_original:
            # The original collects its labels from the files of all splits.
            for split in ("dev", "test"):
                if self.files.exists(split):
                    sentences += self._sentences(split)
        labels: set[str] = set()
        for sentence in sentences:
            labels.update(self.scheme.labels_of(sentence.tags))
            if sentence.divided is not None:
                labels.update(self.scheme.labels_of(sentence.divided.tags))
        if self.scheme.has_spans and labels <= {"O"}:
            raise UserError(f"{self.name}: the training data have no spans: all words are O")
        return sorted(self.scheme.complete(labels))

    def _checked_labels(self, sentence: conll.Sentence) -> list[str]:
        """Makes the labels of a sentence. Raises UserError for tags that are missing or no tags of spans."""
        if len(sentence.tags) < len(sentence.words):
            raise UserError(f"{sentence.where}: a sentence with fewer tags than words")
        self.scheme.check(sentence)
        return self.scheme.labels_of(sentence.tags)

    def files_of(self, split: str) -> list[Path]:
        """Lists a split's files; with compat original all files, since its labels are those of all splits."""
        if not self._as_original:
            return super().files_of(split)
        paths: list[Path] = []
        for name in ("train", "dev", "test"):
            if self.files.exists(name):
                paths += super().files_of(name)
        return paths

    def rows_of_text(self, text: str, name: str) -> list[TableRow] | None:
        sentences = sentences_to_tag(text, name, self._known_tags(), self._splits_at_signs)
        if sentences is None:
            return None
        rows = []
        for number, sentence in enumerate(sentences, start=1):
            values: dict[str, Any] = {"words": sentence.words}
            if sentence.tags:
                values["tags"] = sentence.tags
            rows.append(TableRow(number, values, parts=sentence.rows))
        return rows

    def name_columns(self, texts: Sequence[str], label: str = "") -> None:
        """Names the columns of words or texts, and if it is given that of sentences' numbers, and that of tags."""
        if len(texts) > 2:
            raise UserError(f"--text-column WORD,SENTENCE: one or two columns, got {', '.join(texts)}")
        if texts:
            self.columns = self._with_text_columns(texts)
            self._other_columns = TaggedColumns(words=self.list_key)  # as `rows_of_text` has them
        if label:
            self.columns = self.columns._replace(tags=label)

    @property
    def text_names(self) -> set[str]:
        return super().text_names | {*WORD, self.columns.words} - {""}

    def _with_text_columns(self, names: Sequence[str]) -> TaggedColumns:
        if len(names) == 1:
            return self.columns._replace(words=names[0])
        return self.columns._replace(words=names[0], sentence=names[1])

    @property
    def label_columns(self) -> set[str]:
        """Columns that may hold tags or marked spans."""
        by_task = {self.name, f"{self.name}_tag", f"{self.name}_tags"}
        return {self.columns.tags, *by_task, *TAG, *TAGS, *PART_OF_SPEECH, *MARKED_SPANS, *ANNOTATIONS} - {""}

    def example(self, row: dict[str, Any], where: str, index: int) -> TaggedSentence:
        """Reads `words`, a list, or `text`, split as the training data were: at blanks, or at signs, too."""
        content = words_or_text(row, self.columns, where)
        if content is None:
            content = words_or_text(row, self._other_columns, where)
        if isinstance(content, str):
            text = self._split(content)
        elif isinstance(content, list):
            text = joined(content)
        else:
            hint = ""
            if self.columns.word_in(row) is not None:
                hint = ". The words of a sentence stand together, in a list"
            raise UserError(
                f"{where}: `{self.columns.words or 'words'}`, a list of words, or `text` is needed; it has "
                f"{shown(', '.join(row))}{hint}"
            )
        if not any(text.words):
            raise EmptyText(f"{where}: there are no words")
        return TaggedSentence(text, None)

    def _split(self, text: str) -> Words:
        """Splits raw text as the training data were. Tells once if signs stay at words."""
        if self._splits_at_signs:
            return split_at_signs(text)
        words = conll.split_words(text)
        glued = conll.word_with_sign(words.words)
        if glued and not self._has_told_of_signs:
            self._has_told_of_signs = True
            say(
                f"note: text is split at blanks, as the training data were: {shown(glued)} is one word. Put blanks "
                "around signs where the training data have them"
            )
        return words

    # Examples to features.

    @property
    def labels(self) -> dict[str, Label]:
        types = {"labels": "int32", "labels_mask": "float32", "labeled_positions": "int32"}
        return {name: Label(dtype, per_token=True) for name, dtype in types.items()}

    def encode(self, examples: Sequence[TaggedSentence], split: str) -> Split:
        id_of_label = {label: index for index, label in enumerate(self.label_names)}
        if split == "train":
            examples = [example.learned or example for example in examples]
        encoded: list[TaggedSentence] = []
        features: list[Features] = []
        # Words are learned with one blank between them, so they are tokenized in that way, whatever the text has there.
        located = self.tokenizer.located([joined(example.words) for example in examples])
        for example, pieces in zip(examples, located, strict=True):
            windows = []
            for row, window in self._inputs(example.words, pieces):
                windows.append(window)
                values = label_values(example, window, id_of_label)
                features.append(Features(row.input_ids, row.segment_ids, values, row.cut))
            encoded.append(example._replace(windows=windows))
        counts = [len(example.windows) for example in encoded]
        labelled = all(example.labels is not None for example in encoded)
        golds: list[str] = []
        if labelled:
            for example in encoded:
                golds += self.scheme.tags_of(example.labels or [])
        return Split(encoded, features, counts, labelled, golds=golds)

    def _inputs(self, words: Sequence[str], pieces: Located) -> list[tuple[Row, PredictedWords]]:
        """Makes the inputs of a text."""
        special = self.tokenizer.special
        length = self.config.max_seq_length
        if self._as_original:
            return original_input(words, pieces, special, length)
        return overlapping_inputs(pieces, special, length)

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> "TaggingHead":
        head = TaggingHead(self.scope, encoder.architecture.hidden_size, len(self.label_names), self.config, seed)
        if self.spans:
            head.expected_loss += " (spans are learned as B, I, E and S of each type, and O)"
        return head

    # Scores and answers.

    def _labelled_words(self, split: Split, predictions: Sequence[Prediction]) -> list[LabelledWords]:
        """Decodes predictions, once for scores and answers."""
        if self._decoded_predictions is not predictions:
            self._decoded = labelled_words(split, predictions, self.scheme, self.label_names)
            self._decoded_predictions = predictions
        return self._decoded

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        gold = [list(example.labels) for example in split.examples]
        predicted = [words.labels for words in self._labelled_words(split, predictions)]
        if self._as_original:
            # Words that did not fit are not scored.
            counts = [len(example.windows[0].words) for example in split.examples]
            gold = [labels[:count] for labels, count in zip(gold, counts, strict=True)]
            predicted = [labels[:count] for labels, count in zip(predicted, counts, strict=True)]
        # Accuracy is that of the tags in the files, of which the labels that are learned may be more.
        gold_tags = [self.scheme.tags_of(labels) for labels in gold]
        predicted_tags = [self.scheme.tags_of(labels) for labels in predicted]
        scores = self.scheme.scores(gold_tags, predicted_tags)
        if self.scheme.has_spans and any(example.marked for example in split.examples):
            scores |= scores_by_characters(split.examples, predicted)
        return scores

    def scores_of_answers(
        self, split: Split, answered: Split, answers: Sequence[Mapping[str, Any]]
    ) -> dict[str, float] | None:
        """Scores spans of marked texts by their characters, where the answers are of other words of the same texts."""
        if not self.spans:
            return None
        return scores_of_other_words(split, answered, answers)

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Makes an object of each text's tags and spans, see `tagging_answers.answer`."""
        labelled = self._labelled_words(split, predictions)
        return [answer(example, words, self.scheme) for example, words in zip(split.examples, labelled, strict=True)]

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        """Makes each example's `text`, its `gold` tags, and of spans its `gold_entities`, like `entities` of answers.

        Of a marked span that ends inside a word, the whole word has its tag.
        """
        rows = []
        for example in split.examples:
            text = example.text.text
            row: dict[str, Any] = {"text": text}
            if split.labelled:
                row["gold"] = self.scheme.tags_of(example.labels)
            if split.labelled and self.spans:
                row["gold_entities"] = [entity(text, *place) for place in example.gold_places]
            rows.append(row)
        return rows

    def majority(self, split: Split) -> dict[str, float]:
        gold = [self.scheme.tags_of(example.labels) for example in split.examples]
        counts: Counter[str] = Counter()
        for tags in gold:
            counts.update(tags)
        commonest = counts.most_common(1)[0][0]
        # Spans of such tags, and their F1, would say nothing.
        return tagging_scores(gold, [[commonest] * len(tags) for tags in gold], spans=False)

    def write_submission(self, name: str, split: Split, answers: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        """Writes a CoNLL file of words and predicted tags."""
        path = folder / f"{self.name}_{name}.txt"
        sentences = [(answer["words"], answer["tags"]) for answer in answers]
        write_atomically(path, conll.tagged_lines(sentences))
        return [path]

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "labels": self.label_names,
            "spans": self.spans,
            "splits_at_signs": self._splits_at_signs,
        }
        if isinstance(self.scheme, SpanTags):
            state["encoding"] = self.scheme.encoding
        return state

    def check_state(self, saved: dict[str, Any]) -> None:
        names = list(saved.get("labels", []))
        spans = self.spans
        if spans is None:
            spans = saved.get("spans", True)
        encoding = saved.get("encoding", "BIO")
        if encoding not in ENCODINGS:
            raise ValueError(f"encoding {encoding!r}")
        self._set_scheme(spans, encoding)
        self._splits_at_signs = saved.get("splits_at_signs", self._splits_at_signs)
        if self.target is None:
            self.target = names
        check_same_names(self.target, names, self.name)
