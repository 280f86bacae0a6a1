"""Costs of the heads of auxiliary tasks, free of TensorFlow."""

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.flops import Part


def pooled_classes(name: str, a: Architecture, classes: int) -> Part:
    """Cost of a `heads.PooledHead`."""
    hidden = a.hidden_size
    kernels = hidden * hidden + hidden * classes
    return Part(name, kernels + hidden + classes, 2 * kernels, hidden + classes)


def state_classes(name: str, a: Architecture, positions: int, classes: int, input_size: int | None = None) -> Part:
    """Cost of a `heads.StateHead` on so many states of an example."""
    hidden = a.hidden_size
    kernels = (input_size or hidden) * hidden + hidden * classes
    return Part(name, kernels + 3 * hidden + classes, 2 * positions * kernels, positions * (hidden + classes))
