"""Vectors of sentences: trained by contrast with the other sentences of a batch, scored by human judgments.

    train file --read_triplets--> (text, positive, negative) --encode--> Features, two or three that lie together
    pairs with a score --TextTask--> cosines of two vectors --> Spearman's correlation

An example is a text, one that means the same, and perhaps one that looks alike and means something else, a hard
negative (SimCSE, section 4). A text alone is its own partner: dropout makes its two passes different (section 3).
Vectors are scored on STS-B's development data and on pairs of one's own, if their files exist. Nothing learns from the
scores of these pairs. B rows, N examples, H hidden.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import pack
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.files import table_files
from electra_tf2.files.cells import is_null
from electra_tf2.files.tables import open_table
from electra_tf2.finetune.tasks.head import Head, HeadInput, HeadOutput
from electra_tf2.finetune.tasks.task import EmptyText, Features, Label, Prediction, Split, Task, TaskData
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.layers import Dense, SeedStream
from electra_tf2.model.pooling import orthogonal, text_vectors
from electra_tf2.settings import columns
from electra_tf2.settings.built_in import BUILT_IN, TextSettings
from electra_tf2.settings.metrics import pearson, spearman
from electra_tf2.util.errors import UserError, shown

_IMPOSSIBLE = -1e9  # logit of what stands for nothing to contrast with
_SCORED_PAIRS = TextSettings(
    columns.SCORED_PAIR, columns.SCORE, metrics=("spearman", "pearson"), value_range=(-np.inf, np.inf)
)


def read_triplets(path: Path) -> list[tuple[str, str, str]]:
    """Reads (text, positive, negative) of each line of a training file; "" for what a line lacks.

    Tables have them under names of settings.columns. Plain text has a sentence in each line.

    Raises:
      UserError: no or an empty text; names file and line.
    """
    rows = []
    table = open_table(path, parse_line=_row_of_line)
    for row in table.checked():
        values = row.values
        where = table.where(row.line)
        text = _first_value(values, columns.ANCHOR)
        positive = _first_value(values, columns.POSITIVE)
        negative = _first_value(values, columns.NEGATIVE)
        if not all(value is None or isinstance(value, str) for value in (text, positive, negative)):
            raise UserError(f"{where}: texts are needed, got {shown(values)}")
        if not text or not text.strip():
            names = ", ".join(columns.ANCHOR)
            raise UserError(f"{where}: no text (a column named {names}); it has {shown(', '.join(values))}")
        if not positive or not positive.strip():
            positive = ""
        rows.append((text, positive, negative or ""))
    if not rows:
        raise UserError(f"{path} holds no texts")
    return rows


def _row_of_line(line: str) -> dict[str, Any] | None:
    """The row of a line of plain text; None of a blank one."""
    text = line.strip()
    return {"text": text} if text else None


def _first_value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Takes the value under the first of the names that has one; None if none has."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    return None


class EmbeddingTask(Task):
    """Vectors of sentences whose cosine says how alike two sentences are."""

    primary_metric = "spearman"
    text_keys = (("text",), ("text1", "text2"))

    def __init__(
        self, name: str, config: FinetuningConfig, tokenizer: WordpieceTokenizer, files: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, config, tokenizer, endings=(*table_files.ENDINGS, "txt"), files=files)
        pairs = TextTask(name, config, tokenizer, _SCORED_PAIRS, files=files)
        known = BUILT_IN["sts"]
        sts = TextTask("sts", config, tokenizer, known.text or TextSettings(), **known.options)
        # The tasks that read scored pairs, and their splits.
        self._scored = {"dev": (pairs, "dev"), "sts": (sts, "dev"), "test": (pairs, "test")}
        with_files = []
        for split, (task, task_split) in self._scored.items():
            if task.files.exists(task_split):
                with_files.append(split)
        self.evaluation_splits = tuple(split for split in with_files if split != "test")
        if not self.evaluation_splits:
            self.evaluation_splits = ("dev",)  # which `read` reports as missing
        self.test_splits = tuple(split for split in with_files if split == "test")

    def name_columns(self, texts: Sequence[str], label: str = "") -> None:
        super().name_columns(texts)
        if label or len(texts) == 2:
            pairs = copy.copy(self._scored["dev"][0])
            pairs.name_columns(texts, label)
            self._scored = self._scored | {"dev": (pairs, "dev"), "test": (pairs, "test")}

    # Files to examples.

    def read(self, split: str) -> TaskData:
        """Reads training examples of two texts, or three if one of them has a negative, or scored pairs."""
        if split == "train":
            return TaskData(self._training_examples())
        task, task_split = self._scored[split]
        try:
            task.files.path(task_split)
        except UserError as error:
            raise UserError(
                f"{error}. Vectors are scored on STS-B's development data (sts/dev.tsv), or pairs of your "
                "own with a score: a dev file with the columns text1, text2, score"
            ) from None
        return task.read(task_split)

    def _training_examples(self) -> list[TextExample]:
        rows: list[tuple[str, str, str]] = []
        for path in self.files.paths("train"):
            rows += read_triplets(path)
        architecture = self.config.architecture
        if not architecture.hidden_dropout_prob and not architecture.attention_probs_dropout_prob:
            for text, positive, _ in rows:
                if not positive:
                    raise UserError(
                        f"{self.files.path('train')}: {shown(text)} has no other text beside it. Two passes over the "
                        "same text differ by dropout alone, and this model has none: give "
                        "hidden_dropout_prob 0.1, or pairs"
                    )
        num_texts = 2
        if any(negative for _, _, negative in rows):
            num_texts = 3
        examples = []
        for text, positive, negative in rows:
            texts = (text, positive or text, negative)
            examples.append(TextExample(texts[:num_texts], None))
        return examples

    def files_of(self, split: str) -> list[Path]:
        if split == "train":
            return super().files_of(split)
        task, task_split = self._scored[split]
        return task.files_of(task_split)

    def example(self, row: dict[str, Any], where: str, index: int) -> TextExample:
        """Reads `text`, to be answered by its vector, or `text1` and `text2`, by their similarity."""
        names_of_texts: Sequence[tuple[str, ...]] = [columns.ANCHOR]
        if any(name in row for name in columns.SCORED_PAIR[1]):
            names_of_texts = columns.SCORED_PAIR
        texts = []
        for names in names_of_texts:
            given = [row[name] for name in names if name in row]
            if given and all(map(is_null, given)):
                raise EmptyText(f"{where}: an empty text")
            texts.append(_first_value(row, names))
        if not all(isinstance(text, str) for text in texts):
            raise UserError(f"{where}: a text, or text1 and text2, are needed; got {shown(row)}")
        if not all(str(text).strip() for text in texts):
            raise EmptyText(f"{where}: an empty text")
        return TextExample(tuple(map(str, texts)), None)

    # Examples to features.

    @property
    def labels(self) -> dict[str, Label]:
        """`text`: an id of the text, the same for equal ones; 0 for one that is not there, or of another task."""
        return {"text": Label("int32")}

    def encode(self, examples: Sequence[TextExample], split: str) -> Split:
        """Makes [CLS] text [SEP] of each text. A text that occurs several times is tokenised once."""
        texts: list[str] = []
        for example in examples:
            texts += example.texts
        distinct = list(dict.fromkeys(texts))
        all_pieces = self.tokenizer.pieces([text.replace("\n", " ") for text in distinct])
        row_by_text = {}
        for text, pieces in zip(distinct, all_pieces, strict=True):
            row_by_text[text] = pack([pieces], self.tokenizer.special, self.config.max_seq_length)
        # Equal texts get equal ids, by which the loss knows them; 0 is a missing negative.
        text_ids = {"": 0}
        for text in distinct:
            text_ids.setdefault(text, len(text_ids))
        features = []
        for text in texts:
            row = row_by_text[text]
            text_id = text_ids[text] if split == "train" else 0
            features.append(Features(row.input_ids, row.segment_ids, {"text": text_id}, row.cut))
        counts = [len(example.texts) for example in examples]
        if split == "train":
            # An example is learned as a whole, while elsewhere each text has a vector of its own.
            return Split(examples, features, counts, labelled=False, choices=counts[0])
        return Split(examples, features, counts, all(example.label is not None for example in examples))

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> "ContrastHead":
        width = encoder.architecture.hidden_size
        choices = len(self.training[0].texts) if self.training else 1
        return ContrastHead(self.scope, width, choices, self._rarity(), self.config, seed)

    def _rarity(self) -> np.ndarray | None:
        """Inverse document frequency of each wordpiece in the training texts, float32 [V]; 0 for special tokens."""
        if not self.config.lexical_weight or not self.config.do_train:
            return None
        holding = np.zeros(len(self.tokenizer))
        features = self.encode(self.training, "train").features
        texts = [feature for feature in features if feature.labels["text"]]
        for feature in texts:
            holding[np.unique(feature.input_ids)] += 1
        rarity = np.log((1 + len(texts)) / (1 + holding))
        rarity[list(self.tokenizer.special[:5])] = 0
        return rarity.astype(np.float32)

    # Scores and answers.

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        """Computes the correlations of the cosines with the people's scores."""
        gold = np.array([example.label for example in split.examples], np.float64)
        vectors = np.stack([prediction["embedding"] for prediction in predictions])
        similarities = np.sum(vectors[0::2] * vectors[1::2], axis=1)  # vectors of length 1, a pair's together
        return {"spearman": spearman(gold, similarities), "pearson": pearson(gold, similarities)}

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Makes the `embedding` of a text, or the `similarity` of two."""
        answers: list[dict[str, Any]] = []
        for vectors in split.by_example([prediction["embedding"] for prediction in predictions]):
            if len(vectors) == 1:
                answers.append({"embedding": vectors[0].tolist()})
            else:
                answers.append({"similarity": float(vectors[0] @ vectors[1])})
        return answers


class ContrastHead(Head):
    """Softmax over the texts of a batch that could be a text's partner (SimCSE, equations 1 and 5).

    It has no variables: the encoder learns. Texts are compared with those of their micro-batch on their device, except
    for texts equal to the text or to its partner, and partners of equal texts.

    Args:
      choices: number of an example's texts, neighbouring rows: the text, its partner, and with 3 its negative.
    """

    def __init__(
        self, scope: str, hidden_size: int, choices: int, rarity: np.ndarray | None, config: FinetuningConfig, seed: int
    ) -> None:
        super().__init__(scope, seed)
        self.projection = None
        if config.embedding_projection:
            width = config.embedding_projection
            self.projection = Dense(f"{scope}/projection", hidden_size, width, orthogonal, seed)
        self.choices = choices
        self.rarity = rarity
        self.lexical_weight = config.lexical_weight
        self.pooling = config.classifier_pooling
        self.temperature = config.contrast_temperature

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `text`. Losses: the example's, in equal parts on its rows. Predictions: float32
        `embedding` [B, H], of length 1."""
        del seeds
        vectors = text_vectors(inputs.sequence, inputs.input_mask, self.pooling, self.projection)
        if not training:
            return HeadOutput(None, {"embedding": vectors})  # a text by itself has no loss
        losses = self._example_losses(vectors, inputs)
        return HeadOutput(tf.repeat(losses / self.choices, self.choices), {})

    def _example_losses(self, vectors: tf.Tensor, inputs: HeadInput) -> tf.Tensor:
        """Computes the loss of each example, float32 [N]."""
        # [N, H] and [N]: all texts, all partners, and with 3 choices all negatives.
        anchors, *others = self._by_choice(vectors)
        anchor_ids, *other_ids = self._by_choice(inputs.labels["text"])
        # C = N (choices - 1) candidates, the partners first: the n-th example's partner is the n-th candidate.
        candidates = tf.concat(others, 0)
        candidate_ids = tf.concat(other_ids, 0)
        cosines = matmul(anchors, candidates, transpose_b=True)  # [N, C]
        rows = tf.range(tf.shape(cosines)[0])
        is_partner = rows[:, tf.newaxis] == tf.range(tf.shape(cosines)[1])
        # The text of which a candidate is the partner; 0 of negatives, which are nobody's.
        partner_of = tf.concat([anchor_ids, *map(tf.zeros_like, other_ids[1:])], 0)
        # What means the same as the text is no contrast to it; nor is a negative that is missing.
        no_contrast = candidate_ids == 0
        no_contrast |= candidate_ids == anchor_ids[:, tf.newaxis]
        no_contrast |= candidate_ids == other_ids[0][:, tf.newaxis]
        no_contrast |= partner_of == anchor_ids[:, tf.newaxis]
        logits = tf.where(no_contrast & ~is_partner, _IMPOSSIBLE, cosines / self.temperature)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(rows, logits)
        if self.rarity is None:
            return losses
        # The lexical term: cosines are drawn to those of the texts' weighted wordpieces.
        anchor_words, *other_words = self._by_choice(_words(inputs, self.rarity))
        targets = matmul(anchor_words, tf.concat(other_words, 0), transpose_b=True)
        errors = tf.where(candidate_ids == 0, 0.0, tf.square(cosines - targets))
        # A text's partner counts as much as all others, whose cosines differ little.
        weights = tf.where(is_partner, 1.0, 1.0 / tf.cast(tf.shape(cosines)[1], tf.float32))
        return losses + self.lexical_weight * tf.reduce_sum(weights * errors, -1)

    def _by_choice(self, values: tf.Tensor) -> list[tf.Tensor]:
        """Splits values [B, ...], whose rows go example by example, into [N, ...] for each choice."""
        return tf.unstack(tf.reshape(values, [-1, self.choices, *values.shape[1:]]), axis=1)


def _words(inputs: HeadInput, rarity: np.ndarray) -> tf.Tensor:
    """Computes vectors of wordpieces, float32 [B, V] of length 1: log(1 + count) * rarity of each."""
    assert inputs.input_ids is not None
    ids = inputs.input_ids * inputs.input_mask  # padding counts as id 0, a special token of rarity 0
    rows = tf.range(tf.shape(ids)[0])[:, tf.newaxis] + tf.zeros_like(ids)
    places = tf.stack([rows, ids], -1)
    counts = tf.scatter_nd(places, tf.ones_like(ids, tf.float32), [tf.shape(ids)[0], len(rarity)])
    return tf.math.l2_normalize(tf.math.log1p(counts) * rarity, -1)
