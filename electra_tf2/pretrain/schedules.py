"""The temperature of the generator's samples, where it falls as the run goes on (Fast-ELECTRA, Dong et al. 2023).

Samples may start hot, so that a young main network can tell the replacements.
"""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig


def temperature_at(config: PretrainingConfig, step: tf.Tensor) -> tf.Tensor:
    """float32 scalar, at the update of 0-based `step`.

    It is T + (T0 - T) exp(-u / tau), u the share of the run that is done.
    """
    assert config.initial_temperature is not None and config.temperature_decay
    fallen = tf.exp(-tf.cast(step, tf.float32) / max(1.0, config.temperature_decay * config.num_train_steps))
    return config.temperature + (config.initial_temperature - config.temperature) * fallen
