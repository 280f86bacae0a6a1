"""Folders whose names TensorFlow would take for patterns ("run [1]"): everything that reads weights reads them."""

import json
from pathlib import Path

import pytest

from electra_tf2 import load
from electra_tf2.files.reading import no_pattern
from electra_tf2.model import kernels
from tests.support import finetuning, golden
from tests.support import training as support
from tests.support.programs import run_program


@pytest.mark.parametrize("name", ["run [1]", "run*?", "[!a]", "back\\slash", "plain"])
def test_files_are_found_through_links(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    (folder / "saved").mkdir(parents=True)
    for file in ("model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001", "model.ckpt-10.index", "saved/x"):
        (folder / file).write_text(file)
    with no_pattern(folder / "model.ckpt-1") as prefix:
        assert Path(f"{prefix}.index").read_text() == "model.ckpt-1.index"
        assert Path(f"{prefix}.data-00000-of-00001").exists()
        assert name == "plain" or not set("[*?\\") & set(prefix)
    with no_pattern(folder / "saved") as saved:
        assert Path(saved, "x").read_text() == "saved/x"


def test_a_run_in_a_folder_with_brackets_goes_on_is_loaded_converted_and_fine_tuned(tmp_path: Path) -> None:
    support.write_records(tmp_path / "pretrain_tfrecords")
    run = tmp_path / "run [1]"
    settings = support.hparams(tmp_path, model_dir=str(run), save_checkpoints_steps=2, num_warmup_steps=1)

    def ours(script: str, *words: str) -> str:
        with kernels.off():  # nothing is compiled for seconds
            done = run_program(script, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for _ in range(2):
        said = ours("run_pretraining.py", "--hparams", json.dumps(settings | {"num_train_steps": 2}))
    assert "at step 2 of 2" in said
    ours("convert_model.py", "--from", str(run), "--to", str(tmp_path / "tf1 [2]"), "--format", "tf1")
    again = ["--from", str(tmp_path / "tf1 [2]"), "--to", str(tmp_path / "again [4]")]
    ours("convert_model.py", *again, "--vocab-file", str(golden.CHECKPOINT / "vocab.txt"))
    for folder in ("run [1]", "again [4]"):
        assert load(str(tmp_path / folder)).embed(["the file is open"]).shape[0] == 1
    rows = [json.dumps({"text": f"the file {name}", "label": name[0]}) for name in ("a", "b", "aa", "bb")]
    train = finetuning.write_lines(tmp_path / "data [5]" / "train.jsonl", *rows)
    tuned = str(tmp_path / "tuned [6]")
    words = ["--model", str(run), "--train-file", str(train), "--model-dir", tuned, "--max-seq-length", "16"]
    ours("run_finetuning.py", *words, "--num-train-epochs", "1", "--train-batch-size", "4")
    table = finetuning.write_lines(tmp_path / "texts.txt", "the file is open")
    ours("run_finetuning.py", "--model-dir", tuned, "--predict", str(table))
