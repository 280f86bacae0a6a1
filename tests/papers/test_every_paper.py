"""Every paper's recipes, at tiny sizes: they train, and cost what is built."""

import json
import math

import pytest
import tensorflow as tf

from electra_tf2.config.papers import paper_names
from electra_tf2.config.recipes import read_recipe
from electra_tf2.inference.model import load
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.pretraining_model import make_model
from tests.pretrain.test_combinations import train
from tests.support import training as support
from tests.support.recipes import config_of, recipes_of_papers, write_files

RECIPES = recipes_of_papers()
FIRST = {read_recipe(name)["paper"]: name for name in reversed(RECIPES)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    write_files(folder, support.LENGTH)
    return folder


def tiny(recipe, folder):
    sizes = {"max_seq_length": support.LENGTH, "train_batch_size": 8, "max_predictions_per_seq": 3}
    return config_of(recipe, folder, True, sizes | {"num_warmup_steps": 0, "precision": "float32"})


def test_every_paper_has_a_recipe():
    assert FIRST.keys() == {*paper_names()}


@pytest.mark.parametrize(
    "recipe", [name if name in FIRST.values() else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_its_recipes_train_cost_what_is_built_and_are_loaded(folder, tmp_path, recipe):
    config = tiny(recipe, folder)
    train(config)
    model = make_model(config)
    assert parameter_count(config) == sum(math.prod(variable.shape) for variable in model.trainable_variables)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "model.ckpt-7"))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"')
    gone = {name: "gone" for name in ("teacher", "data_dir") if getattr(config, name, "")}
    (tmp_path / "config.json").write_text(json.dumps(json.loads(config.to_json()) | gone))
    assert load(tmp_path).embed(["the file"], pooling="cls").shape == (1, 64)  # without what trained it
