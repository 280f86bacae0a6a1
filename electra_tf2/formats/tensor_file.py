"""Reads and writes safetensors files: a header of names, types and shapes, then the bytes. Nothing is executed.

Our self-contained folders and Hugging Face directories keep their weights in one. Needs neither TensorFlow nor PyTorch;
numpy gets its bfloat16 from `ml_dtypes`.
"""

import os
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from electra_tf2.files.content import refuse_substitute
from electra_tf2.files.writing import replacing
from electra_tf2.util.errors import UserError

FILE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"  # lists several files
_FLOATS = ("F64", "F32", "F16", "BF16")  # types in a file's header that hold weights
DTYPES: dict[str, Any] = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], dtype: str = "float32") -> None:
    """Writes arrays, whole or not at all.

    Args:
      dtype: type of every tensor in the file, one of `DTYPES`; the nearest value is stored.
    """
    stored: dict[str, np.ndarray] = {
        name: np.ascontiguousarray(value, DTYPES[dtype]) for name, value in tensors.items()
    }
    try:
        with replacing(path) as temporary:
            # Hugging Face's loaders refuse files that do not say which framework laid the tensors out.
            save_file(stored, temporary, metadata={"format": "pt"})
    except SafetensorError as error:
        raise UserError(f"cannot write {path}: {error}") from None


def read_tensors(path: str | os.PathLike[str], skipped_endings: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Reads arrays of any floating-point type as float32.

    Args:
      skipped_endings: endings of the names of tensors that are not read.

    Raises:
      UserError: the file cannot be read; a tensor holds integers, which may be quantised weights, or numbers that are
        not finite.
    """
    refuse_substitute(path)
    tensors: dict[str, np.ndarray] = {}
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                if name.endswith(skipped_endings):
                    continue
                dtype = file.get_slice(name).get_dtype()
                if dtype not in _FLOATS:
                    raise UserError(f"{path}: the tensor {name} is of type {dtype}; weights are {', '.join(_FLOATS)}")
                value = np.asarray(file.get_tensor(name), np.float32)
                tensors[name] = finite(value, name, str(path))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is no readable safetensors file: {error}") from None
    return tensors


def finite(value: np.ndarray, name: str, path: str) -> np.ndarray:
    """Returns an array as it is. Raises UserError if it holds floating-point numbers that are not finite."""
    if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
        raise UserError(f"{path}: the tensor {name} holds numbers that are not finite (NaN or infinity)")
    return value
