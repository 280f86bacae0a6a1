"""Values that may differ from step to step: the temperature of the generator's samples.

Samples may start hot, so that a young main network can tell the replacements (Fast-ELECTRA, Dong et al. 2023).
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig


class StepValues(NamedTuple):
    """Values of a step.

    temperature: of the generator's softmax when sampling, a float or a float32 scalar.
    step: float32, 0-based; None in evaluation, where every schedule is at its end.
    """

    temperature: float | tf.Tensor
    step: tf.Tensor | None = None


def values_at(config: PretrainingConfig, step: tf.Tensor) -> StepValues:
    """The values of the update at 0-based `step`.

    The temperature is T + (T0 - T) exp(-u / tau), u the share of the run that is done (Fast-ELECTRA).
    """
    step = tf.cast(step, tf.float32)
    if config.initial_temperature is None or not config.temperature_decay:
        return StepValues(config.temperature, step)
    fallen = tf.exp(-step / max(1.0, config.temperature_decay * config.num_train_steps))
    return StepValues(config.temperature + (config.initial_temperature - config.temperature) * fallen, step)
