"""MC-BERT's multiple choice: what is offered, what is right, and the loss, against plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.weights import warm_start
from electra_tf2.model import kernels
from electra_tf2.papers.mc_bert.model import MultipleChoice
from electra_tf2.pretrain.initial_weights import main_network_names
from electra_tf2.pretrain.pretraining_model import PretrainingModel, make_model
from electra_tf2.util.errors import UserError
from tests.support import golden, stored_models
from tests.support import training as support

CLASSES = 4


def config_of(**overrides):
    settings = {"paper": "mc_bert", "choice_candidates": CLASSES}
    return PretrainingConfig.from_dict(support.hparams(Path(), mask_prob=0.3, **settings | overrides))


@pytest.fixture(scope="module")
def model():
    return make_model(config_of())


@pytest.fixture(scope="module")
def forward(model):
    ids = np.random.RandomState(0).randint(20, 600, [8, support.LENGTH]).astype(np.int32)
    ids[-1, 9:] = 0
    batch = {"input_ids": ids, "input_mask": np.int32(ids > 0), "segment_ids": np.zeros_like(ids)}
    with kernels.off():
        masked, _ = model.prepare({name: tf.constant(value) for name, value in batch.items()}, tf.constant([1, 2]))
        return model.forward(masked)


def test_the_original_is_offered_where_it_was_replaced_and_the_loss_is_that_of_plain_loops(model, forward):
    objective = model.objectives[-1]
    with kernels.off():
        offered = objective.candidates(forward).numpy()
        result = objective(forward, True)
        hidden = objective.head.hidden(forward.states).numpy()
    table, bias = model.encoder.embeddings.word_embeddings.numpy(), objective.head.output_bias.numpy()
    ids, read = forward.masked.input_ids.numpy(), forward.corrupted.input_ids.numpy()
    total = 0.0
    for row, place in np.argwhere(forward.masked.input_mask.numpy()):
        replaced = int(ids[row, place] != read[row, place])
        if replaced:
            assert offered[row, place, 0] == ids[row, place]
        scores = [hidden[row, place] @ objective.rejection.numpy() + float(objective.rejection_bias[0])]
        scores += [hidden[row, place] @ table[word] + bias[word] for word in offered[row, place]]
        total -= math.log(math.exp(scores[replaced]) / sum(map(math.exp, scores)))
    np.testing.assert_allclose(result.numerator, total, rtol=1e-5)
    assert float(result.numerator / objective.normalizer(forward.masked)) == pytest.approx(math.log(CLASSES), rel=0.1)


def test_candidates_are_samples_of_the_generator(model, forward):
    """A generator that is sure of a word offers nothing else, and one that knows nothing hardly a word twice."""
    objective, bias = model.objectives[-1], model.generator.head.output_bias
    replaced = forward.corrupted.is_replaced.numpy() > 0
    with kernels.off():
        unsure = objective.candidates(forward).numpy()
        bias.assign(100.0 * tf.one_hot(77, 600))
        sure = objective.candidates(forward).numpy()
        bias.assign(tf.zeros(600))
    assert (sure[~replaced] == 77).all() and (sure[replaced][:, 1:] == 77).all()
    assert len(np.unique(unsure)) > unsure.size / 3


def test_candidates_follow_the_temperature_of_the_step_and_the_sampled_pass(model, forward):
    objective = model.objectives[-1]
    bias = np.zeros(600, np.float32)
    bias[77] = 8.0
    model.generator.head.output_bias.assign(bias)
    eval_mode = make_model(config_of(generator_sample_mode="eval"))
    with kernels.off():
        shares = [
            np.mean(objective.candidates(model.forward(forward.masked, temperature=temperature)).numpy() == 77)
            for temperature in (1.0, 100.0)
        ]
        seeded = eval_mode.forward(forward.masked, tf.constant([3, 4]))
        plain = eval_mode.forward(forward.masked)
        offered = [
            golden.objective_of(eval_mode, MultipleChoice).candidates(one).numpy()[..., 1:] for one in (seeded, plain)
        ]
    model.generator.head.output_bias.assign(tf.zeros(600))
    assert shares[0] > 0.5 and shares[1] < 0.1
    np.testing.assert_array_equal(*offered)  # dropout is that of the trained pass, not of the sampled one


def test_it_trains_the_main_network_and_its_head_only(model, forward):
    with kernels.off(), tf.GradientTape() as tape:
        loss = model.outputs(model.forward(forward.masked), True).losses["choice_loss"]
    gradients = tape.gradient(loss, model.trainable_variables)
    trained = {v.name for v, gradient in zip(model.trainable_variables, gradients, strict=True) if gradient is not None}
    assert not [name for name in trained if name.startswith("generator")]
    assert {name for name in trained if name.startswith("choice_predictions")} >= {
        f"choice_predictions/{part}:0" for part in ("rejection_embedding", "rejection_bias", "output_bias")
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"uniform_generator": True}, "draws its candidates from one masked language model"),
        ({"two_tower_generator": True}, "draws its candidates from one masked language model"),
        ({"disallow_correct": True}, "right or not: disallow_correct must be false"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        config_of(**wrong)


def test_its_head_starts_as_that_of_a_masked_language_model(model, tmp_path):
    bert = PretrainingModel(PretrainingConfig.from_dict(support.hparams(tmp_path, electra_objective=False)))
    checkpoint = open_model(tf.train.Checkpoint(model=bert).save(str(tmp_path / "model.ckpt")))
    report = warm_start(make_model(model.config), checkpoint, main_network_names(model, checkpoint))
    assert {"choice_predictions/dense/kernel", "choice_predictions/output_bias"} <= {*report.loaded}
    assert "generator_predictions/output_bias" in report.missing  # a generator of its own has other states


def test_it_gives_no_probabilities(model):
    with pytest.raises(UserError, match="a model of MC-BERT gives no probabilities"):
        electra_tf2.Model(stored_models.of_network(model)).score(["a text"])
