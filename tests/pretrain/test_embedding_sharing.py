"""Gradient-disentangled embedding sharing: who trains which table, and that files hold one table as others do."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.weights import warm_start
from electra_tf2.model import kernels
from electra_tf2.model.encoder import Encoder
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.initial_weights import load_initial_weights
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import training as support

TABLES = ("word_embeddings", "position_embeddings")


def config_of(**overrides):
    return PretrainingConfig.from_dict(
        support.hparams(Path(), **{"embedding_sharing": "gdes", "mask_prob": 0.3} | overrides)
    )


@pytest.fixture(scope="module")
def model():
    return PretrainingModel(config_of())


def gradients_of(model, **weights):
    """By variable name, of the loss with these weights of its terms; None where there is none."""
    masked, _ = model.prepare(support.batch_of(), tf.constant([1, 2]))
    with kernels.off(), tf.GradientTape() as tape:
        outputs = model.outputs(model.forward(masked), True)
        loss = sum(weight * outputs.losses[name] for name, weight in weights.items())
    variables = model.trainable_variables
    found = tape.gradient(loss, variables)
    return {
        variable.name.split(":")[0]: None if gradient is None else tf.convert_to_tensor(gradient).numpy()
        for variable, gradient in zip(variables, found, strict=True)
    }


def test_each_loss_trains_its_own_tables(model):
    detection, language = gradients_of(model, disc_loss=1.0), gradients_of(model, masked_lm_loss=1.0)
    for name in TABLES:
        table, difference = f"generator/embeddings/{name}", f"electra/embeddings/{name}_difference"
        assert detection[table] is None and np.abs(detection[difference]).max() > 0
        assert language[difference] is None and np.abs(language[table]).max() > 0


def test_it_starts_as_the_generators_tables_and_counts_both(model):
    main, generator = model.encoder.embeddings, model.generator.encoder.embeddings
    assert main.base is generator
    np.testing.assert_array_equal(main.word_embeddings, generator.word_embeddings)
    assert (main.position_embeddings.numpy() == 0).all()
    built = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    assert parameter_count(model.config) == built
    shared = PretrainingConfig.from_dict(support.hparams(Path()))
    assert built - parameter_count(shared) == (600 + 512 + 2 + 2) * 16


def test_a_checkpoint_is_read_with_the_tables_added_up(model, tmp_path):
    """So warm starts, fine-tuning and conversions see one table; a run of the same kind finds its differences again."""
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.stateless_normal(variable.shape, [1, 2]))
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "run" / "model.ckpt"))
    weights = open_model(path).weights
    assert not any("difference" in name for name in weights)
    main = model.encoder.embeddings
    np.testing.assert_allclose(weights["electra/embeddings/word_embeddings"], main.word_embeddings, atol=1e-6)
    encoder = Encoder("electra", model.config.architecture)
    report = warm_start(encoder, open_model(path))
    assert not report.missing
    with kernels.off():
        np.testing.assert_allclose(
            encoder(**support.batch_of()).sequence, model.encoder(**support.batch_of()).sequence, atol=1e-5
        )
    again = PretrainingModel(config_of(seed=5))
    assert not warm_start(again, open_model(path)).missing
    assert again.encoder is not None
    np.testing.assert_array_equal(again.encoder.embeddings.word_embeddings, main.word_embeddings)


def saved(folder, seed, **overrides):
    """A checkpoint of a model of random numbers, and the model."""
    model = PretrainingModel(config_of(seed=seed, **overrides))
    for number, variable in enumerate(model.trainable_variables):
        variable.assign_add(tf.random.stateless_normal(variable.shape, [seed, number], stddev=0.3))
    return tf.train.Checkpoint(model=model).save(str(folder / "model.ckpt")), model


@pytest.mark.parametrize("start", [{}, {"electra_objective": False}, {"uniform_generator": True}])
def test_it_starts_from_a_model_with_one_set_of_tables(tmp_path, start):
    """Starts from an ELECTRA with shared embeddings, a BERT, a discriminator: its tables are both networks'."""
    path, source = saved(tmp_path, 3, embedding_sharing=None, **start)
    config = config_of(init_checkpoint=path)
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    assert model.encoder is not None
    for name in TABLES:
        wanted = getattr(source.encoder.embeddings, name)
        np.testing.assert_array_equal(getattr(model.generator.encoder.embeddings, name), wanted)
    np.testing.assert_array_equal(model.encoder.embeddings.word_embeddings, source.encoder.embeddings.word_embeddings)
    with kernels.off():
        np.testing.assert_array_equal(
            model.encoder(**support.batch_of()).sequence, source.encoder(**support.batch_of()).sequence
        )


def test_a_generator_of_its_own_does_not_move_the_main_networks_tables(tmp_path):
    path, source = saved(tmp_path / "main", 3)
    generator_path, generator = saved(tmp_path / "generator", 4, embedding_sharing="nes", embedding_size=16)
    config = config_of(init_checkpoint=path, init_generator_checkpoint=generator_path)
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    assert model.encoder is not None
    base, wanted = model.generator.encoder.embeddings, generator.generator.encoder.embeddings
    np.testing.assert_array_equal(base.word_embeddings, wanted.word_embeddings)
    with kernels.off():
        found, expected = model.encoder(**support.batch_of()), source.encoder(**support.batch_of())
    np.testing.assert_allclose(found.embeddings, expected.embeddings, atol=1e-5)
    np.testing.assert_allclose(found.sequence, expected.sequence, atol=1e-4)


def test_networks_of_two_runs_with_tables_of_their_own_start_together(tmp_path):
    """Sizes come from both folders, also the width of the generator's tables; weights bit for bit."""
    folders = {}
    for name, seed, width in (("main", 3, 24), ("generator", 4, 8)):
        folders[name] = saved(tmp_path / name, seed, embedding_sharing="nes", generator_embedding_size=width)
        (tmp_path / name / "config.json").write_text(folders[name][1].config.to_json())
    starts = {"init_checkpoint": folders["main"][0], "init_generator_checkpoint": folders["generator"][0]}
    hparams = support.hparams(Path(), embedding_sharing="nes", **starts)
    config = PretrainingConfig.from_dict(PretrainingConfig.implied(hparams) | hparams)
    assert config.generator_embedding_size == 8
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    for part, name in (("encoder", "main"), ("generator", "generator")):
        found, wanted = (getattr(one, part).trainable_variables for one in (model, folders[name][1]))
        assert len(found) == len(wanted) > 3
        for variable, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(variable, expected)
