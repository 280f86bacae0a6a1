"""Embeddings of main network and generator, shared or each their own: who trains which table, and how they start."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.initial_weights import load_initial_weights
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import training as support

TABLES = ("word_embeddings", "position_embeddings")


def config_of(**overrides):
    return PretrainingConfig.from_dict(support.hparams(Path(), **{"mask_prob": 0.3} | overrides))


def trained_tables(model, loss_name):
    """Names of the tables of words and positions to which a loss gives a gradient that is not 0."""
    masked, _ = model.prepare(support.batch_of(), tf.constant([1, 2]))
    variables = [variable for variable in model.trainable_variables if variable.name.split(":")[0].endswith(TABLES)]
    with kernels.off(), tf.GradientTape() as tape:
        loss = model.outputs(model.forward(masked), True).losses[loss_name]
    names = set()
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        if gradient is not None and np.abs(tf.convert_to_tensor(gradient)).max() > 0:
            names.add(variable.name.split(":")[0])
    return names


@pytest.mark.parametrize("untied", [False, True])
def test_each_loss_trains_the_tables_of_its_network(untied):
    model = PretrainingModel(config_of(untied_generator_embeddings=untied))
    main = {f"electra/embeddings/{table}" for table in TABLES}
    generator = {f"generator/embeddings/{table}" for table in TABLES}
    assert trained_tables(model, "disc_loss") == main
    assert trained_tables(model, "masked_lm_loss") == (generator if untied else main)
    built = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    assert parameter_count(model.config) == built


def saved(folder, seed, **overrides):
    """A checkpoint of a model of random numbers, and the model."""
    model = PretrainingModel(config_of(seed=seed, **overrides))
    for number, variable in enumerate(model.trainable_variables):
        variable.assign_add(tf.random.stateless_normal(variable.shape, [seed, number], stddev=0.3))
    return tf.train.Checkpoint(model=model).save(str(folder / "model.ckpt")), model


def test_networks_of_two_runs_with_tables_of_their_own_start_together(tmp_path):
    """Sizes come from both folders, also the width of the generator's tables; weights bit for bit."""
    folders = {}
    for name, seed, width in (("main", 3, 24), ("generator", 4, 8)):
        folders[name] = saved(tmp_path / name, seed, untied_generator_embeddings=True, generator_embedding_size=width)
        (tmp_path / name / "config.json").write_text(folders[name][1].config.to_json())
    init = {"init_checkpoint": folders["main"][0], "init_generator_checkpoint": folders["generator"][0]}
    hparams = support.hparams(Path(), untied_generator_embeddings=True, **init)
    config = PretrainingConfig.from_dict(implied_hparams(hparams) | hparams)
    assert config.generator_embedding_size == 8
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    for part, name in (("encoder", "main"), ("generator", "generator")):
        variables = getattr(model, part).trainable_variables
        expected_variables = getattr(folders[name][1], part).trainable_variables
        assert len(variables) == len(expected_variables) > 3
        for variable, expected in zip(variables, expected_variables, strict=True):
            np.testing.assert_array_equal(variable, expected)
