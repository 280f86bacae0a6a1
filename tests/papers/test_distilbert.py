"""Distillation: a clone of its teacher has nothing to learn, losses equal plain numpy, layers come from the teacher."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.config.hparams import layered
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.model import kernels
from electra_tf2.model.softmax import soft_losses
from electra_tf2.papers.distilbert.model import (
    Model,
    TaughtForward,
    binary_divergence,
    start_from_teacher,
)
from electra_tf2.pretrain.flops import parameter_count, training_flops_per_example
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import training as support

MODES = {"electra": {}, "bert": {"electra_objective": False}}


@pytest.fixture(autouse=True)
def plain():
    with kernels.off():
        yield


def values_of(model):
    return {variable.name.split(":")[0]: variable.numpy() for variable in model.trainable_variables}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """A folder of a model of 4 layers for each mode; all of its numbers are random."""
    folders = {}
    for name, mode in MODES.items():
        folder = tmp_path_factory.mktemp(name)
        config = PretrainingConfig.from_dict(support.hparams(folder, sizes={"num_hidden_layers": 4}, **mode))
        model = make_model(config)
        random = np.random.RandomState(0)
        for variable in model.trainable_variables:
            variable.assign_add(0.2 * random.standard_normal(variable.shape))
        tf.train.Checkpoint(model=model).save(str(folder / "model.ckpt"))
        (folder / "config.json").write_text(config.to_json())
        folders[name] = (str(folder), values_of(model))
    return folders


def student(teachers, mode, layers, **changes):
    folder = teachers[mode][0]
    sizes = {"num_hidden_layers": layers} | changes.pop("sizes", {})
    settings = {"paper": "distilbert", "teacher": folder} | MODES[mode] | changes
    hparams = support.hparams(folder, sizes=sizes, **settings)
    config = PretrainingConfig.from_dict(layered(PretrainingConfig, implied_hparams(hparams), hparams))
    return config, make_model(config)


def losses_of(model, padding=3):
    masked, _ = model.prepare(support.batch_of(last=60, padding=padding), tf.constant([1, 2]))
    forward = model.forward(masked)
    assert isinstance(forward, TaughtForward)
    return forward, {name: float(loss) for name, loss in model.outputs(forward).losses.items()}


def test_divergences_equal_their_definition():
    random = np.random.RandomState(0)
    theirs, ours = random.standard_normal([2, 3, 7]), random.standard_normal([2, 3, 7])

    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    for temperature in (1.0, 2.5):
        p, q = softmax(theirs / temperature), softmax(ours / temperature)
        expected = temperature**2 * (p * np.log(p / q)).sum(-1)
        found = soft_losses(tf.constant(theirs), tf.constant(ours), temperature)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        p, q = (1 / (1 + np.exp(-x / temperature)) for x in (theirs, ours))
        expected = temperature**2 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
        found = binary_divergence(tf.constant(theirs), tf.constant(ours), temperature)
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("mode", "terms"),
    [
        ("electra", {"distill_detection_loss", "distill_hidden_loss"}),
        ("bert", {"distill_token_loss", "distill_hidden_loss"}),
    ],
)
def test_a_clone_has_nothing_to_learn(teachers, mode, terms):
    _, model = student(teachers, mode, 4)
    _, strange = losses_of(model)
    start_from_teacher(model, teachers[mode][0])
    forward, losses = losses_of(model)
    assert {name for name in losses if name.startswith("distill_")} == terms
    for name in terms:
        assert losses[name] == pytest.approx(0, abs=1e-5) and strange[name] > 1e-3
    metrics = model.outputs(forward).metrics
    assert float(metrics["teacher_agreement"][0]) == float(metrics["teacher_agreement"][1])


def test_the_losses_equal_loops_over_tokens(teachers):
    _, model = student(teachers, "electra", 2, distill_temperature=3.0)
    forward, losses = losses_of(model)
    real = forward.masked.input_mask.numpy().astype(bool)
    theirs, ours = forward.teacher.states.numpy()[real], forward.states.numpy()[real]
    cosines = [a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(theirs, ours, strict=True)]
    assert losses["distill_hidden_loss"] == pytest.approx(1 - np.mean(cosines), rel=1e-5)
    detection = next(o for o in model.objectives if o.loss_name == "disc_loss").logits(forward).numpy()[real]
    p, q = (1 / (1 + np.exp(-z / 3)) for z in (forward.teacher.logits.numpy()[real], detection))
    expected = 9 * np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    assert losses["distill_detection_loss"] == pytest.approx(expected, rel=1e-4)
    total = float(model.outputs(forward).loss)
    weights = {objective.loss_name: objective.loss_weight for objective in model.objectives}
    assert total == pytest.approx(sum(weights[name] * loss for name, loss in losses.items()), rel=1e-5)
    assert (weights["distill_detection_loss"], weights["distill_hidden_loss"]) == (50.0, 1.0)


def test_a_teachers_words_count_at_masked_positions_alone(teachers):
    _, model = student(teachers, "bert", 2)
    forward, losses = losses_of(model, padding=10)
    real = forward.masked.masked_lm_weights.numpy() > 0
    assert 0 < real.sum() < real.size  # short rows have fewer
    theirs, ours = (logits.numpy()[real] / 2.0 for logits in (forward.teacher.logits, forward.generator.softmax.logits))
    p, q = (tf.nn.log_softmax(logits).numpy() for logits in (theirs, ours))
    expected = 4 * np.mean(np.sum(np.exp(p) * (p - q), -1))
    assert losses["distill_token_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_student_of_half_the_depth_has_every_other_layer(teachers, mode):
    _, model = student(teachers, mode, 2)
    folder, theirs = teachers[mode]
    report = start_from_teacher(model, folder)
    assert not report.missing
    for name, value in values_of(model).items():
        there = name.replace("/layer_1/", "/layer_2/")
        np.testing.assert_array_equal(value, theirs[there], err_msg=name)


@pytest.mark.parametrize("mode", ["bert", pytest.param("electra", marks=pytest.mark.slow)])
def test_a_student_learns_and_its_teacher_does_not(teachers, mode, tmp_path):
    config, _ = student(teachers, mode, 2, learning_rate=5e-3, gen_weight=1e-6, disc_weight=0.0)
    task = make_task(config, tf.distribute.get_strategy())
    step = tf.function(task.train_step, autograph=False)
    found = [
        step(support.batch_of(last=60, padding=3), tf.constant(number, tf.int64))["losses"] for number in range(15)
    ]
    for name in found[0]:
        if name.startswith("distill_"):
            assert float(found[-1][name]) < 0.9 * float(found[0][name])
    _, theirs = teachers[mode]
    assert isinstance(task.model, Model) and task.model._teacher is not None
    network = task.model._teacher
    assert network.trainable_variables
    assert not {id(variable) for variable in network.variables} & {id(variable) for variable in task.model.variables}
    for variable in network.trainable_variables:
        np.testing.assert_array_equal(variable.numpy(), theirs[variable.name.split(":")[0]])
    plain = PretrainingConfig.from_dict(support.hparams(tmp_path, sizes={"num_hidden_layers": 2}, **MODES[mode]))
    path = tf.train.Checkpoint(model=task.model).save(str(tmp_path / "model.ckpt"))
    tf.train.Checkpoint(model=make_model(plain)).restore(path).assert_consumed()
    assert parameter_count(config) == parameter_count(plain)
    assert training_flops_per_example(config) > training_flops_per_example(plain)


def test_a_resumed_student_has_the_teacher_that_it_began_with(teachers):
    assert "teacher" not in student(teachers, "electra", 2)[0].free_to_change


def test_its_configuration_reads_no_file(teachers, tmp_path):
    """So that a model is loaded where its teacher is not, and its costs are those of the teacher that it had."""
    config, _ = student(teachers, "electra", 2)
    elsewhere = PretrainingConfig.from_dict(json.loads(config.to_json()) | {"teacher": str(tmp_path / "gone")})
    assert training_flops_per_example(elsewhere) == training_flops_per_example(config)
    with pytest.raises(UserError, match=r"teacher needs teacher_sizes, all that .* reads from its folder"):
        PretrainingConfig.from_dict({"paper": "distilbert", "teacher": teachers["electra"][0]})


@pytest.mark.parametrize("starts_from_teacher", [True, False])
def test_a_run_starts_from_its_teacher_if_asked(teachers, starts_from_teacher):
    config, _ = student(teachers, "bert", 2, init_from_teacher=starts_from_teacher)
    task = make_task(config, tf.distribute.get_strategy())
    assert task.load_initial_weights() == starts_from_teacher
    ours = values_of(task.model)["electra/encoder/layer_1/output/dense/kernel"]
    theirs = teachers["bert"][1]["electra/encoder/layer_2/output/dense/kernel"]
    assert np.array_equal(ours, theirs) == starts_from_teacher


def test_what_cannot_teach_is_refused(teachers, tmp_path):
    for layers, changes, message in (
        (
            1,
            {"sizes": {"hidden_size": 64}},
            "distill_hidden_weight compares states: the teacher's are 32 wide, here it",
        ),
        (5, {"init_from_teacher": True}, "init_from_teacher: there are 5 layers, and 4 to take"),
        (2, {"teacher": str(tmp_path)}, "holds no configuration of a model"),
        (2, {"electra_objective": False, "replace_mlm_objective": True}, "teacher needs electra_objective, or BERT's"),
        (2, {"electra_objective": False}, "has no masked language model but in a generator"),
        (2, {"teacher": teachers["bert"][0]}, "lacks discriminator_predictions"),
    ):
        with pytest.raises(UserError, match=message):
            student(teachers, "electra", layers, **changes)


def test_the_paper_is_named_where_it_is_forgotten():
    with pytest.raises(UserError, match=r"hparams: teacher is an hparam of .*: add --paper distilbert"):
        PretrainingConfig.from_dict({"teacher": "somewhere"})


def test_a_teacher_of_another_vocabulary_is_refused(teachers, tmp_path):
    folder = shutil.copytree(teachers["electra"][0], tmp_path / "teacher")
    saved, tokens = json.loads((folder / "config.json").read_text()), load_vocab(golden.CHECKPOINT / "vocab.txt")
    (folder / "vocab.txt").write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]))
    for change, message in (
        ({"vocab_size": 700}, "has a vocabulary of 700, this run one of 600"),
        ({}, r"another vocabulary, .*teacher/vocab.txt, than this run, .*: token 598 is"),
        ({"do_lower_case": False}, "do_lower_case False"),
    ):
        (folder / "config.json").write_text(json.dumps(saved | change))
        with pytest.raises(UserError, match=message):
            student(teachers, "electra", 2, teacher=str(folder))
        if not change:
            (folder / "vocab.txt").unlink()
    (folder / "config.json").write_text(
        json.dumps(saved | {"vocab_file": "nowhere.txt"})
    )  # its size is all that is known
    student(teachers, "electra", 2, teacher=str(folder))
