"""Checkpoints that were damaged, cut, half-written or not written at all: the newest good one is taken, aloud."""

import errno
import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats import checkpoint_files as files
from electra_tf2.pretrain.pretraining_task import PretrainingTask
from electra_tf2.training import loop
from electra_tf2.training.checkpoints import Checkpoints, Snapshot
from electra_tf2.training.device_loop import DeviceLoop
from electra_tf2.util.errors import UserError
from tests.support import toy
from tests.support import training as support
from tests.support.training import logged


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with checkpoints of steps 10, 15 and 20."""
    folder = tmp_path_factory.mktemp("finished")
    assert toy.trainer(folder, save_checkpoints_steps=5).train() == 0
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    for path in finished.glob("*"):
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


DATA = "model.ckpt-20.data-00000-of-00001"
DAMAGE = {
    "no index": lambda folder: (folder / "model.ckpt-20.index").unlink(),
    "no checksums": lambda folder: (folder / "model.ckpt-20.json").unlink(),
    "no data": lambda folder: (folder / DATA).unlink(),
    "empty index": lambda folder: cut(folder / "model.ckpt-20.index", 0),
    "cut index": lambda folder: cut(folder / "model.ckpt-20.index", 100),
    "cut data": lambda folder: cut(folder / DATA, 50),
    "a bit of the data": lambda folder: flip(folder / DATA),
    "a bit of the index": lambda folder: flip(folder / "model.ckpt-20.index"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_aloud(folder, capsys, kind):
    DAMAGE[kind](folder)
    runner = toy.trainer(folder, save_checkpoints_steps=5)
    assert runner.restore() == 15
    told = capsys.readouterr().err
    assert "model.ckpt-20 is damaged (" in told and "Going on from step 15." in told
    if kind == "cut data":
        assert runner.train() == 0
        assert toy.trainer(folder).restore() == 20 and "WARNING" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"\xff\x00", b'model_checkpoint_path: "model.ckpt-10"\n'])
def test_the_file_named_checkpoint_is_not_needed(folder, capsys, content):
    state = folder / "checkpoint"
    state.unlink()
    if content is not None:
        state.write_bytes(content)
    assert toy.trainer(folder).restore() == 20
    assert "does not name model.ckpt-20, the newest good checkpoint" in capsys.readouterr().err


def test_nothing_starts_anew_where_all_checkpoints_are_damaged(folder):
    for path in folder.glob("*.index"):
        path.unlink()
    with pytest.raises(UserError, match=r"model\.ckpt-20 is damaged .*model\.ckpt-10 is damaged .*--overwrite"):
        toy.trainer(folder).restore()


def test_tensorflow_knows_the_checkpoints(finished):
    state = tf.train.get_checkpoint_state(str(finished))
    assert state.model_checkpoint_path == str(finished / "model.ckpt-20")
    assert [path.rsplit("-")[-1] for path in state.all_model_checkpoint_paths] == ["10", "15", "20"]
    assert files.steps(finished) == [20, 15, 10]


def test_old_checkpoints_go_and_later_ones_with_them(tmp_path):
    for step in (5, 10, 15, 20, 100):
        for ending in ("index", "data-00000-of-00001", "json"):
            Path(f"{files.prefix(tmp_path, step)}.{ending}").touch()
    assert files.keep(tmp_path, 20, 2) == [15, 20]
    assert files.steps(tmp_path) == [20, 15] and len(list(tmp_path.iterdir())) == 6


def test_what_a_kill_left_of_a_deleted_checkpoint_goes_though_nothing_is_left_to_train(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for ending in ("index", DATA.partition(".ckpt-20.")[2], "json"):  # as after the last save, before older ones went
        shutil.copy(folder / f"model.ckpt-10.{ending}", folder / f"model.ckpt-5.{ending}")
    with monkeypatch.context() as patch:
        unlink, deleted = Path.unlink, list[Path]()

        def one_deletion(path):
            if deleted:
                raise InterruptedError  # in place of a kill
            deleted.append(path)
            unlink(path)

        patch.setattr(Path, "unlink", one_deletion)
        with pytest.raises(InterruptedError):
            files.keep(folder, 20, 3)
    assert not (folder / "model.ckpt-5.index").exists() and files.steps(folder)[-1] == 5
    trainer = toy.trainer(folder, save_checkpoints_steps=5)
    assert trainer.restore() == 20 and trainer.train() == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before} == before
    assert files.steps(folder) == [20, 15, 10]


def test_only_better_weights_replace_the_best(tmp_path):
    model = toy.Model()
    checkpoints = Checkpoints(tmp_path, {"model": model}, keep=1)
    # An equal score later on is no better; the score of a later step is that of a run that was interrupted.
    for step, score, best in ((5, 0.5, 5), (10, 0.4, 5), (15, 0.5, 5), (20, 0.6, 20), (10, 0.3, 10), (15, 0.31, 15)):
        model.weight.assign([float(step)] * 3)
        checkpoints.save_best(step, score)
        assert checkpoints.restore_best() == best
        assert model.weight.numpy().tolist() == [best] * 3


def failing(error):
    def write(*_):
        raise error

    return write


FULL = tf.errors.ResourceExhaustedError(None, None, "x/model.ckpt-10.data-00000-of-00001; No space left on device")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FULL, "the disk is full"),
        (OSError(28, "No space left on device"), "the disk is full"),
        (tf.errors.PermissionDeniedError(None, None, "x; Permission denied"), "Permission denied"),
    ],
)
def test_a_checkpoint_that_cannot_be_saved_is_one_line_and_costs_no_other(tmp_path, monkeypatch, error, words):
    runner = toy.trainer(tmp_path, save_checkpoints_steps=5)
    save, write = runner.checkpoints.save, tf.train.Checkpoint.write

    def first_only(step, *given):
        runner.checkpoints.writer.settle()
        monkeypatch.setattr(tf.train.Checkpoint, "write", write if step == 5 else failing(error))
        save(step, *given)

    monkeypatch.setattr(runner.checkpoints, "save", first_only)
    with pytest.raises(UserError, match=rf"cannot save .*model\.ckpt-10: .*{words}.*Last checkpoint: .*ckpt-5\."):
        runner.train()
    assert not (tmp_path / ".saving").exists()
    assert toy.trainer(tmp_path).restore() == 5


def test_a_full_disk_while_logging_names_the_file(tmp_path):
    (tmp_path / "train_metrics.jsonl").symlink_to("/dev/full")
    runner = toy.trainer(tmp_path)
    runner.reporter.resume = lambda step: None
    with pytest.raises(UserError, match=r"cannot write .*train_metrics\.jsonl: the disk is full"):
        runner.train()


WRONG = ["[]", '{"sha256": [1]}', '{"sha256": {"a\\u0000b": "c"}}', '{"sha256": {}}']


@pytest.mark.parametrize("content", WRONG)
def test_valid_json_of_wrong_content_is_damage(folder, capsys, content):
    (folder / "model.ckpt-20.json").write_text(content)
    assert toy.trainer(folder).restore() == 15
    assert "model.ckpt-20 is damaged (" in capsys.readouterr().err


def test_a_read_error_is_not_damage(folder, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = sorted(path.name for path in folder.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(files, "sha256_of", fail)
        with pytest.raises(UserError, match=r"cannot read the checkpoint .*model\.ckpt-20 now: Input/output error"):
            toy.trainer(folder).restore()
    assert sorted(path.name for path in folder.iterdir()) == before
    assert toy.trainer(folder).restore() == 20


def test_files_and_folder_are_on_the_disk_before_a_checkpoint_gets_its_name(tmp_path, monkeypatch):
    events, sync, replace = [], os.fsync, os.replace

    def synced(descriptor):
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        sync(descriptor)

    def replaced(source, target):
        if Path(target).name.startswith(files.PREFIX) and Path(target).parent == tmp_path:
            events.append(("name", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    toy.trainer(tmp_path, num_train_steps=20, save_checkpoints_steps=20).train()
    names = ["model.ckpt-20.json", DATA, "model.ckpt-20.index"]
    assert events == [
        *(("sync", name) for name in names),
        *(("name", name) for name in names[:2]),
        ("sync", tmp_path.name),
        ("name", names[2]),
        ("sync", tmp_path.name),
    ]


def test_a_folder_that_was_deleted_while_a_run_trained_does_not_come_back(tmp_path):
    folder = tmp_path / "model"
    runner = toy.trainer(folder)
    save = runner.checkpoints.save

    def then_delete(*given):
        save(*given)
        runner.checkpoints.writer.settle()
        shutil.rmtree(folder)

    runner.checkpoints.save = then_delete
    with pytest.raises(UserError, match="was deleted or moved while the run trained there"):
        runner.train()
    assert not folder.exists()


# Checkpoints are written while training goes on, of the state as it was, and all that ends a run waits for them.

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

    def held(folder, number):
        if number == step:
            assert release.wait(LIMIT), "nobody went on"
        publish(folder, number)

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
    checkpoints.save(1)
    threading.Timer(0.2, release.set).start()
    checkpoints.save(2)
    assert files.steps(tmp_path) == [1]
    checkpoints.writer.wait()
    assert files.steps(tmp_path) == [2, 1]


def test_the_end_of_a_run_and_a_signal_wait_for_the_checkpoint_and_say_so(tmp_path, monkeypatch, capsys):
    release = held_up(monkeypatch, 20)
    runner = toy.trainer(tmp_path)
    steps_ended: list[bool] = []

    def settling():
        if runner._saved_step == 20 and not steps_ended:
            steps_ended.append(True)
            os.kill(os.getpid(), signal.SIGTERM)
            release.set()

    toy.before(runner.checkpoints.writer, "settle", settling)
    assert runner.train() == 128 + signal.SIGTERM
    assert "SIGTERM: saving step 20\n" in capsys.readouterr().out
    assert files.problem(tmp_path, 20) is None


def test_the_checkpoint_that_is_named_when_another_host_ended_is_the_one_that_was_being_written(tmp_path, monkeypatch):
    release = held_up(monkeypatch, 10)

    def lost(*arguments):
        threading.Timer(0.2, release.set).start()
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

    runner = toy.trainer(tmp_path, iterations_per_loop=1)
    run = DeviceLoop.run
    monkeypatch.setattr(DeviceLoop, "run", lambda *given: lost() if runner.current_step == 12 else run(*given))
    monkeypatch.setattr(loop, "has_several_hosts", lambda strategy: True)
    with pytest.raises(UserError, match=r"another host .* Last checkpoint: \S+model\.ckpt-10\."):
        runner.train()


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

    def full(folder, step):
        if step == 10:
            raise OSError(28, "No space left on device")
        publish(folder, step)

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
