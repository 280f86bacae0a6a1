"""A model in files as one thing, whatever wrote the files: sizes, tokenizer, weights by our names, heads.

formats.readers finds the model at a path. Each format is a module of this folder: a subclass of StoredModel that reads
it, and functions that write it. Configurations ask a stored model for sizes, casing and vocabulary, so nothing imports
TensorFlow or numpy before weights are asked for, or the sizes of a checkpoint that has no config.json.
"""

import copy
from collections.abc import Container, Mapping
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf2.config.recipes import read_recipe
from electra_tf2.corpus.vocabulary import is_wordpiece, load_tokens
from electra_tf2.files.reading import is_file
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from electra_tf2.corpus.tokenization import WordpieceTokenizer

# Hparams that describe the network and its input.
NETWORK_HPARAMS = (
    "model_size",
    "model_hparam_overrides",
    "embedding_size",
    "vocab_size",
    "do_lower_case",
    "vocab_file",
)
DETECTOR = "discriminator_predictions"  # head that detects replaced tokens
MASKED_LM = "generator_predictions"  # head of the generator, or of the main network where there is no other network
CORRECTIVE_LM = "clm_predictions"  # head of a main network beside its generator


def main_language_model(names: Container[str], has_generator: bool) -> str | None:
    """Scope of the head over the vocabulary that reads the main network's states; None where no variable is of one.

    It fills [MASK]s where there is no generator. Beside one, the main network has never read any.
    """
    heads = [CORRECTIVE_LM] if has_generator else [MASKED_LM, CORRECTIVE_LM]
    return next((head for head in heads if f"{head}/output_bias" in names), None)


def has_transform(names: Container[str], head: str) -> bool:
    """True where a head over the vocabulary has BERT's dense layer and norm before the softmax; COCO-LM's has not."""
    return f"{head}/dense/kernel" in names


class Casing(NamedTuple):
    """Normalisation of text; strip_accents None: as do_lower_case."""

    do_lower_case: bool = True
    strip_accents: bool | None = None

    @property
    def hparams(self) -> dict[str, Any]:
        """Hparams of our configurations."""
        return {"do_lower_case": self.do_lower_case, "do_strip_accents": self.strip_accents}


class Given(NamedTuple):
    """Facts about a model that its files lack and a user gives.

    vocab_file, num_attention_heads, do_lower_case: of a checkpoint without a configuration. pairs: True if a classifier
    of Hugging Face reads pairs of texts.
    """

    vocab_file: str | None = None
    num_attention_heads: int | None = None
    do_lower_case: bool | None = None
    pairs: bool = False


NOTHING = Given()


