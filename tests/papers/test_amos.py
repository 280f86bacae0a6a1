"""AMOS's mixture of generators: what is sampled, and which loss trains which part of the generator."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.papers.amos.model import MixtureLM, sample
from electra_tf2.pretrain.noise import row_noise
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.util.errors import UserError
from tests.support import stored_models
from tests.support import training as support

SHARES = "generator_predictions/mixture/kernel"


def config_of(**overrides):
    settings = {
        "paper": "amos",
        "sizes": {"num_hidden_layers": 2},
        "generator_layers": 1.5,
        "generator_exits": [1, 3],
        "generator_sample_mode": "zero_dropout",
        "mask_sampling": "without_replacement",
        "mask_prob": 0.3,
        "max_predictions_per_seq": 6,
    }
    return PretrainingConfig.from_dict(support.hparams(Path(), **settings | overrides))


@pytest.fixture(scope="module")
def model():
    model = make_model(config_of())
    for variable in model.trainable_variables:  # larger than at the start, so that all gradients are
        variable.assign_add(0.2 * tf.random.stateless_normal(variable.shape, [1, 2]))
    return model


@pytest.fixture(scope="module")
def masked(model):
    ids = tf.constant(np.random.RandomState(0).randint(20, 600, [8, support.LENGTH]), tf.int32)
    ids *= tf.sequence_mask([16] * 7 + [9], 16, tf.int32)  # the last has fewer draws than there is room for
    batch = {"input_ids": ids, "input_mask": tf.cast(ids > 0, tf.int32), "segment_ids": tf.zeros_like(ids)}
    return model.prepare(batch, tf.constant([1, 2]))[0]


def gradients(model, masked, loss_name):
    with kernels.off(), tf.GradientTape() as tape:
        loss = model.outputs(model.forward(masked), True).losses[loss_name]
    found = tape.gradient(loss, model.trainable_variables)
    named = zip(model.trainable_variables, found, strict=True)
    return {
        variable.name.split(":")[0]: tf.convert_to_tensor(gradient).numpy()
        for variable, gradient in named
        if gradient is not None and np.any(tf.convert_to_tensor(gradient).numpy())
    }


def test_detection_trains_the_shares_alone_and_language_modelling_all_but_them(model, masked):
    detection, language = gradients(model, masked, "disc_loss"), gradients(model, masked, "exits_loss")
    names = [variable.name.split(":")[0] for variable in model.trainable_variables]
    own = {name for name in names if name.startswith("generator")}
    assert own & set(detection) == {SHARES}
    assert own - set(language) == {SHARES}


def test_no_exit_trains_the_block_below(model, masked):
    with kernels.off(), tf.GradientTape() as tape:
        exits = model.generator(masked).exits
        loss = tf.reduce_sum(exits.log_probs(tf.repeat(masked.masked_lm_ids[..., None], 2, -1))[..., 1])
    first, second, third = (layer.intermediate.kernel for layer in model.generator.encoder.transformer_layers)
    found = tape.gradient(loss, [first, second, third])
    assert not np.any(found[0]) and np.any(found[1]) and np.any(found[2])


def plain_mixture(model, masked):
    """Shares [B, N, K], logits of the exits [B, N, K, V] and sums [B, N, V], in loops."""
    output = model.generator.encoder(masked.masked_input_ids, masked.input_mask, masked.segment_ids)
    kernel = model.generator.mixture_kernel.numpy()[:, 0]
    rows, count = masked.positions.shape
    noise = row_noise(masked.sampling_noise[:, 0], [count, 600]).numpy().astype(np.float64)
    shares, logits = np.zeros([rows, count, 2]), np.zeros([rows, count, 2, 600])
    for row, column in np.ndindex(rows, count):
        states = [output.layers[layer - 1][row, masked.positions[row, column]] for layer in (1, 3)]
        votes = np.exp([kernel @ state.numpy() for state in states])
        shares[row, column] = votes / votes.sum()
        logits[row, column] = [model.generator.head(state[tf.newaxis, tf.newaxis])[0, 0] for state in states]
    return shares, logits, np.einsum("bnk,bnkv->bnv", shares, logits) - np.log(-np.log(noise))


def test_samples_and_the_shares_gradient_are_those_of_plain_loops(model, masked):
    """The gradient of a linear function of the main network's word embeddings, through softmax, mixture and shares."""
    config, words = model.config, model.encoder.embeddings.word_embeddings
    upstream = np.random.RandomState(1).standard_normal([*masked.input_ids.shape, words.shape[1]]).astype(np.float32)
    with kernels.off(), tf.GradientTape() as tape:
        generated = model.generator(masked)
        sampled, offsets = sample(config, masked, generated.softmax.logits, words)
        value = tf.reduce_sum(offsets * upstream)
    found = tape.gradient(value, model.generator.mixture_kernel).numpy()[:, 0]
    assert not np.any(offsets)
    with kernels.off():
        shares, logits, noisy = plain_mixture(model, masked)
        layers = model.generator.encoder(masked.masked_input_ids, masked.input_mask, masked.segment_ids).layers
    weights, positions = masked.masked_lm_weights.numpy(), masked.positions.numpy()
    np.testing.assert_array_equal(sampled, noisy.argmax(-1))
    np.testing.assert_allclose(generated.shares, shares, rtol=1e-4)
    expected = np.zeros_like(found, np.float64)
    for row, column in np.argwhere(weights > 0):
        place, soft = positions[row, column], np.exp((noisy[row, column] - noisy[row, column].max()) / 0.3)
        soft /= soft.sum()
        to_soft = words.numpy() @ upstream[row, place]
        to_logits = soft * (to_soft - soft @ to_soft) / 0.3
        to_shares = logits[row, column] @ to_logits
        share = shares[row, column]
        to_votes = share * (to_shares - share @ to_shares)
        for number, layer in enumerate((0, 2)):
            expected += to_votes[number] * layers[layer][row, place].numpy()
    np.testing.assert_allclose(found, -expected, rtol=2e-3, atol=1e-5 * np.abs(expected).max())
    assert weights.min() == 0


