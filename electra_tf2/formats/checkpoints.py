"""Weights by variable name out of our checkpoints and folders, the original's checkpoints, and Hugging Face's.

Warm-starting (weights only, new schedule) goes through here; resuming a run does not (training.loop). The original's
checkpoints hold the same variables under the same names, but for the query, key and value of an attention layer, which
are one fused variable here. formats.huggingface translates the other names.
"""

import contextlib
import weakref
from collections.abc import Callable, Container
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2

from electra_tf2.formats import checkpoint_files
from electra_tf2.formats.folders import read_config
from electra_tf2.formats.huggingface import HuggingFaceWeights
from electra_tf2.formats.huggingface_config import is_huggingface
from electra_tf2.formats.original_config import find_prefix
from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, TensorFile, finite
from electra_tf2.model.embeddings import DIFFERENCE
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import no_pattern, read_json

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_FUSED = "/self/qkv/"
_AVERAGE = f"/{checkpoint_files.AVERAGE}"
# Endings of names that belong to the optimizer and the training loop.
_BOOKKEEPING = ("adam_m", "adam_v", "muon_m", _AVERAGE, "global_step", "save_counter", "/m", "/v")
_PARTS = ("/self/query/", "/self/key/", "/self/value/")
_GENERATOR = "generator/"
_MAIN_NETWORK = "electra/"
MASKED_LM = "generator_predictions"  # head of the generator, or of the main network where there is no other network
CORRECTIVE_LM = "clm_predictions"  # head of a main network beside its generator


def main_language_model(names: Container[str], has_generator: bool) -> str | None:
    """Scope of the head over the vocabulary that reads the main network's states; None where no variable is of one.

    It fills [MASK]s where there is no generator. Beside one, the main network has never read any.
    """
    heads = [CORRECTIVE_LM] if has_generator else [MASKED_LM, CORRECTIVE_LM]
    return next((head for head in heads if f"{head}/output_bias" in names), None)


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


def base_name(name: str) -> str:
    """Name of the generator's table that the main network's table is stored as a difference from."""
    return name.replace(_MAIN_NETWORK, _GENERATOR, 1)


def original_names(variable_name: str) -> list[str]:
    """The original program's name(s) of a variable; three for a fused query-key-value, in the order of its parts."""
    name = variable_name.split(":")[0]
    if _FUSED in name:
        return [name.replace(_FUSED, part) for part in _PARTS]
    return [name]


def find_checkpoint(path: str) -> str:
    """The file of weights behind `path`: a TensorFlow checkpoint's prefix, or a safetensors file.

    Args:
      path: a prefix, a directory with a `checkpoint` file or with model.safetensors, or such a file.

    Raises:
      UserError: none is there; the message says what was looked for.
    """
    where = Path(path)
    if tf.io.gfile.exists(f"{path}.index"):
        return path
    prefix = find_prefix(path) or tf.train.latest_checkpoint(path)  # which knows other file systems
    if prefix is not None:
        return prefix
    for tensors in (where, where / FILE_NAME):
        if tensors.suffix == ".safetensors" and (tensors.is_file() or tensors.with_name(INDEX_NAME).is_file()):
            return str(tensors)
    folder, holds = where if where.is_dir() else where.parent, "does not exist"
    if folder.is_dir():
        holds = f"holds {', '.join(sorted(file.name for file in folder.iterdir())[:10]) or 'nothing'}"
    raise UserError(
        f"no checkpoint at {path!r} (looked for {path}.index, {path}/checkpoint and {path}/{FILE_NAME}); "
        f"{folder} {holds}."
    )


def best_or_newest(path: str) -> str:
    """Best checkpoint of a fine-tuned folder, where its run kept it; else the path as it is."""
    best = Path(path) / "best" / "best.json"
    if not best.is_file():
        return path
    name = read_json(best, "best checkpoint").get("path")
    if not isinstance(name, str) or Path(name).name != name:
        raise UserError(f"{best} names no checkpoint in its folder: path is {shown(name)}")
    return str(best.parent / name)


