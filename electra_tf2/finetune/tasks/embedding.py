"""Vectors of sentences: trained by contrast with the other sentences of a batch, scored by human judgments.

    train file --read_texts--> (text, positive, negative) --packing--> Features, three or two that lie together
    pairs with a score --TextTask--> cosines of two vectors --> Spearman's correlation

An example is a text and one that means the same, and if there is one a text that does not although it looks alike
(SimCSE, section 4). A text alone is its own partner: dropout makes its two passes different (section 3). Scored on
STS-B's development data and on pairs of one's own, where their files are; their labels are not trained on.
B rows, N examples, H hidden.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import pack
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature, strings
from electra_tf2.finetune.tasks.heads import ContrastHead
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.built_in import BUILT_IN, TextSettings
from electra_tf2.settings.metrics import pearson, spearman
from electra_tf2.util import tables
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.tables import open_table

# Names of the columns of a training file: ours, then those of SimCSE's files, of sentence-transformers' and of GLUE's.
_COLUMNS = (
    ("text", "anchor", "sent0", "sentence1", "text1", "sentence", "query", "question", "question1", "premise"),
    ("positive", "sent1", "sentence2", "text2", "answer", "question2", "hypothesis"),
    ("negative", "hard_neg"),
)
_PAIR = (("text1", "sentence1", "sentence_A"), ("text2", "sentence2", "sentence_B"))
_SCORED_PAIRS = TextSettings(
    _PAIR, ("score", "label", "similarity"), metrics=("spearman", "pearson"), value_range=(-np.inf, np.inf)
)


class EmbeddingTask(Task):
    """Vectors whose cosine says how alike two sentences are."""

    primary_metric = "spearman"
    endings = (*tables.ENDINGS, "txt")
    predicts = "similarity"
    text_keys = (("text",), ("text1", "text2"))
    competes_in_training_only = True

    def __init__(
        self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, files: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, config, tokenizer, files=files)
        own = TextTask(name, config, tokenizer, _SCORED_PAIRS, files=files)
        known = BUILT_IN["sts"]
        sts = TextTask("sts", config, tokenizer, known.text or TextSettings(), **known.options)
        self._scored = {  # the tasks and splits whose files they read
            "dev": (own, "dev"),
            "sts": (sts, "dev"),
            "test": (own, "test"),
        }
        there = [split for split, (task, of_task) in self._scored.items() if task.exists(of_task)]
        self.evaluation_splits = tuple(split for split in there if "test" not in split) or ("dev",)
        self.test_splits = tuple(split for split in there if "test" in split)
        self._texts: list[tuple[str, str, str]] | None = None

    @property
    def choices(self) -> int:  # type: ignore[override]
        """Texts of a training example: three if one of them has a negative, else two."""
        return 2 + any(negative for _, _, negative in self._training_texts())

    def _training_texts(self) -> list[tuple[str, str, str]]:
        if self._texts is None:
            self._texts = [texts for file in self.paths("train") for texts in read_texts(file)]
            sizes = self.config.architecture
            if not sizes.hidden_dropout_prob and not sizes.attention_probs_dropout_prob:
                alone = next((text for text, positive, _ in self._texts if not positive), None)
                if alone is not None:
                    raise UserError(
                        f"{self.path('train')}: {shown(alone)} has no other text beside it. Two passes over the "
                        "same text differ by dropout alone, and this model has none: give "
                        "--hidden-dropout-prob 0.1, or pairs"
                    )
        return self._texts

    # Files to features.

    @property
    def labels(self) -> dict[str, Label]:
        """`text`: a number of the text, the same for equal ones; 0 for one that is not there, or of another task."""
        return {"text": Label("int32")}

    def path(self, split: str) -> Path:
        if split == "train":
            return super().path(split)
        task, of_task = self._scored[split]
        try:
            return task.path(of_task)
        except UserError as error:
            raise UserError(
                f"{error}. Vectors are scored on STS-B's development data (sts/dev.tsv), or pairs of your "
                "own with a score: a dev file with the columns text1, text2, score"
            ) from None

    def load(self, split: str) -> Split:
        if split != "train":
            self.path(split)  # which says what would do where there is none
            task, of_task = self._scored[split]
            return self.split_of(task.examples(of_task), split)
        examples = [(text, positive or text, negative) for text, positive, negative in self._training_texts()]
        choices = self.choices
        distinct = dict.fromkeys(["", *(text for texts in examples for text in texts)])
        number_of = {text: number for number, text in enumerate(distinct)}
        features = self._features([text for texts in examples for text in texts[:choices]], number_of)
        pairs = [TextExample(texts[:choices], None) for texts in examples]
        return Split(pairs, features, [choices] * len(pairs), labelled=False)

    def example(self, row: dict[str, Any], where: str, number: int) -> TextExample:
        """Reads a text under `text`, whose vector is wanted, or two under `text1` and `text2`, whose similarity is."""
        texts = [_of_row(row, names) for names in (_PAIR if _of_row(row, _PAIR[1]) is not None else _COLUMNS[:1])]
        if not all(isinstance(text, str) for text in texts):
            raise UserError(f"{where}: a text, or text1 and text2, are needed; got {shown(row)}")
        if not all(str(text).strip() for text in texts):
            raise EmptyText(f"{where}: an empty sentence")
        return TextExample(tuple(map(str, texts)), None)

    def split_of(self, examples: Sequence[TextExample], split: str) -> Split:
        features = self._features([text for example in examples for text in example.texts], {})
        labelled = all(example.label is not None for example in examples)
        return Split(examples, features, [len(example.texts) for example in examples], labelled)

    def _features(self, texts: Sequence[str], number_of: Mapping[str, int]) -> list[Features]:
        """[CLS] text [SEP] of each text; one that stands several times is tokenised once."""
        distinct = list(dict.fromkeys(texts))
        ids, lengths = self.tokenizer.tokenize([text.replace("\n", " ").encode() for text in distinct])
        pieces = dict(zip(distinct, np.split(ids, np.cumsum(lengths)[:-1]), strict=True))
        special, length = self.tokenizer.special, self.config.max_seq_length
        row_of = {text: pack([pieces[text]], special, length) for text in distinct}
        rows = [(row_of[text], {"text": number_of.get(text, 0)}) for text in texts]
        return [Features(row.input_ids, row.segment_ids, labels, row.cut) for row, labels in rows]

    # Outputs.

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """string [B] -> `embedding` float32 [B, H or the projection's width], of length 1."""

        def vectors(text: tf.Tensor) -> dict[str, tf.Tensor]:
            return predict(tokenizer.rows(text))

        return Signature(strings("text"), vectors, lambda example: {"text": example.texts[0]})

    def make_head(self, encoder: Encoder, seed: int) -> ContrastHead:
        scope, width = self.scope, encoder.architecture.hidden_size
        choices, rarity = (self.choices, self._rarity()) if self.config.do_train else (2, None)
        return ContrastHead(scope, width, choices, rarity, self.config, seed)

    def _rarity(self) -> np.ndarray | None:
        """float32 [V], log of texts to texts that hold a wordpiece, of the training data; 0 of special tokens."""
        if not self.config.lexical_weight:
            return None
        found = np.zeros(len(self.tokenizer))
        features = [feature for feature in self.load("train").features if feature.labels["text"]]
        for feature in features:
            found[np.unique(feature.input_ids)] += 1
        rarity = np.log((1 + len(features)) / (1 + found))
        rarity[list(self.tokenizer.special[:5])] = 0
        return rarity.astype(np.float32)

    def similarities(self, split: Split, predictions: Sequence[Prediction]) -> np.ndarray:
        """float32 [examples], the cosine of each pair's vectors."""
        vectors = np.stack([prediction["embedding"] for prediction in predictions])
        return np.sum(vectors[0::2] * vectors[1::2], axis=1)

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        gold = np.array([example.label for example in split.examples], np.float64)
        found = self.similarities(split, predictions)
        return {"spearman": spearman(gold, found), "pearson": pearson(gold, found)}

    def predicted(self, split: Split, predictions: Sequence[Prediction]) -> Sequence[Any]:
        return np.round(self.similarities(split, predictions), 4).tolist()

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        return [
            {f"text{number}": text for number, text in enumerate(one.texts, start=1)} | {"gold": one.label}
            for one in split.examples
        ]

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """`embedding` of a text, `similarity` of two."""
        return [
            {"embedding": own[0].tolist()} if len(own) == 1 else {"similarity": float(own[0] @ own[1])}
            for own in split.by_example([prediction["embedding"] for prediction in predictions])
        ]


def read_texts(path: Path) -> list[tuple[str, str, str]]:
    """(text, positive, negative) of each line of a training file.

    Tables have them under one of the names of `_COLUMNS`; plain text has a sentence a line. What a line lacks is "".

    Raises:
      UserError: no or an empty text; names file and line.
    """
    found = []
    table = open_table(path, of_line=lambda line: {"text": line.strip()})
    for line, row in table.readable():
        text, positive, negative = (_of_row(row, names) for names in _COLUMNS)
        if not all(value is None or isinstance(value, str) for value in (text, positive, negative)):
            raise UserError(f"{table.where(line)}: texts are needed, got {shown(row)}")
        if not text or not text.strip():
            names = ", ".join(_COLUMNS[0])
            raise UserError(f"{table.where(line)}: no text (a column named {names}); it has {shown(', '.join(row))}")
        found.append((text, positive if positive and positive.strip() else "", negative or ""))
    if not found:
        raise UserError(f"{path} holds no texts")
    return found


def _of_row(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first name that is there; None without one."""
    return next((row[name] for name in names if row.get(name) is not None), None)