def test_the_loss_is_the_sum_of_the_exits(model, masked):
    with kernels.off():
        forward = model.forward(masked)
        result = model.objectives[0](forward, True)
        _, logits, _ = plain_mixture(model, masked)
    assert isinstance(model.objectives[0], MixtureLM)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    truth = np.take_along_axis(log_probs, masked.masked_lm_ids.numpy()[:, :, None, None].repeat(2, 2), -1)[..., 0]
    weights = masked.masked_lm_weights.numpy()
    np.testing.assert_allclose(result.numerator, -(truth.sum(-1) * weights).sum(), rtol=1e-4)
    shares = sum(float(result.metrics[f"exit_{exit}_share"][0]) for exit in (1, 3))
    np.testing.assert_allclose(shares, weights.sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"generator_exits": [1, 2]}, "rising to its uppermost, 3"),
        ({"generator_exits": [3, 1]}, "rising to its uppermost, 3"),
        ({"generator_exits": [3]}, "two layers or more"),
        ({"generator_exits": ["x", 3]}, "must be two layers or more"),
        ({"uniform_generator": True}, "needs a masked language model of its own"),
        ({"electra_objective": False}, "needs a masked language model of its own"),
        ({"adversarial_generator": True, "generator_sample_mode": "train"}, "choose one"),
        ({"sizes": {"num_hidden_layers": 2, "norm_style": "pre"}}, "needs norm_style post"),
        ({"mask_sampling": "with_replacement"}, "a position has one sample"),
        ({"freeze_generator": True, "untied_generator_embeddings": True}, "freeze_generator must be false"),
    ],
)
def test_what_cannot_be_mixed_is_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        config_of(**wrong)


def test_it_gives_no_probabilities_but_a_detectors(model):
    stored = electra_tf2.Model(stored_models.of_network(model))
    with pytest.raises(UserError, match="a model of AMOS gives no probabilities"):
        stored.score(["a text"])
    assert (stored.score(["a text"], method="detector") < 0).all()
