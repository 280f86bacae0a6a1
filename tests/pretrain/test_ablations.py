"""ELECTRA's ablations and training algorithms: what each loss sees, two-stage training, the adversarial generator."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.formats.readers import open_model
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.model import kernels
from electra_tf2.pretrain.initial_weights import load_initial_weights, main_network_names
from electra_tf2.pretrain.objectives.ablations import AdversarialGenerator, policy_losses
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import golden

ELECTRA_15 = {"disc_tokens": "masked"}
REPLACE = {"electra_objective": False, "replace_mlm_objective": True}
ALL_TOKENS = {"electra_objective": False, "all_tokens_mlm_objective": True}
CORRECTIVE = {"electra_objective": False, "corrective_lm_objective": True}
TWO_STAGE = {
    "generator_hidden_size": 1.0,
    "untied_generator_embeddings": True,
    "freeze_generator": True,
    "init_generator_checkpoint": "somewhere",
    "init_encoder_from_generator": True,
    "embedding_size": 128,
}


@pytest.fixture(autouse=True)
def plain():
    """Formulas run themselves: nothing is compiled for seconds."""
    with kernels.off():
        yield


def model_and_batch(seed=0, **overrides):
    model = PretrainingModel(golden.config(**overrides))
    arrays = golden.load_arrays("batch")
    batch = {name: tf.constant(arrays[name]) for name in ("input_ids", "input_mask", "segment_ids")}
    return model, model.prepare(batch, tf.constant([seed, 1]))[0]


def gradient_of_states(model, masked):
    """Where the main network's loss depends on its states: bool [B, L]."""
    forward = model.forward(masked)
    with tf.GradientTape() as tape:
        tape.watch(forward.states)
        loss = model.objectives[-1](forward, True).numerator
    return tf.reduce_sum(tf.abs(tape.gradient(loss, forward.states)), -1).numpy() > 0


def drawn_positions(masked):
    drawn = np.zeros(masked.input_ids.shape, bool)
    for row, (positions, weights) in enumerate(
        zip(masked.positions.numpy(), masked.masked_lm_weights.numpy(), strict=True)
    ):
        drawn[row, positions[weights > 0]] = True
    return drawn


@pytest.mark.parametrize(
    ("ablation", "everywhere"),
    [({}, True), (ELECTRA_15, False), (REPLACE, False), (ALL_TOKENS, True), (CORRECTIVE, False)],
)
def test_which_tokens_a_loss_learns_from(ablation, everywhere):
    model, masked = model_and_batch(**ablation)
    expected = masked.input_mask.numpy() > 0 if everywhere else drawn_positions(masked)
    np.testing.assert_array_equal(gradient_of_states(model, masked), expected)


def test_electra_15_with_everything_masked_is_electra_on_the_candidates():
    everything = {"mask_prob": 0.99, "max_predictions_per_seq": 32, "mask_sampling": "without_replacement"}
    model, masked = model_and_batch(**everything, **ELECTRA_15)
    np.testing.assert_array_equal(drawn_positions(masked), masked.candidates.numpy() > 0)
    weights = model.objectives[-1].token_weights(masked)
    np.testing.assert_array_equal(weights, masked.candidates)
    assert float(model.objectives[-1].normalizer(masked)) == masked.candidates.numpy().sum()


def test_replace_mlm_never_shows_mask_to_the_main_network():
    model, masked = model_and_batch(**REPLACE)
    assert (masked.masked_input_ids.numpy() == model.special.mask).any()
    sampled = tf.where(masked.masked_lm_ids == model.special.mask, 7, masked.masked_lm_ids)
    assert not (model.forward(masked, sampled_ids=sampled).corrupted.input_ids.numpy() == model.special.mask).any()


def test_the_first_losses_are_those_of_knowing_nothing():
    model, masked = model_and_batch(**ALL_TOKENS)
    forward = model.forward(masked)
    objective = model.objectives[-1]
    words = objective.head.embeddings.word_embeddings
    words.assign(tf.zeros_like(words))
    objective.gate.dense.kernel.assign(tf.zeros_like(objective.gate.dense.kernel))
    vocabulary = model.config.vocab_size
    replaced = (forward.corrupted.is_replaced.numpy() > 0).sum()
    kept = masked.input_mask.numpy().sum() - replaced
    expected = replaced * math.log(2 * vocabulary) - kept * math.log(0.5 + 0.5 / vocabulary)
    assert float(objective(forward, True).numerator) == pytest.approx(expected, rel=1e-5)


# Two stages


