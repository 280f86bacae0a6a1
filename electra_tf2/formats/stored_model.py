"""A model in files as one thing, whatever wrote the files: sizes, tokenizer, weights by our names, heads.

formats.readers finds it. Configurations ask it for sizes, casing and vocabulary, so nothing imports TensorFlow or numpy
before weights are asked for, or sizes of a checkpoint that has no config.json.
"""

import copy
from collections.abc import Container, Mapping
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf2.corpus.vocabulary import is_wordpiece, load_tokens
from electra_tf2.files.reading import is_file
from electra_tf2.formats.huggingface_config import Casing
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from electra_tf2.corpus.tokenization import WordpieceTokenizer

CLASS_FILE = "huggingface.json"  # of a folder of ours that was made of a directory of transformers
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
    """A model in files; this class itself: none.

    Its properties are read when they are asked for, and raise UserError for files that are damaged or lack something.

    Args:
      path: of its folder, of a checkpoint, or of a file of weights.
    """

    is_run = False  # whether hparams are a run's, and so say how the model was trained
    says: tuple[str, ...] = ()  # names in `Given` that its own files say
    generator_sizes: Architecture | None = None  # of a generator that came from another model

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
        """Those of `NETWORK_HPARAMS` and do_strip_accents that its files say; {} where there is no model."""
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
        found = load_tokens(self.vocab_file)
        if len(found) != self.hparams["vocab_size"]:
            raise UserError(
                f"{self.path} was trained with {self.hparams['vocab_size']} tokens, but {self.vocab_file} has "
                f"{len(found)}: name its vocabulary with --vocab-file"
            )
        return found

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
        """The class of transformers that it came as, and goes out as again where the class can be it; "": none."""
        return ""


def check_shared_vocabulary(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises UserError if a model that is to read a run's token ids has another vocabulary or another casing.

    Args:
      name: what messages call the model.
      theirs, ours: `StoredModel.network` of the model, and the same hparams of the run. Where one has no file of its
        vocabulary, only the number of tokens is compared.
    """
    files = theirs.get("vocab_file", ""), ours["vocab_file"]
    if theirs["vocab_size"] != ours["vocab_size"]:
        raise UserError(
            f"{name} has a vocabulary of {theirs['vocab_size']}, this run one of {ours['vocab_size']}"
            f" ({files[0] or 'no file'}; {files[1]})"
        )
    if all(map(is_file, files)):
        pairs = zip_longest(*map(load_tokens, files))
        differing = next(((number, pair) for number, pair in enumerate(pairs) if pair[0] != pair[1]), None)
        if differing is not None:
            number, (there, here) = differing
            raise UserError(
                f"{name} has another vocabulary, {files[0]}, than this run, {files[1]}: token {number} is {there!r} "
                f"there and {here!r} here"
            )
    casing = theirs.get("do_lower_case", ours["do_lower_case"])
    if casing != ours["do_lower_case"]:
        raise UserError(
            f"{name} has do_lower_case {casing} ({files[0] or 'no vocabulary'}), this run {ours['do_lower_case']} "
            f"({files[1]}): both must read the same text"
        )
