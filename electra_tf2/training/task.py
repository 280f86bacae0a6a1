"""A kind of training as the loop knows it, and what every kind does in a step of one replica.

`training.loop.Trainer` drives a `TrainingTask`; pretrain.task and finetune.model say what is computed. A step
is seeds, micro-batches, loss scaling, the update.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf

from electra_tf2.model.kernels.compilation import MethodProgram, scattered, sums_at_once
from electra_tf2.model.layers import fold_in
from electra_tf2.training.loss_scale import LossScale
from electra_tf2.training.micro_batches import Tensors, summed
from electra_tf2.training.optimization import AdamW
from electra_tf2.util.environment import compile_unseen

Method = TypeVar("Method", bound=Callable[..., Any])


def compiled(method: Method) -> Method:
    """Marks a method of a TrainingTask as a part of the step that XLA compiles, where the task is to be compiled."""
    return cast(Method, MethodProgram(method, lambda task: task.jit_compile))


def compiled_step(method: Method) -> Method:
    """Marks a whole step: compiled on one replica; of several, reductions and update stay outside of XLA."""
    return cast(Method, MethodProgram(method, lambda task: task.jit_compile and task.replicas == 1))


class TrainingTask:
    """Base of the tasks that the training loop runs; create it under the strategy's scope.

    Args:
      jit_compile: compile with XLA what is marked as `compiled`.
      seed: every random draw is a function of it, the step and the row or replica.
      precision: float16 gets a loss scale.
      micro_batches: that a replica's rows are split into.
      dense_gradients: false leaves gradients of gathered rows as tf.IndexedSlices (one micro-batch only).

    Attributes:
      shown: names of the losses and metrics that are printed, of training and of an evaluation; all if empty.
      summed_examples: examples that a loss is the sum over; means are shown. 1 for losses that are means.
    """

    model: tf.Module
    optimizer: AdamW
    shown: Sequence[str] = ()
    summed_examples = 1

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        jit_compile: bool,
        seed: int,
        precision: str,
        micro_batches: int = 1,
        dense_gradients: bool = True,
    ) -> None:
        compile_unseen()
        self.strategy, self.jit_compile = strategy, jit_compile
        self.replicas = strategy.num_replicas_in_sync
        self.loss_scale = LossScale() if precision == "float16" else None
        self._run_seed, self.micro_batches, self._dense = seed, micro_batches, dense_gradients

    # What the loop asks for.

    def train_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """Makes one update, in replica context.

        Returns:
          {"losses": name -> scalar whose sum over replicas is the loss, "watched": likewise, other values that must be
          finite, "metrics": name -> (numerator, denominator)}.
        """
        raise NotImplementedError

    def training_data(self, position: int) -> tf.data.Dataset:
        """Batches of this host, from the example at `position` on."""
        raise NotImplementedError

    def explain(self, error: Exception) -> str | None:
        """Says what the user can do about an error of TensorFlow's while stepping; None if the task does not know."""
        del error
        return None

    # For tasks whose metrics are sums over batches, which the loop itself can evaluate:

    def eval_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """Measures a batch in replica context: {"metrics": ..., "histograms": name -> tensor}, summed over replicas."""
        raise NotImplementedError

    def evaluation_data(self) -> tf.data.Dataset:
        """Batches of this host."""
        raise NotImplementedError

    def summarise(self, totals: dict[str, Tensors]) -> dict[str, float]:
        """Computes metrics from summed numerators, denominators and histograms."""
        raise NotImplementedError

    # Parts of a step.

    def seed_of(self, purpose: int, step: tf.Tensor) -> tf.Tensor:
        """int32 [2], the same on every replica; `purpose` tells apart what is drawn at the same step."""
        return fold_in(tf.constant([self._run_seed, purpose]), tf.cast(step, tf.int32))

    def seed_of_replica(self, seed: tf.Tensor) -> tf.Tensor:
        return fold_in(seed, self.replica())

    def replica(self) -> tf.Tensor:
        """Number of the replica that this runs on, an int32 scalar."""
        return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)

    def scale(self) -> tf.Tensor:
        """float32 scalar that the loss is multiplied by before its gradient is taken."""
        return tf.constant(1.0) if self.loss_scale is None else self.loss_scale.scale.read_value()

    def summed_gradients(
        self,
        variables: Sequence[tf.Variable],
        forward: Callable[[Tensors, tf.Tensor], tuple[tf.Tensor, Tensors]],
        batch: Tensors,
        seed: tf.Tensor,
        scale: tf.Tensor,
    ) -> tuple[list[tf.Tensor], Tensors]:
        """Gradients of the scaled loss of this replica's rows, summed over micro-batches.

        Args:
          forward: (rows, int32 [2] seed of the dropout) -> (scalar loss, whatever else adds up over rows).
          batch: tensors whose first axis is that of the rows.
          seed: int32 [2], of this step and replica.

        Returns:
          One gradient per variable, and the sum of what `forward` returned besides the loss.
        """

        def of_rows(rows: Tensors, number: tf.Tensor) -> tuple[list[tf.Tensor], Tensors]:
            with tf.GradientTape() as tape:
                loss, result = forward(rows, fold_in(seed, number))
                scaled = loss * scale
            gradients = sums_at_once([scattered(gradient) for gradient in tape.gradient(scaled, variables)])
            return list(map(_dense, variables, gradients)) if self._dense else gradients, result

        if self.micro_batches == 1:
            return of_rows(batch, tf.constant(0))
        return summed(of_rows, batch, self.micro_batches)

    def update(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor) -> tf.Tensor:
        """Applies this replica's share of the gradients. Returns its share of their global norm."""
        norm = self.optimizer.apply(gradients, self.loss_scale)
        if self.loss_scale is not None:  # an overflow is skipped and the scale halved, as long as it can be
            norm = tf.where(tf.math.is_finite(norm) | (scale <= 1.0), norm, 0.0)
        return norm / self.replicas


def _dense(variable: tf.Variable, gradient: Any) -> tf.Tensor:
    """A variable's gradient as a tensor of known shape; zeros where there is none."""
    if gradient is None:
        return tf.zeros(variable.shape)
    tensor = tf.convert_to_tensor(gradient)  # of rows of a lookup, of a shape that is not known
    return tensor if tensor.shape.is_fully_defined() else tf.ensure_shape(tensor, variable.shape)
