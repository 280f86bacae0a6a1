"""Every objective x legal generator mode trains, as a graph and under XLA; the rest is refused with a reason.

Most of the product is slow: ELECTRA in every mode and every objective in its default one are not.
"""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretrain_data import find_records, training_batches
from electra_tf2.pretrain.task import PretrainingTask
from tests.support import training as support

OBJECTIVES: dict[str, dict[str, Any]] = {
    "electra": {"electra_objective": True},
    "electric": {"electra_objective": False, "electric_objective": True},
    "bert": {"electra_objective": False},
}
COCO_LM = {"electra_objective": False, "corrective_lm_objective": True, "sequence_contrast_objective": True}
# Objectives beyond the original's; each goes with the default generator.
MORE: dict[str, dict[str, Any]] = {
    "coco_lm": COCO_LM
    | {"generator_sample_mode": "eval", "mask_rates": [1.0, 0.0, 0.0], "mask_count": "probabilistic"},
    "coco_lm_code": COCO_LM | {"clm_loss": "weighted_ce", "scl_head": "mlp_ln", "crop_mode": "raw_cls"},
    "coco_lm_zero_dropout": COCO_LM | {"generator_sample_mode": "zero_dropout"},
    "coco_lm_micro_batches": COCO_LM | {"gradient_accumulation_steps": 2},
    "coco_lm_bfloat16": COCO_LM | {"precision": "bfloat16"},
    "coco_lm_relative": COCO_LM | {"sizes": {"relative_positions": "coco", "type_vocab_size": 0}},
    "coco_lm_random_replacements": COCO_LM | {"uniform_generator": True},
    "contrast_and_detection": {"sequence_contrast_objective": True},
    "electra_15": {"disc_tokens": "masked"},
    "replace_mlm": {"electra_objective": False, "replace_mlm_objective": True},
    "all_tokens_mlm": {"electra_objective": False, "all_tokens_mlm_objective": True},
    "adversarial": {"adversarial_generator": True},
    "frozen_generator": {"freeze_generator": True, "untied_generator_embeddings": True}
    | {"initial_temperature": 2.0, "temperature_decay": 0.1},
}
OBJECTIVES_AND_MORE = OBJECTIVES | MORE
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "uniform": {"uniform_generator": True},
    "two_tower": {"two_tower_generator": True},
    "tied": {"untied_generator": False},
    "untied_embeddings": {"untied_generator_embeddings": True},
    "two_tower_untied_embeddings": {"two_tower_generator": True, "untied_generator_embeddings": True},
    "half_the_layers": {"generator_layers": 0.5, "sizes": {"num_hidden_layers": 2}},
    "disallow_correct": {"disallow_correct": True},
    "temperature": {"temperature": 2.0},
    "without_replacement": {"mask_sampling": "without_replacement"},
    "original": {"compat": "original"},
    "paper_bert_masking": {"mask_rates": [0.8, 0.1, 0.1]},
    "accumulation": {"gradient_accumulation_steps": 2},
    "bfloat16": {"precision": "bfloat16"},
    "float16": {"precision": "float16"},
}
ILLEGAL = {*itertools.product(["electric"], ["uniform", "tied", "disallow_correct", "temperature"])}
ILLEGAL |= {*itertools.product(["bert"], ["uniform", "two_tower", "two_tower_untied_embeddings"])}
LEGAL = [pair for pair in itertools.product(OBJECTIVES, MODES) if pair not in ILLEGAL]
LEGAL += [(name, "default") for name in MORE]
# XLA compiles each for many seconds, so by default only those that reach every piece of the step.
COMPILED_ALWAYS = [
    ("electra", "default"),
    ("electric", "default"),
    ("bert", "paper_bert_masking"),
    ("coco_lm", "default"),
]
# A mode of the generator is ELECTRA's code for all; test_combinations.py draws others.
TRACED_ALWAYS = [pair for pair in LEGAL if pair[0] == "electra" or pair[1] == "default"]


def slow_but(always):
    return [pytest.param(*pair, marks=[] if pair in always else pytest.mark.slow) for pair in LEGAL]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    return folder


@functools.cache
def train(data_dir, objective, mode, jit_compile, steps=20, **more):
    settings = support.hparams(data_dir, **OBJECTIVES_AND_MORE[objective] | MODES[mode] | more)
    config = PretrainingConfig.from_dict(settings)
    records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = PretrainingTask(config, strategy, jit_compile, records)
    step = tf.function(
        lambda batch: strategy.run(task.train_step, args=(batch, task.optimizer.step.read_value())), autograph=False
    )
    batches = training_batches(records, config.train_batch_size, config.seed, 0).take(steps)
    before = [variable.numpy() for variable in task.model.generator.trainable_variables]
    results = [step(batch) for batch in batches]
    if config.freeze_generator:
        for variable, value in zip(task.model.generator.trainable_variables, before, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert int(task.optimizer.step) == steps
    assert set(results[0]["losses"]) <= set(task.shown)  # what stands beside the progress
    return {name: np.array([float(result["losses"][name]) for result in results]) for name in results[0]["losses"]}


@pytest.mark.parametrize(("objective", "mode"), slow_but(TRACED_ALWAYS))
def test_trains_as_a_graph(data_dir, objective, mode):
    losses = train(data_dir, objective, mode, jit_compile=False)
    assert all(np.isfinite(values).all() for values in losses.values())
    if mode != "uniform" and objective not in ("adversarial", "coco_lm_random_replacements"):
        assert losses["loss"][-5:].mean() < losses["loss"][:5].mean()


def test_recomputed_layers_train_as_kept_ones(data_dir):
    """All encoders, in a loop over micro-batches."""
    kept = train(data_dir, "electric", "accumulation", jit_compile=False)
    recomputed = train(data_dir, "electric", "accumulation", jit_compile=False, steps=3, recompute="layers")
    for name, values in recomputed.items():
        np.testing.assert_allclose(values, kept[name][:3], rtol=1e-5)


@pytest.mark.parametrize(("objective", "mode"), slow_but(COMPILED_ALWAYS))
def test_trains_under_xla(data_dir, objective, mode):
    losses = train(data_dir, objective, mode, jit_compile=True)
    assert all(np.isfinite(values).all() for values in losses.values())
    if mode != "uniform" and objective not in ("adversarial", "coco_lm_random_replacements"):
        assert losses["loss"][-5:].mean() < losses["loss"][:5].mean()
