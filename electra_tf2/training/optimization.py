"""Optimizer of the original: Adam (bias correction is an option), decoupled weight decay, clipping, warm-up x decay.

Gradients arrive already summed over micro-batches; `AdamW.apply` sums them over replicas, clips the result and
updates. The original clips before that sum on TPUs (docs/differences.md). The matrices of hidden layers may be Muon's
(training.muon), a moving average of all weights may be kept, and float16 has a loss scale. `make_optimizer` makes what
hparams describe.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.formats.checkpoint_files import AVERAGE
from electra_tf2.model.kernels.compilation import global_norm, in_one_array
from electra_tf2.training.hparams import OptimizerHparams
from electra_tf2.training.muon import Muon, if_all_finite


@dataclasses.dataclass(frozen=True)
class LearningRateSchedule:
    """Polynomial decay to zero with a linear warm-up.

    `separate` False multiplies the two, both counted from step 0, as the original does; True starts the decay when
    the warm-up ends. `decay_steps` above 0 keeps the peak until that many steps are left ("trapezoid"; Hu et al. 2024,
    MiniCPM, section 4.2): a run can be prolonged from any checkpoint before its decay.
    """

    peak: float
    num_train_steps: int
    num_warmup_steps: int
    power: float = 1.0
    separate: bool = False
    decay_steps: int = 0

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """float32 scalar: the rate of the update at 0-based `step`."""
        step = tf.cast(step, tf.float32)
        start = float(self.num_warmup_steps) if self.separate else 0.0
        if self.decay_steps:
            start = float(self.num_train_steps - self.decay_steps)
        span = max(self.num_train_steps - start, 1.0)
        progress = tf.clip_by_value((step - start) / span, 0.0, 1.0)
        rate = self.peak * (1.0 - progress) ** self.power
        if self.num_warmup_steps:
            rate *= tf.minimum(1.0, step / self.num_warmup_steps)
        return rate


class LossScale(tf.Module):
    """Dynamic loss scaling for float16 (Micikevicius et al. 2018): halve on overflow, double after 2,000 good steps."""

    def __init__(self, initial: float = 2.0**15, growth_steps: int = 2000) -> None:
        super().__init__(name="loss_scale")
        self.growth_steps = growth_steps
        aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.scale = tf.Variable(initial, trainable=False, aggregation=aggregation, name="loss_scale")
        self.good_steps = tf.Variable(0, trainable=False, aggregation=aggregation, name="loss_scale_good_steps")

    def update(self, finite: tf.Tensor) -> None:
        """Adjusts the scale after a step whose gradients were all finite, or not."""
        good = tf.where(finite, self.good_steps + 1, 0)
        grow = good >= self.growth_steps
        halved = tf.maximum(self.scale / 2.0, 1.0)
        self.scale.assign(tf.where(finite, tf.where(grow, self.scale * 2.0, self.scale), halved))
        self.good_steps.assign(tf.where(grow, 0, good))


class WeightAverage:
    """Moving average of variables, with a memory that grows to `decay`: min(decay, t / (t + 10)) after t updates.

    Attributes:
      values: the averages, variables named after those that they follow.
    """

    def __init__(self, variables: Sequence[tf.Variable], decay: float) -> None:
        self._variables, self._decay = list(variables), decay
        self.values = [
            tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False, name=f"{one.name.split(':')[0]}/{AVERAGE}")
            for one in variables
        ]

    def update(self, step: tf.Tensor) -> None:
        """Moves the averages on after the update of 0-based `step`; the first is the variable itself."""
        done = tf.cast(step, tf.float32)
        share = 1.0 - tf.minimum(self._decay, done / (done + 10.0))

        def follow(average: tf.Variable, variable: tf.Variable, share: tf.Tensor) -> None:
            average.assign_sub(share * (average - variable))

        def update_all(strategy: Any, share: Any) -> None:
            for variable, average in zip(self._variables, self.values, strict=True):
                for_every_copy(strategy, average, follow, (variable, share))

        for_all_replicas(update_all, (share,))

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """The variables hold their averages meanwhile; on the host."""

        def swap() -> None:
            for variable, average in zip(self._variables, self.values, strict=True):
                value = variable.numpy()
                variable.assign(average)
                average.assign(value)

        swap()
        try:
            yield
        finally:
            swap()


class AdamW(tf.Module):
    """Adam with decoupled weight decay, as in BERT's and ELECTRA's code; create it under the strategy's scope.

    Args:
      variables: what to train.
      schedule: step -> learning rate.
      decays: variable -> whether weight decay applies to it.
      weight_decay_rate: times the learning rate and the variable, subtracted at every step.
      clip_norm: global norm of the summed gradient, at most; 0: no limit.
      lr_multiplier: variable -> factor of its learning rate (layer-wise decay when fine-tuning).
      bias_correction: correct means and variances for their start at 0 (Kingma and Ba 2015, section 3).
      norm_of_slices: take tf.IndexedSlices into the norm as they are, repeated rows apart (the original; one replica,
        no loss scale).
      muon: updates the variables that it takes in Adam's place, with the same decay, schedule and clipping.
      average: a moving average of the variables that follows every update.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        schedule: Callable[[tf.Tensor], tf.Tensor],
        decays: Callable[[tf.Variable], bool],
        weight_decay_rate: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float = 1.0,
        lr_multiplier: Callable[[tf.Variable], float] = lambda variable: 1.0,
        norm_of_slices: bool = False,
        bias_correction: bool = False,
        muon: Muon | None = None,
        average: WeightAverage | None = None,
    ) -> None:
        super().__init__(name="adamw")
        self.schedule = schedule
        self.beta1, self.beta2, self.epsilon, self.clip_norm = beta1, beta2, epsilon, clip_norm
        # TensorFlow's kernel computes 1 - beta2 in float32, off by 1.3e-5 for 0.999, and so are the variances.
        self._correction = float(np.sqrt((1.0 - float(np.float32(beta2))) / (1.0 - beta2)))
        self.bias_correction, self.muon = bias_correction, muon
        self._variables, self._norm_of_slices = list(variables), norm_of_slices
        self._decay = [weight_decay_rate if decays(variable) else 0.0 for variable in variables]
        self._multiplier = [lr_multiplier(variable) for variable in variables]
        self.step = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            name="global_step",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

        def slot(variable: tf.Variable, name: str) -> tf.Variable:
            zeros = tf.zeros(variable.shape, variable.dtype)
            return tf.Variable(zeros, trainable=False, name=f"{variable.name.split(':')[0]}/{name}")

        adams = [index for index in range(len(self._variables)) if muon is None or muon.momentum_of(index) is None]
        self._place = {index: place for place, index in enumerate(adams)}
        self.means = [slot(self._variables[index], "adam_m") for index in adams]
        self.variances = [slot(self._variables[index], "adam_v") for index in adams]
        self.average = average
        self.averages = [] if average is None else average.values  # tracked here, as the other slots are

    def apply(self, gradients: Sequence[Any], loss_scale: LossScale | None = None) -> tf.Tensor:
        """One update; call in replica context.

        Args:
          gradients: one per variable, this replica's share of the global gradient; None leaves a variable's gradient 0.
          loss_scale: divides the gradients; after an overflow neither variables nor moments change.

        Returns:
          float32 scalar: the global norm before clipping.
        """
        dense = [
            tf.zeros(variable.shape) if gradient is None else tf.convert_to_tensor(gradient)
            for variable, gradient in zip(self._variables, gradients, strict=True)
        ]
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        if loss_scale is not None:
            dense = [gradient / loss_scale.scale for gradient in dense]
        # The original takes the norm of a gathered table's gradient before its repeated rows are added up.
        norm = tf.linalg.global_norm(gradients) if self._norm_of_slices else global_norm(dense)
        factor = self.clip_norm / tf.maximum(norm, self.clip_norm) if self.clip_norm else 1.0
        rate = self.schedule(self.step)
        keep = None
        if loss_scale is not None:
            keep = tf.math.is_finite(norm)
            loss_scale.update(keep)
        self._update_all(dense, factor, rate, keep)
        if self.average is not None:
            self.average.update(self.step)
        self.step.assign_add(1)
        return norm

    def averaged(self) -> AbstractContextManager[None]:
        """The variables hold their averages meanwhile, if these are kept and anything was trained; on the host."""
        return self.average.swapped() if self.average and self.step.numpy() else contextlib.nullcontext()

    def _update_all(self, gradients: list[tf.Tensor], factor: Any, rate: tf.Tensor, keep: tf.Tensor | None) -> None:
        # What variables share is computed once: the graph is smaller and faster to trace.
        kinds = sorted(set(zip(self._multiplier, self._decay, strict=True)))

        def rates_of(rate: Any, correction: float = 1.0, root: Any = 1.0, whole: Any = 1.0) -> list[dict[str, Any]]:
            """By kind: the rate of a direction, and what decay leaves of the variable."""
            directions = [{"lr": correction * multiplier * rate * root / whole} for multiplier, _ in kinds]
            left = [{"kept": 1.0 - decay * multiplier * rate} if decay else {} for multiplier, decay in kinds]
            return [direction | kept for direction, kept in zip(directions, left, strict=True)]

        root, whole = self._bias_corrections()
        rates, rates_of_muon, turned = rates_of(rate, self._correction, root, whole), [], {}
        if self.muon is not None:
            rates_of_muon, turned = rates_of(self.muon.rate_factor * rate), self.muon.updates(gradients, factor)
        # Powers of 0 leave out the kernel's bias correction, whose epsilon is not the published one.
        adam = {"beta1_power": 0.0, "beta2_power": 0.0, "beta1": self.beta1, "beta2": self.beta2}
        adam = {name: tf.constant(value) for name, value in adam.items()}
        adam["epsilon"] = tf.constant(self._correction * self.epsilon) * root
        scalars = (rates, rates_of_muon, adam["epsilon"], factor)
        read = in_one_array([tf.convert_to_tensor(scalar, tf.float32) for scalar in tf.nest.flatten(scalars)])
        rates, rates_of_muon, adam["epsilon"], factor = tf.nest.pack_sequence_as(scalars, read)

        def update_all(
            strategy: Any, turned: Any, gradients: Any, rates: Any, keep: Any, adam: Any, factor: Any
        ) -> None:
            for index, variable in enumerate(self._variables):
                kind = kinds.index((self._multiplier[index], self._decay[index]))
                if self.muon is not None and index in turned:
                    of_muon = (self.muon.momentum_of(index), turned[index], rates[1][kind], keep)
                    for_every_copy(strategy, variable, self.muon.step, of_muon)
                else:
                    slots = (self.means[self._place[index]], self.variances[self._place[index]])
                    for_every_copy(
                        strategy, variable, _update, (*slots, gradients[index], rates[0][kind], keep, adam, factor)
                    )

        for_all_replicas(update_all, (turned, gradients, (rates, rates_of_muon), keep, adam, factor))

    def _bias_corrections(self) -> tuple[tf.Tensor | float, tf.Tensor | float]:
        """sqrt(1 - beta2^t) and 1 - beta1^t of the t-th update, 1-based; ones without bias correction."""
        if not self.bias_correction:
            return 1.0, 1.0
        updates = tf.cast(self.step + 1, tf.float32)
        of_mean = -tf.math.expm1(updates * math.log(self.beta1)) if self.beta1 else 1.0
        of_variance = -tf.math.expm1(updates * math.log(self.beta2)) if self.beta2 else 1.0
        return tf.sqrt(of_variance), of_mean


