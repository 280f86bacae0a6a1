"""Auxiliary tasks: labels against loops, balance, schedules that add up, and which heads a step touches."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model import kernels
from electra_tf2.papers.counts import read_table, write_table
from electra_tf2.papers.on_losses.auxiliary import frequencies, scaled, task_labels
from electra_tf2.papers.on_losses.halves import QuickThoughts, halves
from electra_tf2.papers.on_losses.schedules import active_tasks, stage_steps, staged_tasks
from electra_tf2.papers.on_losses.segments import parted, split_segments
from electra_tf2.papers.on_losses.tables import DOCUMENT_FREQUENCY, count_documents, inverse_frequencies
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import training as support
from tests.support.papers.on_losses import (
    VOCAB,
    batch_of,
    config_of,
    draws_of,
    put_together,
    rearranged,
    rearranged_by,
    tensors,
    texts_of,
)


@pytest.fixture(autouse=True)
def plain():
    with kernels.off():
        yield


def candidates_of(batch):
    return np.isin(batch["input_ids"], [0, 2, 3], invert=True).astype(np.float32)


def test_term_frequencies_are_those_of_a_loop():
    batch = batch_of(20, repeated=26)
    candidates = candidates_of(batch)
    found = frequencies(tf.constant(batch["input_ids"]), tf.constant(candidates))
    values = scaled(found, tf.constant(candidates)).numpy()
    for row in range(20):
        tokens = [int(token) for token, inside in zip(batch["input_ids"][row], candidates[row], strict=True) if inside]
        counts = [tokens.count(token) for token in tokens]
        low, high = (min(counts), max(counts)) if counts else (0, 0)
        expected = [10 * (count - low) / (high - low) if high > low else 0 for count in counts]
        np.testing.assert_allclose(values[row][candidates[row] > 0], expected, atol=1e-5)
        assert not values[row][candidates[row] == 0].any()
    assert (values == 10).any()


def test_document_frequencies(tmp_path):
    ids = np.array([[2, 7, 7, 3], [2, 8, 3, 0], [2, 7, 9, 3]])
    totals = count_documents(ids, 600).totals + count_documents(ids[:1], 600).totals
    assert totals[-1] == 4 and totals[7] == 3 and totals[8] == 1 and totals[2] == 4 and totals[11] == 0
    path = str(tmp_path / "document_frequency.npz")
    write_table(path, DOCUMENT_FREQUENCY, VOCAB, {"holding": totals[:-1], "documents": totals[-1:]})
    inverse = inverse_frequencies(path, VOCAB)
    assert inverse[[7, 8, 2, 11]] == pytest.approx([math.log(4 / 3), math.log(4), 0, math.log(4)])
    with pytest.raises(UserError, match=r"is no table of this kind; make it with electra build-table cooccurrence"):
        read_table(path, "cooccurrence_file", "cooccurrence", VOCAB)


def test_halves_are_those_of_plain_slices_and_their_loss_is_that_of_a_loop(folder):
    config = config_of(folder, ["qt"])
    model = make_model(config)
    batch = batch_of(12)
    masked, _ = model.prepare(tensors(batch), tf.constant([1, 2]))
    found = [view.numpy() for half in halves(config, masked) for view in (half.input_ids, half.input_mask)]
    for row in range(11):
        ids = [int(token) for token in batch["input_ids"][row] if token]
        middle = (len(ids) - 2) // 2
        for half, body in enumerate((ids[1 : 1 + middle], ids[1 + middle : -1])):
            expected = [2, *body, 3] + [0] * (config.half_length - len(body) - 2)
            np.testing.assert_array_equal(found[2 * half][row], expected)
            np.testing.assert_array_equal(found[2 * half + 1][row], np.array(expected) > 0)
    assert not found[1][11].any() and not found[3][11].any()
    objective = golden.objective_of(model, QuickThoughts)
    forward = model.forward(masked)
    first, second = (half.numpy() for half in objective.pair(forward))
    expected = sum(np.log(np.exp(first[i] @ second[:11].T).sum()) - first[i] @ second[i] for i in range(11))
    assert float(objective(forward, True).numerator) == pytest.approx(expected, rel=1e-5)
    # Halves of a young network are all alike. Of these, the first ones find other partners than the second ones.
    first = np.array([[1, 0], [1, 0], [0, 1], [0.6, 0.8]], np.float32)
    second = np.array([[0.6, 0.8], [1, 0], [0.8, 0.6], [1, 0]], np.float32)
    real = np.array([True, True, True, False])
    told = [np.log(np.exp(first[i] @ second[:3].T).sum()) - first[i] @ second[i] for i in range(3)]
    np.testing.assert_allclose(objective.losses(first, second, tf.constant(real))[:3], told, rtol=1e-5)
    found, count = objective.contrast_metrics(first, second, tf.constant(real))["qt_retrieval_at_1"]
    assert (first @ second[:3].T).argmax(1)[:3].tolist() == [1, 1, 0]
    assert (second @ first[:3].T).argmax(1)[:3].tolist() == [2, 0, 0]
    assert (float(found), float(count)) == (1, 3)


def write_files(folder):
    """Writes the files that runs of the paper read."""
    totals = np.append(np.random.RandomState(0).randint(1, 90, 600), 100)
    arrays = {"holding": totals[:-1], "documents": totals[-1:]}
    write_table(folder / "document_frequency.npz", DOCUMENT_FREQUENCY, VOCAB, arrays)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("tables")
    write_files(where)
    return where


def test_order_is_balanced_and_is_that_of_plain_lists(folder):
    model = make_model(config_of(folder, ["so"]))
    batch = batch_of(3000, repeated=600)
    masked, _ = rearranged_by(model, tensors(batch))
    labels = task_labels(masked, "so").numpy()
    draw = draws_of(model, "so", 3000)
    draws = draw(1, [3]).numpy()
    two = batch["segment_ids"].any(-1)
    assert (labels[~two] == -1).all()
    np.testing.assert_array_equal(labels[two], draw(0, []).numpy()[two] < 0.5)
    assert labels[two].mean() == pytest.approx(0.5, abs=0.04)
    for row in range(300):
        expected = batch["input_ids"][row].tolist(), batch["segment_ids"][row].tolist()
        if two[row]:
            first, second = texts_of(batch, row)
            expected = put_together(*rearranged(first + second, draws[row], labels[row] == 1))
        assert (masked.input_ids[row].numpy().tolist(), masked.segment_ids[row].numpy().tolist()) == expected
    np.testing.assert_array_equal(masked.input_mask, masked.input_ids.numpy() > 0)


def test_lengths_do_not_tell_the_order():
    batch = batch_of(400)
    draws = tf.constant(np.random.RandomState(1).rand(400, 3), tf.float32)
    _, first, second = split_segments(tensors(batch))
    two = batch["segment_ids"].any(-1)
    shown = []
    for swapped in (False, True):
        spans = parted(draws, first + second, tf.fill([400], swapped))
        shown.append(np.concatenate([length for _, length in spans], 1)[two])
    np.testing.assert_array_equal(shown[0], shown[1])
    assert shown[0].min() >= 1 and len(set(shown[0][:, 0])) > 5
    assert (shown[0].sum(1) >= 0.5 * (first + second).numpy()[two, 0]).all()


def test_idle_tasks_have_no_labels(folder):
    tasks = ["so", "asp"]
    config = config_of(folder, tasks, aux_combination="alt")
    model = make_model(config)
    for step in range(3):
        active = active_tasks(config, tf.constant(step, tf.int64))
        _, normalizers = rearranged_by(model, tensors(batch_of(100)), active=active)
        assert [float(normalizers[f"{task}_loss"]) > 0 for task in tasks] == [step == 1, step == 2]


def test_evaluation_is_on_untouched_text(folder):
    plain = make_task(config_of(folder, []), tf.distribute.get_strategy())
    tasks = make_task(config_of(folder, ["so", "asp", "tf"], aux_combination="alt"), tf.distribute.get_strategy())
    batch, step = tensors(batch_of(64)), tf.constant(0, tf.int64)
    expected, found = (task.summarise(task.eval_step(batch, step)) for task in (plain, tasks))
    for name in expected.keys() - {"loss"}:
        assert found[name] == pytest.approx(expected[name], abs=1e-5), name
    assert all(found[f"{task}_loss"] > 0 for task in ("so", "asp", "tf"))
    again = make_task(config_of(folder, ["so"]), tf.distribute.get_strategy())
    alone = again.summarise(again.eval_step(batch, step))
    assert found["so_loss"] == pytest.approx(alone["so_loss"], abs=1e-5)  # what asp does is not in it


def test_all_tasks_are_trained_together(folder):
    every = ["so", "tf", "tf_idf", "qt", "fs"]
    config = config_of(folder, every, train_batch_size=16)
    task = make_task(config, tf.distribute.get_strategy())
    assert parameter_count(config) == sum(math.prod(variable.shape) for variable in task.model.trainable_variables)
    before = [variable.numpy() for variable in task.model.trainable_variables]
    results = [task.train_step(tensors(batch_of(16, seed)), tf.constant(seed, tf.int64)) for seed in range(2)]
    assert {f"{name}_loss" for name in every} <= results[0]["losses"].keys()
    assert all(np.isfinite(float(loss)) for result in results for loss in result["losses"].values())
    pairs = zip(task.model.trainable_variables, before, strict=True)
    assert sum((variable.numpy() != old).any() for variable, old in pairs) > 0.8 * len(before)
    metrics = task.summarise(task.eval_step(tensors(batch_of(16, 9)), tf.constant(0, tf.int64)))
    assert {"so_accuracy", "fs_positive_cosine", "qt_retrieval_at_1", "tf_mean", "tf_idf_mean"} <= metrics.keys()


# ---- schedules ----


@pytest.mark.parametrize(("tasks", "steps"), [(1, 7), (2, 600), (3, 1000), (4, 2000), (5, 999)])
def test_every_task_gets_its_share_in_stages(tasks, steps):
    counts = stage_steps(tasks, steps)
    unit = steps / (tasks * (tasks + 1))
    for stage in range(tasks):
        for task in range(tasks):
            share = 0 if task > stage else (stage + 2) * unit if task == stage else unit
            assert abs(counts[stage, task] - share) <= 1
        assert abs(counts[stage].sum() - (2 * stage + 2) * unit) <= 1
    assert counts.sum() == steps
    assert np.abs(counts.sum(0) - steps / tasks).max() <= tasks
    order = staged_tasks(tasks, steps, seed=0)
    ends = np.cumsum(counts.sum(1))
    for stage, part in enumerate(np.split(order, ends[:-1])):
        np.testing.assert_array_equal(np.bincount(part, minlength=tasks), counts[stage])
    assert steps < 500 or tasks < 2 or (np.diff(order[-100:].astype(int)) != 0).sum() > 10  # mixed within a stage


@pytest.mark.parametrize(
    ("how", "main", "tasks"),
    [  # steps of 120 in which the main objective, and each of three tasks, is trained
        ("inc", 120, (120, 80, 40)),
        ("alt", 30, (30, 30, 30)),
        ("alt+", 120, (40, 40, 40)),
        ("cmtl", 30, (30, 30, 30)),
        ("cmtl+", 120, (40, 40, 40)),
    ],
)
def test_schedules_add_up_to_their_budgets(folder, how, main, tasks):
    config = config_of(folder, ["so", "tf", "qt"], aux_combination=how, num_train_steps=120)
    found = [active_tasks(config, tf.constant(step, tf.int64)) or {} for step in range(120)]
    sums = {name: sum(float(one[name]) for one in found) for name in ("", "so", "tf", "qt")}
    assert sums == {"": main, "so": tasks[0], "tf": tasks[1], "qt": tasks[2]}
    if how in ("alt", "cmtl"):
        assert all(sum(float(value) for value in one.values()) == 1 for one in found)


def test_a_step_touches_what_is_its_turn_alone(folder):
    config = config_of(folder, ["so", "tf"], aux_combination="alt", weight_decay_rate=0.0, electra_objective=False)
    model = make_model(config)
    masks = {}
    for step, turn in enumerate(("masked_lm_loss", "so_loss", "tf_loss")):
        step = tf.constant(step, tf.int64)
        active = active_tasks(config, step)
        masked, _ = rearranged_by(model, tensors(batch_of(16)), tf.constant([1, 2]), active=active)
        masks[turn] = masked
        assert {name for name, weight in model.loss_weights(step).items() if float(weight)} == {turn}
        with tf.GradientTape() as tape:
            loss = model.outputs(model.forward(masked, tf.constant([0, 1])), True, step=step).loss
        gradients = tape.gradient(loss, model.trainable_variables)
        heads = ("generator_predictions", "sentence_order_predictions", "tf_predictions")
        touched = {
            variable.name.split("/")[0]
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
            if gradient is not None and np.abs(tf.convert_to_tensor(gradient).numpy()).max() > 0
        }
        assert touched & set(heads) == {heads[step]} and "electra" in touched
    original = batch_of(16)["input_ids"]
    for turn, masked in masks.items():  # only in its turn are segments swapped
        assert (masked.input_ids.numpy() == original).all() == (turn != "so_loss")


@pytest.mark.parametrize(("how", "staged"), [("sum", False), ("alt", False), ("inc", True), ("cmtl+", True)])
def test_stages_stay_where_they_were_when_a_run_is_prolonged(folder, how, staged):
    begun = config_of(folder, ["so", "tf"], aux_combination=how, num_train_steps=120)
    longer = config_of(folder, ["so", "tf"], aux_combination=how, num_train_steps=240)
    # A resumed run with other hparams than it began with is refused, but for those that are free to change.
    assert (longer.aux_steps != begun.aux_steps) == staged
    assert "aux_steps" not in longer.free_to_change and "num_train_steps" in longer.free_to_change
    kept = config_of(folder, ["so", "tf"], aux_combination=how, num_train_steps=240, aux_steps=begun.aux_steps)
    for number in range(0, 120, 7):
        step = tf.constant(number, tf.int64)
        before = active_tasks(begun, step) or {}
        now = active_tasks(kept, step) or {}
        assert {name: float(on) for name, on in before.items()} == {name: float(on) for name, on in now.items()}


def test_what_cannot_be_combined_is_refused(folder):
    for tasks, changes, message in (
        (["os"], {}, "aux_tasks has 'os'.* \\(some of .*so"),
        ([["so"]], {}, r"aux_tasks has \['so'\]"),
        (["so", "so"], {}, "names a task twice"),
        ([], {"aux_combination": "cmtl"}, "aux_combination cmtl needs aux_tasks"),
        (["so"], {"aux_combination": "cmtl+"}, "needs two aux_tasks or more"),
        (["so", "asp"], {}, "so, asp rearrange the same two segments: choose one, or"),
        (["asp", "so"], {"aux_combination": "inc"}, "so, asp rearrange"),
        (["asp", "qt", "fs"], {}, "qt, fs want halves of one text, asp puts text of others there"),
    ):
        with pytest.raises(UserError, match=message):
            config_of(folder, tasks, **changes)
    with pytest.raises(UserError, match=r"document_frequency_file.*make it with electra build-table doc"):
        make_model(config_of(folder, ["tf_idf"], document_frequency_file="nowhere.npz"))


def test_gathered_negatives_make_two_replicas_one(folder):
    objective = QuickThoughts(config_of(folder, ["qt"], scl_gather=True), golden.NO_NETWORKS)
    loss, first, second = support.gathered_loss(objective)
    similarity = first @ second.T
    assert loss == pytest.approx((np.log(np.exp(similarity).sum(1)) - np.diag(similarity)).sum(), rel=1e-5)
