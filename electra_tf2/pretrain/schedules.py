"""Hyperparameters that start elsewhere and move to their value while a run is young.

A generator that knows token frequencies only makes a poor opponent: the main network's loss is noise until it knows
more. So the main network's weight may start at 0 and rise (`initial_main_weight`), the samples may start hot
(`initial_temperature`; Fast-ELECTRA, Dong et al. 2023) and the masking dense (`initial_mask_prob`). All three hold
their first value until `ramp_start` and are linear for `ramp_steps`; with `temperature_decay` the temperature falls
exponentially instead, as Fast-ELECTRA's does. Evaluation uses the last values.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig


class StepValues(NamedTuple):
    """Hyperparameters that may change from step to step: floats, or float32 scalars where they do.

    temperature: of the generator's softmax when sampling.
    main_weight: factor of all losses of the main network.
    step: float32, 0-based; None in evaluation, where every schedule is at its end.
    """

    mask_prob: float | tf.Tensor
    temperature: float | tf.Tensor
    main_weight: float | tf.Tensor = 1.0
    step: tf.Tensor | None = None


def final_values(config: PretrainingConfig) -> StepValues:
    """The values at the end, which evaluation uses."""
    return StepValues(config.mask_prob, config.temperature)


def anything_moves(config: PretrainingConfig) -> bool:
    """True if masking, temperature or the main network's weight differ from step to step."""
    return bool(config.ramped or config.temperature_decay)


def values_at(config: PretrainingConfig, step: tf.Tensor) -> StepValues:
    """The values of the update at 0-based `step`."""
    first = StepValues(
        config.mask_prob if config.initial_mask_prob is None else config.initial_mask_prob,
        config.temperature if config.initial_temperature is None else config.initial_temperature,
        config.initial_main_weight,
    )
    done = tf.cast(step - config.ramp_start, tf.float32) / max(1, config.ramp_steps)
    share = tf.clip_by_value(done, 0.0, 1.0)
    pairs = zip(first[:3], final_values(config)[:3], strict=True)
    mask_prob, temperature, main_weight = (a if a == b else a + (b - a) * share for a, b in pairs)
    if config.temperature_decay:
        temperature = decayed_temperature(config, tf.cast(step, tf.float32))
    return StepValues(mask_prob, temperature, main_weight, tf.cast(step, tf.float32))


def decayed_temperature(config: PretrainingConfig, step: tf.Tensor) -> tf.Tensor:
    """T + (T0 - T) exp(-u / tau), u the share of the run that is done (Fast-ELECTRA)."""
    assert config.initial_temperature is not None
    fallen = tf.exp(-step / max(1.0, config.temperature_decay * config.num_train_steps))
    return config.temperature + (config.initial_temperature - config.temperature) * fallen
