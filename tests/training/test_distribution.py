"""Which strategy a configuration means, and that two hosts train what one does."""

import contextlib
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model import kernels
from electra_tf2.training import distribution
from electra_tf2.training.checkpoints import newest_good
from electra_tf2.training.cluster import Host, this_host
from electra_tf2.training.shared_hparams import DeviceHparams
from electra_tf2.util.errors import UserError
from tests.support import local_hosts
from tests.support import training as support
from tests.support.programs import run_program, start_forked


def tf_config(kind="worker", index=0, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_without_a_gpu_auto_is_one_processor_and_mirrored_its_logical_ones():
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    one = distribution.make_strategy(DeviceHparams(num_gpus=0))
    assert isinstance(one, tf.distribute.OneDeviceStrategy) and distribution.is_chief(one)
    assert tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"]
    mirrored = distribution.make_strategy(DeviceHparams(strategy="mirrored", num_gpus=0))
    assert mirrored.num_replicas_in_sync == 2
    assert distribution.host_rows(mirrored, 8) is None and not distribution.has_several_hosts(mirrored)


@pytest.mark.parametrize("strategy", [tf.distribute.OneDeviceStrategy("CPU:0"), None])
def test_no_thread_tunes_what_is_read(strategy):
    """The end of an iterator could wait for that thread, a minute and more, so a long run's last step would."""
    strategy = strategy or support.two_replicas()
    made = distribution.distribute(strategy, tf.data.Dataset.range(8).batch(4, drop_remainder=True))
    read = [made]
    if not isinstance(made, tf.data.Dataset):
        read = made._cloned_datasets
    assert [dataset.options().autotune.enabled for dataset in read] == [False]
    # What is distributed has a second dataset for each device, which nothing can turn off.
    assert isinstance(made, tf.data.Dataset) == (strategy.num_replicas_in_sync == 1)


def test_more_gpus_than_there_are_is_refused():
    with pytest.raises(UserError, match="num_gpus is 99, but"):
        distribution.make_strategy(DeviceHparams(num_gpus=99))


def test_xla_is_off_on_processors_unless_asked_for():
    wanted = [distribution.wants_xla(DeviceHparams(jit_compile=value)) for value in ("auto", "true", "false")]
    assert wanted == [False, True, False]
    assert distribution.wants_xla(DeviceHparams(use_tpu=True)) and distribution.wants_xla(DeviceHparams(strategy="tpu"))


def test_batches_divide_among_replicas_and_micro_batches():
    strategy = distribution.make_strategy(DeviceHparams(strategy="mirrored", num_gpus=0))
    distribution.check_batch("train_batch_size", 12, strategy, 3)
    with pytest.raises(UserError, match="train_batch_size 10 is not divisible by 2 devices x 3 micro-batches"):
        distribution.check_batch("train_batch_size", 10, strategy, 3)
    with pytest.raises(UserError, match=r"eval_batch_size 7 is not divisible by 2 devices$"):
        distribution.check_batch("eval_batch_size", 7, strategy)


def test_the_place_among_hosts(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert this_host("multi_worker") == Host(0, 1)
    monkeypatch.setenv("TF_CONFIG", tf_config(index=1, worker=["a:1", "b:1"]))
    assert this_host("multi_worker") == Host(1, 2)
    assert this_host("mirrored") == Host(0, 1)
    monkeypatch.setenv("TF_CONFIG", tf_config(index=1, chief=["a:1"], worker=["b:1", "c:1"], ps=["d:1"]))
    assert this_host("multi_worker") == Host(2, 3)
    monkeypatch.setenv("TF_CONFIG", tf_config("chief", chief=["a:1"], worker=["b:1"]))
    assert this_host("multi_worker") == Host(0, 2)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", tf_config(index=2, worker=["a:1", "b:1"]), tf_config("ps", ps=["a:1"], worker=["b:1"])]
)
def test_a_wrong_tf_config_is_explained(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG: "):
        this_host("multi_worker")


@contextlib.contextmanager
def running(logs, hparams):
    """The processes of run_pretraining.py as so many hosts of a job, each with its log; none outlives the test."""
    hosts = local_hosts.free_addresses(len(logs))
    places = [local_hosts.tf_config(hosts, index) for index in range(len(logs))]
    words = ["run_pretraining.py", "--hparams", json.dumps(hparams)]
    processes = [
        start_forked(words, log, formulas=True, TF_CONFIG=place) for log, place in zip(logs, places, strict=True)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()


def test_several_hosts_train_and_evaluate_what_one_does(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords")
    support.write_records(tmp_path / "pretrain_tfrecords", "dev_data", examples=21, shards=1)
    settings = support.hparams(
        tmp_path,
        num_train_steps=8,
        iterations_per_loop=2,
        do_eval=True,
        sizes={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    )
    with kernels.off():
        done = run_program("run_pretraining.py", "--hparams", json.dumps(settings | {"model_name": "one"}))
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [tmp_path / f"host_{number}" for number in range(2)]
    with running(logs, settings | {"model_name": "several", "strategy": "multi_worker"}) as processes:
        for process, log in zip(processes, logs, strict=True):
            process.join(300)
            assert process.exitcode == 0, log.read_text()
    folders = [tmp_path / "models" / name for name in ("one", "several")]
    expected, actual = ([line["loss"] for line in support.logged(folder)] for folder in folders)
    assert len(actual) == 4  # written once, by the chief
    np.testing.assert_allclose(actual, expected, rtol=2e-4)
    metrics = [json.loads((folder / "results" / "unsup_results.json").read_text()) for folder in folders]
    for results in metrics:
        # Means over the pairs of states that lie on one host, which are other pairs with two hosts.
        del results["cls_cosine"], results["token_cosine"]
    assert metrics[1] == pytest.approx(metrics[0], rel=2e-3, abs=2e-3)
    assert not list(folders[1].glob(".host*")) and len(list(folders[1].glob("model.ckpt-8.*"))) == 3


def test_a_host_that_dies_stops_the_others_which_name_the_checkpoint_to_go_on_from(tmp_path):
    support.write_records(tmp_path / "pretrain_tfrecords")
    settings = support.hparams(tmp_path, num_train_steps=3000, save_checkpoints_steps=10, electra_objective=False)
    logs = [tmp_path / f"host_{number}" for number in range(2)]
    os.mkfifo(logs[0])
    with running(logs, settings | {"strategy": "multi_worker"}) as processes:
        lines = []
        with open(logs[0]) as pipe:
            for line in pipe:
                lines.append(line)
                if line.startswith("step 12/"):
                    processes[1].kill()
        processes[0].join(300)
        output = "".join(lines)
        assert processes[0].exitcode == 2 and "Traceback" not in output, output
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1 and "another host" in errors[0], output
    saved = re.search(r"checkpoint: \S+model\.ckpt-(\d+)", errors[0])
    assert saved and int(saved[1]) >= 10
    assert newest_good(tmp_path / "models" / "test") == (int(saved[1]), [])
