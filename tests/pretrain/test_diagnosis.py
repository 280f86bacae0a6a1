"""Metrics of a model's health: the plateau of token frequencies, collapsed states."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.config.recipes import read_recipe
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain import diagnosis
from electra_tf2.pretrain.evaluation_metrics import state_cosines


def mean_cosine(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = unit @ unit.T
    return cosines[~np.eye(len(unit), dtype=bool)].mean()


def test_cosines_are_those_of_all_pairs_of_real_tokens():
    random = np.random.RandomState(0)
    states = random.standard_normal([3, 4, 5]) + 0.5
    input_mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    found = state_cosines(tf.constant(states, tf.bfloat16), tf.constant(input_mask))
    ratios = {name: float(numerator / denominator) for name, (numerator, denominator) in found.items()}
    assert ratios["cls_cosine"] == pytest.approx(mean_cosine(states[:, 0]), abs=0.01)
    assert ratios["token_cosine"] == pytest.approx(mean_cosine(states[input_mask > 0]), abs=0.01)


def test_collapsed_states_have_a_cosine_of_one():
    found = state_cosines(tf.ones([3, 4, 5]), tf.ones([3, 4], tf.int32))
    assert [float(numerator / denominator) for numerator, denominator in found.values()] == pytest.approx([1, 1])
    (line,) = diagnosis.warnings({"cls_cosine": 0.1, "token_cosine": 1.0})
    assert "states of tokens have a mean cosine of 1.00" in line


def test_cls_states_are_judged_where_an_objective_trains_them_to_differ():
    alike = {"cls_cosine": 0.97, "token_cosine": 0.4}
    assert not diagnosis.warnings(alike | {"masked_lm_loss": 3.0, "disc_loss": 0.2})  # nothing to learn at [CLS]
    (line,) = diagnosis.warnings(alike | {"scl_loss": 3.0})
    assert line.startswith("collapsed: the [CLS] states of different sentences have a mean cosine of 0.97")


def test_a_model_of_frequencies_is_on_the_plateau_and_a_better_one_is_not():
    assert diagnosis.on_plateau(7.0, 7.1)
    assert diagnosis.on_plateau(0.85 * 7.0, 7.1, kept=0.15)
    assert not diagnosis.on_plateau(5.5, 7.1)
    assert not diagnosis.on_plateau(0.85 * 5.5, 7.1, kept=0.15)


def test_warnings_name_the_loss_and_the_entropy():
    metrics = {"hidden_masked_lm_loss": 7.0, "unigram_entropy": 7.1, "plateau": 1.0, "cls_cosine": 0.2}
    (line,) = diagnosis.warnings(metrics)
    assert "7.00" in line and "7.10" in line
    assert line.startswith("on the plateau: ")
    (line,) = diagnosis.warnings(metrics | {"hidden_masked_lm_loss": 7.9}, "do this")
    assert line.startswith("has not learned token frequencies yet: ") and line.endswith("; do this")
    assert not diagnosis.warnings(metrics | {"plateau": 0.0})
    assert not diagnosis.warnings({"loss": 3.0})


def test_a_run_without_evaluation_is_judged_by_its_training_loss():
    assert "on the plateau" in str(diagnosis.warning_of_training(6.0, 7.1, 0.15))
    line = str(diagnosis.warning_of_training(6.0, 7.1, 0.15))
    assert "token frequencies has 6.03 (unigram_entropy 7.10 times the 85% of the drawn tokens" in line
    assert str(diagnosis.warning_of_training(6.6, 7.1, 0.15)).startswith("has not learned token frequencies yet")
    assert diagnosis.warning_of_training(4.0, 7.1, 0.15) is None
    assert diagnosis.warning_of_training(6.0, None, 0.15) is None
    assert diagnosis.warning_of_training(None, 7.1, 0.15) is None


def test_the_advice_knows_the_start_of_attention_and_the_steps():
    for recipe, expected in (
        ("electra_tiny", "train for longer (1,500 steps so far)"),
        ("electra_small", "--relative-positions t5 --relative-position-start local"),
    ):
        architecture = PretrainingConfig.from_dict(read_recipe(recipe)).architecture
        assert diagnosis.advice_for(architecture, 1500).endswith(expected)
        assert diagnosis.advice_for(architecture, 20) == "20 steps are few: train for longer"
