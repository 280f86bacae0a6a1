"""Promises of the networks beyond the golden numbers: tying, leaks, initial values, precision, checkpoints."""

import dataclasses
import doctest
import types

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.formats.readers import open_model
from electra_tf2.formats.stored_weights import original_names
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.inference import network as inference_network
from electra_tf2.model import coco_lm_heads, encoder, generators, heads, relative_positions
from electra_tf2.model.architecture import make_architecture
from electra_tf2.model.coco_lm_heads import CopyHead
from electra_tf2.model.heads import ReplacedTokenHead
from electra_tf2.pretrain.objectives.electra import ReplacedTokenDetection
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import golden


def gradients_of(model, term):
    batch = golden.load_arrays("batch")
    masked = golden.masked_batch(model, batch)
    with tf.GradientTape() as tape:
        outputs = model(masked)
    named = zip(model.trainable_variables, tape.gradient(outputs.losses[term], model.trainable_variables), strict=True)
    return {variable.name.split(":")[0] for variable, gradient in named if gradient is not None}


def test_the_generator_s_loss_moves_what_is_shared():
    word = "electra/embeddings/word_embeddings"
    encoder = "electra/encoder/layer_0/attention/self/qkv/kernel"
    shared_embeddings = gradients_of(PretrainingModel(golden.config()), "masked_lm_loss")
    assert word in shared_embeddings and encoder not in shared_embeddings
    nothing = gradients_of(PretrainingModel(golden.config(untied_generator_embeddings=True)), "masked_lm_loss")
    assert word not in nothing and encoder not in nothing
    everything = gradients_of(PretrainingModel(golden.config(untied_generator=False)), "masked_lm_loss")
    assert word in everything and encoder in everything


def test_the_discriminator_s_loss_never_reaches_the_generator():
    moved = gradients_of(PretrainingModel(golden.config(untied_generator_embeddings=True)), "disc_loss")
    assert moved and not any(name.startswith("generator") for name in moved)


def test_a_two_tower_generator_never_sees_the_token_it_predicts():
    model = golden.model_with_crc_values(electra_objective=False, electric_objective=True)
    masked = golden.masked_batch(model, golden.load_arrays("batch"))
    before = model.generator(masked).cloze.logits.numpy()
    candidates = masked.candidates.numpy()
    for position in np.flatnonzero(candidates[0])[[0, 3, -1]]:
        ids = masked.input_ids.numpy()
        ids[0, position] = (ids[0, position] + 17) % 600
        after = model.generator(dataclasses.replace(masked, input_ids=tf.constant(ids))).cloze.logits.numpy()
        np.testing.assert_array_equal(before[0, position], after[0, position])
        neighbour = position + 1 if candidates[0, position + 1] else position - 1
        assert (before[0, neighbour] != after[0, neighbour]).any()


def test_initial_values():
    model = PretrainingModel(golden.config(vocab_size=600))
    for variable in model.trainable_variables:
        name, value = variable.name.split(":")[0], variable.numpy()
        last = name.rsplit("/", 1)[-1]
        if last in ("beta", "bias", "output_bias"):
            assert not value.any(), name
        elif last == "gamma":
            assert (value == 1).all(), name
        elif "embeddings_project" in name or "dense_1" in name:  # TF1's default, as in the original
            limit = np.sqrt(6 / sum(value.shape))
            assert np.abs(value).max() <= limit and value.std() == pytest.approx(limit / np.sqrt(3), rel=0.2), name
        else:  # a normal of 0.02 cut at two deviations has deviation 0.88 of it
            assert np.abs(value).max() <= 0.04 and value.std() == pytest.approx(0.02 * 0.88, rel=0.1), name


def test_positions_beyond_a_checkpoints_begin_as_its_own(capsys):
    start, name = open_model(str(golden.CHECKPOINT)), "electra/embeddings/position_embeddings"
    rows = len(start.weights[name])
    model = PretrainingModel(golden.config(model_hparam_overrides={"max_position_embeddings": 2 * rows + 3}))
    assert name in warm_start(model, start).loaded
    said = capsys.readouterr().out
    assert f"max_position_embeddings {2 * rows + 3}" in said and f"has embeddings of {rows} positions" in said
    (table,) = (variable for variable in model.trainable_variables if variable.name.startswith(f"{name}:"))
    np.testing.assert_array_equal(table, np.concatenate([start.weights[name]] * 3)[: 2 * rows + 3])


