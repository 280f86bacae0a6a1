"""StoredModel, the common interface to a model in files of any format: sizes, tokenizer, weights by our names, heads.

formats.readers finds the model at a path. Each format is a module of this folder: a subclass of StoredModel that reads
it, and functions that write it.

Configurations need a model's sizes, casing and vocabulary before TensorFlow is imported. So TensorFlow and numpy are
imported only where weights are read, or the sizes of a checkpoint that has no config.json.
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
from electra_tf2.formats.sentence_modules import longest_in
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
LONGEST_INPUT = 512  # tokens of an input, as the papers pre-train
DETECTOR = "discriminator_predictions"  # head that detects replaced tokens
MASKED_LM = "generator_predictions"  # head of the generator, or of the main network where there is no other network
CORRECTIVE_LM = "clm_predictions"  # head of a main network beside its generator


def main_language_model(names: Container[str], has_generator: bool) -> str | None:
    """Scope of the main network's head over the vocabulary; None where it has none.

    Args:
      names: those of all variables of the model.
      has_generator: True: variables under `MASKED_LM` belong to the generator. The main network has then never read a
        [MASK], and its own head can only be COCO-LM's.
    """
    heads = [CORRECTIVE_LM] if has_generator else [MASKED_LM, CORRECTIVE_LM]
    for head in heads:
        if f"{head}/output_bias" in names:
            return head
    return None


def has_transform(names: Container[str], head: str) -> bool:
    """True if a head over the vocabulary has BERT's dense layer and norm before the softmax. COCO-LM's has neither."""
    return f"{head}/dense/kernel" in names


class Casing(NamedTuple):
    """Normalisation of text before WordPiece. strip_accents None: accents are stripped if do_lower_case is true."""

    do_lower_case: bool = True
    strip_accents: bool | None = None

    @property
    def hparams(self) -> dict[str, Any]:
        """Hparams of our configurations."""
        return {"do_lower_case": self.do_lower_case, "do_strip_accents": self.strip_accents}


class Hints(NamedTuple):
    """Facts about a model that the user gives because its files lack them.

    vocab_file, num_attention_heads, do_lower_case: needed for a checkpoint without a configuration. pairs: True if a
    classifier of Hugging Face reads pairs of texts.
    """

    vocab_file: str | None = None
    num_attention_heads: int | None = None
    do_lower_case: bool | None = None
    pairs: bool = False


NO_HINTS = Hints()


class StoredModel:
    """A model in files. This class itself stands for "no model here"; each format has a subclass.

    A property reads its file when it is first asked for, and raises UserError if the file is damaged or incomplete.

    Args:
      path: the model's folder, a checkpoint's prefix, or a file of weights.
    """

    is_run = False  # True: `hparams` are those of the run that trained it
    hints_in_files: tuple[str, ...] = ()  # fields of `Hints` that are refused, since the files hold these facts

    # Writers need these three. They follow from the configuration: `inference.model_config.with_config` sets them.
    # `joining.with_generator` also sets the first, for a generator from another directory.
    generator_sizes: Architecture | None = None
    resolved_hparams: dict[str, Any]  # `hparams` with every default filled in, without paths
    # By task of a fine-tuned model: the end of the name of transformers' class for its kind, as "TokenClassification";
    # "": there is none.
    task_classes: dict[str, str]

    def __init__(self, path: str | Path, hints: Hints = NO_HINTS) -> None:
        self.path = str(path)
        self.hints = hints

    def changed(self, **properties: Any) -> "StoredModel":
        """A copy of the model with other values of some properties."""
        other = copy.copy(self)
        vars(other).update(properties)
        return other

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def max_length(self) -> int:
        """Tokens of an input, at most, for calls from Python and exports; a fine-tuned model's task has its own."""
        longest = min(LONGEST_INPUT, self.architecture.max_position_embeddings)
        cut_at = longest_in(self.folder)
        if cut_at is not None:
            longest = min(longest, cut_at)
        return longest

    @property
    def is_fine_tuned(self) -> bool:
        return "task_names" in self.hparams

    @cached_property
    def origin(self) -> str:
        """Where the model came from, for messages and cards."""
        return f"the model in {self.folder.name}"

    # Network.

    @cached_property
    def hparams(self) -> dict[str, Any]:
        """Hparams of the run that trained it; for formats that do not hold them, hparams of a run of this network."""
        return {}

    @cached_property
    def network(self) -> dict[str, Any]:
        """The entries of `NETWORK_HPARAMS`, and do_strip_accents, that its files hold; {} where there is no model."""
        return {}

    @cached_property
    def generator_hparams(self) -> dict[str, Any]:
        """Sizes of the generator in a checkpoint of the original; {} for all other formats.

        A recipe's sizes may differ: the generator of the released small model is as wide as its discriminator.
        """
        return {}

    @property
    def architecture(self) -> Architecture:
        """Sizes of the main network."""
        names = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")
        return make_architecture(*(self.hparams[name] for name in names))

    # Input.

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
        """Path of the tokenizer.json if the tokenizer is not WordPiece's; "" if `tokens` and `casing` define it."""
        return "" if is_wordpiece(self.vocab_file) else self.vocab_file

    @cached_property
    def casing(self) -> Casing:
        return Casing(self.hparams["do_lower_case"], self.hparams.get("do_strip_accents"))

    def tokenizer(self) -> "WordpieceTokenizer":
        """Makes its tokenizer."""
        from electra_tf2.corpus.tokenization import FileTokenizer, WordpieceTokenizer

        if self.tokenizer_file:
            return FileTokenizer(self.tokenizer_file)
        return WordpieceTokenizer(self.tokens, *self.casing)

    # Weights and heads.

    @cached_property
    def weights(self) -> "Mapping[str, np.ndarray]":
        """float32 arrays by our names (formats.stored_weights)."""
        return {}

    @cached_property
    def left_out(self) -> list[str]:
        """Names of the file's tensors that our networks have no variable for."""
        return []

    @property
    def step(self) -> int:
        """Training step of the checkpoint; 0 where the name of its file has none."""
        return 0

    @property
    def has_generator(self) -> bool:
        """True if there is a generator beside the main network."""
        return any(name.startswith(("generator/encoder/", "generator_ltr/encoder/")) for name in self.weights)

    @property
    def language_model(self) -> str | None:
        """Scope of the main network's head over the vocabulary; None where it has none."""
        return main_language_model(self.weights, self.has_generator)

    @property
    def progress(self) -> str:
        """How far a pre-training run came that is not at its last step, "316 of 600 steps"; "" for any other model."""
        last = self.hparams.get("num_train_steps")
        if not self.is_run or self.is_fine_tuned or not isinstance(last, int) or not 0 < self.step < last:
            return ""
        return f"{self.step:,} of {last:,} steps"

    # Other files beside the weights.

    @cached_property
    def task_states(self) -> dict[str, Any] | None:
        """Task name -> meaning of its head's outputs (finetune.tasks.task.Task.state); None if not fine-tuned."""
        return None

    def state_of(self, task: str) -> dict[str, Any]:
        """Meaning of the outputs of a task's head; {} if this model was not fine-tuned on the task."""
        return (self.task_states or {}).get(task, {})

    @cached_property
    def masking(self) -> dict[str, Any]:
        """Hparams of the pre-training of an exported run on which scores of texts depend; {} if nothing tells them."""
        return {}

    @cached_property
    def scores(self) -> dict[str, Any]:
        """Scores that its run wrote; {} if none."""
        return {}

    @cached_property
    def class_name(self) -> str:
        """Class of transformers that the model was converted from; "" if it did not come from transformers.

        Writing it for transformers again prefers this class.
        """
        return ""


