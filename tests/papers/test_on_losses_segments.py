"""Auxiliary tasks about two segments (ASP, SDP, FastSent) and task ids: labels and losses against loops, balance, what
records must hold, and that neither replicas nor micro-batches change anything."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model import kernels
from electra_tf2.papers.on_losses.model import Model, active_tasks
from electra_tf2.papers.on_losses.segments import FastSent, halves
from electra_tf2.papers.on_losses.tasks import TaskBatch, labels_of
from electra_tf2.pretrain import pretrain_data
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.pretrain.task import make_task
from electra_tf2.util.errors import UserError
from tests.papers.test_on_losses import (
    SEED,
    batch_of,
    config_of,
    draws_of,
    left_out,
    put_together,
    rearranged,
    tensors,
    texts_of,
    values_at,
)
from tests.support import golden
from tests.support import training as support

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(autouse=True)
def plain():
    with kernels.off():
        yield


def segments_of(rows, seed=0):
    """`batch_of` with texts for the second segment's place, no longer than it; every fifth row lacks one, every seventh
    the other."""
    batch, random = batch_of(rows, seed, repeated=600), np.random.RandomState(seed)
    second = np.maximum(0, batch["segment_ids"].sum(1) - 1)
    for name, every in (("same_document_ids", 5), ("other_document_ids", 7)):
        lengths = np.where(np.arange(rows) % every, np.ceil(second * random.rand(rows)), 0)
        text = random.randint(20, 600, [rows, support.LENGTH])
        batch[name] = (text * (np.arange(support.LENGTH) < lengths[:, None])).astype(np.int32)
    return batch


def text_in(batch, row, name):
    """The text of a place, "same" or "other", by a plain list."""
    return [token for token in batch[f"{name}_document_ids"][row].tolist() if token]


@pytest.mark.parametrize(
    ("task", "relations", "needed"),
    [
        ("asp", ("next", "previous", "other"), ("other_document_ids",)),
        ("sdp", ("next", "same", "other"), ("same_document_ids", "other_document_ids")),
    ],
)
def test_relations_are_balanced_and_shown(tmp_path, task, relations, needed):
    model = make_model(config_of(tmp_path, [task]))
    batch = segments_of(3000)
    masked, normalizers = model.prepare(tensors(batch), SEED)
    labels = labels_of(masked, task).numpy()
    possible = np.logical_and.reduce([batch[name][:, 0] > 0 for name in needed])
    np.testing.assert_array_equal(labels >= 0, possible)
    assert float(normalizers[f"{task}_loss"]) == possible.sum() > 1500
    np.testing.assert_allclose(np.bincount(labels[possible]) / possible.sum(), 1 / 3, atol=0.04)
    draw = draws_of(model, task, 3000)
    draws, draws_of_other = draw(1, [3]).numpy(), draw(2, [1]).numpy()

    def shown(row, relation):
        """The first and the second segment."""
        first, second = texts_of(batch, row)
        if task == "sdp":
            return first, second if relation == "next" else text_in(batch, row, relation)
        other = text_in(batch, row, "other")
        other = other[left_out(draws_of_other[row, 0], len(other)) :]
        first, second = rearranged(first + second, draws[row], relation == "previous", longest=len(other))
        return first, other[: len(second)] if relation == "other" else second

    for row in range(300):
        expected = batch["input_ids"][row].tolist(), batch["segment_ids"][row].tolist()
        if possible[row]:
            expected = put_together(*shown(row, relations[labels[row]]))
        assert (masked.input_ids[row].numpy().tolist(), masked.segment_ids[row].numpy().tolist()) == expected
    half = {name: value[1500:] for name, value in tensors(batch).items()}
    again, _ = model.prepare(half, SEED, 1500, 3000)  # rows of another replica
    np.testing.assert_array_equal(again.input_ids, masked.input_ids[1500:])
    np.testing.assert_array_equal(labels_of(again, task), labels[1500:])


def test_fast_sent_is_the_loss_of_a_loop(tmp_path):
    config = config_of(tmp_path, ["fs"])
    model = make_model(config)
    masked, normalizers = model.prepare(tensors(batch_of(9)), SEED)
    objective = golden.objective_of(model, FastSent)
    forward = model.forward(masked)
    sentences, words = (value.numpy() for value in objective.vectors(forward))
    sizes = np.stack([half.input_mask.numpy().sum(1) for half in halves(config, masked)], 1) - 2
    total, count, strangers = 0.0, 0, []
    for row in range(8):  # the last one is empty
        for half in (0, 1):
            if sizes[row].min() < 1:
                continue
            for place in range(1, 1 + sizes[row, 1 - half]):
                total += (1 - sentences[row, half] @ words[row, half, place]) ** 2
                count += 1
            above = row - 1
            if above >= 0 and sizes[above].min() >= 1:
                of_above = range(1, 1 + sizes[above, 1 - half])
                strangers += [sentences[row, half] @ words[above, half, place] for place in of_above]
    output = objective(forward, True)
    assert count > 40 and float(normalizers["fs_loss"]) == count
    assert float(output.numerator) == pytest.approx(total, rel=1e-5)
    cosine, pairs = output.metrics["fs_negative_cosine"]
    assert float(cosine / pairs) == pytest.approx(np.mean(strangers), abs=1e-5)
    one, _ = model.prepare(tensors({name: value[:1] for name, value in batch_of(9).items()}), SEED)
    assert objective(model.forward(one), True).metrics["fs_negative_cosine"][1] == 0  # a row is no stranger to itself


def gradients_of(folder, parts):
    """Every step of a turn, with micro-batches, by one traced step."""
    changes = {"aux_combination": "alt+", "use_task_ids": True, "gradient_accumulation_steps": parts}
    config = config_of(folder, ["asp", "fs"], sizes=NO_DROPOUT, **changes)
    task = make_task(config, tf.distribute.get_strategy())
    found = []
    for step in range(2):
        values = values_at(step)
        masked, normalizers = task._prepare(tensors(segments_of(8)), SEED, tf.constant(0), values)
        found.append(task._gradients(masked, normalizers, SEED, tf.constant(1.0), values))
    return task, found


def test_micro_batches_change_nothing_and_every_task_has_its_turn(tmp_path):
    task, expected = gradients_of(tmp_path, 1)
    _, found = gradients_of(tmp_path, 2)
    variables = task.model.trained_variables
    heads = {"asp": "asp_predictions", "fs": "fast_sent_sentence"}
    for turn, ((gradients, result), (others, same)) in enumerate(zip(expected, found, strict=True)):
        norm = float(tf.linalg.global_norm(gradients))
        for one, other in zip(gradients, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-6 * norm)
        for name, value in result["losses"].items():
            assert float(same["losses"][name]) == pytest.approx(float(value), rel=1e-5, abs=1e-7), name
        moved = {
            variable.name.split("/")[0]
            for variable, gradient in zip(variables, gradients, strict=True)
            if np.abs(tf.convert_to_tensor(gradient)).max() > 0
        }
        assert moved & set(heads.values()) == {[*heads.values()][turn]}
        assert "task_embeddings" in moved
    assert parameter_count(task.config) == sum(math.prod(v.shape) for v in task.model.trainable_variables)
    metrics = task.summarise(task.eval_step(tensors(segments_of(16)), tf.constant(0, tf.int64)))
    assert {"asp_accuracy", "fs_positive_cosine", "fs_negative_cosine"} <= metrics.keys()


@pytest.mark.parametrize("how", ["alt", "alt+"])
def test_task_ids_tell_of_the_step_and_of_nothing_afterwards(tmp_path, how):
    tasks = ["so", "tf"]
    config = config_of(tmp_path, tasks, aux_combination=how, use_task_ids=True, sizes=NO_DROPOUT)
    model = make_model(config)
    table = next(v for v in model.trainable_variables if v.name.startswith("task_embeddings"))
    table.assign(tf.random.stateless_normal(table.shape, [1, 2]))
    without = make_model(config_of(tmp_path, tasks, aux_combination=how, sizes=NO_DROPOUT))
    batch = tensors(batch_of(6))
    masked, _ = model.prepare(batch, SEED)
    assert isinstance(model, Model) and isinstance(masked, TaskBatch)
    assert not masked.task_ids.numpy().any()  # evaluation
    np.testing.assert_array_equal(model.forward(masked).states, without.forward(masked).states)
    assert model._task_vectors is not None
    added = model._task_vectors(tf.constant([0, 1, 2, 0, 1, 2]))
    assert added is not None
    vectors = table.numpy() - (table.numpy().mean(0) if how == "alt+" else 0)
    np.testing.assert_allclose(added[:3, 0], [0 * vectors[0], *vectors], atol=1e-6)
    of_first = model.forward(masked._replace(task_ids=masked.task_ids + 1))
    assert np.abs(of_first.states - model.forward(masked).states).max() > 1e-3
    np.testing.assert_array_equal(of_first.generator.softmax.logits, without.forward(masked).generator.softmax.logits)
    for step in range(3):
        values = values_at(step)
        masked_now, _ = model.prepare(batch, SEED, values=values)
        active = active_tasks(config, tf.constant(step, tf.int64)) or {}
        expected = next((k for k, task in enumerate(tasks, 1) if float(active[task])), 0)
        assert isinstance(masked_now, TaskBatch) and set(masked_now.task_ids.numpy()) == {expected}
        with tf.GradientTape() as tape:
            loss = model(masked_now, SEED, True, values).loss
        touched = np.abs(tf.convert_to_tensor(tape.gradient(loss, table))).max(1) > 0
        assert touched.tolist() == [how == "alt+" or expected == k for k in (1, 2)]


def test_records_without_other_segments_are_refused(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords", examples=4)
    config = config_of(tmp_path, ["asp"])
    with pytest.raises(UserError, match=r"record 1 has no 'same_document_ids': build records with electra"):
        pretrain_data.find_records(config.pretrain_tfrecords, config, "pretrain_tfrecords")
