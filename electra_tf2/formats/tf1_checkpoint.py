"""Reads and writes TF1 checkpoints of the original program, google-research/electra.

Such a checkpoint holds nothing but variables. They have our names, except that query, key and value are three. The
sizes of the network follow from their shapes. The number of attention heads does not: it comes from the user, from an
hparams.json beside the checkpoint (`electra convert` writes one), or from the papers' rule (width / 64).

`BareCheckpoint` also reads a checkpoint of tf-models' encoder, which formats.tf_models translates. TensorFlow and numpy
are imported where variables are read or written.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.corpus.casing import is_lower_cased, keeps_accents
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.files.reading import is_file, read_json
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats import ANY_NETWORK_HINT, tf_models
from electra_tf2.formats.electra_folder import write_vocabulary
from electra_tf2.formats.folders import VOCABULARY
from electra_tf2.formats.huggingface_config import export_problems
from electra_tf2.formats.stored_model import (
    DETECTOR,
    NETWORK_HPARAMS,
    Casing,
    StoredModel,
    default_run_hparams,
    size_of_width,
    weights_module,
)
from electra_tf2.model.architecture import HEAD_SIZE, Architecture
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import warn

if TYPE_CHECKING:
    import numpy as np

    from electra_tf2.formats.stored_weights import TensorFlowCheckpoint, Weights

HPARAMS_FILE = "hparams.json"
WORDS = "electra/embeddings/word_embeddings"
_POSITIONS = "electra/embeddings/position_embeddings"
_SEGMENTS = "electra/embeddings/token_type_embeddings"
_OVERRIDES = ("num_attention_heads", "hidden_act")
_GENERATOR_HPARAMS = (
    "generator_hidden_size",
    "generator_layers",
    "untied_generator_embeddings",
    "generator_hparam_overrides",
)
# First parts of the names of all variables that the original has.
_SCOPES = {
    "electra",
    "generator",
    "generator_ltr",
    "generator_rtl",
    "generator_predictions",
    "cloze_predictions",
    "discriminator_predictions",
    "task_specific",
}
# Hparams that `original_hparams` writes, because the original has them, too.
_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
)
_PRETRAINING_HPARAMS = (
    "electra_objective",
    "electric_objective",
    "two_tower_generator",
    "untied_generator",
    "untied_generator_embeddings",
    "generator_layers",
    "generator_hidden_size",
)

Shape = tuple[int, ...]


# Sizes of a network from shapes.


def read_hparams_beside(prefix: str) -> dict[str, Any]:
    """Reads what shapes do not tell (heads, activation, casing) from an hparams.json beside a checkpoint.

    Raises:
      UserError: the file is no JSON object.
    """
    path = Path(prefix).parent / HPARAMS_FILE
    if not is_file(path):
        return {}
    hparams = read_json(path, "hparams")
    overrides = hparams.get("model_hparam_overrides")
    if isinstance(overrides, dict):
        hparams |= overrides
    return {name: hparams[name] for name in (*_OVERRIDES, "do_lower_case") if name in hparams}


def hparams_from_shapes(
    shapes: Mapping[str, Shape], where: str, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Hparams of a pre-training run whose model has variables of these shapes.

    Args:
      shapes: name of a variable, ours or the original's -> its shape.
      where: the file, for messages.
      known: hparams that shapes do not tell, as `read_hparams_beside` gives them.

    Raises:
      UserError: there is no ELECTRA encoder among the variables.
    """
    words = shapes.get(WORDS)
    if words is None:
        raise UserError(f"{where} holds no ELECTRA encoder: no {WORDS} among its variables")
    positions = shapes.get(_POSITIONS, ())
    _check_table(WORDS, words, where)
    _check_table(_POSITIONS, positions, where)
    segments = shapes.get(_SEGMENTS) or (0,)
    layers, hidden, inner = _encoder_sizes(shapes, "electra", where)
    overrides = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": max(1, hidden // HEAD_SIZE),
        "max_position_embeddings": positions[0],
        "type_vocab_size": segments[0],
    }
    for name in _OVERRIDES:
        if known and name in known:
            overrides[name] = known[name]
    hparams: dict[str, Any] = {
        "model_size": size_of_width(hidden),
        "model_hparam_overrides": overrides,
        "embedding_size": words[1],
        "vocab_size": words[0],
        "electra_objective": f"{DETECTOR}/dense/kernel" in shapes,
    }
    return hparams | _generator_hparams(shapes, hparams, where)


