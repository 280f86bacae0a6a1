"""Starts a model from a stored one: weights only, with a new schedule. training.loop resumes runs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.formats.stored_model import CORRECTIVE_LM, DETECTOR, MASKED_LM, StoredModel
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import counted, say

_GENERATOR = "generator/"
_MAIN_NETWORK = "electra/"


# First part of the names of variables -> the part of a model that they belong to.
_PARTS = {
    "electra": "the main network",
    "generator": "the generator",
    "generator_ltr": "the generator's tower from left to right",
    "generator_rtl": "the generator's tower from right to left",
    DETECTOR: "the detector's head",
    MASKED_LM: "the masked language model's head",
    "cloze_predictions": "the generator's head",
    CORRECTIVE_LM: "the corrective language model's head",
    "copy_predictions": "the head that tells copied tokens",
    "contrast_predictions": "the head of sequence contrast",
    "task_specific": "the heads of tasks",
}


class LoadReport(NamedTuple):
    """Names of the variables that were loaded, are missing from the checkpoint, or are unused in it."""

    loaded: list[str]
    missing: list[str]
    unused: list[str]

    def lines(self, origin: str) -> list[str]:
        """Says in words what was loaded, what starts anew and what was left.

        Args:
          origin: where the weights come from.
        """
        lines = [f"{origin}: loaded {counted(len(self.loaded), 'variable')}"]
        heads = [name for name in self.missing if _is_of_head(name)]
        if heads:
            lines.append(f"  new here, from random values (expected): {', '.join(self._new_parts(heads))}")
        holes = self.holes()
        networks = [name for name in self.missing if name not in heads and name not in holes]
        if networks:
            lines.append(f"  not in it, so from random values: {', '.join(self._new_parts(networks))}")
        left = self.unused_parts()
        if left:
            lines.append(f"  not used here (expected): {', '.join(left)}")
        return lines

    def _new_parts(self, names: list[str]) -> list[str]:
        """Describes the parts of the model that missing variables belong to."""
        return _described(names, partly=_scopes(self.loaded), rest_of="the rest of ")

    def unused_parts(self, partly: Collection[str] = ()) -> list[str]:
        """Describes the parts of the checkpoint that the model has no use for.

        Args:
          partly: first parts of the names of stored variables that were used under another name.
        """
        return _described(self.unused, partly={*_scopes(self.loaded), *partly}, rest_of="the rest of ")

    def holes(self) -> list[str]:
        """Names of missing variables of a network of which the checkpoint has others: a fault, or another depth."""
        loaded = _scopes(self.loaded)
        names = []
        for name in self.missing:
            scope = name.split("/")[0]
            if scope in loaded and not _is_of_head(name):
                names.append(name)
        return names


def _is_of_head(name: str) -> bool:
    """True for a variable of a head, which other objectives and tasks do not have."""
    scope = name.split("/")[0]
    return scope.endswith("_predictions") or scope == "task_specific"


def _scopes(names: Iterable[str]) -> set[str]:
    """The first parts of names."""
    return {name.split("/")[0] for name in names}


def _described(names: Iterable[str], partly: Collection[str], rest_of: str) -> list[str]:
    """The parts of a model that variables belong to, in words, each once.

    Args:
      partly: first parts of names of which other variables are in use. `rest_of` stands before these.
    """
    parts = []
    for scope in sorted(_scopes(names)):
        part = _PARTS.get(scope, scope)
        if scope in partly:
            part = f"{rest_of}{part}"
        parts.append(part)
    return parts


def _same_name(name: str) -> list[str]:
    """Default of `names_in_checkpoint`: a variable has the same name there."""
    return [name]


def warm_start(
    model: tf.Module, start: StoredModel, names_in_checkpoint: Callable[[str], list[str]] = _same_name
) -> LoadReport:
    """Loads the weights that a model and a stored one have in common.

    Args:
      model: its trainable variables are assigned.
      names_in_checkpoint: gives the names that a variable may have in the checkpoint, best first.

    Raises:
      UserError: the start has no weights, a variable of another shape, or no variable in common with the model.
    """
    loaded = []
    missing = []
    mismatches = []
    used = set()
    assignments = []  # made after all shapes were checked, so that an error leaves the model unchanged
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        stored_name, value = _first_stored(start.weights, names_in_checkpoint(name))
        if value is None:
            missing.append(name)
            continue
        value = _lengthened(value, variable, start.path)
        shape = tuple(variable.shape)
        stored_shape = tuple(value.shape)
        if stored_shape != shape:
            mismatches.append(f"{name} is {shape} here but {stored_shape} in the checkpoint")
            continue
        assignments.append((variable, value))
        loaded.append(name)
        used.add(stored_name)
    if mismatches:
        listed = "; ".join(mismatches[:5])
        if len(mismatches) > 5:
            listed += f" and {len(mismatches) - 5} more"
        raise UserError(
            f"{start.path} was trained with other sizes: {listed}. Set the sizes (model_size, embedding_size, "
            "vocab_size, generator_hidden_size, ...) to the checkpoint's."
        )
    if not loaded:
        some_names = ", ".join(list(start.weights)[:5])
        raise UserError(f"{start.path} has no variable of this model; it holds {some_names} ...")
    for variable, value in assignments:
        variable.assign(value)
    unused = [name for name in start.weights if name not in used]
    return LoadReport(loaded, missing, unused)


def _first_stored(weights: Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[str, np.ndarray | None]:
    """The first of the names that a checkpoint has, with its value; "" and None if it has none of them."""
    for name in names:
        value = weights.get(name)
        if value is not None:
            return name, value
    return "", None


def _lengthened(value: np.ndarray, variable: tf.Variable, where: str) -> np.ndarray:
    """Repeats the rows of a table of position embeddings that is shorter than the model's; keeps any other value.

    As in Beltagy et al. 2020, "Longformer", section 5.
    """
    name = variable.name.split(":")[0]
    if "/position_embeddings" not in name or not 0 < len(value) < variable.shape[0]:
        return value
    say(
        f"max_position_embeddings {variable.shape[0]}: {where} has embeddings of {len(value)} positions, which are "
        f"repeated for the others: train on texts of that length before you trust it there ({name})"
    )
    return np.resize(value, (variable.shape[0], *value.shape[1:]))


def generator_names(name: str) -> list[str]:
    """Names that a generator's variable may have in a checkpoint: the same, or that of a masked language model."""
    if not name.startswith(_GENERATOR):
        return [name]
    return [name, name.replace(_GENERATOR, _MAIN_NETWORK, 1)]


def copy_encoder(source: tf.Module, target: tf.Module) -> None:
    """Assigns the variables of one encoder to another of the same sizes, embeddings included."""
    for from_variable, to_variable in zip(source.trainable_variables, target.trainable_variables, strict=True):
        to_variable.assign(from_variable)
