"""Every kind of network with every option of training: two steps of fine-tuning each, with a finite loss and weights
that have moved."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.config.recipes import read_recipe
from electra_tf2.corpus.tokenization import tokenizer_for
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.model import FinetuningTask
from electra_tf2.finetune.tasks import make_tasks
from tests.support import finetuning

# One recipe for each kind of network, and BERT's with a separate first projection of the embeddings.
RECIPES = (
    *("electra_small", "bert_base", "coco_lm_small", "electra_small_modernbert", "electra_small_shared_layers"),
    *("electra_small_rotary_positions", "electra_small_xl_positions", "electra_small_t5_positions", "electra_deep"),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "recompute": {"recompute": "layers"},
    "recompute and accumulation": {"recompute": "selective", "gradient_accumulation_steps": 2},
    "class weights": {"class_weights": "balanced", "gradient_accumulation_steps": 2},
    "muon": {"optimizer": "muon", "gradient_accumulation_steps": 2},
    "bfloat16": {"precision": "bfloat16", "gradient_accumulation_steps": 2},
    "float16": {"precision": "float16", "gradient_accumulation_steps": 2},
    "jit": {"jit_compile": "true", "gradient_accumulation_steps": 2},
}
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
# Always run: each network, and the options that no other test trains with. test_run_finetuning.py trains plainly and by
# Muon, test_named_files.py with class weights, test_lowered_steps.py lowers the steps that are compiled.
ALWAYS = {("electra_small", option) for option in ("recompute and accumulation", "bfloat16", "float16")}
ALWAYS |= {(recipe, "accumulation") for recipe in RECIPES}


def cases() -> list[Any]:
    return [
        pytest.param(*pair, marks=() if pair in ALWAYS else pytest.mark.slow, id=" with ".join(pair))
        for pair in itertools.product(RECIPES, OPTIONS)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    texts = ("the file is open", "read the first line", "the list of names", "is it open")
    lines = [json.dumps({"sentence": texts[i % 4], "label": str(i % 2)}) for i in range(8)]
    finetuning.write_lines(folder / "cola" / "train.jsonl", *lines)
    return folder


@pytest.mark.parametrize(("recipe", "option"), cases())
def test_every_network_trains_with_every_option(data: Path, recipe: str, option: str) -> None:
    network = read_recipe(recipe)
    layers = 1 if recipe == "electra_small" else 2  # what is between layers differs among networks alone
    sizes = network.get("model_hparam_overrides", {}) | SIZES | {"num_hidden_layers": layers}
    settings = {"model_size": "small", "model_hparam_overrides": sizes, "embedding_size": 16, "init_checkpoint": None}
    settings |= {"raw_data_dir": str(data), "train_batch_size": 4, "max_seq_length": 16, "learning_rate": 1e-3}
    config = finetuning.config("cola", **settings | OPTIONS[option])
    tasks = make_tasks(config, tokenizer_for(config.vocab_file, config.do_lower_case, config.do_strip_accents))
    table = FeatureTable([TaskFeatures("cola", tasks[0].load("train").features, tasks[0].labels)], 16)
    task = FinetuningTask(config, tasks, tf.distribute.get_strategy(), config.jit_compile == "true", table, seed=1)
    before = [variable.numpy() for variable in task.model.trainable_variables]
    step = tf.function(task.train_step, autograph=False, reduce_retracing=True)
    if task.loss_scale is not None:  # which falls there from 2^15 by itself, in steps that move nothing
        task.loss_scale.scale.assign(256.0)
    for number, batch in enumerate(task.training_data(0).take(2)):
        result = step(batch, tf.constant(number, tf.int64))
        assert np.isfinite(result["losses"]["loss"].numpy()) and np.isfinite(result["watched"]["gradient_norm"].numpy())
    moved = [bool((old != new.numpy()).any()) for old, new in zip(before, task.model.trainable_variables, strict=True)]
    assert sum(moved) > 0.8 * len(moved)
