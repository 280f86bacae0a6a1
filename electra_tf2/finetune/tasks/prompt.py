"""Prompt-based fine-tuning: the network predicts the label as a word at [MASK], beside labelled examples.

    [CLS] the question in the template, with [MASK] [SEP] an example of the first label, with its word [SEP] ... [SEP]

This is LM-BFF's "prompt-based fine-tuning with demonstrations" (Gao et al. 2021), which COCO-LM's Table 4 uses. The
question is the example to be classified. The labelled examples behind it, demonstrations, are drawn anew for every
training input, never the question itself. An evaluation averages the logits of several draws. All segment ids are 0.
"""

import copy
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.encoding import truncated_lengths
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.tasks.head import Head, HeadInput, HeadOutput
from electra_tf2.finetune.tasks.prompt_template import MASK, Field, parse_template, prompt_of
from electra_tf2.finetune.tasks.sampling import shuffled_groups
from electra_tf2.finetune.tasks.targets import Scale
from electra_tf2.finetune.tasks.task import Features, Label, Prediction, Split, Task, TaskData
from electra_tf2.finetune.tasks.text import TextTask, golds_of
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_model import has_transform
from electra_tf2.model.coco_lm_heads import vocabulary_head
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels.products import matmul
from electra_tf2.model.layers import SeedStream
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError

_TRAINING_INPUTS = 8000  # LM-BFF trains 1,000 steps of 8
_SAVED_DEMONSTRATIONS = 16  # of each label, saved with a fine-tuned model; LM-BFF draws from as many


class _Prompted(NamedTuple):
    """An example in the template.

    ids: int32, its wordpieces. mask: position of [MASK] among them. cut: number of wordpieces that did not fit.
    """

    ids: np.ndarray
    mask: int
    cut: int


