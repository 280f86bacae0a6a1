"""Layers that share weights: the network with own layers that hold the same numbers is the reference."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exports import conversions
from electra_tf2.exports.self_check import fixed_inputs
from electra_tf2.formats.huggingface_config import export_problems
from electra_tf2.formats.joining import unshared, with_unshared_layers
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.model_config import generator_architecture, make_network, with_config
from electra_tf2.model import kernels
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.costs import embedding_parameters
from electra_tf2.model.costs import encoder as priced
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.layers import SeedStream
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import training as support

# share_layers -> of every one of 5 layers, the layer whose attention and whose feed-forward network it uses
SHARED_WITH = {
    "none": ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
    "all": ([4] * 5, [4] * 5),
    "attention": ([4] * 5, [0, 1, 2, 3, 4]),
    "ffn": ([0, 1, 2, 3, 4], [4] * 5),
}


def sizes(share_layers: str, **changes) -> Architecture:
    given = {"num_hidden_layers": 5, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    return make_architecture("small", given | {"share_layers": share_layers} | changes, 100, 16)


def inputs():
    ids = np.random.RandomState(0).randint(5, 100, [3, 9])
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    return [tf.constant(value, tf.int32) for value in (ids, mask, ids % 2)]


def values_of(layer):
    return {variable.name.split(":")[0]: variable.numpy() for variable in layer.trainable_variables}


@pytest.fixture(autouse=True)
def plain():
    with kernels.off():
        yield


@pytest.mark.parametrize(("name", "positions"), zip(SHARED_WITH, ("none", "coco") * 2, strict=True))
def test_which_layer_uses_whose_weights_and_parameters_are_counted_once(name, positions):
    a = sizes(name, relative_positions=positions)
    assert (a.shared_with("attention"), a.shared_with("ffn")) == SHARED_WITH[name]
    network = Encoder("electra", a)
    assert priced("", a, 9, embedding_parameters(a)).parameters == sum(v.size for v in values_of(network).values())
    layers = network.transformer_layers
    for layer, attention, ffn in zip(layers, *SHARED_WITH[name], strict=True):
        assert layer.attention.qkv is layers[attention].attention.qkv
        assert layer.attention_norm is layers[attention].attention_norm
        assert layer.intermediate is layers[ffn].intermediate and layer.output_norm is layers[ffn].output_norm


@pytest.mark.parametrize(("name", "norm_style"), [("all", "pre"), ("attention", "post"), ("ffn", "post")])
def test_the_gradient_is_the_sum_over_uses(name, norm_style):
    shared = Encoder("electra", sizes(name, norm_style=norm_style), seed=3)
    own = Encoder("electra", sizes("none", norm_style=norm_style))
    repeated = unshared(values_of(shared), shared.architecture, "electra")
    assert repeated.keys() == values_of(own).keys()
    for variable in own.trainable_variables:
        variable.assign(repeated[variable.name.split(":")[0]])
    weights = tf.constant(np.random.RandomState(1).standard_normal([3, 9, 32]), tf.float32)
    gradients = {}
    for encoder in (shared, own):
        with tf.GradientTape() as tape:
            states = encoder(*inputs(), SeedStream(tf.constant([1, 2]))).sequence
            loss = tf.reduce_sum(states * weights)
        found = tape.gradient(loss, encoder.trainable_variables)
        named = zip(encoder.trainable_variables, found, strict=True)
        gradients[encoder] = {v.name.split(":")[0]: tf.convert_to_tensor(g).numpy() for v, g in named}
        gradients[encoder]["loss"] = loss.numpy()
    assert gradients[shared]["loss"] == gradients[own]["loss"]
    expected = {key: np.zeros_like(value) for key, value in gradients[shared].items()}
    for key, value in gradients[own].items():
        expected[shared_name(key, name)] += value
    for key, value in gradients[shared].items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-4, atol=1e-4, err_msg=key)


def shared_name(variable: str, share_layers: str) -> str:
    """The name of the variable whose part a layer's variable is where layers share."""
    before, _, after = variable.partition("/layer_")
    if not after:
        return variable
    number, _, rest = after.partition("/")
    shared = SHARED_WITH[share_layers][0 if rest.startswith("attention/") else 1]
    return f"{before}/layer_{shared[int(number)]}/{rest}"


def test_a_checkpoint_holds_shared_weights_once_and_is_written_out_for_others(tmp_path):
    config = PretrainingConfig.from_dict(
        support.hparams(tmp_path, sizes={"share_layers": "all", "num_hidden_layers": 3})
    )
    saved = PretrainingModel(config)
    for variable in saved.trainable_variables:  # biases and norms would all be alike
        variable.assign_add(tf.random.stateless_normal(variable.shape, [1, len(variable.name)], stddev=0.1))
    tf.train.Checkpoint(model=saved).save(str(tmp_path / "run" / "model.ckpt"))
    (tmp_path / "run" / "config.json").write_text(config.to_json())
    again = PretrainingModel(dataclasses.replace(config, seed=5))
    tf.train.Checkpoint(model=again).restore(tf.train.latest_checkpoint(tmp_path / "run")).assert_consumed()
    for name, value in values_of(saved).items():
        np.testing.assert_array_equal(values_of(again)[name], value)

    model = read_model(str(tmp_path / "run"))
    assert [name for name in model.weights if "/layer_" in name and "/layer_2/" not in name] == []
    assert export_problems(model.architecture) == ["share_layers all (none only)"]
    own = with_unshared_layers(with_config(model))
    assert own.architecture.share_layers == generator_architecture(own).share_layers == "none"
    rows = fixed_inputs(model)
    for part in ("main", "generator"):
        np.testing.assert_equal(conversions.outputs(own, part, rows), conversions.outputs(model, part, rows))
    assert with_unshared_layers(own) is own
    make_network(own)  # as a file of these weights is read
