"""Progressive stacking: a deeper network starts as copies of a shallower one's layers, all else as it was."""

import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.config.hparams import layered
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.readers import find_model
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.initial_weights import load_initial_weights
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import training as support


def values_of(model):
    return {variable.name.split(":")[0]: variable.numpy() for variable in model.trainable_variables}


@pytest.mark.parametrize("layers", [2, 4, 5])
def test_layers_repeat_in_their_order(tmp_path, layers):
    shallow = PretrainingModel(PretrainingConfig.from_dict(support.hparams(tmp_path, sizes={"num_hidden_layers": 2})))
    random = np.random.RandomState(0)
    for variable in shallow.trainable_variables:
        variable.assign(random.standard_normal(variable.shape))
    path = tf.train.Checkpoint(model=shallow).save(str(tmp_path / "model.ckpt"))
    config = PretrainingConfig.from_dict(
        support.hparams(tmp_path, sizes={"num_hidden_layers": layers}, init_checkpoint=path, stack_layers=True)
    )
    deep = PretrainingModel(config)
    load_initial_weights(deep, config)
    theirs = values_of(shallow)
    names = set()
    for name, value in values_of(deep).items():
        source = re.sub(r"layer_(\d+)", lambda found: f"layer_{int(found[1]) % 2}", name)
        np.testing.assert_array_equal(value, theirs[source], name)
        names.add(source)
    assert names == set(theirs)


def test_a_recipe_that_stacks_has_its_own_number_of_layers(tmp_path):
    start = str(support.ROOT / "electra_tf2/pretrained/electra_mini")
    recipe = {"num_hidden_layers": 8, "stack_layers": True, "init_checkpoint": start}
    read = implied_hparams(layered(PretrainingConfig, recipe))["model_hparam_overrides"]
    assert read["num_hidden_layers"] == 8
    assert read | {"num_hidden_layers": 4} == find_model(start).network["model_hparam_overrides"]
    elsewhere = recipe | {"init_checkpoint": str(tmp_path / "to be trained")}
    assert implied_hparams(layered(PretrainingConfig, elsewhere)) == {}
