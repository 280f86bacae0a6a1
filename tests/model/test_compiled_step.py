"""FLOPs of the step that XLA compiles for GPUs and TPUs. What else it must be: tests/test_lowered_steps.py."""

import math
import re
from typing import Any

import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.flops import training_flops_per_example
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.recipes import read_recipe
from tests.support import training as support

_SHAPE = re.compile(r"(?:f|bf)\d+\[([\d,]*)\]")


def program(config):
    """The step as XLA reads it, before it optimises."""
    task = PretrainingTask(config, tf.distribute.get_strategy(), jit_compile=True)
    ids = tf.ones([config.train_batch_size, config.max_seq_length], tf.int32)
    batch = {"input_ids": ids, "input_mask": ids, "segment_ids": ids}
    step: Any = task.train_step
    return step.experimental_get_compiler_ir(batch, tf.constant(0, tf.int64))(stage="hlo")


def product_flops(text):
    """2 per multiply-add of all `dot` instructions."""
    total = 0
    for line in text.splitlines():
        if " dot(" not in line:
            continue
        result, left = (_dimensions(shape) for shape in _SHAPE.findall(line)[:2])
        contracted = re.findall(r"lhs_contracting_dims=\{([\d,]+)\}", line)[0]
        total += 2 * math.prod(result) * math.prod(left[i] for i in _dimensions(contracted))
    return total


def _dimensions(text):
    return [int(size) for size in text.split(",") if size]


@pytest.mark.parametrize(("recipe", "precision"), [("electra_small", "bfloat16"), ("coco_lm_small", "float32")])
def test_the_compiled_step_does_what_paper_says(tmp_path, recipe, precision):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    settings = {"max_seq_length": 64, "train_batch_size": 4, "embedding_size": 64, "precision": precision}
    hparams = support.hparams(tmp_path, sizes=sizes, **settings)
    hparams["model_hparam_overrides"] |= read_recipe(recipe).get("model_hparam_overrides", {}) | sizes
    config = PretrainingConfig.from_dict(read_recipe(recipe) | hparams | {"generator_layers": 0.5})
    text = program(config)
    on_paper = config.train_batch_size * training_flops_per_example(config)
    # The look-up of segments is a product with one-hot vectors, which paper leaves out.
    assert product_flops(text) == pytest.approx(on_paper, rel=5e-3)
