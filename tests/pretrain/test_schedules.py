"""Hyperparameters that move while a run is young: their values, and that the step and the losses use them."""

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.pretrain import schedules
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.errors import UserError
from tests.support import training as support

MOVING = {"initial_mask_prob": 0.5, "initial_temperature": 2.0, "initial_main_weight": 0.0}


def configured(**overrides):
    return PretrainingConfig.from_dict(support.hparams(Path("none"), **overrides))


@pytest.fixture(scope="module")
def config():
    return configured(ramp_start=10, ramp_steps=20, mask_prob=0.25, **MOVING)


def test_values_hold_then_move_linearly_then_stay(config):
    moving = {step: schedules.values_at(config, tf.constant(step)) for step in (0, 10, 20, 30, 99)}
    values = {step: [float(at.mask_prob), float(at.temperature), float(at.main_weight)] for step, at in moving.items()}
    assert values[0] == values[10] == pytest.approx([0.5, 2.0, 0.0])
    assert values[20] == pytest.approx([0.375, 1.5, 0.5])
    assert values[30] == values[99] == pytest.approx(schedules.final_values(config)[:3])


def test_fast_electras_temperature_falls_exponentially_to_that_of_the_end():
    """T(u) = 1 + (T0 - 1) exp(-u / 0.1), u the share of the run (docs/papers.md); other ramps are not touched."""
    config = configured(initial_temperature=2.0, temperature_decay=0.1, num_train_steps=1000)
    values = [float(schedules.values_at(config, tf.constant(step)).temperature) for step in range(0, 1001, 50)]
    assert values[0] == 2.0 and all(np.diff(values) < 0)
    assert values[2] == pytest.approx(1 + math.exp(-1)) and values[20] == pytest.approx(1 + math.exp(-10))
    assert (
        schedules.values_at(config, tf.constant(5)).main_weight == 1.0
        and schedules.final_values(config).temperature == 1.0
    )
    with pytest.raises(UserError, match="temperature_decay without another initial_temperature has no effect"):
        configured(temperature_decay=0.1)


def test_a_delay_without_a_ramp_is_a_switch():
    config = configured(ramp_start=10, initial_main_weight=0.0)
    assert [float(schedules.values_at(config, tf.constant(step)).main_weight) for step in (10, 11)] == [0.0, 1.0]


def test_a_training_step_has_the_values_of_its_number(config, monkeypatch):
    with kernels.off():
        task = PretrainingTask(config, tf.distribute.get_strategy())
        forward, temperatures = task.model.forward, []

        def recorded(rows, seed, temperature):
            temperatures.append(float(temperature))
            return forward(rows, seed, temperature=temperature)

        monkeypatch.setattr(task.model, "forward", recorded)
        results = [task.train_step(support.batch_of(), tf.constant(step, tf.int64)) for step in (0, 20)]
    assert temperatures == [2.0, 1.5]
    for result, masked, weight in zip(results, (0.5, 0.375), (0.0, 0.5), strict=True):
        losses = {name: float(loss) for name, loss in result["losses"].items()}
        assert losses["loss"] == pytest.approx(losses["masked_lm_loss"] + weight * 50 * losses["disc_loss"], rel=1e-6)
        assert float(result["metrics"]["masked_lm_loss"][1]) == 8 * support.LENGTH * masked


def test_a_young_run_masks_more_and_trains_the_generator_only(config):
    batch = support.batch_of()
    model = PretrainingModel(config)
    assert model.encoder is not None
    young, grown = schedules.values_at(config, tf.constant(0)), schedules.final_values(config)
    masked = {
        name: model.prepare(batch, tf.constant([1, 2]), values=at)[0]
        for name, at in (("young", young), ("grown", grown))
    }
    count = {name: float(tf.reduce_sum(value.masked_lm_weights)) for name, value in masked.items()}
    assert count["young"] == pytest.approx(2 * count["grown"], rel=0.1)
    with tf.GradientTape() as tape:
        outputs = model(masked["young"], tf.constant([3, 4]), True, young)
    np.testing.assert_allclose(outputs.loss, outputs.losses["masked_lm_loss"], rtol=1e-6)
    assert float(outputs.losses["disc_loss"]) > 0.1
    gradients = tape.gradient(outputs.loss, model.encoder.transformer_layers[0].trainable_variables)
    assert all(gradient is None or not np.any(gradient) for gradient in gradients)
