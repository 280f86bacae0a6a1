"""Three optimizer steps against the original's weights, Adam slots, losses and gradient norms."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_weights import original_names
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.training.optimization import AdamW, LearningRateSchedule
from tests.support import golden


def test_three_steps():
    expected, batch = golden.load_arrays("gradients"), golden.load_arrays("batch")
    model = PretrainingModel(golden.config())
    warm_start(model, open_model(str(golden.CHECKPOINT)))
    optimizer = AdamW(model.trainable_variables, LearningRateSchedule(5e-4, 10, 2), model.decays)
    masked = golden.masked_batch(model, batch)
    for step in range(3):
        with tf.GradientTape() as tape:
            forward = model.forward(masked, sampled_ids=tf.constant(batch["sampled_tokids"]))
            outputs = model.outputs(forward, training=True)
        assert float(outputs.loss) == pytest.approx(float(expected[f"loss/{step}"]), rel=golden.FORWARD_TOLERANCE)
        if step:
            assert float(optimizer.schedule(optimizer.step)) == pytest.approx(
                float(expected[f"lr_used_in_step/{step + 1}"]), rel=1e-6
            )
        norm = optimizer.apply(tape.gradient(outputs.loss, model.trainable_variables))
        assert float(norm) == pytest.approx(
            float(expected[f"global_norm_before_step/{step + 1}"]), rel=golden.GRADIENT_TOLERANCE
        )
        if step:
            check_variables(model.trainable_variables, expected, f"step{step + 1}/{{}}", "index1024/{}")
    check_variables(optimizer.means, expected, "slot3/{}", "index/{}")
    check_variables(optimizer.variances, expected, "slot3/{}", "index/{}")


def check_variables(variables, expected, key, index):
    errors = {}
    for variable in variables:
        names = original_names(variable.name)
        for name, part in zip(names, np.split(variable.numpy(), len(names), axis=-1), strict=True):
            theirs = expected[f"{key.format(name)}#val"]
            if "/key/bias" in name:  # Adam blows the rounding noise of its gradient up to the learning rate
                continue
            errors[name] = golden.relative_error(part.reshape(-1)[expected[index.format(name)]], theirs)
    assert len(errors) > 50
    assert max(errors.values()) <= golden.GRADIENT_TOLERANCE, sorted(errors.items(), key=lambda item: -item[1])[:5]