def _generator_hparams(shapes: Mapping[str, Shape], main: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Hparams of the generator, which may be a network, two towers (Electric's), or missing.

    Args:
      main: hparams of the main network.
    """
    hparams: dict[str, Any] = {"untied_generator": False}
    has_towers = _has_layers(shapes, "generator_ltr")
    if has_towers and main["electra_objective"]:
        hparams |= {"electra_objective": False, "electric_objective": True, "two_tower_generator": True}
    for scope in ("generator", "generator_ltr"):
        if _has_layers(shapes, scope):
            overrides = main["model_hparam_overrides"]
            layers, hidden, inner = _encoder_sizes(shapes, scope, where)
            hparams["untied_generator"] = True
            hparams["generator_hidden_size"] = hidden / overrides["hidden_size"]
            hparams["generator_layers"] = layers / overrides["num_hidden_layers"]
            hparams["untied_generator_embeddings"] = f"{scope}/embeddings/word_embeddings" in shapes
            expected = 4 * hidden
            if hidden == overrides["hidden_size"]:
                expected = overrides["intermediate_size"]
            if inner != expected:  # by the original's rule, also where it is as wide as the main network
                heads = max(1, hidden // HEAD_SIZE)
                hparams["generator_hparam_overrides"] = {"intermediate_size": inner, "num_attention_heads": heads}
            break
    return hparams


def _has_layers(shapes: Mapping[str, Shape], scope: str) -> bool:
    return f"{scope}/encoder/layer_0/output/dense/kernel" in shapes


def _encoder_sizes(shapes: Mapping[str, Shape], scope: str, where: str) -> tuple[int, int, int]:
    """Number of layers, hidden_size and intermediate_size of an encoder."""
    layers = 0
    while f"{scope}/encoder/layer_{layers}/intermediate/dense/kernel" in shapes:
        layers += 1
    if not layers:
        raise UserError(f"{where} holds no layers of {scope!r}")
    kernel = f"{scope}/encoder/layer_0/intermediate/dense/kernel"
    _check_table(kernel, shapes[kernel], where)
    hidden, inner = shapes[kernel]
    return layers, hidden, inner


def _check_table(name: str, shape: Shape, where: str) -> None:
    """Raises UserError unless a variable has rows and columns."""
    if len(shape) != 2 or min(shape) < 1:
        raise UserError(f"{where}: {name} must have rows and columns, but its shape is {shape or 'missing'}")


# Reading.


class BareCheckpoint(StoredModel):
    """A checkpoint without a config.json beside it: the original's, or one of tf-models' encoder.

    Or of a run of ours whose config.json is gone: its sizes, too, are read from shapes.
    """

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    @cached_property
    def origin(self) -> str:
        kind = "tf-models' encoder" if self._tf_models else "a TF1 checkpoint"
        return f"{kind} in {self.folder.name}"

    @cached_property
    def _stored(self) -> "TensorFlowCheckpoint":
        if self.path.endswith(".safetensors"):
            raise UserError(f"{self.path} has no config.json beside it, which says what it is: give a model's folder")
        return weights_module().TensorFlowCheckpoint(self.path)

    @property
    def _is_ours(self) -> bool:
        """True for a checkpoint of a run of ours, whose network may have more than shapes tell."""
        return self.path.endswith(".safetensors") or (not self._tf_models and self._stored.is_object_graph)

    @property
    def _is_original(self) -> bool:
        """True for a checkpoint of the original. Shapes tell all of its network."""
        return not self._is_ours and WORDS in self._stored

    @cached_property
    def _tf_models(self) -> tf_models.Encoder | None:
        """The checkpoint's content if it is of tf-models' encoder, or else None."""
        if self.path.endswith(".safetensors") or not tf_models.is_encoder(self._stored):
            return None
        try:
            return tf_models.read_encoder(self._stored)
        except UserError:
            raise
        except (IndexError, KeyError, ValueError) as error:
            raise UserError(f"{self.path}: the variables of its encoder do not fit together: {error}") from None

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Hparams that shapes do not tell."""
        known = read_hparams_beside(self.path)
        if self.hints.num_attention_heads:
            known["num_attention_heads"] = self.hints.num_attention_heads
        if self._tf_models:
            known["num_attention_heads"] = self._tf_models.heads
        return known

    @cached_property
    def _sizes(self) -> dict[str, Any]:
        """Hparams that shapes tell."""
        shapes = self._stored.shapes  # raises UserError for a file of weights
        if self._is_ours or self._tf_models:  # which are not stored under the original's names
            shapes = {name: value.shape for name, value in self.weights.items()}
        return hparams_from_shapes(shapes, self.path, self._known)

    @cached_property
    def hparams(self) -> dict[str, Any]:
        network = self._sizes | self.casing.hparams | {"vocab_file": self.vocab_file}
        return default_run_hparams(network, self.folder.name)

    @cached_property
    def network(self) -> dict[str, Any]:
        if not (self._is_original or self._tf_models):
            return {}
        network = {name: self._sizes[name] for name in NETWORK_HPARAMS if name in self._sizes}
        if (self.folder / VOCABULARY).is_file():
            network |= self.casing.hparams | {"vocab_file": self.vocab_file}
        return network

    @cached_property
    def generator_hparams(self) -> dict[str, Any]:
        if not self._is_original:
            return {}
        return {name: self._sizes[name] for name in _GENERATOR_HPARAMS if name in self._sizes}

    @cached_property
    def casing(self) -> Casing:
        """Casing from the user, or from the hparams.json, or else as the vocabulary tells."""
        tokens = load_vocab(self.vocab_file)
        do_lower_case = self.hints.do_lower_case
        if do_lower_case is None:
            do_lower_case = self._known.get("do_lower_case")
        if do_lower_case is None:
            do_lower_case = is_lower_cased(tokens)
        # No file of this format tells of accents. Text that keeps its case keeps them anyhow.
        if do_lower_case and keeps_accents(tokens):
            return Casing(do_lower_case, strip_accents=False)
        return Casing(do_lower_case)

    @cached_property
    def vocab_file(self) -> str:
        if self.hints.vocab_file:
            places = [Path(self.hints.vocab_file)]
        else:
            places = [self.folder / VOCABULARY]
            if self.folder.parent.name == "models":  # the original's data folder, which holds its vocabulary
                places.append(self.folder.parent.parent / VOCABULARY)
        for place in places:
            if place.is_file():
                return str(place)
        raise UserError(f"{self.path} has no vocab.txt beside it: name its vocabulary (--vocab-file, vocab_file)")

    @cached_property
    def weights(self) -> "Weights":
        reader = weights_module()
        if self._tf_models:
            return reader.Weights(self._tf_models.weights, self.path)
        return reader.weights_at(self.path)

    @cached_property
    def left_out(self) -> list[str]:
        return self._tf_models.left_out if self._tf_models else []


# Writing.


def write_folder(folder: Path, model: StoredModel, step: int, adam_slots: bool) -> str:
    """Writes a checkpoint, the vocabulary, and the hparams that the original needs.

    Args:
      model: from `inference.model_config.with_config`.
      step, adam_slots: as in `write_checkpoint`.

    Returns:
      The checkpoint's prefix.
    """
    if model.has_generator and model.generator_sizes is not None:
        _warn_of_generator(model.generator_sizes)
    prefix = write_checkpoint(folder, model.weights, model.architecture, step, adam_slots)
    write_vocabulary(folder, model)
    write_json(folder / HPARAMS_FILE, original_hparams(model), sort_keys=False)
    return prefix


def _warn_of_generator(generator: Architecture) -> None:
    """Warns of a generator whose heads and feed-forward width are not those that the original makes of its width."""
    heads = max(1, generator.hidden_size // HEAD_SIZE)
    inner = 4 * generator.hidden_size
    if (generator.num_attention_heads, generator.intermediate_size) != (heads, inner):
        warn(
            f"the original's run_pretraining.py cannot go on with this generator: it has "
            f"{generator.num_attention_heads} heads and intermediate_size {generator.intermediate_size}, where the "
            f"original makes {heads} and {inner} of its width. Fine-tuning of the main network works there"
        )


def write_checkpoint(
    folder: str | Path, weights: "Mapping[str, np.ndarray]", architecture: Architecture, step: int, adam_slots: bool
) -> str:
    """Writes a TF1 checkpoint `model.ckpt-<step>` that the original's programs load.

    Args:
      weights: arrays by our names.
      architecture: sizes of the main network.
      adam_slots: True: also write the optimizer's slots, as zeros, without which the original resumes no run.

    Returns:
      The checkpoint's prefix.

    Raises:
      UserError: the model has parts that the original lacks.
    """
    import numpy as np

    problems = export_problems(architecture) + _generator_problems(weights)
    if problems:
        raise UserError(f"the original program has no {'; no '.join(problems)}: {ANY_NETWORK_HINT}")
    scopes = {name.split("/")[0] for name in weights}
    unknown = sorted(scopes - _SCOPES)
    if unknown:
        raise UserError(
            f"the original program has no place for the weights of {', '.join(unknown)}: {ANY_NETWORK_HINT}"
        )
    original_names = weights_module().original_names
    variables: dict[str, np.ndarray] = {}
    for name, value in weights.items():
        names = original_names(name)
        pieces = np.split(value.astype(np.float32), len(names), axis=-1)
        variables.update(zip(names, pieces, strict=True))
    trained = list(variables)
    if adam_slots:
        for slot in ("adam_m", "adam_v"):
            for name in trained:
                variables[f"{name}/{slot}"] = np.zeros_like(variables[name])
    variables["global_step"] = np.asarray(step, np.int64)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = str(folder / f"model.ckpt-{step}")
    _save(prefix, variables)
    write_atomically(folder / "checkpoint", f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return prefix


def _generator_problems(weights: "Mapping[str, np.ndarray]") -> list[str]:
    """Describes generators that the original cannot have.

    Its generator shares all embedding tables with the main network, or has its own ones as wide as its layers.
    """
    problems = []
    for scope in ("generator", "generator_ltr"):
        has_own_tables = any(name.startswith(f"{scope}/embeddings/") for name in weights)
        shares_words = f"{scope}/embeddings/word_embeddings" not in weights
        has_other_width = f"{scope}/embeddings_project/kernel" in weights
        if has_own_tables and (shares_words or has_other_width):
            problems.append("generator that shares some embeddings, or has its own of another width than its layers")
    return problems


def _save(prefix: str, variables: "Mapping[str, np.ndarray]") -> None:
    """Writes a name-based checkpoint under a temporary name, and renames it when it is complete."""
    import tensorflow as tf

    names = sorted(variables)
    values = [variables[name] for name in names]
    part = f"{prefix}.tmp/part"
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(prefix=part, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[part], destination_prefix=prefix, delete_old_dirs=True)


def original_hparams(model: StoredModel) -> dict[str, Any]:
    """Hparams with which the original program builds a model from `with_config`."""
    resolved = model.resolved_hparams
    hparams = {name: resolved[name] for name in ("model_size", "vocab_size", "embedding_size", "do_lower_case")}
    hparams["model_hparam_overrides"] = {name: getattr(model.architecture, name) for name in _SIZES}
    return hparams | {name: resolved[name] for name in _PRETRAINING_HPARAMS if name in resolved}
