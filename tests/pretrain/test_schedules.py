"""Fast-ELECTRA's temperature: its values, and that a training step samples with that of its number."""

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.errors import UserError
from tests.support import training as support

MOVING = {"initial_temperature": 2.0, "temperature_decay": 0.1}


def configured(**overrides):
    return PretrainingConfig.from_dict(support.hparams(Path("none"), num_train_steps=100, **overrides))


@pytest.mark.parametrize("alone", [{"temperature_decay": 0.1}, {"initial_temperature": 2.0}])
def test_one_without_the_other_is_refused(alone):
    with pytest.raises(UserError, match="initial_temperature and temperature_decay have no effect without one another"):
        configured(**alone)


@pytest.mark.parametrize(
    ("hparams", "expected"), [(MOVING, [2.0, 1 + math.exp(-1)]), ({"initial_temperature": 1.0}, [1.0, 1.0])]
)
def test_a_training_step_has_the_temperature_of_its_number(monkeypatch, hparams, expected):
    """T(u) = 1 + (T0 - 1) exp(-u / 0.1), u the share of the run (docs/papers.md): it falls to that of the end."""
    with kernels.off():
        task = PretrainingTask(configured(**hparams), tf.distribute.get_strategy())
        forward, temperatures = task.model.forward, []

        def recorded(rows, seed, temperature):
            temperatures.append(float(temperature))
            return forward(rows, seed, temperature=temperature)

        monkeypatch.setattr(task.model, "forward", recorded)
        for step in (0, 10):
            task.train_step(support.batch_of(), tf.constant(step, tf.int64))
    assert temperatures == pytest.approx(expected)
    values = [float(task.step_values(tf.constant(step, tf.int64)).temperature) for step in range(0, 101, 5)]
    if hparams is MOVING:
        assert all(np.diff(values) < 0) and values[20] == pytest.approx(1 + math.exp(-10))
    else:
        assert set(values) == {1.0}
