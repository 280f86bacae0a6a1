"""All that trains learns: losses of every objective fall, in graphs and under XLA."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.pretrain.pretrain_data import find_records, training_batches
from electra_tf2.pretrain.pretraining_task import PretrainingTask
from tests.support import training as support

OFF = {"electra_objective": False}
COCO_LM = OFF | {"corrective_lm_objective": True, "sequence_contrast_objective": True}
MODES: dict[str, dict[str, Any]] = {
    "electra": {},
    "electra_15": {"disc_tokens": "masked"},
    "electric": OFF | {"electric_objective": True},
    "bert": OFF | {"mask_rates": [0.8, 0.1, 0.1]},
    "replace_mlm": OFF | {"replace_mlm_objective": True},
    "all_tokens_mlm": OFF | {"all_tokens_mlm_objective": True},
    "adversarial": {"adversarial_generator": True},
    "coco_lm": COCO_LM
    | {"generator_sample_mode": "eval", "mask_rates": [1.0, 0.0, 0.0], "mask_count": "probabilistic"},
    "coco_lm_code": COCO_LM | {"clm_loss": "weighted_ce", "scl_head": "mlp_ln", "crop_mode": "raw_cls"},
    "coco_lm_micro_batches": COCO_LM | {"gradient_accumulation_steps": 2},
    "frozen_generator": {"freeze_generator": True, "untied_generator_embeddings": True},
    "original": {"compat": "original"},
    "float16": {"precision": "float16"},
}
# XLA compiles each for many seconds, so by default only the one that has most: a generator that samples, corruption,
# two objectives of the main network and the contrast of views. test_lowered_steps.py lowers ELECTRA's step.
COMPILED_ALWAYS = ("coco_lm",)
# test_combinations.py draws other modes of the generator; golden numbers hold `compat: original`.
TRACED_ALWAYS = ("coco_lm_code", "frozen_generator", "float16")


def slow_but(always):
    return [pytest.param(mode, marks=[] if mode in always else pytest.mark.slow) for mode in MODES]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    return folder


def train(data_dir, mode, jit_compile=False, steps=12, **more):
    """Losses by step."""
    config = PretrainingConfig.from_dict(support.hparams(data_dir, **MODES[mode] | more))
    records = find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = PretrainingTask(config, strategy, jit_compile, records)
    step = tf.function(
        lambda batch: strategy.run(task.train_step, args=(batch, task.optimizer.step.read_value())), autograph=False
    )
    before = [variable.numpy() for variable in task.model.generator.trainable_variables]
    batches = training_batches(records, config.train_batch_size, config.seed, 0).take(steps)
    results = [step(batch) for batch in batches]
    if config.freeze_generator:
        for variable, value in zip(task.model.generator.trainable_variables, before, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert int(task.optimizer.step) == steps
    assert set(results[0]["losses"]) <= set(task.shown)  # what stands beside the progress
    return {name: np.array([float(result["losses"][name]) for result in results]) for name in results[0]["losses"]}


def check(data_dir, mode, jit_compile):
    losses = train(data_dir, mode, jit_compile)
    assert all(np.isfinite(values).all() for values in losses.values())
    if mode != "adversarial":
        assert losses["loss"][-4:].mean() < losses["loss"][:4].mean()


@pytest.mark.parametrize("mode", slow_but(TRACED_ALWAYS))
def test_learns_as_a_graph(data_dir, mode):
    with kernels.off():  # XLA would compile each for seconds
        check(data_dir, mode, jit_compile=False)


@pytest.mark.parametrize("mode", slow_but(COMPILED_ALWAYS))
def test_learns_under_xla(data_dir, mode):
    check(data_dir, mode, jit_compile=True)


def test_recomputed_layers_train_as_kept_ones(data_dir):
    """In a loop over micro-batches."""
    with kernels.off():
        kept, recomputed = (
            train(data_dir, "bert", steps=3, gradient_accumulation_steps=2, recompute=which)
            for which in ("none", "layers")
        )
    for name, values in recomputed.items():
        np.testing.assert_allclose(values, kept[name], rtol=1e-5)