class StoredModel:
    """A model in files. This class itself stands for "no model here"; each format has a subclass.

    Its properties are read when they are asked for, and raise UserError for files that are damaged or lack something.

    Args:
      path: of its folder, of a checkpoint, or of a file of weights.
    """

    is_run = False  # True: `hparams` are those of the run that trained it
    answered_by_files: tuple[str, ...] = ()  # fields of `Given` that nobody may give, since its files hold them
    # What its configuration adds, which writers need: `inference.configured.described` sets these three.
    generator_sizes: Architecture | None = None  # set before, too, for a generator that came from another model
    resolved_hparams: dict[str, Any]  # `hparams` with every default filled in, without paths
    task_classes: dict[str, str]  # by task: name behind the family's of the class of transformers for its kind, or ""

    def __init__(self, path: str | Path, given: Given = NOTHING) -> None:
        self.path, self.given = str(path), given

    def changed(self, **properties: Any) -> "StoredModel":
        """The model with other values of some properties."""
        other = copy.copy(self)
        vars(other).update(properties)
        return other

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def is_fine_tuned(self) -> bool:
        return "task_names" in self.hparams

    @cached_property
    def origin(self) -> str:
        """A description of where it came from."""
        return f"the model in {self.folder.name}"

    # Its network.

    @cached_property
    def hparams(self) -> dict[str, Any]:
        """Hparams of the run that made it, or those that a run of this network would have."""
        return {}

    @cached_property
    def network(self) -> dict[str, Any]:
        """Those of `NETWORK_HPARAMS` and do_strip_accents that its files hold; {} where there is no model."""
        return {}

    @cached_property
    def generator_hparams(self) -> dict[str, Any]:
        """Sizes of the generator in a checkpoint of the original, which need not be a recipe's: that of the released
        small model is as wide as the discriminator. {} of other models."""
        return {}

    @property
    def architecture(self) -> Architecture:
        """Sizes of the main network."""
        names = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")
        return make_architecture(*(self.hparams[name] for name in names))

    # Its input.

    @cached_property
    def vocab_file(self) -> str:
        """Path of its vocabulary or tokenizer.json."""
        raise NotImplementedError

    @cached_property
    def tokens(self) -> list[str]:
        """The vocabulary, in the order of ids."""
        tokens = load_tokens(self.vocab_file)
        expected = self.hparams["vocab_size"]
        if len(tokens) != expected:
            raise UserError(
                f"{self.path} was trained with {expected} tokens, but {self.vocab_file} has {len(tokens)}: name its "
                "vocabulary with --vocab-file"
            )
        return tokens

    @cached_property
    def tokenizer_file(self) -> str:
        """The tokenizer.json of a tokenizer that is not WordPiece's; "": tokens and casing are all of it."""
        return "" if is_wordpiece(self.vocab_file) else self.vocab_file

    @cached_property
    def casing(self) -> Casing:
        """Normalisation of text before WordPiece."""
        return Casing(self.hparams["do_lower_case"], self.hparams.get("do_strip_accents"))

    def tokenizer(self) -> "WordpieceTokenizer":
        """Makes its tokenizer."""
        from electra_tf2.corpus.tokenization import FileTokenizer, WordpieceTokenizer

        if self.tokenizer_file:
            return FileTokenizer(self.tokenizer_file)
        return WordpieceTokenizer(self.tokens, *self.casing)

    # Its weights and heads.

    @cached_property
    def weights(self) -> "Mapping[str, np.ndarray]":
        """float32 arrays by our names (formats.weights)."""
        return {}

    @cached_property
    def left_out(self) -> list[str]:
        """Names of tensors that have no place here."""
        return []

    @property
    def step(self) -> int:
        """Number of steps that its weights were trained; 0 where their file does not say."""
        return 0

    @property
    def has_generator(self) -> bool:
        """True if there is a generator beside the main network."""
        return any(name.startswith(("generator/encoder/", "generator_ltr/encoder/")) for name in self.weights)

    @property
    def language_model(self) -> str | None:
        """Scope of the head over the vocabulary that reads the main network's states; None where it has none."""
        return main_language_model(self.weights, self.has_generator)

    # What else is known of it.

    @cached_property
    def task_states(self) -> dict[str, Any] | None:
        """Meaning of the outputs of a fine-tuned model, by task (finetune.tasks.task.Task.state); else None."""
        return None

    @cached_property
    def scores(self) -> dict[str, Any]:
        """Scores that its run wrote."""
        return {}

    @cached_property
    def class_name(self) -> str:
        """The class of transformers that it came as, which it leaves as again where that class can hold it; "" for
        models that did not come from there."""
        return ""


def weights_module() -> Any:
    """The module that reads weights. It imports TensorFlow, so it is imported when the first weights are asked for."""
    import_tensorflow()
    from electra_tf2.formats import weights

    return weights


def hparams_of_a_run(network: dict[str, Any], name: str) -> dict[str, Any]:
    """Hparams of a pre-training run with this network, for a model whose files hold no run's.

    Sequences are as long as its position embeddings allow, at most 128, and as many tokens are masked as the papers
    mask at its size.

    Args:
      network: hparams of the network, electra_objective and model_size among them.
      name: model_name.
    """
    longest = network["model_hparam_overrides"].get("max_position_embeddings", 512)
    paper = "electra" if network["electra_objective"] else "bert"
    recipe = read_recipe(f"{paper}_{network['model_size']}")
    usual = {"model_name": name, "mask_prob": recipe["mask_prob"], "max_seq_length": min(longest, 128)}
    return usual | network


def size_of_width(hidden: int) -> str:
    """The size of the papers' models that a network of this width is nearest to."""
    if hidden >= 1024:
        return "large"
    return "base" if hidden >= 768 else "small"


def check_shared_vocabulary(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises UserError if a model that is to read a run's token ids has another vocabulary or another casing.

    Args:
      name: what messages call the model.
      theirs, ours: `StoredModel.network` of the model, and the same hparams of the run. Where one has no file of its
        vocabulary, only the number of tokens is compared.
    """
    their_file = theirs.get("vocab_file", "")
    our_file = ours["vocab_file"]
    if theirs["vocab_size"] != ours["vocab_size"]:
        raise UserError(
            f"{name} has a vocabulary of {theirs['vocab_size']}, this run one of {ours['vocab_size']}"
            f" ({their_file or 'no file'}; {our_file})"
        )
    if is_file(their_file) and is_file(our_file):
        pairs = zip_longest(load_tokens(their_file), load_tokens(our_file))
        for number, (there, here) in enumerate(pairs):
            if there != here:
                raise UserError(
                    f"{name} has another vocabulary, {their_file}, than this run, {our_file}: token {number} is "
                    f"{there!r} there and {here!r} here"
                )
    casing = theirs.get("do_lower_case", ours["do_lower_case"])
    if casing != ours["do_lower_case"]:
        raise UserError(
            f"{name} has do_lower_case {casing} ({their_file or 'no vocabulary'}), this run {ours['do_lower_case']} "
            f"({our_file}): both must read the same text"
        )
