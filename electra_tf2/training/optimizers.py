"""The optimizer that hparams describe: AdamW, with Muon for encoder layers or a moving average if asked."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.training.hparams import OptimizerHparams
from electra_tf2.training.muon import Muon
from electra_tf2.training.optimization import AdamW, for_all_replicas, for_every_copy

AVERAGE = "average"  # last part of the name of a variable's moving average


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