class PromptTask(Task):
    """Classification or regression whose labels are words of the vocabulary.

    Only inputs and head differ from the TextTask `text`, which reads files, scores and answers.
    """

    settings: TextSettings

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        settings: TextSettings = TextSettings(),
        **files: Any,
    ) -> None:
        super().__init__(name, config, tokenizer, **files)
        self.text = TextTask(name, config, tokenizer, settings, **files)
        self.settings = settings
        self.primary_metric = self.text.primary_metric
        self.evaluation_splits = self.text.evaluation_splits
        self.test_splits = self.text.test_splits
        self.text_keys = self.text.text_keys
        self.prompt = prompt_of(name, settings.prompt, config.prompt_template, config.prompt_words)
        self.parts = parse_template(self.prompt.template)
        self._fields = [part for part in self.parts if isinstance(part, Field)]
        num_texts = len(settings.texts)
        if any(field.text_index >= num_texts for field in self._fields):
            raise UserError(
                f"prompt_template: {self.prompt.template!r}: {self.name} has {num_texts} text, so {{0}} is its "
                "only field"
            )
        words = [part for part in self.parts if isinstance(part, str) and part != MASK]
        self._pieces_of_words = dict(zip(words, self.text.pieces(words), strict=True))
        self._head: tuple[str, bool] | None = None  # scope, and whether it has a transform
        self._pools: dict[bool, _Pool] = {}  # by whether they are for new text
        self._saved_demonstrations: list[TextExample] = []  # those of the fine-tuned model that was loaded

    @property
    def target(self) -> Any:
        return self.text.target

    @target.setter
    def target(self, target: Any) -> None:
        self.text.target = target

    def name_columns(self, texts: Sequence[str], label: str = "") -> None:
        self.text = copy.copy(self.text)
        self.text.name_columns(texts, label)
        self.settings = self.text.settings
        self.text_keys = self.text.text_keys

    # Files to examples, as of the text task.

    def read(self, split: str) -> TaskData:
        return self.text.read(split)

    def example(self, row: dict[str, Any], where: str, index: int) -> TextExample:
        return self.text.example(row, where, index)

    # Words.

    @property
    def ends(self) -> tuple[str, ...]:
        """Names for which words stand: the labels, or the ends of a regression's scale."""
        if self.text.is_regression:
            return ("low", "high")
        return self.text.label_names

    @property
    def word_ids(self) -> list[int]:
        """The wordpiece of each label.

        Raises:
          UserError: a label has no word, a word is not one wordpiece, or two labels share one.
        """
        words = self.prompt.words
        missing = [name for name in self.ends if name not in words]
        if missing:
            raise UserError(f"prompt_words: {self.name}: no word for {', '.join(missing)}, only for {', '.join(words)}")
        ids = []
        pieces_of_words = self.text.pieces([words[name] for name in self.ends])
        for name, pieces in zip(self.ends, pieces_of_words, strict=True):
            if len(pieces) != 1 or pieces[0] == self.tokenizer.special.unk:
                tokens = " ".join(self.tokenizer.convert_ids_to_tokens(pieces))
                raise UserError(
                    f"prompt_words: {self.name}: {words[name]!r} must be one token of {self.config.vocab_file}, but it "
                    f"is {tokens or 'none'}: choose another word for {name}, by prompt_words"
                )
            ids.append(int(pieces[0]))
        if len(set(ids)) < len(ids):
            raise UserError(f"prompt_words: {self.name}: two labels have the same word: {dict(words)}")
        return ids

    # Examples to features.

    @property
    def labels(self) -> dict[str, Label]:
        return self.text.labels | {"mask_positions": Label("int32", is_input=True)}

    def encode(self, examples: Sequence[TextExample], split: str) -> Split:
        """Makes several inputs of each example, each with other demonstrations.

        A pair is not turned around for training, since its template would not fit.
        """
        special = self.tokenizer.special
        word_ids = self.word_ids
        draws = self._draws(len(examples), split)
        cls = np.array([special.cls], np.int32)
        sep = np.array([special.sep], np.int32)
        features = []
        for index, (example, question) in enumerate(zip(examples, self._prompted(examples), strict=True)):
            mask_position = question.mask + 1  # behind [CLS]
            labels = self.text.label_values(example) | {"mask_positions": mask_position}
            for draw in range(draws):
                blocks = [cls, _with_word(question, special.mask), sep]
                if self.config.prompt_demonstrations:
                    demonstrations = self._demonstrations(split, index, draw)
                    for word, demonstration in zip(word_ids, demonstrations, strict=True):
                        blocks += [_with_word(demonstration, word), sep]
                input_ids = np.concatenate(blocks)
                features.append(Features(input_ids, np.zeros_like(input_ids), labels, question.cut))
        labelled = all(example.label is not None for example in examples)
        counts = [draws] * len(examples)
        return Split(examples, features, counts, labelled, golds=golds_of(examples, labelled))

    def _draws(self, examples: int, split: str) -> int:
        """Number of inputs that are made of each example."""
        if not self.config.prompt_demonstrations:
            return 1
        if split != "train":
            return self.config.prompt_evaluation_draws
        if self.config.prompt_draws:
            return self.config.prompt_draws
        return max(1, round(_TRAINING_INPUTS / max(1, examples)))

    def _demonstrations(self, split: str, index: int, draw: int) -> list[_Prompted]:
        """Draws a training example of each label, in the order of `ends`, for the example `index` of a split."""
        pool = self._pool(is_new=split == "new")
        random = np.random.default_rng([self.config.few_shot_seed, zlib.crc32(split.encode()), index, draw])
        chosen = []
        for members in pool.members:
            member = members[random.integers(len(members))]
            # The question itself would show its answer.
            while split == "train" and member == index:
                member = members[random.integers(len(members))]
            chosen.append(pool.prompted[member])
        return chosen

    def _pool(self, is_new: bool) -> "_Pool":
        """The examples to draw demonstrations from: training examples, or for new text those saved with the model."""
        if is_new in self._pools:
            return self._pools[is_new]
        if is_new and self._saved_demonstrations:
            examples = self._saved_demonstrations
        else:
            if not self.training:
                # This process only evaluates: nothing has read the training data so far.
                self.load("train")
            examples = self.training
        groups = np.array([self.target.group(example.label) for example in examples])
        members = [np.flatnonzero(groups == group).tolist() for group in range(len(self.ends))]
        for name, indices in zip(self.ends, members, strict=True):
            if len(indices) < 2:
                raise UserError(
                    f"prompt_demonstrations: {self.name} has {len(indices)} training example(s) of {name}, but 2 "
                    "are needed, the question apart: raise few_shot, or set prompt_demonstrations to false"
                )
        self._pools[is_new] = _Pool(self._prompted(examples), members)
        return self._pools[is_new]

    def _prompted(self, examples: Sequence[TextExample]) -> list[_Prompted]:
        """Puts examples in the template. Texts are cut so that an input's blocks fit, the longer of a pair first."""
        fixed_pieces = self._pieces_of_words | {MASK: np.zeros(1, np.int32)}  # _with_word fills in the 0
        room = self._room(fixed_pieces)
        texts = []
        for example in examples:
            texts += [field.filled(example.texts) for field in self._fields]
        pieces = iter(self.text.pieces(texts))
        result = []
        for _ in examples:
            pieces_of_texts = [next(pieces) for _ in self._fields]
            lengths = truncated_lengths([len(text) for text in pieces_of_texts], room)
            prompt: list[np.ndarray] = []
            num_fields = 0
            for part in self.parts:
                if isinstance(part, str):
                    prompt.append(fixed_pieces[part])
                else:
                    prompt.append(pieces_of_texts[num_fields][: lengths[num_fields]])
                    num_fields += 1
            before_mask = prompt[: self.parts.index(MASK)]
            mask = sum(len(part) for part in before_mask)
            cut = sum(len(text) for text in pieces_of_texts) - sum(lengths)
            result.append(_Prompted(np.concatenate(prompt), mask, cut))
        return result

    def _room(self, fixed_pieces: Mapping[str, np.ndarray]) -> int:
        """Number of wordpieces that a block has for texts. Raises UserError: less than one for each text."""
        blocks = 1
        if self.config.prompt_demonstrations:
            blocks += len(self.ends)
        fixed_length = 1  # [SEP]
        for part in self.parts:
            if isinstance(part, str):
                fixed_length += len(fixed_pieces[part])
        block_length = (self.config.max_seq_length - 1) // blocks  # besides [CLS]
        room = block_length - fixed_length
        if room < len(self._fields):
            raise UserError(
                f"max_seq_length {self.config.max_seq_length} is too short for {blocks} prompts with the template "
                f"{self.prompt.template!r}"
            )
        return room

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> "LabelWordHead":
        if self._head is None:
            self._head = language_model_head(self.config.init_checkpoint)
        scope, transform = self._head
        return LabelWordHead(scope, encoder, transform, self.word_ids, self.text.is_regression, seed)

    # Scores and answers, of the mean over the draws.

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        return self.text.scores(split, self._means(split, predictions))

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        return self.text.answers(split, self._means(split, predictions))

    def majority(self, split: Split) -> dict[str, float]:
        return self.text.majority(split)

    def write_submission(self, name: str, split: Split, answers: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        return self.text.write_submission(name, split, answers, folder)

    def _means(self, split: Split, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Averages each example's logits over the draws of demonstrations."""
        means: list[Prediction] = []
        for draws in split.by_example(predictions):
            logits = np.mean([prediction["logits"] for prediction in draws], axis=0)
            if isinstance(self.target, Scale):
                low, high = logits
                share = 1 / (1 + np.exp(low - high))  # softmax probability of the upper end's word
                means.append({"value": np.asarray(self.target.value(share))})
            else:
                means.append({"logits": logits})
        return means

    def state(self) -> dict[str, Any]:
        assert self._head is not None
        demonstrations = [(example.texts, example.label) for example in self._demonstrations_to_save()]
        state = self.text.state()
        return state | {"language_model_head": list(self._head), "demonstrations": demonstrations}

    def _demonstrations_to_save(self) -> list[TextExample]:
        """Draws a few training examples of each label, with which new text is labelled without the training data."""
        if not self.config.prompt_demonstrations:
            return []
        groups = np.array([self.target.group(example.label) for example in self.training], np.int64)
        chosen: list[int] = []
        for members in shuffled_groups(groups, self.config.few_shot_seed):
            chosen += members[:_SAVED_DEMONSTRATIONS]
        return [self.training[index] for index in sorted(chosen)]

    def check_state(self, saved: dict[str, Any]) -> None:
        self.text.check_state(saved)
        scope, transform = saved["language_model_head"]
        self._head = scope, transform
        demonstrations = saved.get("demonstrations", [])
        self._saved_demonstrations = [TextExample(tuple(texts), label) for texts, label in demonstrations]


class _Pool(NamedTuple):
    """Training examples in the template, and the indices of those of each label."""

    prompted: list[_Prompted]
    members: list[list[int]]


def _with_word(prompted: _Prompted, word: int) -> np.ndarray:
    """Puts a word, or [MASK] itself, at the position of [MASK]."""
    filled = prompted.ids.copy()
    filled[prompted.mask] = word
    return filled


def language_model_head(checkpoint: str | None) -> tuple[str, bool]:
    """Finds the scope of the language-model head of a checkpoint's main network, and whether it has a transform.

    Raises:
      UserError: there is none, as after ELECTRA's pre-training with a separate generator.
    """
    assert checkpoint is not None, "checked with the hparams"
    model = open_model(checkpoint)
    scope = model.language_model
    if scope is not None:
        return scope, has_transform(model.weights, scope)
    raise UserError(
        f"prompt: the main network of {checkpoint} has no language-model head: it was pre-trained to detect replaced "
        "tokens only. One is there after COCO-LM (corrective_lm_objective), BERT (--no-electra-objective), "
        "replace_mlm_objective or all_tokens_mlm_objective, or with a generator that shares the network "
        "(--no-untied-generator)"
    )


class LabelWordHead(Head):
    """Softmax over the label words (LM-BFF, equation 1): the pre-trained head, restricted to a few rows.

    In corrective language modelling p(word) at [MASK] is (1 - p_copy) times the softmax, since no label word is
    [MASK] itself. The factor is the same for all words, so the logits are enough (COCO-LM, section 3.1).

    Args:
      scope: scope of the pre-trained head.
      transform: whether it has a dense layer and a layer norm (BERT's), or tied softmax and bias alone (COCO-LM's).
      word_ids: the word of each label; in a regression those of the lower and the upper end.
    """

    def __init__(
        self, scope: str, encoder: Encoder, transform: bool, word_ids: list[int], regression: bool, seed: int
    ) -> None:
        super().__init__("", seed)
        self.language_model = vocabulary_head(scope, encoder, transform, seed)
        self.word_ids = tf.constant(word_ids)
        self.regression = regression

    def call(self, inputs: HeadInput, seeds: SeedStream | None, training: bool) -> HeadOutput:
        """Labels: int32 [B] `mask_positions`; int32 [B] `label_ids`, or float32 [B] `targets` in [0, 1].

        Predictions: float32 [B, words] logits.
        """
        positions = inputs.labels["mask_positions"][:, tf.newaxis]
        states = tf.gather(inputs.sequence, positions, batch_dims=1)
        hidden = tf.cast(self.language_model.hidden(states), tf.float32)[:, 0]
        word_embeddings = tf.gather(self.language_model.table, self.word_ids)
        logits = matmul(hidden, word_embeddings, transpose_b=True)
        logits += tf.gather(self.language_model.output_bias, self.word_ids)
        if self.regression:
            # Cross-entropy with a mixture of the two words: the KL divergence up to a constant.
            targets = inputs.labels["targets"]
            mixture = tf.stack([1.0 - targets, targets], -1)
            losses = tf.nn.softmax_cross_entropy_with_logits(mixture, logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(inputs.labels["label_ids"], logits)
        if training:
            return HeadOutput(losses, {})
        return HeadOutput(losses, {"logits": logits})
