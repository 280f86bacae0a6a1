"""COCO-LM: corrective language modelling, sequence contrast, crops, masking, the auxiliary network."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from electra_tf2.model import kernels
from electra_tf2.pretrain.objectives.ablations import copy_log_prob
from electra_tf2.pretrain.objectives.coco_lm import (
    CopyDetection,
    SequenceContrast,
    contrastive_losses,
    corrective_losses,
    crop,
    predictions,
    view_metrics,
)
from electra_tf2.pretrain.objectives.contrast import normalised
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.pretraining_task import PretrainingTask
from tests.support import golden
from tests.support import training as support

COCO = {
    "electra_objective": False,
    "corrective_lm_objective": True,
    "sequence_contrast_objective": True,
    "clm_head": "tied",
    "embedding_size": 128,
    "generator_hidden_size": 1.0,
    "generator_layers": 0.5,
    "generator_sample_mode": "eval",
    "mask_rates": [1.0, 0.0, 0.0],
    "mask_sampling": "without_replacement",
    "mask_count": "probabilistic",
    "mask_separators": True,
}
SIZES = {"type_vocab_size": 0, "relative_positions": "coco"}


@pytest.fixture(autouse=True)
def plain():
    """Formulas run themselves: nothing is compiled for seconds."""
    with kernels.off():
        yield


def coco_config(**overrides):
    sizes = SIZES | overrides.pop("model_hparam_overrides", {})
    return golden.config(**COCO | {"max_predictions_per_seq": 0} | overrides, model_hparam_overrides=sizes)


def batch_and_model(**overrides):
    model = PretrainingModel(coco_config(**overrides))
    batch = {
        name: tf.constant(golden.load_arrays("batch")[name]) for name in ("input_ids", "input_mask", "segment_ids")
    }
    return batch, model


def prepared(seed=0, **overrides):
    batch, model = batch_and_model(**overrides)
    return model, model.prepare(batch, tf.constant([seed, 7]))[0]


# Corrective language modelling


@given(st.floats(-40, 40), st.lists(st.floats(-60, 60), min_size=3, max_size=6), st.integers(0, 2), st.booleans())
@settings(deadline=None, max_examples=200)
def test_the_mixture_equals_its_definition_in_float64_and_is_finite(gate, logits, token, copied):
    log_probs = np.array(logits) - np.logaddexp.reduce(logits)
    p_copy, p_predict = -np.logaddexp(0, -gate), -np.logaddexp(0, gate)
    expected = np.logaddexp(p_copy, p_predict + log_probs[token]) if copied else p_predict + log_probs[token]
    args = tf.constant(gate, tf.float32), tf.constant(log_probs[token], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(args)
        actual = copy_log_prob(*args, tf.constant(copied))
    assert float(actual) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert all(np.isfinite(gradient) for gradient in tape.gradient(actual, args))


def losses_and_gradients(name, stop, gate, logits, ids, copied):
    config = coco_config(clm_loss=name, clm_stop_gradient=stop)
    with tf.GradientTape() as tape:
        tape.watch([gate, logits])
        losses = corrective_losses(config, gate, logits, ids, copied)
        loss = tf.reduce_sum(losses)
    return losses, tape.gradient(loss, [gate, logits], unconnected_gradients="zero")


@pytest.fixture
def tokens():
    random = np.random.RandomState(0)
    gate = tf.constant(random.randn(2, 5), tf.float32)
    logits = tf.constant(random.randn(2, 5, 9), tf.float32)
    ids = tf.constant(random.randint(9, size=[2, 5]), tf.int32)
    return gate, logits, ids, tf.constant(random.rand(2, 5) < 0.5)


@pytest.mark.parametrize("name", ["mixture", "weighted_ce"])
def test_the_copy_head_gets_no_gradient_from_the_language_model(name, tokens):
    assert not losses_and_gradients(name, True, *tokens)[1][0].numpy().any()
    assert losses_and_gradients(name, False, *tokens)[1][0].numpy().any()


def test_gradients_of_the_forms_of_the_loss(tokens):
    gate, logits, ids, copied = tokens
    plain = losses_and_gradients("plain_ce", True, *tokens)[1][1].numpy()
    probs = tf.gather(tf.nn.softmax(logits), ids, batch_dims=2).numpy()
    p1 = tf.sigmoid(gate).numpy()
    ratio = np.where(copied, (1 - p1) * probs / (p1 + (1 - p1) * probs), 1.0)
    mixture = losses_and_gradients("mixture", True, *tokens)[1][1].numpy()
    np.testing.assert_allclose(mixture, ratio[..., None] * plain, atol=1e-6)
    weighted = losses_and_gradients("weighted_ce", True, *tokens)[1][1].numpy()
    np.testing.assert_allclose(weighted, (1 - p1)[..., None] * plain, atol=1e-6)


def test_the_argmax_of_the_mixture(tokens):
    gate, logits, ids, _ = tokens
    p1, s = tf.sigmoid(gate).numpy()[..., None], tf.nn.softmax(logits).numpy()
    mixture = (1 - p1) * s + p1 * tf.one_hot(ids, 9).numpy()
    np.testing.assert_array_equal(predictions(gate, logits, ids), mixture.argmax(-1))


def test_the_copy_head_learns_what_is_original():
    model, masked = prepared()
    objective = next(o for o in model.objectives if isinstance(o, CopyDetection))
    forward = model.forward(masked)
    gradients = []
    for ids in (masked.input_ids, masked.input_ids + 1):  # all original, all replaced
        shown = dataclasses.replace(forward, corrupted=forward.main_input._replace(input_ids=ids))
        with tf.GradientTape() as tape:
            loss = objective(shown, True).numerator
        gradients.append(float(tf.reduce_sum(tape.gradient(loss, objective.head.trainable_variables[-1]))))
    real = masked.input_mask.numpy().sum()
    assert gradients == pytest.approx([-real / 2, real / 2], rel=0.1)  # of a gate that knows nothing


def test_the_first_losses_are_those_of_knowing_nothing():
    model, masked = prepared()
    outputs = model(masked)
    vocabulary = model.config.vocab_size
    assert float(outputs.losses["copy_loss"]) == pytest.approx(math.log(2), rel=0.1)
    assert float(outputs.losses["clm_loss"]) == pytest.approx(math.log(2 * vocabulary), rel=0.1)
    rows = masked.input_ids.shape[0]
    assert 0 < float(outputs.losses["scl_loss"]) <= math.log(2 * rows - 1) + 0.1
    names = "copy_accuracy_replaced copy_accuracy_original clm_accuracy_replaced clm_accuracy_original replaced_rate"
    assert {*names.split(), "positive_cosine", "negative_cosine", "retrieval_at_1"} <= outputs.metrics.keys()


# Sequence contrast


def brute_force(first, second, temperature):
    rows, views = len(first), np.concatenate([first, second]).astype(np.float64)
    total = 0.0
    for i in range(2 * rows):
        partner = (i + rows) % (2 * rows)
        scores = [views[i] @ views[j] / temperature for j in range(2 * rows) if j != i]
        total += np.logaddexp.reduce(scores) - views[i] @ views[partner] / temperature
    return total / (2 * rows)


@given(st.integers(2, 6), st.integers(0, 100), st.sampled_from([0.1, 1.0]))
@settings(deadline=None, max_examples=30)
def test_contrast_equals_brute_force_and_knows_no_order(rows, seed, temperature):
    random = np.random.RandomState(seed)
    views = normalised(tf.constant(random.randn(2, rows, 8), tf.float32))
    first, second = views[0], views[1]
    losses = contrastive_losses(first, second, temperature).numpy()
    assert losses.mean() == pytest.approx(
        brute_force(first.numpy(), second.numpy(), temperature), abs=5e-6
    )  # scores of 10 in float32
    # Losses near 0 are differences of scores of up to 10 in float32.
    np.testing.assert_allclose(contrastive_losses(second, first, temperature), losses, rtol=1e-5, atol=5e-6)
    order = random.permutation(rows)
    permuted = contrastive_losses(tf.gather(first, order), tf.gather(second, order), temperature)
    np.testing.assert_allclose(permuted, losses[order], rtol=1e-5, atol=5e-6)


def test_gathered_negatives_make_two_replicas_one():
    objective = SequenceContrast(coco_config(scl_gather=True), golden.NO_NETWORKS)
    loss, first, second = support.gathered_loss(objective)
    assert loss == pytest.approx(6 * brute_force(first, second, 1.0), rel=1e-5)


def test_gathered_contrast_stays_outside_of_xla_on_several_replicas():
    strategy = support.two_replicas()
    for gather, compiled in ((True, False), (False, True)):
        with strategy.scope():
            task = PretrainingTask(coco_config(scl_gather=gather), strategy, jit_compile=True)
        assert task.jit_compile is compiled


# Crops


def rows_of_lengths(lengths, max_length):
    ids = np.zeros([len(lengths), max_length], np.int32)
    for row, length in enumerate(lengths):
        ids[row, :length] = [2, *range(100, 100 + length - 2), 3]
    return ids


@pytest.mark.parametrize("mode", ["body", "raw_cls"])
@pytest.mark.parametrize("fraction", [0.1, 0.9, 1.0, 5.0])
@given(st.integers(0, 1000), st.lists(st.integers(3, 32), min_size=1, max_size=5))
@settings(deadline=None, max_examples=15)
def test_a_crop_is_a_contiguous_part_of_the_original(mode, fraction, seed, lengths):
    config = coco_config(crop_fraction=fraction, crop_mode=mode, max_seq_length=32)
    ids = rows_of_lengths(lengths, 32)
    noise = np.random.RandomState(seed).rand(len(lengths)).astype(np.float32)
    mask = (ids > 0).astype(np.int32)
    masked = support.masked_batch_of(
        input_ids=tf.constant(ids),
        input_mask=tf.constant(mask),
        segment_ids=tf.constant(mask),
        crop_noise=tf.constant(noise),
    )
    cropped = crop(config, masked)
    assert cropped.input_ids.shape == (len(lengths), config.crop_length)
    for row, length in enumerate(lengths):
        real = int(cropped.input_mask[row].numpy().sum())
        got = cropped.input_ids[row, :real].numpy().tolist()
        assert cropped.input_mask[row].numpy().tolist() == [1] * real + [0] * (cropped.input_mask.shape[1] - real)
        assert not cropped.input_ids[row, real:].numpy().any()
        assert cropped.segment_ids[row, :real].numpy().all()
        whole = ids[row, 1 : length - 1].tolist() if mode == "body" else ids[row, :length].tolist()
        part = got[1:-1] if mode == "body" else got[1:]
        span = min(len(whole), int(fraction)) if fraction > 1 else max(1, math.floor(fraction * len(whole) + 1e-4))
        span = min(span, cropped.input_ids.shape[1] - 1)  # a whole full row has no room for one more [CLS]
        assert len(part) == span
        assert any(whole[start : start + span] == part for start in range(len(whole) - span + 1))
        assert got[0] == 2 and (mode == "raw_cls" or got[-1] == 3)


def test_the_place_of_a_crop_is_uniform():
    config = coco_config(crop_fraction=0.7, max_seq_length=12)
    draws = 3000
    ids = np.repeat(rows_of_lengths([12], 12), draws, 0)
    batch = {"input_ids": tf.constant(ids), "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    model = PretrainingModel(config)
    masked, _ = model.prepare(batch, tf.constant([1, 2]))
    starts = crop(config, masked).input_ids[:, 1].numpy() - 100
    counts = np.bincount(starts)
    assert len(counts) == 4
    assert stats.chisquare(counts).pvalue > 1e-4


# Masking and the auxiliary network


def test_masking_hides_every_drawn_token_and_may_hide_separators():
    model, _ = prepared()
    ids = np.tile(np.array([[2, 50, 51, 3, 60, 61, 3]], np.int32), [400, 1])
    ids = np.pad(ids, [[0, 0], [0, 25]])
    batch = {"input_ids": tf.constant(ids), "input_mask": tf.constant((ids > 0).astype(np.int32))}
    masked, _ = model.prepare(batch | {"segment_ids": tf.zeros_like(batch["input_ids"])}, tf.constant([0, 1]))
    hidden = masked.masked_input_ids.numpy() == model.special.mask
    assert not hidden[:, 0].any() and hidden[:, 3].any() and hidden[:, 6].any()
    np.testing.assert_array_equal(hidden.sum(1), masked.masked_lm_weights.numpy().sum(1))


def names(model):
    return {variable.name.split(":")[0] for variable in model.trainable_variables}


def test_what_the_auxiliary_network_shares():
    _, model = batch_and_model()
    assert not any(name.startswith("generator/embeddings") for name in names(model))
    assert {"electra/encoder/relative_attention", "generator/encoder/relative_attention"} <= names(model)
    _, model = batch_and_model(generator_sample_mode="zero_dropout")
    own = {name for name in names(model) if name.startswith("generator/embeddings")}
    assert own == {
        f"generator/embeddings/{name}" for name in ("position_embeddings", "LayerNorm/beta", "LayerNorm/gamma")
    }
    assert model.generator.encoder.architecture.hidden_dropout_prob == 0.0
    assert model.generator.encoder.embeddings.word_embeddings is model.encoder.embeddings.word_embeddings


def test_dropout_is_off_where_the_auxiliary_network_is_sampled():
    batch, _ = batch_and_model()
    samples = {}
    for mode in ("train", "eval"):
        config = coco_config(generator_sample_mode=mode)
        dropout = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
        config = dataclasses.replace(config, model_hparam_overrides=config.model_hparam_overrides | dropout)
        model = PretrainingModel(config)
        for variable in model.generator.trainable_variables:
            variable.assign(variable * 10)
        masked, _ = model.prepare(batch, tf.constant([0, 7]))
        drawn = [model.forward(masked, tf.constant([seed, 0])).main_input.sampled_ids.numpy() for seed in range(4)]
        samples[mode] = len({array.tobytes() for array in drawn})
    assert samples["eval"] == 1 and samples["train"] > 1


def test_rows_that_fill_up_an_evaluation_batch_are_no_negatives():
    random = np.random.RandomState(0)
    views = normalised(tf.constant(random.randn(2, 6, 8), tf.float32))
    real = tf.constant([True] * 4 + [False] * 2)
    whole = contrastive_losses(views[0, :4], views[1, :4], 0.5)
    np.testing.assert_allclose(contrastive_losses(views[0], views[1], 0.5, real)[:4], whole, rtol=1e-5)
    filled = view_metrics(views[0], views[1], real)
    alone = view_metrics(views[0, :4], views[1, :4], tf.fill([4], True))
    for name, (numerator, denominator) in alone.items():
        np.testing.assert_allclose(filled[name][0] / filled[name][1], numerator / denominator, rtol=1e-5, err_msg=name)


def test_cosines_are_means_over_pairs_of_different_rows():
    """Rows of padding count nowhere: three real rows have six ordered pairs."""
    vectors = tf.math.l2_normalize(tf.random.stateless_normal([4, 5], [1, 2]), 1)
    others = tf.math.l2_normalize(tf.random.stateless_normal([4, 5], [3, 4]), 1)
    metrics = view_metrics(vectors, others, tf.constant([True, True, True, False]))
    assert float(metrics["negative_cosine"][1]) == 6
    means = {name: float(total / count) for name, (total, count) in metrics.items()}
    similarity = vectors.numpy()[:3] @ others.numpy()[:3].T
    assert means["positive_cosine"] == pytest.approx(np.diag(similarity).mean(), abs=1e-6)
    assert means["negative_cosine"] == pytest.approx(similarity[~np.eye(3, dtype=bool)].mean(), abs=1e-6)