def test_initial_values_are_a_function_of_the_seed():
    models = (PretrainingModel(golden.config(seed=seed)) for seed in (1, 1, 2))
    first, same, other = (golden.objective_of(model, ReplacedTokenDetection).head for model in models)
    kernels = [head.dense.kernel.numpy() for head in (first, same, other)]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert (kernels[0] != kernels[2]).any()


def test_initial_losses_are_those_of_guessing():
    model = PretrainingModel(golden.config())
    masked = golden.masked_batch(model, golden.load_arrays("batch"))
    outputs = model(masked)
    assert float(outputs.losses["masked_lm_loss"]) == pytest.approx(np.log(600), rel=0.02)
    assert float(outputs.losses["disc_loss"]) == pytest.approx(np.log(2), rel=0.05)
    assert float(outputs.loss) == pytest.approx(
        float(outputs.losses["masked_lm_loss"] + 50 * outputs.losses["disc_loss"]), rel=1e-6
    )


def test_reduced_precision_stays_close_and_returns_float32():
    batch, losses = golden.load_arrays("batch"), {}
    for kind in ("float32", "bfloat16", "float16"):
        model = PretrainingModel(golden.config(precision=kind))
        warm_start(model, open_model(str(golden.CHECKPOINT)))
        assert all(variable.dtype == tf.float32 for variable in model.trainable_variables)
        masked = golden.masked_batch(model, batch)
        forward = model.forward(masked, sampled_ids=tf.constant(batch["sampled_tokids"]))
        outputs = model.outputs(forward)
        assert outputs.loss.dtype == tf.float32 and forward.generator.softmax.logits.dtype == tf.float32
        losses[kind] = float(outputs.loss)
    assert [*losses.values()] == pytest.approx([losses["float32"]] * 3, rel=0.02)
    assert len({*losses.values()}) == 3  # the switch does something


@pytest.mark.parametrize("head", [CopyHead, ReplacedTokenHead])
def test_logits_of_tokens_are_not_rounded(head):
    """Logits near 16 of bfloat16 states come in steps of 0.06 out of a bfloat16 product."""
    layer = head("head", golden.config().architecture)
    last = layer.dense if head is CopyHead else layer.logit
    last.bias.assign([16.0])
    states = tf.random.stateless_normal([4, 32, 128], [1, 2])
    logits = layer(tf.cast(states, tf.bfloat16))
    assert logits.dtype == tf.float32
    assert len(np.unique(logits)) > 120
    np.testing.assert_allclose(logits, layer(states), atol=0.02)


def test_weight_decay_spares_biases_and_layer_norms():
    model = PretrainingModel(golden.config())
    for variable in model.trainable_variables:
        for name in original_names(variable.name):
            theirs = not any(part in name for part in ("LayerNorm", "layer_norm", "bias"))  # the original's rule
            assert model.decays(variable) == theirs, name


def test_what_a_checkpoint_lacks_or_has_in_other_shapes_is_told(tmp_path):
    start = open_model(str(golden.CHECKPOINT))
    report = warm_start(PretrainingModel(golden.config(two_tower_generator=True)), start)
    assert "cloze_predictions/dense/kernel" in report.missing
    assert "generator_predictions/dense/kernel" in report.unused
    assert "cloze_predictions/dense/kernel" in str(report)
    with pytest.raises(UserError, match=r"word_embeddings is \(600, 64\) here but \(600, 32\)"):
        warm_start(PretrainingModel(golden.config(embedding_size=64)), start)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt"):
        open_model(str(tmp_path))


@pytest.mark.parametrize(
    "module",
    [encoder, heads, coco_lm_heads, generators, relative_positions, inference_network],
)
def test_examples_of_layers_are_true(module):
    ids = tf.ones([2, 7], tf.int32)
    masked = types.SimpleNamespace(
        input_ids=ids, input_mask=ids, segment_ids=0 * ids, masked_input_ids=ids, positions=ids[:, :3]
    )
    result = doctest.testmod(module, extraglobs={"make_architecture": make_architecture, "masked": masked})
    assert result.attempted > 1 and not result.failed
