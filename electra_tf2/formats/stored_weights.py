"""Reads weights by our names from our own files and from the original's TF1 checkpoints.

Both name variables alike, except that ours fuse query, key and value of an attention layer into one variable.
Names of other formats are translated by formats.huggingface_names and formats.tf_models.
"""

import contextlib
import weakref
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2

from electra_tf2.files.reading import no_pattern
from electra_tf2.formats import checkpoint_files
from electra_tf2.formats.checkpoint_files import find_prefix
from electra_tf2.formats.folders import no_model, no_weights_hint
from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, finite, read_tensors
from electra_tf2.util.errors import UserError

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_FUSED = "/self/qkv/"
_AVERAGE = f"/{checkpoint_files.AVERAGE}"
# Endings of names that belong to the optimizer and the training loop.
_BOOKKEEPING = ("adam_m", "adam_v", "muon_m", _AVERAGE, "global_step", "save_counter", "/m", "/v")
# What stands in the original's three names instead of `_FUSED`, in the order of the fused variable's last axis.
_QUERY_KEY_VALUE = ("/self/query/", "/self/key/", "/self/value/")


def original_names(variable_name: str) -> list[str]:
    """The original's names for a variable: three for a fused query-key-value, one for any other."""
    name = variable_name.split(":")[0]
    if _FUSED in name:
        return [name.replace(_FUSED, part) for part in _QUERY_KEY_VALUE]
    return [name]


def find_checkpoint(path: str) -> str:
    """Finds the weights at a path: a TensorFlow checkpoint's prefix, or a safetensors file.

    Args:
      path: a prefix, a directory with a `checkpoint` file or with model.safetensors, or such a file.

    Raises:
      UserError: there are none; the message names what was looked for.
    """
    where = Path(path)
    if tf.io.gfile.exists(f"{path}.index"):
        return path
    prefix = find_prefix(path) or tf.train.latest_checkpoint(path)  # TensorFlow knows other file systems, too
    if prefix is not None:
        return prefix
    for file in (where, where / FILE_NAME):
        if file.suffix != ".safetensors":
            continue
        is_split = file.with_name(INDEX_NAME).is_file()  # over several files, which an index lists
        if file.is_file() or is_split:
            return str(file)
    if not where.is_dir():
        raise no_model(path)
    hint = no_weights_hint(path)
    if hint:
        raise UserError(f"no checkpoint at {path!r}: {hint}")
    names = sorted(file.name for file in where.iterdir())[:10]
    raise UserError(
        f"no checkpoint at {path!r} (looked for {path}.index, {path}/checkpoint and {path}/{FILE_NAME}); "
        f"it holds {', '.join(names) or 'nothing'}."
    )


class TensorFlowCheckpoint(Mapping[str, np.ndarray]):
    """Variable name -> value in a TensorFlow checkpoint, ours or the original's. A value is read when asked for.

    Ours are object-based (tf.train.Checkpoint): names of variables stand in the object graph beside their keys. The
    original's are name-based: names are the keys.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        folder, _, step = prefix.rpartition(checkpoint_files.PREFIX)
        if step.isdigit() and checkpoint_files.has_checksums(Path(folder), int(step)):
            problem = checkpoint_files.problem(Path(folder), int(step))
            if problem is not None:
                raise UserError(f"{prefix} is damaged: {problem}")
        # `no_pattern` may link to the prefix. Values are read later, so the link must live as long as this mapping.
        links = contextlib.ExitStack()
        weakref.finalize(self, links.close)
        try:
            self._reader = tf.train.load_checkpoint(links.enter_context(no_pattern(prefix)))
            shapes = self._reader.get_variable_to_shape_map()
            self.is_object_graph = _OBJECT_GRAPH in shapes
            if self.is_object_graph:
                self._keys = self._keys_by_variable_name(shapes)
            else:
                self._keys = {name: name for name in shapes}
            self.shapes = {name: tuple(shapes[key]) for name, key in self._keys.items()}
        except (tf.errors.OpError, DecodeError, IndexError, RuntimeError, ValueError) as error:
            raise UserError(f"{prefix} cannot be read: {error}") from error

    def _keys_by_variable_name(self, stored_keys: Container[str]) -> dict[str, str]:
        """Variable name -> key of its tensor, which is a path of attributes in the object graph."""
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(self._reader.get_tensor(_OBJECT_GRAPH))
        keys = {}
        for node in graph.nodes:
            for tensor in node.attributes:
                if tensor.full_name and tensor.checkpoint_key in stored_keys:
                    keys[tensor.full_name] = tensor.checkpoint_key
        return keys

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> np.ndarray:
        key = self._keys[name]
        try:
            return finite(self._reader.get_tensor(key), name, self._prefix)
        except UserError:
            raise
        except (tf.errors.OpError, IndexError, ValueError) as error:
            raise UserError(f"{self._prefix} cannot be read, it is damaged: {name}: {error}") from None


class Weights(Mapping[str, np.ndarray]):
    """Our name of a variable -> its value in a file. A value is read when asked for.

    Variables of the optimizer and the training loop are left out. The value is the moving average where the run kept
    one (ema_decay). Query, key and value of the original's are fused.

    Args:
      stored: variables under our names or the original's.
      where: the file, for messages.
    """

    def __init__(self, stored: Mapping[str, np.ndarray], where: str) -> None:
        self._stored = stored
        self.where = where
        self._names = set()
        query, key, value = _QUERY_KEY_VALUE
        for name in stored:
            if "/" not in name or name.endswith(_BOOKKEEPING):
                continue
            if query in name:
                self._names.add(name.replace(query, _FUSED))
            elif key not in name and value not in name:  # these two are in the fused variable
                self._names.add(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> np.ndarray:
        """Value of a variable.

        Raises:
          KeyError: it is absent.
          UserError: query, key and value have shapes that do not go together.
        """
        if name in self._stored:
            return self._value(name)
        query_key_value = original_names(name)
        if len(query_key_value) == 1:  # not a fused variable
            raise KeyError(name)
        parts = [self._value(part_name) for part_name in query_key_value]
        try:
            return np.concatenate(parts, axis=-1)
        except ValueError as error:
            raise UserError(f"{self.where}: the parts of {name} do not fit together: {error}") from None

    def _value(self, name: str) -> np.ndarray:
        """Reads a stored variable, or its moving average if there is one. Raises KeyError."""
        average = name + _AVERAGE
        if average in self._stored:
            return self._stored[average]
        return self._stored[name]


def weights_at(path: str) -> Weights:
    """The weights in a TensorFlow checkpoint, given by its prefix, or in a safetensors file."""
    if path.endswith(".safetensors"):
        return Weights(read_tensors(path), path)
    return Weights(TensorFlowCheckpoint(path), path)
