"""The folder of a run: what --overwrite leaves alone, who may train there, and with which configuration."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from electra_tf2.files.writing import check_writable
from electra_tf2.formats.huggingface_tokenizer import write_tokenizer
from electra_tf2.formats.stored_model import Casing
from electra_tf2.training.run_folder import RunFolder, begins_anew
from electra_tf2.util.errors import UserError
from tests.support import golden

ROOT = Path(__file__).parents[2]
VOCAB = golden.CHECKPOINT / "vocab.txt"
HPARAMS = {"model_name": "m", "data_dir": "d", "model_dir": "x", "train_batch_size": 8, "learning_rate": 0.1}
HPARAMS |= {"vocab_file": str(VOCAB), "model_hparam_overrides": {"hidden_size": 128, "norm_style": "pre"}}


def config(**changes):
    return json.dumps(HPARAMS | {"num_warmup_steps": 10, "precision": "bfloat16"} | changes)


def begin(path, overwrite=False, chief=True, **changes):
    """Starts a run in a folder as a command does."""
    with RunFolder(path, chief, overwrite) as folder:
        folder.check(config(**changes), set())
        folder.begin(config(**changes), VOCAB)


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


def test_overwrite_gives_the_old_run_another_name_and_says_so(old, capsys):
    for number in (1, 2):
        begin(old, overwrite=True, learning_rate=0.3)
        assert f"what was in {old} is in {old}.old-{number} now" in capsys.readouterr().out
        assert json.loads((old / "config.json").read_text())["learning_rate"] == 0.3
        assert sorted(path.name for path in old.iterdir()) == ["config.json", "vocab.txt"]
        (old / "model.ckpt-9.index").write_text("newer")
    assert is_old(old.with_name("model.old-1"))
    assert others(old) == ["model.old-1", "model.old-2"] and not list(old.parent.glob("*/.lock"))


def test_a_new_run_that_came_to_no_checkpoint_is_not_set_aside_in_turn(old):
    for _ in range(2):
        begin(old, overwrite=True)
    assert others(old) == ["model.old-1"] and is_old(old.with_name("model.old-1"))


def test_a_run_of_debug_is_in_nobodys_way(tmp_path):
    path = tmp_path / "model"
    assert not begins_anew(path, overwrite=False, debug=False)
    begin(path, debug=True)
    assert not begins_anew(path, overwrite=False, debug=False)  # nothing was trained there yet
    (path / "model.ckpt-9.index").write_text("")
    assert begins_anew(path, overwrite=False, debug=False)
    assert not begins_anew(path, overwrite=False, debug=True)  # it goes on
    (path / "config.json").write_text("{")
    assert not begins_anew(path, overwrite=False, debug=False)  # who knows what it was
    (path / "config.json").write_text(config(debug=False))
    assert not begins_anew(path, overwrite=False, debug=False)
    assert begins_anew(path, overwrite=True, debug=False)


def test_overwrite_renames_a_link_and_leaves_what_it_points_to(old, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(old)
    begin(link, overwrite=True)
    assert is_old(old) and not link.is_symlink() and link.with_name("link.old-1").readlink() == old
    assert others(old) == ["link", "link.old-1"]


@pytest.mark.parametrize(("content", "overwrite"), [("{", False), ("[]", True), ('{"hidden_size": 768}', True)])
def test_a_folder_with_another_programs_configuration_is_left_alone(tmp_path, content, overwrite):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json"), RunFolder(tmp_path / "model", overwrite=overwrite) as folder:
        folder.check(config(), set())
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["config.json"]


def test_only_the_chief_moves_and_writes(old):
    begin(old, overwrite=True, chief=False, learning_rate=0.3)
    assert is_old(old) and json.loads((old / "config.json").read_text())["learning_rate"] == 0.1


def test_one_process_at_a_time_and_a_killed_one_holds_nothing(old):
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom electra_tf2.training.run_folder import RunFolder\n"
        f"with RunFolder(Path({str(old)!r})):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with (
            pytest.raises(UserError, match=rf"another process trains in .* \(process {process.pid} on "),
            RunFolder(old, overwrite=True),
        ):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    with RunFolder(old):
        assert is_old(old)


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


def test_a_command_that_ended_before_it_trained_leaves_no_folder_and_an_old_one_alone(old):
    for path in (old, old.with_name("new")):
        with pytest.raises(UserError), RunFolder(path, overwrite=True):
            raise UserError("something is wrong")
    assert is_old(old) and others(old) == []


def test_another_configuration_is_refused_where_something_was_trained(old, tmp_path):
    with RunFolder(old, advice="Do this.") as folder:
        folder.check(config(train_batch_size=9), {"train_batch_size"})
        with pytest.raises(UserError, match=r"learning_rate was 0\.1, is 0\.3\. Do this\.$"):
            folder.check(config(learning_rate=0.3), set())
        with pytest.raises(UserError, match=r"hparams: model_hparam_overrides: hidden_size was 128, is 64\. Do"):
            folder.check(config(model_hparam_overrides={"hidden_size": 64, "norm_style": "pre"}), set())
    begin(tmp_path / "young")
    begin(tmp_path / "young", learning_rate=0.3)


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


def test_a_vocabulary_whose_ids_moved_is_refused(old, tmp_path):
    """Ids are numbers of lines: a blank one counts."""
    tokens = VOCAB.read_text().splitlines()
    moved = tmp_path / "moved.txt"
    for lines in ([*tokens[:-1], "", tokens[-1]], ["", *tokens]):
        moved.write_text("\n".join(lines))
        with RunFolder(old) as folder, pytest.raises(UserError, match=r"moved\.txt holds other tokens than"):
            folder.check(config(vocab_file=str(moved)), {"vocab_file"})


@pytest.mark.parametrize("swaps", [False, True])
def test_a_vocabulary_may_have_the_other_files_name(old, tmp_path, swaps):
    """A run that began with a vocab.txt goes on with a tokenizer.json of the same tokens, and with no other."""
    tokens = VOCAB.read_text().splitlines()
    if swaps:
        tokens[-2:] = [tokens[-1], tokens[-2]]
    write_tokenizer(tmp_path / "theirs", tokens, Casing(True), 128)
    tokenizer = tmp_path / "theirs" / "tokenizer.json"
    with RunFolder(old) as folder:
        if swaps:
            with pytest.raises(UserError, match=r"tokenizer\.json holds other tokens than .*/vocab\.txt, with which"):
                folder.check(config(vocab_file=str(tokenizer)), {"vocab_file"})
        else:
            folder.check(config(vocab_file=str(tokenizer)), {"vocab_file"})
            folder.begin(config(vocab_file=str(tokenizer)), tokenizer)
            assert (old / "vocab.txt").exists() and (old / "tokenizer.json").exists()


def test_a_run_that_came_to_no_checkpoint_leaves_no_vocabulary_of_another_name(tmp_path):
    begin(tmp_path / "run")
    write_tokenizer(tmp_path / "theirs", VOCAB.read_text().splitlines(), Casing(True), 128)
    with RunFolder(tmp_path / "run") as folder:
        folder.begin(config(), tmp_path / "theirs" / "tokenizer.json")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "tokenizer.json"]


@pytest.mark.parametrize("content", ["", '{"model_name": "m", "trai'])
def test_a_damaged_configuration_is_told_and_is_renamed_by_overwrite(old, content):
    (old / "config.json").write_text(content)
    message = r"config\.json is damaged, .* which run the folder holds\. Do this\.$"
    with RunFolder(old, advice="Do this.") as folder, pytest.raises(UserError, match=message):
        folder.check(config(), set())
    begin(old, overwrite=True)
    assert is_old(old.with_name("model.old-1")) and json.loads((old / "config.json").read_text())["model_name"] == "m"


def test_checkpoints_without_a_configuration_go_on_with_a_warning(old, capsys):
    (old / "config.json").unlink()
    begin(old)
    assert "holds checkpoints and no config.json" in capsys.readouterr().err
    assert is_old(old) and json.loads((old / "config.json").read_text())["model_name"] == "m"


def test_a_run_that_goes_on_says_what_changed(old, capsys):
    with RunFolder(old) as folder:
        changed = config(learning_rate=0.05, num_warmup_steps=99, precision="float32", do_train=False)
        folder.check(changed, {"learning_rate", "num_warmup_steps", "precision"})
        folder.begin(changed, VOCAB)
        told = "learning_rate was 0.1, is 0.05; num_warmup_steps was 10, is 99; precision was 'bfloat16', is 'float32'"
        assert capsys.readouterr().out == f"going on with other hparams: {told}\n"
        folder.begin(changed, VOCAB)
    assert capsys.readouterr().out == ""


def test_what_killed_processes_left_behind_is_removed(old):
    for name in (".saving/model.ckpt-12.data-00000-of-00001", "best/.saving/x"):
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text("")
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    for name in ("config.json", "best/best.json"):
        (old / f"{name}.{socket.gethostname()}-{ended.pid}.tmp").write_text("")
    (old / "notes.tmp").write_text("")  # not ours
    begin(old)
    left = sorted(str(path.relative_to(old)) for path in old.rglob("*") if path.is_file())
    assert left == ["config.json", "finetuning_models/precious", "model.ckpt-9.index", "notes.tmp", "vocab.txt"]


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
