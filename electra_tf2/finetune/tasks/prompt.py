"""Prompt-based fine-tuning: the label is a word at a [MASK], and labelled examples stand beside the question.

    [CLS] the question in the template, with [MASK] [SEP] an example of the first label, with its word [SEP] ... [SEP]

LM-BFF's "prompt-based fine-tuning with demonstrations" (Gao et al. 2021), which COCO-LM's Table 4 uses. Demonstrations
are drawn anew for every training input, never the question itself; at evaluation the logits of several draws are
averaged. All segment ids are 0.
"""

import re
import string
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.encoding import truncated_lengths
from electra_tf2.finetune.tasks.heads import LabelWordHead
from electra_tf2.finetune.tasks.targets import Scale
from electra_tf2.finetune.tasks.task import Features, Label, Prediction, Split
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.formats.readers import open_model
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.built_in import Prompt
from electra_tf2.util.errors import UserError, shown


def language_model_head(checkpoint: str | None) -> tuple[str, bool]:
    """Scope of the head over the vocabulary that the main network of a checkpoint has, and whether it has a transform.

    Raises:
      UserError: there is none, as after ELECTRA's pre-training with a generator of its own.
    """
    assert checkpoint is not None, "checked with the hparams"
    model = open_model(checkpoint)
    scope = model.language_model
    if scope is not None:
        return scope, f"{scope}/dense/kernel" in model.weights
    raise UserError(
        f"prompt: the main network of {checkpoint} has no language-model head: it was pre-trained to detect replaced "
        "tokens only. One is there after COCO-LM (corrective_lm_objective), BERT (--no-electra-objective), "
        "replace_mlm_objective or all_tokens_mlm_objective, or with a generator that shares the network "
        "(--no-untied-generator)"
    )


MASK = "[MASK]"
_MODIFIERS = ("", "trim", "lower")
_TRAINING_INPUTS = 8000  # LM-BFF trains 1,000 steps of 8
_KEPT = 16  # demonstrations of a label that a fine-tuned model keeps, as many as LM-BFF draws from


class Field(NamedTuple):
    """A text of the example. modifier "trim": without its last character; "lower": its first letter in lower case."""

    number: int
    modifier: str

    def of(self, texts: tuple[str, ...]) -> str:
        text = texts[self.number].strip()
        return {"": text, "trim": text[:-1], "lower": text[:1].lower() + text[1:]}[self.modifier]


Part = str | Field  # words that every prompt has, MASK among them, or a text of the example


def parse_template(template: str) -> list[Part]:
    """The parts of a template such as "{0:trim} ? [MASK] , {1:lower}". Raises UserError: not one [MASK], an unknown
    field or modifier, a field twice, unbalanced braces."""
    where = f"prompt_template: {template!r}"
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    parts: list[Part] = []
    for text, name, modifier, _ in pieces:
        parts += [part.strip() for part in re.split(f"({re.escape(MASK)})", text) if part.strip()]
        if name is None:
            continue
        if name not in ("0", "1") or modifier not in _MODIFIERS:
            raise UserError(f"{where}: fields are {{0}} and {{1}}, {{0:trim}}, {{0:lower}}, ...; got {{{name}}}")
        if any(isinstance(part, Field) and part.number == int(name) for part in parts):
            raise UserError(f"{where}: {{{name}}} may occur once")
        parts.append(Field(int(name), modifier or ""))
    if parts.count(MASK) != 1:
        raise UserError(f"{where}: {MASK} must occur once")
    if not any(isinstance(part, Field) for part in parts):
        raise UserError(f"{where}: it has no field for a text: {{0}}")
    return parts


