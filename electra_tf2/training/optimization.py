"""The original's optimizer: Adam with decoupled weight decay and clipping, and its learning rate.

Options stand in files of their own: Muon for the matrices of hidden layers (training.muon), a moving average of all
weights (training.weight_average), a loss scale for float16 (training.loss_scale).
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf2.model.kernels.barriers import in_one_array
from electra_tf2.model.kernels.joined import global_norm
from electra_tf2.training.loss_scale import LossScale
from electra_tf2.training.muon import Muon, Update
from electra_tf2.training.shared_hparams import OptimizerHparams
from electra_tf2.training.weight_average import WeightAverage

DEFAULTS = OptimizerHparams()


@dataclasses.dataclass(frozen=True)
class LearningRateSchedule:
    """Linear warm-up and polynomial decay to zero.

    Args:
      separate: false multiplies warm-up and decay, both counted from step 0 (the original); true begins the decay when
        the warm-up ends.
      decay_steps: above 0 keeps the peak until so many steps are left ("trapezoid"; Hu et al. 2024, MiniCPM, section
        4.2), so that a run can be prolonged from any checkpoint before its decay.
    """

    peak: float
    num_train_steps: int
    num_warmup_steps: int
    power: float = 1.0
    separate: bool = False
    decay_steps: int = 0

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """float32 scalar: the learning rate at 0-based `step`."""
        step = tf.cast(step, tf.float32)
        decay_start = 0.0
        if self.separate:
            decay_start = float(self.num_warmup_steps)
        if self.decay_steps:
            decay_start = float(self.num_train_steps - self.decay_steps)
        span = max(self.num_train_steps - decay_start, 1.0)
        progress = tf.clip_by_value((step - decay_start) / span, 0.0, 1.0)  # of the decay
        rate = self.peak * (1.0 - progress) ** self.power
        if self.num_warmup_steps:
            rate *= tf.minimum(1.0, step / self.num_warmup_steps)
        return rate


class AdamW(tf.Module):
    """Adam with decoupled weight decay, as in BERT's and ELECTRA's code; create it under the strategy's scope.

    Gradients arrive summed over micro-batches. `apply` sums them over replicas, clips the sum and updates the
    variables; on TPUs the original clips before that sum (docs/differences.md).

    Args:
      variables: to be trained.
      schedule: step -> learning rate.
      decays: variable -> whether weight decay applies to it.
      hparams: with optimizer "muon", Muon updates the kernels of encoder layers, with the same decay, schedule and
        clipping; with ema_decay, a moving average of the variables follows every update.
      lr_multiplier: variable -> factor of its learning rate (layer-wise decay in fine-tuning).
      norm_of_slices: the norm of tf.IndexedSlices counts repeated rows one by one, as in the original, instead of their
        sum; for one replica and no loss scale.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        schedule: Callable[[tf.Tensor], tf.Tensor],
        decays: Callable[[tf.Variable], bool],
        hparams: OptimizerHparams = DEFAULTS,
        lr_multiplier: Callable[[tf.Variable], float] = lambda variable: 1.0,
        norm_of_slices: bool = False,
    ) -> None:
        super().__init__(name="adamw")
        self.schedule = schedule
        self.hparams = hparams
        # TensorFlow's kernel computes 1 - beta2 in float32, for 0.999 off by 1.3e-5. All variances are off by this
        # factor; rates and epsilon make that good.
        beta2 = hparams.adam_beta2
        self._root_variance_error = float(np.sqrt((1.0 - float(np.float32(beta2))) / (1.0 - beta2)))
        self.muon = Muon(variables, hparams) if hparams.optimizer == "muon" else None
        self.average = WeightAverage(variables, hparams.ema_decay) if hparams.ema_decay else None
        self._variables = list(variables)
        self._norm_of_slices = norm_of_slices
        # Factor of the learning rate and weight decay of each variable.
        self._multipliers = [lr_multiplier(variable) for variable in variables]
        self._decays = [hparams.weight_decay_rate if decays(variable) else 0.0 for variable in variables]
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step", aggregation=once)
        # Indices of the variables that Adam updates: all but Muon's.
        self._adam_indices = list(range(len(self._variables)))
        if self.muon is not None:
            self._adam_indices = [index for index in self._adam_indices if index not in self.muon.indices]

        def slot(variable: tf.Variable, name: str) -> tf.Variable:
            zeros = tf.zeros(variable.shape, variable.dtype)
            return tf.Variable(zeros, trainable=False, name=f"{variable.name.split(':')[0]}/{name}")

        self.means = [slot(self._variables[index], "adam_m") for index in self._adam_indices]
        self.variances = [slot(self._variables[index], "adam_v") for index in self._adam_indices]
        # An attribute here, too, because checkpoints hold the averages beside the other slots.
        self.averages = [] if self.average is None else self.average.values

    def apply(self, gradients: Sequence[Any], loss_scale: LossScale | None = None) -> tf.Tensor:
        """Makes one update; call in replica context.

        Args:
          gradients: one per variable, this replica's share of the global gradient; None leaves a variable's gradient 0.
          loss_scale: divides the gradients; after an overflow neither variables nor moments change.

        Returns:
          float32 scalar: the global norm before clipping.
        """
        dense = []
        for variable, gradient in zip(self._variables, gradients, strict=True):
            if gradient is None:
                gradient = tf.zeros(variable.shape)
            dense.append(tf.convert_to_tensor(gradient))
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        if loss_scale is not None:
            dense = [gradient / loss_scale.scale for gradient in dense]
        if self._norm_of_slices:
            # As in the original: the norm of a gathered table's gradient before its repeated rows are added up.
            norm = tf.linalg.global_norm(gradients)
        else:
            norm = global_norm(dense)
        clip_norm = self.hparams.clip_norm
        factor = 1.0
        if clip_norm:
            factor = clip_norm / tf.maximum(norm, clip_norm)
        keep = None
        if loss_scale is not None:
            keep = tf.math.is_finite(norm)
            loss_scale.update(keep)
        self._update_all(dense, factor, self.schedule(self.step), keep)
        self.step.assign_add(1)
        return norm

    def averaged(self) -> AbstractContextManager[None]:
        """Exchanges variables and their averages within the context; without averages or steps it changes nothing."""
        if self.average is None or not self.step.numpy():
            return contextlib.nullcontext()
        return self.average.swapped()

    def _update_all(self, gradients: list[tf.Tensor], factor: Any, rate: tf.Tensor, keep: tf.Tensor | None) -> None:
        """Updates all variables, unless `keep` is false.

        Args:
          factor: clips the gradients, which are multiplied by it.
          rate: the schedule's learning rate at this step.
        """
        muon = self.muon
        directions: list[Update] = []
        if muon is not None:
            directions = muon.updates(gradients, factor)
        # Variables of one kind have the same factor of the learning rate and the same weight decay. Their rates are
        # computed once, so that the graph is smaller and faster to trace.
        kind_by_variable = list(zip(self._multipliers, self._decays, strict=True))
        kinds = sorted(set(kind_by_variable))
        kind_indices = [kinds.index(kind) for kind in kind_by_variable]
        rates = self._rates(kinds, rate, factor)
        moments = {
            # Powers of 0 switch off the bias correction of TensorFlow's kernel, which places epsilon unlike the paper.
            "beta1_power": tf.constant(0.0),
            "beta2_power": tf.constant(0.0),
            "beta1": tf.constant(self.hparams.adam_beta1),
            "beta2": tf.constant(self.hparams.adam_beta2),
        }
        share = None
        if self.average is not None:
            share = self.average.share(self.step)

        def update_all(
            strategy: Any,
            rates: Rates,
            gradients: list[tf.Tensor],
            directions: list[Update],
            share: Any,
            keep: Any,
        ) -> None:
            adam = {**moments, "epsilon": rates.epsilon}
            for index, mean, variance in zip(self._adam_indices, self.means, self.variances, strict=True):
                adam_rates = rates.adam[kind_indices[index]]
                arguments = (mean, variance, gradients[index], adam_rates, adam, rates.clipping)
                _for_every_copy(strategy, keep, self._variables[index], _update, *arguments)
            if muon is not None:
                for index, momentum, direction in zip(muon.indices, muon.momenta, directions, strict=True):
                    muon_rates = rates.muon[kind_indices[index]]
                    _for_every_copy(strategy, keep, self._variables[index], muon.step, momentum, direction, muon_rates)
            if self.average is not None:
                # `keep` is None here: averages move on after a skipped update, too.
                for variable, average in zip(self._variables, self.averages, strict=True):
                    _for_every_copy(strategy, None, average, self.average.follow, variable, share)

        # Tensors are arguments, not captured: each replica has its own, and `merge_call` makes one value of them.
        arguments = (rates, gradients, directions, share, keep)
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1:
            update_all(None, *arguments)
        else:
            # Called once for all replicas: their copies of a variable are updated together.
            context.merge_call(update_all, args=arguments)

    def _rates(self, kinds: Sequence[tuple[float, float]], rate: tf.Tensor, factor: Any) -> "Rates":
        """Computes the scalars of an update.

        Args:
          kinds: (factor of the learning rate, weight decay) of each kind of variables.
          rate, factor: as of `_update_all`.
        """
        mean_correction: Any = 1.0
        root_variance_correction: Any = 1.0
        if self.hparams.adam_bias_correction:
            updates = tf.cast(self.step + 1, tf.float32)
            mean_correction = _bias_correction(self.hparams.adam_beta1, updates)
            root_variance_correction = tf.sqrt(_bias_correction(self.hparams.adam_beta2, updates))
        adam = []
        muon = []
        for multiplier, decay in kinds:
            adam_rate = self._root_variance_error * multiplier * rate * root_variance_correction / mean_correction
            adam.append(_rates_of_kind(adam_rate, decay * multiplier, rate))
            if self.muon is not None:
                schedule_rate = self.muon.rate_factor * rate
                muon.append(_rates_of_kind(multiplier * schedule_rate, decay * multiplier, schedule_rate))
        epsilon = tf.constant(self._root_variance_error * self.hparams.adam_epsilon) * root_variance_correction
        rates = Rates(adam, muon, epsilon, factor)
        scalars = [tf.convert_to_tensor(scalar, tf.float32) for scalar in tf.nest.flatten(rates)]
        return tf.nest.pack_sequence_as(rates, in_one_array(scalars))


