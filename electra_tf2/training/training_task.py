"""Base class of pre-training and fine-tuning as the loop sees them.

It holds the parts of a step that both share: seeds, micro-batches, loss scaling, the update. `training.loop.Trainer`
drives a `TrainingTask`; the subclasses in pretrain.pretraining_task and finetune.model define the loss.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf

from electra_tf2.model.kernels.compilation import MethodProgram
from electra_tf2.model.kernels.joined import scattered, sums_at_once
from electra_tf2.model.layers import fold_in
from electra_tf2.training.loss_scale import LossScale
from electra_tf2.training.micro_batches import Tensors, summed
from electra_tf2.training.optimization import AdamW
from electra_tf2.util.environment import compile_unseen

Method = TypeVar("Method", bound=Callable[..., Any])


def part_of_step(method: Method) -> Method:
    """Marks a method of a TrainingTask as part of a step: XLA compiles it if the task has `jit_compile`."""
    return cast(Method, MethodProgram(method, lambda task: task.jit_compile))


def whole_step(method: Method) -> Method:
    """Marks a method as a whole step: XLA compiles it on one replica.

    On several replicas only the parts of the step are compiled, between reductions and the update.
    """
    return cast(Method, MethodProgram(method, lambda task: task.jit_compile and task.replicas == 1))


class TrainingTask:
    """Base of the tasks that the training loop runs; create it under the strategy's scope.

    Args:
      jit_compile: compiles the methods marked as `whole_step` or `part_of_step` with XLA.
      seed: every random draw is a function of it, the step and the row or replica.
      precision: "float16" gets a loss scale.
      micro_batches: how many parts a replica's rows are split into.
      dense_gradients: false leaves gradients of gathered rows as tf.IndexedSlices (one micro-batch only).

    Attributes:
      shown: names of the losses and metrics to print, in training and evaluation; all if empty.
      summed_examples: for losses that are sums, over how many examples; the loop divides by it. 1 for means.
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
        self.strategy = strategy
        self.jit_compile = jit_compile
        self.replicas = strategy.num_replicas_in_sync
        self.loss_scale = LossScale() if precision == "float16" else None
        self.micro_batches = micro_batches
        self._seed = seed
        self._dense_gradients = dense_gradients

    # Called by the loop.

    def train_step(self, batch: Tensors, step: tf.Tensor) -> dict[str, Tensors]:
        """Makes one update, in replica context.

        Returns:
          "losses": name -> scalar, whose sum over replicas is the loss.
          "watched": name -> scalar, other values that must be finite, summed over replicas, too.
          "metrics": name -> (numerator, denominator).
        """
        raise NotImplementedError

    def training_data(self, position: int) -> tf.data.Dataset:
        """Batches of this host, from the example at index `position` on."""
        raise NotImplementedError

    def explain(self, error: Exception) -> str | None:
        """Tells what the user can do about an error of TensorFlow in a step; None if the task does not know."""
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

    # Parts of a step, for subclasses.

    def step_seed(self, purpose: int, step: tf.Tensor) -> tf.Tensor:
        """Seed int32 [2] of a step, the same on every replica, different for each purpose."""
        return fold_in(tf.constant([self._seed, purpose]), tf.cast(step, tf.int32))

    def replica_seed(self, seed: tf.Tensor) -> tf.Tensor:
        """Derives a seed int32 [2] that is different on every replica."""
        return fold_in(seed, self.replica())

    def replica(self) -> tf.Tensor:
        """int32 scalar, index of the replica that runs this."""
        return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)

    def scale(self) -> tf.Tensor:
        """float32 scalar by which the loss is multiplied before its gradient is taken."""
        if self.loss_scale is None:
            return tf.constant(1.0)
        return self.loss_scale.scale.read_value()

    def summed_gradients(
        self,
        variables: Sequence[tf.Variable],
        forward: Callable[[Tensors, tf.Tensor], tuple[tf.Tensor, Tensors]],
        batch: Tensors,
        seed: tf.Tensor,
        scale: tf.Tensor,
    ) -> tuple[list[tf.Tensor], Tensors]:
        """Computes gradients of the scaled loss of this replica's rows, summed over micro-batches.

        Args:
          forward: (rows, int32 [2] seed of the dropout) -> (scalar loss, other results that add up over rows).
          batch: tensors whose first axis is that of the rows.
          seed: int32 [2], of this step and replica.

        Returns:
          One gradient per variable, and the sum of `forward`'s other results.
        """

        def micro_batch_gradients(rows: Tensors, index: tf.Tensor) -> tuple[list[tf.Tensor], Tensors]:
            with tf.GradientTape() as tape:
                loss, result = forward(rows, fold_in(seed, index))
                scaled_loss = loss * scale
            gradients = tape.gradient(scaled_loss, variables)
            # In programs for GPUs and TPUs many small sums at the end of a step become few large ones.
            gradients = sums_at_once([scattered(gradient) for gradient in gradients])
            if self._dense_gradients:
                gradients = list(map(_dense, variables, gradients))
            return gradients, result

        if self.micro_batches == 1:
            return micro_batch_gradients(batch, tf.constant(0))
        return summed(micro_batch_gradients, batch, self.micro_batches)

    def update(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor) -> tf.Tensor:
        """Applies this replica's share of the gradients. Returns its share of their global norm."""
        norm = self.optimizer.apply(gradients, self.loss_scale)
        if self.loss_scale is not None:
            # After an overflow the update is skipped and the scale halved. The loop would stop at a norm that is not
            # finite, so 0 is reported, unless the scale cannot be halved any more.
            norm = tf.where(tf.math.is_finite(norm) | (scale <= 1.0), norm, 0.0)
        return norm / self.replicas


def _dense(variable: tf.Variable, gradient: Any) -> tf.Tensor:
    """Converts a variable's gradient to a tensor of known shape; zeros if the loss does not depend on the variable."""
    if gradient is None:
        return tf.zeros(variable.shape)
    tensor = tf.convert_to_tensor(gradient)
    if tensor.shape.is_fully_defined():
        return tensor
    # The gradient of a lookup in a table, tf.IndexedSlices, does not know the number of the table's rows.
    return tf.ensure_shape(tensor, variable.shape)