def prompt_of(task: str, known: Prompt | None, template: str, words: Mapping[str, Any]) -> Prompt:
    """The prompt that hparams give, or the one known for the task. Raises UserError: neither; a word is no text."""
    for label, word in words.items():
        if not isinstance(word, str):
            raise UserError(f"prompt_words: {task}: the word of {label} must be text, got {shown(word)}")
    if not (template or known) or not (words or known):
        raise UserError(
            f"prompt: there is no known prompt for {task}: give prompt_template, such as '{{0}} It was [MASK] .', and "
            'prompt_words, such as {"negative": "terrible", "positive": "great"}'
        )
    default = known or Prompt("", {})
    return Prompt(template or default.template, dict(words) or default.words)


class _Prompted(NamedTuple):
    """An example in the template: wordpieces, which of them is the [MASK], and how many did not fit."""

    ids: np.ndarray
    mask: int
    cut: int


class PromptTask(TextTask):
    """A classification or regression task whose labels are words of the vocabulary."""

    prompts = True

    def __init__(self, *task: Any, **own: Any) -> None:
        super().__init__(*task, **own)
        config, known = self.config, self.settings.prompt
        self.prompt = prompt_of(self.name, known, config.prompt_template, config.prompt_words)
        self.parts = parse_template(self.prompt.template)
        if any(isinstance(part, Field) and part.number >= self.num_texts for part in self.parts):
            raise UserError(
                f"prompt_template: {self.prompt.template!r}: {self.name} has {self.num_texts} text, so {{0}} is its "
                "only field"
            )
        literals = [part for part in self.parts if isinstance(part, str) and part != MASK]
        self._literals = dict(zip(literals, self.pieces(literals), strict=True))
        self._head: tuple[str, bool] | None = None  # scope, and whether it has a transform
        self._pools: dict[bool, tuple[list[_Prompted], list[list[int]]]] = {}  # for new text, for the task's files
        self._kept: list[TextExample] = []

    # Words.

    @property
    def ends(self) -> tuple[str, ...]:
        """The names that words stand for: the labels, or the ends of a regression's scale."""
        return ("low", "high") if self.is_regression else self.label_names

    @property
    def word_ids(self) -> list[int]:
        """One wordpiece per label. Raises UserError: a label has no word, a word is not one wordpiece, or two labels
        share one."""
        words = self.prompt.words
        missing = [name for name in self.ends if name not in words]
        if missing:
            raise UserError(f"prompt_words: {self.name}: no word for {', '.join(missing)}, only for {', '.join(words)}")
        ids = []
        for name, pieces in zip(self.ends, self.pieces([words[name] for name in self.ends]), strict=True):
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
        return super().labels | {"mask_positions": Label("int32")}

    def load(self, split: str) -> Split:
        """As read: a prompt of a pair is not turned around, its template would not fit."""
        return self.split_of(self.examples(split), split)

    def split_of(self, examples: Sequence[TextExample], split: str) -> Split:
        """Every example several times, with demonstrations of its own each time."""
        config, special, word_ids, draws = self.config, self.tokenizer.special, self.word_ids, 1
        if config.prompt_demonstrations:
            in_training = config.prompt_draws or max(1, round(_TRAINING_INPUTS / max(1, len(examples))))
            draws = in_training if split == "train" else config.prompt_evaluation_draws
        cls, sep = np.array([special.cls], np.int32), np.array([special.sep], np.int32)
        features = []
        for number, (example, own) in enumerate(zip(examples, self._prompted(examples), strict=True)):
            labels = self._label_values(example) | {"mask_positions": own.mask + 1}
            for draw in range(draws):
                blocks = [cls, _with_word(own, special.mask), sep]
                for word, demonstration in zip(word_ids, self._demonstrations(split, number, draw), strict=False):
                    blocks += [_with_word(demonstration, word), sep]
                input_ids = np.concatenate(blocks)
                features.append(Features(input_ids, np.zeros_like(input_ids), labels, own.cut))
        labelled = all(example.label is not None for example in examples)
        return Split(list(examples), features, [draws] * len(examples), labelled)

    def _demonstrations(self, split: str, number: int, draw: int) -> list[_Prompted]:
        """One training example of each label, in the order of the words; none without demonstrations."""
        if not self.config.prompt_demonstrations:
            return []
        new = split == "new"
        if new not in self._pools:
            examples = (self._kept if new else None) or self.examples("train")
            members_of = [np.flatnonzero(self.groups(examples) == i).tolist() for i in range(len(self.ends))]
            self._pools[new] = self._prompted(examples), members_of
            for name, members in zip(self.ends, members_of, strict=True):
                if len(members) < 2:
                    raise UserError(
                        f"prompt_demonstrations: {self.name} has {len(members)} training example(s) of {name}, but 2 "
                        "are needed, the question apart: raise few_shot, or set prompt_demonstrations to false"
                    )
        prompted, members_of = self._pools[new]
        random = np.random.default_rng([self.config.few_shot_seed, zlib.crc32(split.encode()), number, draw])
        chosen = []
        for members in members_of:
            index = members[random.integers(len(members))]
            while split == "train" and index == number:
                index = members[random.integers(len(members))]
            chosen.append(prompted[index])
        return chosen

    def _prompted(self, examples: Sequence[TextExample]) -> list[_Prompted]:
        """Examples in the template. Texts are cut so that all blocks of an input fit, the longer of a pair first."""
        fields = [part for part in self.parts if isinstance(part, Field)]
        pieces = iter(self.pieces([field.of(example.texts) for example in examples for field in fields]))
        blocks = 1 + (len(self.ends) if self.config.prompt_demonstrations else 0)
        placed = self._literals | {MASK: np.zeros(1, np.int32)}
        fixed = 1 + sum(len(placed[part]) for part in self.parts if isinstance(part, str))  # with [SEP]
        room = (self.config.max_seq_length - 1) // blocks - fixed
        if room < len(fields):
            raise UserError(
                f"max_seq_length {self.config.max_seq_length} is too short for {blocks} prompts with the template "
                f"{self.prompt.template!r}"
            )
        result = []
        for _ in examples:
            texts = [next(pieces) for _ in fields]
            lengths = truncated_lengths([len(text) for text in texts], room)
            kept = (text[:length] for text, length in zip(texts, lengths, strict=True))
            parts = [placed[part] if isinstance(part, str) else next(kept) for part in self.parts]
            mask = sum(map(len, parts[: self.parts.index(MASK)]))
            result.append(_Prompted(np.concatenate(parts), mask, sum(map(len, texts)) - sum(lengths)))
        return result

    # The head, and what it says.

    def make_head(self, encoder: Encoder, seed: int) -> LabelWordHead:
        scope, transform = self._head or language_model_head(self.config.init_checkpoint)
        self._head = scope, transform
        return LabelWordHead(scope, encoder, transform, self.word_ids, self.is_regression, seed)

    def state(self) -> dict[str, Any]:
        assert self._head is not None
        # A few training examples of each label stay with the model, as demonstrations for new text.
        examples = self.examples("train") if self.config.prompt_demonstrations else []
        groups = self.groups(examples)
        order = np.random.default_rng(self.config.few_shot_seed).permutation(len(examples))
        chosen = [i for group in np.unique(groups) for i in [i for i in order if groups[i] == group][:_KEPT]]
        kept = [(examples[i].texts, examples[i].label) for i in sorted(chosen)]
        return super().state() | {"language_model_head": list(self._head), "demonstrations": kept}

    def check_state(self, saved: dict[str, Any]) -> None:
        super().check_state(saved)
        self._head = saved["language_model_head"][0], saved["language_model_head"][1]
        self._kept = [TextExample(tuple(texts), label) for texts, label in saved.get("demonstrations", [])]

    def mean_prediction(self, means: Prediction) -> Prediction:
        """Prediction from the mean over several draws of demonstrations."""
        if not isinstance(self.target, Scale):
            return means
        low, high = means["logits"]
        return {"value": np.asarray(self.target.value(1 / (1 + np.exp(low - high))))}


def _with_word(prompted: _Prompted, word: int) -> np.ndarray:
    filled = prompted.ids.copy()
    filled[prompted.mask] = word
    return filled