class Rates(NamedTuple):
    """Scalars of one update.

    adam, muon: for each kind of variables "lr" and perhaps "kept" (`_rates_of_kind`).
    epsilon: Adam's.
    clipping: factor of the gradients.
    """

    adam: list[dict[str, tf.Tensor]]
    muon: list[dict[str, tf.Tensor]]
    epsilon: tf.Tensor
    clipping: tf.Tensor


def _rates_of_kind(direction_rate: tf.Tensor, decay: float, schedule_rate: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns "lr", the factor of the direction, and with weight decay "kept", the factor of the old weights."""
    rates = {"lr": direction_rate}
    if decay:
        rates["kept"] = 1.0 - decay * schedule_rate
    return rates


def _bias_correction(beta: float, updates: tf.Tensor) -> tf.Tensor:
    """1 - beta^t after t updates, exact also where beta^t is near 1."""
    if not beta:
        return tf.constant(1.0)
    return -tf.math.expm1(updates * math.log(beta))


def _for_every_copy(strategy: Any, keep: Any, variable: tf.Variable, function: Any, *arguments: Any) -> None:
    """Calls function(variable, *arguments) for every replica's copy of a variable, unless `keep` is false."""

    def change(variable: tf.Variable, keep: Any, *arguments: Any) -> None:
        if keep is None:
            function(variable, *arguments)
        else:
            tf.cond(keep, lambda: function(variable, *arguments), lambda: None)

    if strategy is None:
        change(variable, keep, *arguments)
    else:
        strategy.extended.update(variable, change, args=(keep, *arguments), group=False)


def _update(variable: Any, mean: Any, variance: Any, gradient: Any, rates: Any, adam: Any, factor: Any) -> None:
    """Weight decay and Adam for one variable, in few passes over memory."""
    if "kept" in rates:
        variable.assign(variable * rates["kept"])
    handles = {"var": variable.handle, "m": mean.handle, "v": variance.handle}
    tf.raw_ops.ResourceApplyAdam(**handles, lr=rates["lr"], grad=gradient * factor, **adam)
