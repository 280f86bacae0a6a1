"""The folder of a run: what --overwrite leaves alone, who may train there, and with which configuration."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from electra_tf2.training import run_folder
from electra_tf2.training.run_folder import RunFolder, after_checkpoint, mark_not_finite, suspect_checkpoint
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import check_writable
from tests.support import golden

ROOT = Path(__file__).parents[2]
VOCAB = golden.CHECKPOINT / "vocab.txt"
HPARAMS = {"model_name": "m", "data_dir": "d", "model_dir": "x", "train_batch_size": 8, "learning_rate": 0.1}
HPARAMS["vocab_file"] = str(VOCAB)


def config(**changes):
    return json.dumps(HPARAMS | {"num_warmup_steps": 10, "precision": "bfloat16"} | changes)


def finish(path, step=5):
    """Does what the loop does at a first checkpoint."""
    (path / f"model.ckpt-{step}.index").write_text("new")
    after_checkpoint(path)


@pytest.fixture
def old(tmp_path):
    """A finished run with a fine-tuned model in its folder."""
    path = tmp_path / "model"
    with RunFolder(path) as folder:
        folder.begin(config(), VOCAB)
        (path / "model.ckpt-9.index").write_text("old")
        (path / "finetuning_models").mkdir()
        (path / "finetuning_models" / "precious").write_text("")
    return path


def is_old(path):
    return (path / "model.ckpt-9.index").read_text() == "old" and (path / "finetuning_models" / "precious").exists()


def others(path):
    return sorted(one.name for one in path.parent.iterdir() if one != path)


def test_overwrite_deletes_the_old_run_at_the_new_ones_first_checkpoint(old):
    with RunFolder(old, overwrite=True) as folder:
        folder.check(config(learning_rate=0.3), set())
        assert is_old(old)
        folder.begin(config(learning_rate=0.3), VOCAB)
        assert is_old(old.with_name("model.overwritten")) and not list(old.glob("model.ckpt*"))
        finish(old)
    assert others(old) == []
    assert json.loads((old / "config.json").read_text())["learning_rate"] == 0.3
    assert sorted(path.name for path in old.iterdir()) == ["config.json", "model.ckpt-5.index", "vocab.txt"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_new_run_that_cannot_start_leaves_the_old_one(old, capsys, begun):
    with pytest.raises(UserError, match="no file matches"), RunFolder(old, overwrite=True) as folder:
        if begun:
            folder.begin(config(), VOCAB)
        raise UserError("no file matches")
    assert is_old(old) and others(old) == []
    assert ("is in" in capsys.readouterr().out) == begun


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("moment", ["moved", "marked", "begun"])
def test_a_new_run_that_was_killed_before_its_first_checkpoint_gives_the_old_one_back(
    old, monkeypatch, moment, overwrite
):
    killed = RunFolder(old, overwrite=True)
    killed.__enter__()
    write = run_folder.write_atomically

    def until_killed(path, text):
        if moment == "moved" or (moment == "marked" and path.name == "config.json"):
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(run_folder, "write_atomically", until_killed)
        if moment == "begun":
            killed.begin(config(), VOCAB)
        else:
            with pytest.raises(KeyboardInterrupt):
                killed.begin(config(), VOCAB)
    killed._lock.close()  # as the operating system does
    with RunFolder(old, overwrite=overwrite) as folder:
        folder.check(config(), set())
        assert is_old(old) and others(old) == []


def test_a_run_that_was_killed_after_its_first_checkpoint_has_overwritten(old):
    killed = RunFolder(old, overwrite=True)
    killed.__enter__()
    killed.begin(config(), VOCAB)
    (old / "model.ckpt-5.index").write_text("new")  # and then it is killed
    killed._lock.close()
    with RunFolder(old):
        assert (old / "model.ckpt-5.index").exists() and others(old) == []


def test_a_run_that_was_killed_within_its_first_checkpoint_gives_the_old_one_back(old):
    killed = RunFolder(old, overwrite=True)
    killed.__enter__()
    killed.begin(config(), VOCAB)
    (old / "model.ckpt-5.json").write_text("{}")  # the first of a checkpoint's files to get its name
    killed._lock.close()
    with RunFolder(old):
        assert is_old(old) and others(old) == []


def test_another_run_whose_name_ends_in_overwritten_is_left_alone(old):
    other = old.with_name("model.overwritten")
    old.rename(other)
    with RunFolder(old) as folder:
        folder.begin(config(), VOCAB)
        finish(old)
    assert is_old(other) and (old / "model.ckpt-5.index").exists()
    with pytest.raises(UserError, match=r"cannot write .*model\.overwritten"), RunFolder(old, overwrite=True) as folder:
        folder.begin(config(), VOCAB)
    assert is_old(other) and (old / "model.ckpt-5.index").exists()


def test_a_run_that_was_moved_aside_and_deleted_by_hand_is_told(old, capsys):
    killed = RunFolder(old, overwrite=True)
    killed.__enter__()
    killed.begin(config(), VOCAB)
    killed._lock.close()
    shutil.rmtree(old.with_name("model.overwritten"))
    with RunFolder(old) as folder:
        folder.check(config(), set())
    assert "model.overwritten any more" in capsys.readouterr().out
    assert (old / "config.json").exists() and not (old / ".overwriting").exists()


def test_the_checkpoint_before_a_stop_is_suspect(tmp_path):
    assert suspect_checkpoint(tmp_path) is None
    mark_not_finite(tmp_path, 9)
    assert suspect_checkpoint(tmp_path) == 8


@pytest.mark.parametrize("content", ["{}", '{"step": "five"}', '{"step": null}'])
def test_a_stop_that_names_no_step_is_one_line(tmp_path, content):
    (tmp_path / "not_finite.json").write_text(content)
    with pytest.raises(UserError, match=r"not_finite\.json names no step: delete it"):
        suspect_checkpoint(tmp_path)


def test_overwrite_unlinks_a_link_and_leaves_what_it_points_to(old, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(old)
    with RunFolder(link, overwrite=True) as folder:
        folder.begin(config(), VOCAB)
        finish(link)
    assert is_old(old) and not link.is_symlink() and (link / "model.ckpt-5.index").exists()
    assert others(old) == ["link"]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"hidden_size": 768}'])
def test_overwrite_takes_no_folder_without_a_configuration_of_ours(tmp_path, content):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.tex").write_text("")
    if content is not None:
        (tmp_path / "model" / "config.json").write_text(content)
    with (
        pytest.raises(UserError, match=r"holds no config\.json of a run"),
        RunFolder(tmp_path / "model", overwrite=True),
    ):
        pass
    assert {path.name for path in (tmp_path / "model").iterdir()} <= {"config.json", "thesis.tex"}


def test_only_the_chief_moves_and_writes(old):
    with RunFolder(old, chief=False, overwrite=True) as folder:
        folder.begin(config(learning_rate=0.3), VOCAB)
    assert is_old(old) and json.loads((old / "config.json").read_text())["learning_rate"] == 0.1


def test_one_process_at_a_time(old):
    with (
        RunFolder(old),
        pytest.raises(UserError, match=r"another process trains in .* \(process \d+ on "),
        RunFolder(old, overwrite=True),
    ):
        pass
    with RunFolder(old):
        assert is_old(old)


def test_a_killed_process_holds_nothing(tmp_path):
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom training.run_folder import RunFolder\n"
        f"with RunFolder(Path({str(tmp_path / 'model')!r})):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=f"process {process.pid} on "), RunFolder(tmp_path / "model"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    with RunFolder(tmp_path / "model"):
        pass


def test_a_lock_that_another_host_left_is_told(tmp_path, capsys):
    (tmp_path / ".lock").write_text("process 7 on another.host\n")
    with RunFolder(tmp_path):
        pass
    assert "last held by process 7 on another.host, and not released" in capsys.readouterr().out
    with RunFolder(tmp_path):
        pass
    assert capsys.readouterr().out == ""


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, capsys):
    import fcntl

    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunFolder(tmp_path):
        pass
    assert "cannot be locked (Operation not supported)" in capsys.readouterr().out


def test_a_command_that_ended_before_it_trained_leaves_no_folder(tmp_path):
    with pytest.raises(UserError), RunFolder(tmp_path / "model"):
        raise UserError("something is wrong")
    assert list(tmp_path.iterdir()) == []


def test_another_configuration_is_refused_where_something_was_trained(old, tmp_path):
    with RunFolder(old, advice="Do this.") as folder:
        folder.check(config(train_batch_size=9), {"train_batch_size"})
        with pytest.raises(UserError, match=r"learning_rate was 0\.1, is 0\.3\. Do this\.$"):
            folder.check(config(learning_rate=0.3), set())
    with RunFolder(tmp_path / "young") as folder:
        folder.begin(config(), VOCAB)
    with RunFolder(tmp_path / "young") as folder:
        folder.check(config(learning_rate=0.3), set())


def test_another_vocabulary_of_the_same_size_is_refused(old, tmp_path):
    tokens = VOCAB.read_text().split()
    swapped = tmp_path / "swapped.txt"
    swapped.write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]))
    same = tmp_path / "same.txt"
    same.write_text("\r\n".join(tokens))
    with RunFolder(old) as folder:
        with pytest.raises(UserError, match=r"swapped\.txt holds other tokens than .*/vocab\.txt, with which"):
            folder.check(config(vocab_file=str(swapped)), {"vocab_file"})
        folder.check(config(vocab_file=str(same)), {"vocab_file"})
    with RunFolder(old, overwrite=True) as folder:
        folder.check(config(vocab_file=str(swapped)), {"vocab_file"})


def test_after_a_loss_that_was_not_finite_the_remedies_may_change(old, capsys):
    mark_not_finite(old, 12)
    with RunFolder(old) as folder:
        for change in ({"train_batch_size": 9}, {"precision": "float16"}):
            with pytest.raises(UserError, match="other hparams"):
                folder.check(config(**change), set())
        mended = config(learning_rate=0.05, num_warmup_steps=99, precision="float32")
        folder.check(mended, set())
        told = capsys.readouterr().out
        assert "learning_rate was 0.1, is 0.05; num_warmup_steps was 10, is 99; precision was 'bfloat16'" in told
        folder.begin(mended, VOCAB)
        finish(old, 13)
        with pytest.raises(UserError, match="other hparams"):  # only after such a stop
            folder.check(config(), set())


def test_what_killed_processes_left_behind_is_removed(old):
    for name in (".saving/model.ckpt-12.data-00000-of-00001", "best/.saving/x"):
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text("")
    (old / "config.json.123.tmp").write_text("")
    (old / "best" / "best.json.77.tmp").write_text("")
    with RunFolder(old) as folder:
        folder.begin(config(), VOCAB)
    left = sorted(str(path.relative_to(old)) for path in old.rglob("*") if path.is_file())
    assert left == ["config.json", "finetuning_models/precious", "model.ckpt-9.index", "vocab.txt"]


def test_what_cannot_be_written_is_known_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    for path, why in [
        (tmp_path / "file" / "results" / "x.json", "not a folder"),
        (tmp_path, "it is a folder"),
        (Path("/proc/nowhere/x.json"), "no such file or folder|permission denied|read-only"),
        (tmp_path / ("n" * 300), "the name is too long"),
    ]:
        with pytest.raises(UserError, match=f"cannot write .*: .*({why})"):
            check_writable(path)
    check_writable(tmp_path / "a" / "b" / "x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
