"""Sequence contrast over micro-batches: the loss and gradient of the whole batch, whatever it is split into."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.pretrain.objectives.contrast import whole_batch
from electra_tf2.pretrain.pretraining_task import PretrainingTask
from tests.support import training as support

SEED = tf.constant([3, 4])
CONTRAST = {
    "electra_objective": False,
    "corrective_lm_objective": True,
    "sequence_contrast_objective": True,
    "clm_head": "transform",
    "sizes": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}


@pytest.fixture(autouse=True)
def plain():
    """Formulas run themselves: nothing is compiled for seconds."""
    with kernels.off():
        yield


def task_and_batch(tmp_path, parts, **overrides):
    settings = support.hparams(tmp_path, gradient_accumulation_steps=parts, **CONTRAST | overrides)
    task = PretrainingTask(PretrainingConfig.from_dict(settings), tf.distribute.get_strategy())
    return task, *task._prepare(support.batch_of(), tf.constant([1, 2]), tf.constant(0))


def step(tmp_path, parts, **overrides):
    task, masked, normalizers = task_and_batch(tmp_path, parts, **overrides)
    return task._gradients(masked, normalizers, SEED, tf.constant(1.0), None)


@pytest.mark.parametrize(("parts", "head"), [(2, "none"), (4, "mlp_ln")])
def test_micro_batches_change_neither_loss_nor_gradient_nor_metrics(tmp_path, parts, head):
    expected_gradients, expected = step(tmp_path, 1, scl_head=head)
    gradients, actual = step(tmp_path, parts, scl_head=head)
    for name, value in expected["losses"].items():
        assert float(actual["losses"][name]) == pytest.approx(float(value), rel=1e-6), name
    for name, (numerator, denominator) in expected["metrics"].items():
        found = actual["metrics"][name]
        assert float(found[0] / found[1]) == pytest.approx(float(numerator / denominator), rel=1e-5, abs=1e-6), name
    norm = float(tf.linalg.global_norm(expected_gradients))
    for one, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * norm)


def test_the_views_that_others_see_are_those_whose_gradient_is_taken(tmp_path):
    """The first pass drops out what the second one does."""
    sizes = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    task, masked, _ = task_and_batch(tmp_path, 2, sizes=sizes)
    whole = whole_batch(task.model.objectives, task.model.forward, masked, SEED, 2)
    for part in (0, 1):
        rows = slice(4 * part, 4 * part + 4)
        seed = tf.random.experimental.stateless_fold_in(SEED, part)
        forward = task.model.forward(tf.nest.map_structure(lambda field, rows=rows: field[rows], masked), seed)
        compared = task.model.objectives[-1].compared_values(forward)
        np.testing.assert_array_equal(whole.compared["scl_loss"][rows], compared)


def test_the_first_pass_is_counted(tmp_path):
    costs = [
        training_flops_per_example(
            PretrainingConfig.from_dict(support.hparams(tmp_path, gradient_accumulation_steps=parts, **CONTRAST))
        )
        for parts in (1, 2, 4)
    ]
    assert costs[0] < costs[1] == costs[2] < 4 / 3 * costs[0]
