"""Bad command lines and the files they name, all programs in one process: one line that says what is wrong, exit 2."""

import json
from pathlib import Path

import pytest

from tests.support import golden
from tests.support.programs import PROGRAMS as FOLDER
from tests.support.programs import run_program

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py") if "run(main, __doc__" in path.read_text())
CONFIGURED = ["run_pretraining.py", "run_finetuning.py", "flops_computation.py"]
# Content of a file that should hold a JSON object of hparams, and what is said about it.
NO_HPARAMS = {
    b"": "not valid JSON",
    b"[]": "a JSON object is needed, got []",
    b'{"seed": ' + b"[" * 100_000: "nested more than 64 deep",
    b'{"seed": 77777777777777777777}': "seed must be an integer of 64 bits",
    b'{"data_dir": "a\\u0000b"}': "data_dir must not hold a NUL character",
    b'{"model_name": ["a"]}': "model_name must be str, got ['a'] (list)",
    b'{"data_dir": 3}': "data_dir must be str, got 3 (int)",
    b'{"seed": null, "learning_rate": "x"}': "learning_rate must be float, got 'x' (str)",
    b'{"learning_rate": NaN}': "learning_rate must be finite, got nan",
    b'{"model_hparam_overrides": {"hidden_size": 1e99}}': "hidden_size must be int, got 1e+99",
    b'{"unknown": {"a": [1]}}': "unknown hparam 'unknown'",
}


def refused(script: str, *words: str) -> str:
    """The one line in which a program says what is wrong."""
    code, out, err = finished = run_program(script, *words)
    assert code == 2 and len(finished.errors) == 1 and err.endswith("\n"), (out, err)
    assert "Traceback" not in err and len(finished.errors[0]) < 3000
    return finished.errors[0]


@pytest.mark.parametrize("script", PROGRAMS)
def test_words_that_mean_nothing(script: str, tmp_path: Path) -> None:
    assert "unknown flag --no-such-flag" in refused(script, "--no-such-flag", "3")
    assert "unexpected argument 'stray'" in refused(script, "stray")
    assert "is not UTF-8 text" in refused(script, "--flagfile", "/bin/sh")
    assert "No such file" in refused(script, f"--flagfile={tmp_path / 'none'}")
    (tmp_path / "flags").write_text("# all flags\n\n--no-such-flag=3\n")
    assert "unknown flag --no-such-flag" in refused(script, f"--flagfile={tmp_path / 'flags'}")


@pytest.mark.parametrize("content", NO_HPARAMS, ids=lambda content: repr(content[:30]))
def test_files_of_hparams_that_hold_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hparams.json"
    path.write_bytes(content)
    for script in CONFIGURED:
        assert NO_HPARAMS[content] in refused(script, "--hparams", str(path))
    if content.startswith(b"{"):
        assert NO_HPARAMS[content] in refused("run_finetuning.py", "--hparams", content.decode())


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ([], "recipe.json: a JSON object is needed"),
        ({"extends": "recipe.json"}, "recipe.json extends itself"),
        ({"extends": 3}, "the name of a recipe is needed, got 3"),
        ({"extends": "electra_smal"}, "there is no recipe 'electra_smal'; did you mean 'electra_small'?"),
        ({"extends": "\0.json"}, "the path holds a NUL character"),
        ({"finetuning": None}, "finetuning must be a JSON object of hparams, got None"),
        ({"finetuning": {"per_task": [1]}}, "finetuning.per_task must hold objects of hparams, got [1]"),
        (
            {"finetuning": {"per_task": {"chunk": 1e-4}, "task_names": ["chunk"]}},
            "finetuning.per_task must hold objects of hparams",
        ),
        ({"finetuning": {"task_names": "cola"}}, "task_names must be different tasks, at least one, got 'cola'"),
        ({"finetuning": {"task_names": [["cola"]]}}, "task_names: unknown task ['cola']"),
        ({"finetuning": {"learning_rate": "x"}}, "learning_rate must be float, got 'x' (str)"),
        ({}, "has no section 'finetuning'"),
    ],
    ids=str,
)
def test_recipes_that_are_none(recipe: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    assert message in refused("run_finetuning.py", "--recipe", str(path))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "a JSON object is needed"),
        (b"\x00\xff\x01", "is not UTF-8 text"),
        (b"{}", "it lacks model_size"),
        (b'{"model_size": 3, "vocab_size": "a"}', "it lacks model_hparam_overrides"),
    ],
)
def test_a_pretrained_model_whose_configuration_is_broken(config: bytes, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(config)
    line = refused("run_finetuning.py", "--data-dir", str(tmp_path), "--model-name", "m", "--task-names", "cola")
    assert message in line and str(folder / "config.json") in line
    refused("run_analysis.py", "--data-dir", str(tmp_path), "--model-names", "m", "--analysis", "cosine")


@pytest.mark.parametrize("config", [b"", b"[]", b"\x00\xff\x01", b"{" * 100_000])
def test_a_run_whose_configuration_is_broken(config: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(config)
    (tmp_path / "model.ckpt-5.index").write_bytes(b"")
    words = ["--model-dir", str(tmp_path), "--vocab-file", VOCAB, "--vocab-size", "600"]
    assert f"{tmp_path}/config.json" in refused("run_pretraining.py", *words)


def test_a_run_whose_configuration_has_wrong_types(tmp_path: Path) -> None:
    wrong = {"lr_decay_power": [1], "model_name": {}, "data_dir": 3, "model_dir": None, "train_batch_size": "many"}
    (tmp_path / "config.json").write_text(json.dumps(wrong))
    (tmp_path / "model.ckpt-5.index").write_bytes(b"")
    words = ["--model-dir", str(tmp_path), "--vocab-file", VOCAB, "--vocab-size", "600"]
    line = refused("run_pretraining.py", *words)
    assert f"{tmp_path} holds a run with other hparams:" in line and "lr_decay_power was [1], is 1.0" in line


@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        ("run_pretraining.py", ["--learning-rate", "inf"], "--learning-rate must be finite, got inf"),
        ("run_pretraining.py", ["--seed", "9" * 400], "--seed must be an integer of 64 bits, got 999"),
        ("run_pretraining.py", ["--seed", "9" * 5000], "--seed must be an integer, got '999"),
        ("run_pretraining.py", ["--no-do-train=1"], "--no-do-train takes no value, got '1'"),
        ("run_pretraining.py", ["--nodo_train=x"], "--nodo_train takes no value, got 'x'"),
        ("build_pretraining_dataset.py", ["--no-lower-case=false"], "--no-lower-case takes no value, got 'false'"),
        ("run_pretraining.py", ["--model-name"], "missing value for flag --model-name"),
        ("run_pretraining.py", ["--data-dir", "\udcff"], "--data-dir must be UTF-8 text"),
        ("run_pretraining.py", ["--hparams", "x" * 5000], "is neither a JSON object nor a readable file"),
        ("run_pretraining.py", ["--recipe", "a/" * 3000], "the name is too long"),
        ("run_finetuning.py", ["--predict", "/nowhere"], "/nowhere"),
        ("run_finetuning.py", ["--data-dir", "a\0b"], "--data-dir must not hold a NUL character"),
        ("run_finetuning.py", ["--task-names", "cola,cola"], "task_names must be different tasks"),
        ("build_pretraining_dataset.py", ["--dev-fraction", "nan"], "--dev-fraction must be finite, got nan"),
        ("build_vocab.py", ["--vocab-size", "1e30"], "--vocab-size must be an integer in the range [16, "),
        ("run_analysis.py", ["--analysis", "cosin"], "did you mean 'cosine'?"),
        ("run_analysis.py", ["--seed", "1" * 30], "--seed must be an integer of 64 bits"),
        ("flops_computation.py", ["--tflops", "-1"], "--tflops must be"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_values_that_no_program_takes(script: str, words: list[str], message: str) -> None:
    assert message in refused(script, *words)


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("script", PROGRAMS)
def test_help_fits_the_terminal(script: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = run_program(script, "--help").stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert "Flags" in lines and sum(line.startswith("  --") for line in lines) >= 4