@pytest.mark.parametrize("objective", ["replace_mlm_objective", "corrective_lm_objective"])
def test_the_main_networks_language_model_starts_as_that_of_a_masked_language_model(tmp_path, objective):
    first = PretrainingModel(golden.config(electra_objective=False))
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "model.ckpt"))
    draws = {"mask_rates": [1.0, 0.0, 0.0], "mask_sampling": "without_replacement"}
    model = PretrainingModel(golden.config(electra_objective=False, **{objective: True}, **draws))
    checkpoint = open_model(path)
    report = warm_start(model, checkpoint, main_network_names(model, checkpoint))
    assert "generator_predictions/output_bias" in report.missing  # a generator of its own has other states
    ours, theirs = ({variable.name: variable for variable in one.trainable_variables} for one in (model, first))
    loaded = [name for name in report.loaded if name.startswith("clm_predictions/")]
    assert len(loaded) > 1
    for name in loaded:
        of_first = f"generator_predictions/{name.partition('/')[2]}:0"
        np.testing.assert_array_equal(ours[f"{name}:0"], theirs[of_first])
    again = PretrainingModel(golden.config(electra_objective=False, **{objective: True}, **draws, seed=1))
    pair = open_model(tf.train.Checkpoint(model=model).save(str(tmp_path / "pair.ckpt")))
    assert not warm_start(again, pair, main_network_names(again, pair)).missing
    ours, theirs = ({variable.name: variable for variable in one.trainable_variables} for one in (again, model))
    for name in (*loaded, "generator_predictions/output_bias"):
        np.testing.assert_array_equal(ours[f"{name}:0"], theirs[f"{name}:0"])


@pytest.mark.parametrize("head", ["transform", "tied"])
def test_a_main_network_that_starts_as_the_generator_has_its_language_model_too(tmp_path, head):
    first = PretrainingModel(golden.config(electra_objective=False, embedding_size=128))
    for variable in first.trainable_variables:  # biases begin as zeros everywhere
        variable.assign_add(tf.ones_like(variable))
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "model.ckpt"))
    config = golden.config(
        **TWO_STAGE | {"init_generator_checkpoint": path, "electra_objective": False, "clm_head": head},
        corrective_lm_objective=True,
        mask_rates=[1.0, 0.0, 0.0],
        mask_sampling="without_replacement",
    )
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    ours = {variable.name: variable for variable in model.trainable_variables}
    theirs = {variable.name: variable for variable in model.generator.trainable_variables}
    assert first.encoder is not None and model.encoder is not None
    networks = (first.encoder, model.encoder, model.generator.encoder)
    for values in zip(*(network.trainable_variables for network in networks), strict=True):
        np.testing.assert_array_equal(values[0], values[1])
        np.testing.assert_array_equal(values[0], values[2])
    trained = {id(variable) for variable in model.trained_variables}
    assert not trained & {id(variable) for variable in theirs.values()}  # the generator is frozen
    copied = [name for name in ours if name.startswith("clm_predictions/")]
    assert len(copied) == (5 if head == "transform" else 1)
    for name in copied:
        np.testing.assert_array_equal(ours[name], theirs[f"generator_predictions/{name.partition('/')[2]}"])


def test_a_generator_takes_no_layer_of_the_network_beside_it(tmp_path):
    pair = PretrainingModel(golden.config(generator_hidden_size=1.0, generator_layers=0.5))
    path = tf.train.Checkpoint(model=pair).save(str(tmp_path / "model.ckpt"))
    config = golden.config(generator_hidden_size=1.0, generator_layers=0.5, init_generator_checkpoint=path, seed=1)
    again = PretrainingModel(config)
    load_initial_weights(again, config)
    pairs = zip(again.generator.trainable_variables, pair.generator.trainable_variables, strict=True)
    for ours, theirs in pairs:  # embeddings too, which the pair shares
        np.testing.assert_array_equal(ours, theirs)
    deeper = golden.config(generator_hidden_size=1.0, init_generator_checkpoint=path)
    with pytest.raises(UserError, match="init_generator_checkpoint lacks generator/encoder/layer_1/"):
        load_initial_weights(PretrainingModel(deeper), deeper)


