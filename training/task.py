"""What the training loop has to know of a kind of training, and of its optimizer.

pretrain.task and finetune.training_task are such tasks; training.replicated_task is what they share.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import tensorflow as tf

Tensors = Any  # a nested structure of tensors


class Optimizer(Protocol):
    """What the loop reads of an optimizer (training.optimization.AdamW)."""

    @property
    def step(self) -> tf.Variable: ...

    @property
    def schedule(self) -> Callable[[tf.Tensor], tf.Tensor]: ...

    def averaged(self) -> AbstractContextManager[None]: ...


class Task(Protocol):
    """What the loop needs to know of a kind of training."""

    @property
    def model(self) -> tf.Module: ...

    @property
    def optimizer(self) -> Optimizer: ...

    @property
    def loss_scale(self) -> tf.Module | None: ...

    @property
    def shown(self) -> Sequence[str]:
        """Names of the losses and metrics that belong beside the progress; the losses alone if there are none."""
        ...

    @property
    def summed_examples(self) -> int:
        """Examples that a step's losses are sums over: what is shown are their means. 1 for losses that are means."""
        ...

    def train_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """One update in replica context.

        Returns {"losses": name -> scalar whose sum over replicas is the loss, "watched": likewise, other values that
        must be finite, "metrics": name -> (numerator, denominator)}.
        """
        ...

    def training_data(self, position: int) -> tf.data.Dataset: ...

    def explain(self, error: Exception) -> str | None:
        """What the user can do about an error of TensorFlow's while stepping; None if the task does not know."""
        ...


class SummedTask(Task, Protocol):
    """A task whose metrics are sums over batches, so that the loop itself can evaluate it."""

    def eval_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """{"metrics": ..., "histograms": name -> tensor} of a batch, in replica context; sums over replicas count."""
        ...

    def evaluation_data(self) -> tf.data.Dataset: ...

    def summarise(self, totals: dict[str, Tensors]) -> dict[str, float]:
        """Metrics from summed numerators, denominators and histograms."""
        ...
