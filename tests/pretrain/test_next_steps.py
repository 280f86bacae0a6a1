"""What is said at the end of a pre-training: commands that find the run, in formats that hold its network."""

import shlex
from pathlib import Path

import pytest

from electra_tf2.config.recipes import read_recipe
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.starts import hparams_of
from electra_tf2.pretrain.next_steps import next_commands
from electra_tf2.programs.analyses.request import Request
from tests.support.finetuning import write_lines

SCHEDULE = ("num_train_steps", "num_warmup_steps", "lr_decay_steps")


def words_of(line: str) -> dict[str, str]:
    """Flags of a line's command -> their values."""
    words = shlex.split(line.partition(": ")[2])
    flags = words[2:]
    return dict(zip(flags[::2], flags[1::2], strict=True))


@pytest.mark.parametrize(
    "places",
    [
        {},
        {"data_dir": "my data"},
        {"model_dir": "runs/mine"},
        {"model_dir": "mine_alone", "data_dir": "small"},
    ],
)
def test_the_commands_find_the_run(places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = PretrainingConfig.from_dict(read_recipe("electra_mini") | {"model_name": "ours"} | places)
    write_lines(Path(config.model_dir) / "config.json", config.to_json())
    finetune, convert, analyze = map(words_of, next_commands(config))
    chosen = {"model": finetune["--model"], "data_dir": finetune.get("--data-dir", "data"), "task_names": ["cola"]}
    hparams = hparams_of(chosen)
    start = hparams.get("init_checkpoint") or hparams["pretrained_model_dir"]
    assert Path(start).samefile(config.model_dir)
    assert Path(convert["--model"]).samefile(config.model_dir)
    request = Request(Path(analyze.get("--data-dir", "data")), (analyze["--model"],))
    assert request.folder(analyze["--model"]).samefile(config.model_dir)
    assert (convert["--to"], convert["--format"]) == ("ours_hf", "huggingface")


@pytest.mark.parametrize("steps", [3600, 1000, 8])
def test_after_a_masked_language_model_comes_the_detector(steps: int) -> None:
    hparams = read_recipe("bert_mini") | {"recipe": "bert_mini", "data_dir": "my small", "model_name": "first"}
    config = PretrainingConfig.from_dict(
        hparams | {"num_train_steps": steps, "num_warmup_steps": 0, "lr_decay_steps": 1}
    )
    line, *others = next_commands(config)
    assert line.startswith("to train a detector from it: ") and len(others) == 3
    words = shlex.split(line.removesuffix(" --do-eval").partition(": ")[2])
    chosen = dict(zip(words[words.index("pretrain") + 1 :: 2], words[words.index("pretrain") + 2 :: 2], strict=True))
    assert chosen["--init-checkpoint"] == chosen["--init-generator-checkpoint"] == "my small/models/first"
    assert chosen["--data-dir"] == "my small"
    detector = read_recipe(chosen["--recipe"])
    schedule = {name: int(chosen[f"--{name.replace('_', '-')}"]) for name in SCHEDULE}
    assert PretrainingConfig.from_dict(detector | schedule).electra_objective  # the schedule fits
    if steps == 3600:
        assert schedule == {name: detector[name] for name in SCHEDULE}


@pytest.mark.parametrize(
    ("recipe", "output_format"),
    [
        ("electra_tiny", "onnx"),
        ("electra_small", "huggingface"),
        ("electra_small_shared_layers", "huggingface"),
        ("coco_lm_small", "onnx"),
    ],
)
def test_the_format_holds_the_network(recipe: str, output_format: str) -> None:
    config = PretrainingConfig.from_dict(read_recipe(recipe))
    assert words_of(next_commands(config)[1])["--format"] == output_format
