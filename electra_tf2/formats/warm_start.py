"""Starting from the weights of another model: weights only, new schedule. Resuming a run is training.loop's.

Which variable of a model goes on as which of the other's is for those to say who start (pretrain.initial_weights,
finetune.weights, papers); what they say is names, best first.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from electra_tf2.formats.stored_model import StoredModel, open_model
from electra_tf2.formats.weights import base_name
from electra_tf2.util.errors import UserError


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


def warm_start(
    model: tf.Module,
    start: str | StoredModel,
    names_in_checkpoint: Callable[[str], list[str]] = lambda name: [name],
) -> LoadReport:
    """Loads the weights that a model and a stored one have in common.

    Args:
      model: its trainable variables are assigned.
      start: the stored model, or its path.
      names_in_checkpoint: gives the names that a variable may have in the checkpoint, best first.

    Raises:
      UserError: no checkpoint there, a variable of another shape, or nothing in common.
    """
    if isinstance(start, str):
        start = open_model(start)
    loaded, missing, wrong, used = [], [], [], set()
    values = {}
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        found = [
            (there, value) for there in names_in_checkpoint(name) if (value := start.weights.get(there)) is not None
        ]
        if not found:
            missing.append(name)
            continue
        there, value = found[0]
        if tuple(value.shape) != tuple(variable.shape):
            wrong.append(f"{name} is {tuple(variable.shape)} here but {tuple(value.shape)} in the checkpoint")
        else:
            values[name] = (variable, value)
            loaded.append(name)
            used.update([there, base_name(there)])
    if wrong:
        raise UserError(
            f"{start.path} was trained with other sizes: {'; '.join(wrong[:5])}"
            f"{f' and {len(wrong) - 5} more' if len(wrong) > 5 else ''}. Set the sizes (model_size, embedding_size, "
            "vocab_size, generator_hidden_size, ...) to the checkpoint's."
        )
    if not loaded:
        raise UserError(f"{start.path} has no variable of this model; it holds {', '.join([*start.weights][:5])} ...")
    for variable, value in values.values():
        variable.assign(value)
    unused = [name for name in start.weights if name not in used]
    return LoadReport(loaded, missing, unused)


def generator_names(name: str) -> list[str]:
    """Names that a variable of the generator may have in a checkpoint: its own, or that in a masked language model."""
    return [name, name.replace("generator/", "electra/", 1)] if name.startswith("generator/") else [name]


def copy_encoder(source: tf.Module, target: tf.Module) -> None:
    """Assigns the variables of one encoder to another of the same sizes, embeddings included."""
    for from_variable, to_variable in zip(source.trainable_variables, target.trainable_variables, strict=True):
        to_variable.assign(from_variable)