def weights_module() -> Any:
    """Imports formats.stored_weights, which imports TensorFlow, when the first weights are asked for."""
    import_tensorflow()
    from electra_tf2.formats import stored_weights

    return stored_weights


def default_run_hparams(network: dict[str, Any], name: str) -> dict[str, Any]:
    """Hparams of a pre-training run with this network, for a model whose files do not tell of its own run.

    max_seq_length is 128, or what the position embeddings allow. mask_prob is that of the papers at this size.

    Args:
      network: hparams of the network, with electra_objective and model_size.
      name: model_name.
    """
    positions = network["model_hparam_overrides"].get("max_position_embeddings", 512)
    paper = "electra" if network["electra_objective"] else "bert"
    recipe = read_recipe(f"{paper}_{network['model_size']}")
    defaults = {"model_name": name, "mask_prob": recipe["mask_prob"], "max_seq_length": min(positions, 128)}
    return defaults | network


def size_of_width(hidden: int) -> str:
    """The papers' model size for a hidden size: small 256, base 768, large 1024."""
    if hidden >= 1024:
        return "large"
    if hidden >= 768:
        return "base"
    return "small"


def check_shared_vocabulary(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raises UserError if a stored model and a run, which share token ids, differ in vocabulary or casing.

    Args:
      name: the model in messages.
      theirs: `StoredModel.network` of the model. ours: the same hparams of the run. If either lacks its vocabulary
        file, only the sizes of the vocabularies are compared.
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
        for token_id, (their_token, our_token) in enumerate(pairs):
            if their_token != our_token:
                raise UserError(
                    f"{name} has another vocabulary, {their_file}, than this run, {our_file}: token {token_id} is "
                    f"{their_token!r} there and {our_token!r} here"
                )
    casing = theirs.get("do_lower_case", ours["do_lower_case"])
    if casing != ours["do_lower_case"]:
        raise UserError(
            f"{name} has do_lower_case {casing} ({their_file or 'no vocabulary'}), this run {ours['do_lower_case']} "
            f"({our_file}): both must read the same text"
        )
