"""Adjacent sentences and FastSent: labels and losses against loops, balance, what records must hold, and that
micro-batches change nothing."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.corpus.records import RecordFormat
from electra_tf2.model import kernels
from electra_tf2.papers.on_losses.auxiliary import task_labels
from electra_tf2.papers.on_losses.halves import FastSent, halves
from electra_tf2.papers.on_losses.model import Task as OnLossesTask
from electra_tf2.papers.on_losses.model import check_records
from electra_tf2.papers.on_losses.schedules import active_tasks
from electra_tf2.pretrain.flops import parameter_count
from electra_tf2.pretrain.pretrain_data import Records
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import training as support
from tests.support.papers.on_losses import (
    SEED,
    batch_of,
    config_of,
    draws_of,
    left_out,
    put_together,
    rearranged,
    rearranged_by,
    tensors,
    texts_of,
)

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(autouse=True)
def plain():
    with kernels.off():
        yield


def text_of(batch, row):
    """All tokens of a row but special ones."""
    return [token for token in batch["input_ids"][row].tolist() if token not in (0, 2, 3)]


@pytest.mark.parametrize("rows", [3000, 301])
def test_adjacent_sentences_are_balanced_and_shown(tmp_path, rows):
    model = make_model(config_of(tmp_path, ["asp"]))
    batch = batch_of(rows, repeated=600)
    masked, normalizers = rearranged_by(model, tensors(batch))
    labels = task_labels(masked, "asp").numpy()
    partners = (np.arange(rows) - rows // 2) % rows
    assert (partners != np.arange(rows)).all()
    possible = batch["segment_ids"].any(-1) & batch["input_mask"].any(-1)[partners]
    np.testing.assert_array_equal(labels >= 0, possible)
    assert float(normalizers["asp_loss"]) == possible.sum() > 0.7 * rows
    np.testing.assert_allclose(np.bincount(labels[possible]) / possible.sum(), 1 / 3, atol=2 / math.sqrt(rows))
    draw = draws_of(model, "asp", rows)
    draws, draws_of_other = draw(1, [3]).numpy(), draw(2, [1]).numpy()

    def shown(row):
        """The first and the second segment."""
        other = text_of(batch, partners[row])
        other = other[left_out(draws_of_other[row, 0], len(other)) :]
        first, second = texts_of(batch, row)
        first, second = rearranged(first + second, draws[row], labels[row] == 1, longest=len(other))
        return first, other[: len(second)] if labels[row] == 2 else second

    for row in range(300):
        expected = batch["input_ids"][row].tolist(), batch["segment_ids"][row].tolist()
        if possible[row]:
            expected = put_together(*shown(row))
        assert (masked.input_ids[row].numpy().tolist(), masked.segment_ids[row].numpy().tolist()) == expected
    np.testing.assert_array_equal(masked.input_mask, masked.input_ids.numpy() > 0)


def test_a_row_by_itself_has_no_other_document(tmp_path):
    model = make_model(config_of(tmp_path, ["asp"]))
    alone = {name: value[1:2] for name, value in batch_of(4).items()}
    masked, normalizers = rearranged_by(model, tensors(alone))
    np.testing.assert_array_equal(masked.input_ids, alone["input_ids"])
    assert float(normalizers["asp_loss"]) == 0


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
    assert float(pairs) == len(strangers)
    assert float(cosine) == pytest.approx(np.sum(strangers), abs=1e-4)
    one, _ = model.prepare(tensors({name: value[:1] for name, value in batch_of(9).items()}), SEED)
    assert objective(model.forward(one), True).metrics["fs_negative_cosine"][1] == 0  # a row is no stranger to itself


def gradients_of(folder, parts):
    """Every step of a turn, with micro-batches, by one traced step."""
    changes = {"aux_combination": "alt+", "gradient_accumulation_steps": parts}
    config = config_of(folder, ["asp", "fs"], sizes=NO_DROPOUT, **changes)
    task = make_task(config, tf.distribute.get_strategy())
    assert isinstance(task, OnLossesTask)
    found = []
    for step in range(2):
        step = tf.constant(step, tf.int64)
        batch = task._rearranged(tensors(batch_of(8)), SEED, active_tasks(config, step))
        masked, normalizers = task._prepare(batch, SEED, tf.constant(0))
        found.append(task._gradients(masked, normalizers, SEED, tf.constant(1.0), step))
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
    assert parameter_count(task.config) == sum(math.prod(v.shape) for v in task.model.trainable_variables)
    metrics = task.summarise(task.eval_step(tensors(batch_of(16)), tf.constant(0, tf.int64)))
    assert {"asp_accuracy", "fs_positive_cosine", "fs_negative_cosine"} <= metrics.keys()


def test_a_compiled_step_is_the_same_step(tmp_path):
    """XLA compiles the whole step, what is done to the text before included."""
    config = config_of(tmp_path, ["asp", "tf"], aux_combination="alt", sizes=NO_DROPOUT)
    results = []
    for compiled in (False, True):
        task = make_task(config, tf.distribute.get_strategy(), jit_compile=compiled)
        steps = [task.train_step(tensors(batch_of(8)), tf.constant(step, tf.int64)) for step in range(2)]
        results.append([float(step["losses"]["asp_loss"]) for step in steps])
    assert results[0] == pytest.approx(results[1], rel=1e-4) and results[0][0] == 0 < results[0][1]


def test_records_without_second_segments_are_refused(tmp_path):
    support.write_records(tmp_path, examples=4, shards=1)
    (file,) = map(str, tmp_path.glob("*.tfrecord*"))
    records = Records([file], [4], RecordFormat(support.LENGTH, 600))
    check_records(config_of(tmp_path, ["tf"]), records)
    with pytest.raises(UserError, match="no record has a second segment, and aux_tasks asp need two"):
        check_records(config_of(tmp_path, ["asp"]), records)
