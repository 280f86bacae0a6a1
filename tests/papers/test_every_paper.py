"""Every paper's recipes, at tiny sizes: they train, and cost what is built."""

import math

import pytest

from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.util.flags import read_recipe
from electra_tf2.util.papers import paper_names
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
    numbers = {"max_seq_length": support.LENGTH, "train_batch_size": 8, "num_warmup_steps": 0, "precision": "float32"}
    return config_of(recipe, folder, max_predictions_per_seq=3, **numbers)


def test_every_paper_has_a_recipe():
    assert FIRST.keys() == {*paper_names()}


@pytest.mark.parametrize(
    "recipe", [name if name in FIRST.values() else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_its_recipes_train_and_cost_what_is_built(folder, recipe):
    config = tiny(recipe, folder)
    train(config)
    built = sum(math.prod(variable.shape) for variable in make_model(config).trainable_variables)
    assert parameter_count(config) == built
