"""Checkpoints are written while training goes on, of the state as it was, and all that ends a run waits for them."""

import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats import checkpoint_files as files
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.training.checkpoints import Checkpoints, Snapshot
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.support.training import logged
from tests.training import toy

LIMIT = 60.0  # seconds that something waits which would never come about


def weights(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def structure(graph):
    """Names, children and slots in the object graph of a checkpoint."""
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    nodes = TrackableObjectGraph.FromString(graph).nodes
    return [
        (
            sorted((child.local_name, child.node_id) for child in node.children),
            sorted((one.name, one.full_name, one.checkpoint_key) for one in node.attributes),
        )
        for node in nodes
    ]


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_a_snapshot_writes_is_what_the_original_writes(tmp_path, replicas):
    support.write_records(tmp_path / "pretrain_tfrecords")
    coco = {"electra_objective": False, "corrective_lm_objective": True, "sequence_contrast_objective": True}
    more = coco if replicas == 1 else {"optimizer": "muon", "ema_decay": 0.9}
    config = PretrainingConfig.from_dict(support.hparams(tmp_path, precision="float16", **more))
    strategy = support.two_replicas() if replicas == 2 else tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = PretrainingTask(config, strategy, False, None, None)
    tracked = {"model": task.model, "optimizer": task.optimizer, "loss_scale": task.loss_scale}
    tf.train.Checkpoint(**tracked).write(str(tmp_path / "expected"))
    snapshot = Snapshot(tracked)
    task.optimizer.step.assign_add(7)
    snapshot.checkpoint.write(str(tmp_path / "found"))
    expected, found = weights(tmp_path / "expected"), weights(tmp_path / "found")
    assert structure(found.pop("_CHECKPOINTABLE_OBJECT_GRAPH")) == structure(
        expected.pop("_CHECKPOINTABLE_OBJECT_GRAPH")
    )
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_snapshot_stays_as_it_was_while_variables_change():
    variable = tf.Variable(tf.zeros([1000]))
    module = tf.Module()
    module.variable = variable
    snapshot = Snapshot({"model": module})
    slots = tf.Variable(tf.zeros([1000])), tf.Variable(tf.zeros([1000]))
    for expected in (0.0, 1.0):
        variable.assign(tf.fill([1000], expected))
        snapshot.take()
        tf.raw_ops.ResourceApplyAdam(  # in place
            var=variable.handle, m=slots[0].handle, v=slots[1].handle, beta1_power=0.0, beta2_power=0.0, lr=1.0,
            beta1=0.9, beta2=0.999, epsilon=1e-6, grad=tf.ones([1000]),
        )  # fmt: skip
        copy = snapshot.checkpoint.model.variable.numpy()
        assert set(copy) == {expected} and variable.numpy()[0] != expected


def held_up(monkeypatch, step):
    """The checkpoint of a step is not finished before the event that this returns is set."""
    release, publish = threading.Event(), files.publish

    def held(folder, number, remember):
        if number == step:
            assert release.wait(LIMIT), "nobody went on"
        publish(folder, number, remember)

    monkeypatch.setattr(files, "publish", held)
    return release


def test_steps_go_on_while_a_checkpoint_is_written_of_the_state_as_it_was(tmp_path, monkeypatch):
    release = held_up(monkeypatch, 10)
    runner, then = toy.trainer(tmp_path, iterations_per_loop=1), {}

    def reported(progress, step, *rest):
        then[step] = runner.task.model.weight.numpy()
        if step == 15:
            assert not files.steps(tmp_path)
            release.set()

    toy.before(runner.reporter, "steps", reported)
    assert runner.train() == 0
    for step in (10, 20):
        assert files.problem(tmp_path, step) is None
        found = weights(files.prefix(tmp_path, step))
        np.testing.assert_array_equal(found["model/weight/.ATTRIBUTES/VARIABLE_VALUE"], then[step])
        assert found["optimizer/step/.ATTRIBUTES/VARIABLE_VALUE"] == step


def test_a_checkpoint_waits_for_the_one_before(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, {"model": toy.Model()}, keep=2)
    release = held_up(monkeypatch, 1)
    checkpoints.save(1, {})
    threading.Timer(0.2, release.set).start()
    checkpoints.save(2, {})
    assert files.steps(tmp_path) == [1]
    checkpoints.writer.wait()
    assert files.steps(tmp_path) == [2, 1]


def test_the_end_of_a_run_and_a_signal_wait_for_the_checkpoint_and_say_so(tmp_path, monkeypatch, capsys):
    release = held_up(monkeypatch, 20)
    runner = toy.trainer(tmp_path)
    signalled: list[bool] = []

    def settling():
        if runner._only_saves and not signalled:
            signalled.append(True)
            os.kill(os.getpid(), signal.SIGTERM)
            release.set()

    toy.before(runner.checkpoints.writer, "settle", settling)
    assert runner.train() == 128 + signal.SIGTERM
    assert "SIGTERM: saving step 20\n" in capsys.readouterr().out
    assert files.problem(tmp_path, 20) is None


def test_an_evaluation_runs_beside_the_writer_but_is_not_told_before_its_checkpoint_is_there(tmp_path, monkeypatch):
    release = held_up(monkeypatch, 20)

    def evaluate():
        if runner.current_step == 20:
            threading.Timer(0.2, release.set).start()  # or the checkpoint would never be there
        return {"score": 1.0}

    runner, told = toy.trainer(tmp_path, evaluate, eval_every_steps=10), []
    tell = lambda step, metrics: told.append((step, files.problem(tmp_path, step)))  # noqa: E731
    toy.before(runner.reporter, "evaluation", tell)
    assert runner.train() == 0
    assert told == [(10, None), (20, None)]


def test_a_disk_that_is_full_while_steps_go_on_ends_the_run_in_one_line_soon(tmp_path, monkeypatch):
    publish = files.publish

    def full(folder, step, remember):
        if step == 10:
            raise OSError(28, "No space left on device")
        publish(folder, step, remember)

    monkeypatch.setattr(files, "publish", full)
    runner = toy.trainer(tmp_path, iterations_per_loop=1, save_checkpoints_steps=5, num_train_steps=1000)
    toy.before(runner.reporter, "steps", toy.at_step(runner, 11, runner.checkpoints.writer.settle))
    with pytest.raises(UserError, match=r"cannot save .*ckpt-10: the disk is full\. Last checkpoint: .*ckpt-5\."):
        runner.train()
    assert runner.current_step == 12 and not (tmp_path / ".saving").exists()
    assert [line["step"] for line in logged(tmp_path)][-1] == 11


def test_a_loss_that_is_not_finite_waits_for_the_checkpoint_that_it_names(tmp_path, monkeypatch):
    release = held_up(monkeypatch, 10)
    runner = toy.trainer(tmp_path, bad_at=13, iterations_per_loop=1)
    toy.before(runner.checkpoints.writer, "settle", toy.at_step(runner, 13, release.set))
    with pytest.raises(UserError, match=r"not finite at step 13: loss\..*model\.ckpt-10\. "):
        runner.train()
