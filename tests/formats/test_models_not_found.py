"""A model that is not where a command looks for it: the error says where it lies, or which models there are."""

from pathlib import Path

import pytest

import electra_tf2 as electra
from electra_tf2.finetune.starts import with_named
from electra_tf2.formats import folders
from electra_tf2.formats.folders import SHIPPED, locate_model, nearby_data_dirs, no_model
from electra_tf2.formats.readers import find_model
from electra_tf2.util.errors import UserError
from tests.support.finetuning import write_lines
from tests.support.programs import run_command


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a table, and with a data folder `small` that has a pre-trained and a fine-tuned run."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "t.csv", "text,label", "good,yes", "bad,no")
    write_lines(tmp_path / "small" / "vocab.txt", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")
    mine = tmp_path / "small" / "models" / "mine"
    write_lines(mine / "config.json", "{}")
    write_lines(mine / "finetuning_models" / "t_model_1" / "config.json", "{}")
    write_lines(mine / "finetuning_models" / "t_model_1" / "tasks.json", "{}")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("finetune --train-file t.csv --model mine", "--model small/models/mine, or --data-dir small"),
        ("finetune --train-file t.csv --model models/mine", "--model small/models/mine, or --data-dir small"),
        ("analyze --analysis curves --model mine", "--model small/models/mine, or --data-dir small"),
        ("convert --model mine --to out", "small/models/mine"),
        ("convert --model models/mine --to out", "small/models/mine"),
        ("convert --model t_model_1 --to out", "small/models/mine/finetuning_models/t_model_1"),
        ("score --model mine --text t.csv", "small/models/mine"),
        ("score --model electra_mini --generator mine --text t.csv", "small/models/mine"),
        ("predict t.csv --model t_model_1", "small/models/mine/finetuning_models/t_model_1"),
        ("predict t.csv --model mine", "small/models/mine/finetuning_models/t_model_1"),
        (
            "pretrain --data-dir small --recipe electra_tiny --init-checkpoint mine",
            "--init-checkpoint small/models/mine",
        ),
        (
            "pretrain --data-dir small --recipe electra_small_distilled --teacher mine",
            "--teacher small/models/mine",
        ),
        (
            "pretrain --data-dir small --recipe electra_tiny --init-generator-checkpoint data/models/mine",
            "--init-generator-checkpoint small/models/mine",
        ),
    ],
)
def test_every_command_says_where_a_model_of_that_name_lies(elsewhere: Path, words: str, advice: str) -> None:
    done = run_command(*words.split())
    [error] = done.errors
    assert done.returncode == 2 and error.endswith(advice), error
    assert not (elsewhere / "data").exists() and not (elsewhere / "out").exists()


def test_a_fine_tuned_model_of_that_name_stands_before_those_of_the_data_folder(elsewhere: Path) -> None:
    other = elsewhere / "data" / "models" / "m" / "finetuning_models" / "u_model_1"
    write_lines(other / "config.json", "{}")
    write_lines(other / "tasks.json", "{}")
    [error] = run_command("predict", "t.csv", "--model", "t_model").errors
    named = "small/models/mine/finetuning_models/t_model_1 or data/models/m/finetuning_models/u_model_1"
    assert error.endswith(f"name its folder by --model, such as {named}")


def test_from_python_the_path_is_said(elsewhere: Path) -> None:
    for path in ("mine", "data/models/mine"):
        with pytest.raises(UserError, match=f"no model at {path}, but .* elsewhere: give small/models/mine$"):
            electra.load(path)
    with pytest.raises(UserError, match=r"give model small/models/mine, or data_dir small$"):
        electra.finetune(["good", "bad"], ["yes", "no"], model="mine", folder="out")


def test_without_one_of_that_name_it_says_which_there_are(elsewhere: Path) -> None:
    assert "; did you mean 'electra_mini'?" in str(no_model("electra_minni"))
    fine_tuned = "small/models/mine/finetuning_models/t_model_1"
    yours = str(no_model("nothing")).partition("; yours are ")[2].partition(". ")[0]
    assert sorted(yours.split(", ")) == ["small/models/mine", fine_tuned]
    assert "; small/models holds mine. " in str(no_model("small/models/mien"))
    assert str(no_model("data/models/electra_base")).startswith("no model at data/models/electra_base: make it by ")
    assert "hf download google/electra" in str(no_model("google/electra"))


def test_hidden_folders_deep_ones_and_more_than_some_are_not_searched(elsewhere: Path, monkeypatch) -> None:
    for folder in (".hidden", "a/b/c", "a/b"):
        write_lines(elsewhere / folder / "models" / "x" / "config.json", "{}")
    assert nearby_data_dirs() == [Path("small"), Path("a/b")]
    monkeypatch.setattr(folders, "_MOST_FOLDERS", 1)
    assert nearby_data_dirs() == []
    monkeypatch.chdir(elsewhere / "small")
    assert nearby_data_dirs() == [Path()]


def test_models_of_all_data_folders_are_listed(elsewhere: Path) -> None:
    listed = run_command("models").stdout
    assert "pre-trained, in small/models:\n  small/models/mine\n" in listed
    assert "small/models/mine" not in run_command("models", "--data-dir", "data").stdout


def test_a_shipped_model_is_told_from_one_of_ones_own_with_its_name(elsewhere: Path, capsys) -> None:
    assert locate_model("electra_mini") == str(SHIPPED / "electra_mini") and not capsys.readouterr().err
    own = elsewhere / "data" / "models" / "electra_mini"
    own.joinpath("results").mkdir(parents=True)
    locate_model("electra_mini")
    assert not capsys.readouterr().err  # results of fine-tuning the shipped one are no model
    own.joinpath("model.safetensors").touch()
    assert locate_model("electra_mini") == str(SHIPPED / "electra_mini")
    assert "data/models/electra_mini is another of that name" in " ".join(capsys.readouterr().err.split())


def test_a_run_that_is_called_as_its_data_folder_is_found(elsewhere: Path) -> None:
    write_lines(elsewhere / "more" / "models" / "more" / "config.json", "{}")
    assert with_named({"model": "more", "data_dir": "more"})["model_name"] == "more"
    assert "init_checkpoint" not in with_named({"model": "more", "data_dir": "more"})
    assert with_named({"model": "more"})["init_checkpoint"] == "more"


def test_the_name_of_a_shipped_model_is_read_as_a_start(elsewhere: Path) -> None:
    assert find_model("electra_mini").network["vocab_size"] == 8192
    write_lines(elsewhere / "electra_mini" / "note.txt", "one's own folder comes first")
    assert find_model("electra_mini").network == {}