def for_all_replicas(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Calls a function (strategy or None, *arguments) once for all replicas, from one of them."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        function(None, *arguments)
    else:
        context.merge_call(function, args=arguments)


def for_every_copy(
    strategy: Any, variable: tf.Variable, function: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    """Calls a function (variable, *arguments) for every copy of a variable."""
    if strategy is None:
        function(variable, *arguments)
    else:
        strategy.extended.update(variable, function, args=arguments, group=False)


def _update(
    variable: tf.Variable,
    mean: tf.Variable,
    variance: tf.Variable,
    gradient: tf.Tensor,
    rates: dict[str, tf.Tensor],
    keep: tf.Tensor | None,
    adam: dict[str, tf.Tensor],
    factor: Any,
) -> None:
    """Weight decay and Adam of one variable, in few passes over memory; nothing if `keep` is false."""

    def change() -> None:
        if "kept" in rates:
            variable.assign(variable * rates["kept"])
        handles = {"var": variable.handle, "m": mean.handle, "v": variance.handle}
        tf.raw_ops.ResourceApplyAdam(**handles, lr=rates["lr"], grad=gradient * factor, **adam)

    if_all_finite(keep, change)


def make_optimizer(
    hparams: OptimizerHparams,
    variables: Sequence[tf.Variable],
    schedule: Callable[[tf.Tensor], tf.Tensor],
    decays: Callable[[tf.Variable], bool],
    lr_multiplier: Callable[[tf.Variable], float] = lambda variable: 1.0,
    norm_of_slices: bool = False,
) -> AdamW:
    """The optimizer that the hparams describe; the other arguments are `AdamW`'s."""
    muon = None
    if hparams.optimizer == "muon":
        settings = (hparams.muon_momentum, hparams.muon_ns_steps, hparams.muon_learning_rate_factor)
        muon = Muon(variables, *settings, hparams.muon_precision)
    return AdamW(
        variables,
        schedule,
        decays,
        weight_decay_rate=hparams.weight_decay_rate,
        beta1=hparams.adam_beta1,
        beta2=hparams.adam_beta2,
        epsilon=hparams.adam_epsilon,
        clip_norm=hparams.clip_norm,
        lr_multiplier=lr_multiplier,
        norm_of_slices=norm_of_slices,
        bias_correction=hparams.adam_bias_correction,
        muon=muon,
        average=WeightAverage(variables, hparams.ema_decay) if hparams.ema_decay else None,
    )
