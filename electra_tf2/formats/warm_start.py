"""Starts a model from a stored one: weights only, with a new schedule. training.loop resumes runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say

_GENERATOR = "generator/"
_MAIN_NETWORK = "electra/"


class LoadReport(NamedTuple):
    """Names of the variables that were loaded, are missing from the checkpoint, or are unused in it."""

    loaded: list[str]
    missing: list[str]
    unused: list[str]

    def __str__(self) -> str:
        lines = [f"Loaded {len(self.loaded)} variables; {len(self.missing)} missing; {len(self.unused)} unused."]
        lines += [f"  missing from the checkpoint, left at initial values: {name}" for name in self.missing]
        lines += [f"  in the checkpoint, unused: {name}" for name in self.unused]
        return "\n".join(lines)


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