class TensorFlowCheckpoint:
    """Variables of a checkpoint of ours, which has them in an object graph, or of the original, by name."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        folder, _, step = prefix.rpartition(checkpoint_files.PREFIX)
        if step.isdigit() and checkpoint_files.has_checksums(Path(folder), int(step)):
            problem = checkpoint_files.problem(Path(folder), int(step))
            if problem is not None:
                raise UserError(f"{prefix} is damaged: {problem}")
        links = contextlib.ExitStack()
        weakref.finalize(self, links.close)  # tensors are read when they are asked for
        try:
            self._reader = tf.train.load_checkpoint(links.enter_context(no_pattern(prefix)))
            self._shapes = self._reader.get_variable_to_shape_map()
            self._keys = {name: name for name in self._shapes}
            if _OBJECT_GRAPH in self._shapes:
                self._keys = self._keys_by_variable_name()
        except (tf.errors.OpError, DecodeError, IndexError, RuntimeError, ValueError) as error:
            raise UserError(f"{prefix} cannot be read: {error}") from error

    def _keys_by_variable_name(self) -> dict[str, str]:
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(self._reader.get_tensor(_OBJECT_GRAPH))
        return {
            tensor.full_name: tensor.checkpoint_key
            for node in graph.nodes
            for tensor in node.attributes
            if tensor.full_name and tensor.checkpoint_key in self._shapes
        }

    def names(self) -> list[str]:
        return sorted(self._keys)

    def get(self, name: str) -> np.ndarray:
        try:
            return finite(self._reader.get_tensor(self._keys[name]), name, self._prefix)
        except UserError:
            raise
        except (tf.errors.OpError, IndexError, ValueError) as error:
            raise UserError(f"{self._prefix} cannot be read, it is damaged: {name}: {error}") from None


class CheckpointVariables:
    """The variables of a model in a file, by our names: their moving averages where these were kept (ema_decay).

    Args:
      path: of a checkpoint of ours, of the original or of Hugging Face (`find_checkpoint`).
    """

    def __init__(self, path: str) -> None:
        self.prefix = find_checkpoint(path)
        self._source: TensorFlowCheckpoint | TensorFile | HuggingFaceWeights
        if self.prefix.endswith(".safetensors"):
            folder = Path(self.prefix).parent
            theirs = is_huggingface(read_config(folder) or {})
            self._source = HuggingFaceWeights(folder) if theirs else TensorFile(self.prefix)
        else:
            self._source = TensorFlowCheckpoint(self.prefix)
        self._names = set(self._source.names())
        self._folded = {name.removesuffix(DIFFERENCE) for name in self._names if name.endswith(DIFFERENCE)}

    def names(self) -> list[str]:
        return sorted(self._names | self._folded)

    @property
    def has_own_generator(self) -> bool:
        """True if there is a generator of other states than the main network's."""
        return any(name.startswith(_GENERATOR) for name in self._names | self._folded)

    @property
    def language_model(self) -> str | None:
        """Scope of the head over the vocabulary that reads the main network's states; None where it has none."""
        return main_language_model(self._names, self.has_own_generator)

    def weights(self) -> dict[str, np.ndarray]:
        """All arrays but those of the optimizer and of the training loop; query, key and value are fused."""
        names = [name for name in self.names() if "/" in name and not name.endswith((*_BOOKKEEPING, DIFFERENCE))]
        fused = {name.replace(_PARTS[0], _FUSED) for name in names if _PARTS[0] in name}
        single = [name for name in names if not any(part in name for part in _PARTS)]
        values = {name: self.get(name) for name in sorted([*fused, *single])}
        return {name: value for name, value in values.items() if value is not None}

    def get(self, name: str) -> np.ndarray | None:
        """Value of a variable; None if absent.

        It may be fused from the original's query, key and value, or be the sum of a table and differences from it.
        The differences from a checkpoint's only tables are 0.

        Raises:
          UserError: the parts have shapes that do not go together.
        """
        try:
            return self._composed(name)
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{self.prefix}: the parts of {name} do not fit together: {error}") from None

    def _composed(self, name: str) -> np.ndarray | None:
        if name in self._folded:
            return self._value(base_name(name)) + self._value(name + DIFFERENCE)
        if name in self._names:
            return self._value(name)
        table = name.removesuffix(DIFFERENCE)
        if table != name and table in self._names:
            own = self._value(table)
            base = self._value(base_name(table)) if base_name(table) in self._names else own
            return own - base if base.shape == own.shape else None
        parts = original_names(name)
        if len(parts) > 1 and all(part in self._names for part in parts):
            return np.concatenate([self._value(part) for part in parts], axis=-1)
        return None

    def _value(self, name: str) -> np.ndarray:
        """Reads a variable that the file has."""
        return self._source.get(name + _AVERAGE if name + _AVERAGE in self._names else name)


def warm_start(
    model: tf.Module,
    checkpoint: str | CheckpointVariables,
    names_in_checkpoint: Callable[[str], list[str]] = lambda name: [name],
) -> LoadReport:
    """Loads the weights that model and checkpoint have in common.

    Args:
      model: its trainable variables are assigned.
      checkpoint: variables, or their path.
      names_in_checkpoint: gives the names that a variable may have in the checkpoint, best first.

    Raises:
      UserError: no checkpoint there, a variable of another shape, or nothing in common.
    """
    if isinstance(checkpoint, str):
        checkpoint = CheckpointVariables(checkpoint)
    loaded, missing, wrong, used = [], [], [], set()
    values = {}
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        found = [(there, value) for there in names_in_checkpoint(name) if (value := checkpoint.get(there)) is not None]
        if not found:
            missing.append(name)
            continue
        there, value = found[0]
        if tuple(value.shape) != tuple(variable.shape):
            wrong.append(f"{name} is {tuple(variable.shape)} here but {tuple(value.shape)} in the checkpoint")
        else:
            values[name] = (variable, value)
            loaded.append(name)
            used.update([there, there + DIFFERENCE, base_name(there), *original_names(there)])
    if wrong:
        raise UserError(
            f"{checkpoint.prefix} was trained with other sizes: {'; '.join(wrong[:5])}"
            f"{f' and {len(wrong) - 5} more' if len(wrong) > 5 else ''}. Set the sizes (model_size, embedding_size, "
            "vocab_size, generator_hidden_size, ...) to the checkpoint's."
        )
    if not loaded:
        raise UserError(
            f"{checkpoint.prefix} has no variable of this model; it holds {', '.join(checkpoint.names()[:5])} ..."
        )
    for variable, value in values.values():
        variable.assign(value)
    unused = [name for name in checkpoint.names() if name not in used and not name.endswith(_BOOKKEEPING)]
    return LoadReport(loaded, missing, unused)


def generator_names(name: str) -> list[str]:
    """Names that a variable of the generator may have in a checkpoint: its own, or that in a masked language model."""
    return [name, name.replace(_GENERATOR, _MAIN_NETWORK, 1)] if name.startswith(_GENERATOR) else [name]


def copy_encoder(source: tf.Module, target: tf.Module) -> None:
    """Assigns the variables of one encoder to another of the same sizes, embeddings included."""
    for from_variable, to_variable in zip(source.trainable_variables, target.trainable_variables, strict=True):
        to_variable.assign(from_variable)
