"""Pairs of a variable of ours and the tensors of PyTorch's that hold it."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Pair(NamedTuple):
    """A variable of ours and the tensors that hold it; several tensors make up its last axis.

    transposed: PyTorch keeps a dense layer's kernel transposed. column: the one of the tensor's last axis that is ours,
    for reading only.
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    column: int | None = None

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        parts = np.split(value, len(self.theirs), axis=-1)
        return {name: part.T if self.transposed else part for name, part in zip(self.theirs, parts, strict=True)}

    def to_ours(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = [tensors[name].T if self.transposed else tensors[name] for name in self.theirs]
        if self.column is not None:
            return parts[0][..., self.column : self.column + 1]
        return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]

    def is_in(self, tensors: Mapping[str, np.ndarray]) -> bool:
        return all(name in tensors for name in self.theirs)