def test_a_generator_of_another_architecture_comes_from_elsewhere(tmp_path):
    """Single entries of its network differ from the main network's: gated as wide as its checkpoint, without biases."""
    modern = {"architecture": "modernbert", "num_hidden_layers": 2}
    first = PretrainingModel(golden.config(electra_objective=False, model_hparam_overrides=modern))
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "model.ckpt"))
    own = {"intermediate_size": first.config.architecture.intermediate_size, "norm_bias": False, "mlp_bias": False}
    hparams = {
        "model_hparam_overrides": modern | {"intermediate_size": 96, "norm_bias": True, "mlp_bias": True},
        "untied_generator_embeddings": True,
        "generator_embedding_size": 32,
        "generator_hidden_size": 1.0,
        "init_generator_checkpoint": path,
        "freeze_generator": True,
    }
    with pytest.raises(UserError, match="trained with other sizes: generator/encoder/layer_0/intermediate/gated"):
        other = golden.config(**hparams)
        load_initial_weights(PretrainingModel(other), other)
    config = golden.config(**hparams, generator_hparam_overrides=own)
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    for ours, theirs in zip(
        model.generator.encoder.trainable_variables, first.generator.encoder.trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert config.architecture.intermediate_size == 96


@pytest.mark.parametrize("start", ["init_checkpoint", "init_generator_checkpoint"])
def test_no_part_of_a_frozen_generator_stays_random(tmp_path, start):
    """A pair that shares its embeddings has none of its generator's own; an encoder alone has no head."""
    first = PretrainingModel(golden.config(electra_objective=start == "init_checkpoint"))
    saved = first if start == "init_checkpoint" else first.encoder
    path = tf.train.Checkpoint(model=saved).save(str(tmp_path / "model.ckpt"))
    sizes = {"generator_hidden_size": 0.5 if start == "init_checkpoint" else 1.0, "generator_embedding_size": 32}
    config = golden.config(untied_generator_embeddings=True, freeze_generator=True, **sizes, **{start: path})
    lacks = "generator/embeddings/" if start == "init_checkpoint" else "generator_predictions/"
    with pytest.raises(UserError, match=f"freeze_generator: {path} lacks {lacks}.* would stay random"):
        load_initial_weights(PretrainingModel(config), config)


# Adversarial generator


@pytest.mark.parametrize("baseline", [0.0, 2.0])
def test_the_estimate_of_the_policys_gradient_is_unbiased(baseline):
    logits = tf.constant(np.random.RandomState(0).randn(5), tf.float32)
    reward = tf.constant([0.1, 3.0, 0.5, 1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        expected_reward = tf.reduce_sum(tf.nn.softmax(logits) * reward)
    exact = -tape.gradient(expected_reward, logits)
    # The expectation over samples, term by term, instead of an average of many draws.
    probs = tf.nn.softmax(logits).numpy()
    estimate, second_moment = np.zeros(5), 0.0
    for token in range(5):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = policy_losses(tf.nn.log_softmax(logits)[token], reward[token], tf.constant(baseline))
        gradient = tape.gradient(loss, logits).numpy()
        estimate += probs[token] * gradient
        second_moment += probs[token] * (gradient**2).sum()
    np.testing.assert_allclose(estimate, exact, atol=1e-6)
    if baseline:
        without = sum(probs[t] * float(reward[t]) ** 2 * ((np.eye(5)[t] - probs) ** 2).sum() for t in range(5))
        assert second_moment < without


def test_the_baseline_learns_from_its_own_loss_and_trains_nothing_else():
    model, masked = model_and_batch(adversarial_generator=True)
    adversarial = model.objectives[0]
    assert isinstance(adversarial, AdversarialGenerator)
    adversarial.baseline.bias.assign([0.7])
    with tf.GradientTape(persistent=True) as tape:
        forward = model.forward(masked)
        output = adversarial(forward, True)
        own = output.metrics["baseline_loss"][0]
    for variable in model.trainable_variables:
        gradient, whole = (tape.gradient(value, variable) for value in (own, output.numerator))
        name = variable.name
        assert (gradient is not None) == name.startswith("generator_baseline"), name
        if name.startswith(("discriminator_predictions", "electra/encoder", "electra/embeddings_project")):
            assert whole is None or not np.any(tf.convert_to_tensor(whole)), name  # the discriminator is left alone
        if name.startswith("generator/encoder") and "/key/" not in name:
            assert np.any(tf.convert_to_tensor(whole)), name
        if gradient is not None:
            np.testing.assert_allclose(gradient, whole, rtol=1e-4)
            assert np.any(gradient)


def test_the_generators_loss_is_the_papers():
    """-(R - b) log p, and the cross-entropy of sigmoid(w h) and exp(-R), at every draw (appendix F)."""
    model, masked = model_and_batch(adversarial_generator=True)
    adversarial = model.objectives[0]
    assert isinstance(adversarial, AdversarialGenerator)
    adversarial.baseline.bias.assign([0.7])
    forward = model.forward(masked)
    logits = adversarial.detection.logits(forward).numpy().astype(np.float64)
    guess = adversarial.baseline(forward.generator.states).numpy()[..., 0].astype(np.float64)
    log_probs = tf.nn.log_softmax(forward.generator.softmax.logits).numpy()
    expected = 0.0
    for row, draw in np.argwhere(masked.masked_lm_weights.numpy() > 0):
        place = masked.positions[row, draw].numpy()
        sign = 1 if forward.main_input.is_replaced[row, place].numpy() else -1
        reward = np.log1p(np.exp(-sign * logits[row, place]))
        chance = 1 / (1 + np.exp(-guess[row, draw]))
        log_prob = log_probs[row, draw, forward.main_input.sampled_ids[row, draw].numpy()]
        expected -= (reward + np.log(chance)) * log_prob
        expected -= np.exp(-reward) * np.log(chance) + (1 - np.exp(-reward)) * np.log(1 - chance)
    assert float(adversarial(forward, True).numerator) == pytest.approx(expected, rel=1e-4)
