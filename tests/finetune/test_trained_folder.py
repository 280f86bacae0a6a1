"""A fine-tuned folder is all that prediction and evaluation need; what a run checks before, and makes up for after."""

import io
import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.files.tables import TableRow
from electra_tf2.finetune import weights
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.inference.labelling import open_rows
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support import golden
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import results, run
from tests.support.programs import run_program


@pytest.fixture(scope="module")
def moved(trained, data_dir, tmp_path_factory):
    """A fine-tuned folder that knows nothing of where all that it was made of is now."""
    folder = tmp_path_factory.mktemp("elsewhere") / "kind"
    shutil.copytree(trained[0] / "finetuning_models" / "kind_model_1", folder)
    config = (folder / "config.json").read_text()
    for path in (data_dir, trained[0], golden.CHECKPOINT):
        config = config.replace(str(path), "/nowhere")
    (folder / "config.json").write_text(config)
    return folder


FORMATS = {
    "rows.csv": 'id,text,label\n7,"error, error",?\n8,"the list\nof names",?\n',
    "rows.txt": "error error\n\nthe list of names\n",
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_moved_folder_labels_every_kind_of_file(moved, tmp_path, name):
    path = tmp_path / name
    path.write_text(FORMATS[name])
    done = run_program("run_finetuning.py", "--model-dir", str(moved), "--predict", str(path))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / f"{name}.predictions.jsonl").read_text().splitlines()]
    if name == "rows.txt":  # whose blank line keeps its place
        assert rows.pop(1) == {"text": "", "error": "an empty text"}
    assert [row["label"] for row in rows] == ["some", "none"]
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) and "error" in rows[0]["text"] for row in rows)
    if name != "rows.txt":
        assert [str(row["id"]) for row in rows] == ["7", "8"] and {row["given_label"] for row in rows} == {"?"}


def test_standard_input_to_standard_output(moved, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "error of names", "id": "x"}\n'))
    done = run_program("run_finetuning.py", "--model-dir", str(moved), "--predict", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["label"] == "some" and json.loads(done.stdout)["id"] == "x"


def test_json_lines_by_another_name_and_bytes_that_are_no_text(tmp_path, monkeypatch):
    task = make_tasks(support.config("cola"), support.tokenizer())[0]
    path = write_lines(tmp_path / "rows.json", "", '{"sentence": "a"}')
    assert list(open_rows(str(path), task).rows) == [TableRow(2, {"sentence": "a"})]
    monkeypatch.setattr("sys.stdin", io.StringIO("error \udcff"))
    with pytest.raises(UserError, match="standard input is not UTF-8 text"):
        open_rows("-", task)


@pytest.mark.parametrize(
    ("name", "content", "words", "message"),
    [
        ("a.txt", "a", ["--classifier", "tanh"], "holds a model of other hparams: classifier was 'linear', is 'tanh'"),
        ("a.txt", "a", ["--predict", "nowhere.txt"], "error: there is no file nowhere.txt"),
        ("a.txt", "a", ["--model-dir", "nowhere"], "neither nowhere nor nowhere_1 holds a fine-tuned model"),
        ("a.txt", "a", ["--model-dir", "electra_mini"], "error: electra_mini is not fine-tuned"),
        ("a.txt", "a", ["--task-names", "count"], "predict wants one task"),
        ("a.txt", "a", ["--predict-output", "/dev/null/x"], "cannot write /dev/null/x"),
        ("a.txt", "a", ["--predict-output", "{file}"], "a.txt is the file that is to be labelled"),
        ("a.jsonl", '{"text": "a"}\n{"txt": 1}\n', [], "a.jsonl, line 2: no field 'text'"),
        ("a.csv", "id,text\n1\n", [], "a.csv, line 2: 1 columns, but 2 are expected"),
        ("a.tsv", "id\ttxt\n1\ta\n", [], "a.tsv has no column 'text'; did you mean 'txt'? its first line is"),
        ("a.txt", "one\ttwo\n", [], "task kind reads one text a line"),
        ("a.txt", "\n", [], "a.txt is empty"),
    ],
)
def test_what_cannot_be_labelled_or_does_not_fit_the_model_is_one_line(moved, tmp_path, name, content, words, message):
    file = tmp_path / name
    file.write_text(content)
    words = [word.replace("{file}", str(file)) for word in words]
    done = run_program("run_finetuning.py", "--model-dir", str(moved), "--predict", str(file), *words)
    assert done.returncode == 2 and len(done.errors) == 1 and message in done.errors[0]
    assert file.read_text() == content


def test_without_a_fine_tuned_model_the_newest_are_named(tmp_path):
    file = write_lines(tmp_path / "new.txt", "error")
    words = ("--predict", str(file), "--data-dir", str(tmp_path))
    (line,) = run_program("run_finetuning.py", *words).errors
    assert line == (
        f"error: no fine-tuned model is named, and there is none in {tmp_path}/models: name its folder by --model, or "
        "train one by electra finetune"
    )
    folders = [tmp_path / "models" / "m" / "finetuning_models" / f"{name}_model_1" for name in "abcdefg"]
    for age, folder in enumerate(folders):
        write_lines(folder / "config.json", "{}")
        if folder != folders[2]:  # whose training goes on
            state = write_lines(folder / "tasks.json", "{}")
            os.utime(state, (10_000 - age, 10_000 - age))
    named = [folders[number] for number in (0, 1, 3, 4, 5)]
    for more in ([], ["--model-dir", "electra_mini"]):
        (line,) = run_program("run_finetuning.py", *words, *more).errors
        assert line.endswith("name its folder by --model, such as " + " or ".join(map(str, named)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tasks.json", b"{}", "tasks.json says nothing of the task kind"),
        ("tasks.json", b"[", "tasks.json: not valid JSON"),
        ("tasks.json", b'{"kind": {"labels": 5}}', "tasks.json is damaged"),
        ("config.json", b"\xff", "config.json is not UTF-8 text"),
        ("vocab.txt", b"[PAD]\n", "vocab.txt' lacks"),
        (None, b"", "no checkpoint at"),
    ],
)
def test_a_damaged_folder_is_one_line(moved, tmp_path, name, content, message):
    folder = tmp_path / "damaged"
    shutil.copytree(moved, folder)
    if name is None:
        for path in folder.glob("model.ckpt-*"):
            path.unlink()
    else:
        (folder / name).write_bytes(content)
    file = write_lines(tmp_path / "new.txt", "error")
    done = run_program("run_finetuning.py", "--model-dir", str(folder), "--predict", str(file))
    assert done.returncode == 2 and message in done.errors[0]


def test_a_moved_folder_is_evaluated_with_the_files_alone(moved, trained, data_dir, tmp_path):
    done = run_program(
        *("run_finetuning.py", "--model-dir", str(moved), "--no-do-train", "--num-trials", "1"),
        *("--raw-data-dir", str(data_dir / "finetuning_data"), "--results-dir", str(tmp_path)),
        *("--task-names", "kind", "--no-write-test-outputs"),
    )
    assert done.returncode == 0, done.stderr
    scores = json.loads((tmp_path / "kind_results.json").read_text())["trials"][0]["scores"]
    assert scores == results(trained[0])["trials"][0]["scores"]


def untrained(tmp_path):
    return [path for path in tmp_path.rglob("*") if path.name in ("config.json", "scores.json") or "ckpt" in path.name]


def test_a_missing_development_file_is_noticed_before_training(data_dir, tmp_path):
    shutil.copytree(data_dir / "finetuning_data", tmp_path / "tasks")
    (tmp_path / "tasks" / "kind" / "dev.jsonl").unlink()
    tasks = {"kind": {"type": "classification", "held_out": 0}}
    output = run(data_dir, tmp_path / "out", raw_data_dir=str(tmp_path / "tasks"), tasks=tasks, expect=2)
    assert "no file of split 'dev'" in output and "first loss" not in output
    assert not untrained(tmp_path / "out")


def test_a_finished_model_is_scored_on_files_that_came_later_or_moved(data_dir, tmp_path):
    own = data_dir / "finetuning_data" / "kind"
    files = {split: str(shutil.copy(own / f"{split}.jsonl", tmp_path)) for split in ("train", "dev")}
    tasks = {"kind": {"type": "classification", "files": files}}
    run(data_dir, tmp_path / "out", tasks=tasks, num_train_epochs=0.05)
    moved = {split: str(shutil.move(path, f"{path}.moved.jsonl")) for split, path in files.items()}
    again = {"kind": {"type": "classification", "files": moved}}
    assert "done before" in run(data_dir, tmp_path / "out", tasks=again, num_train_epochs=0.05)
    later = {"kind": {"type": "classification", "files": moved | {"test": moved["dev"]}}}
    output = run(data_dir, tmp_path / "out", "--no-do-train", tasks=later, num_train_epochs=0.05)
    assert re.search(r"(?m)^kind +test +accuracy", output)


def test_less_than_a_step_leaves_nothing(data_dir, tmp_path):
    output = run(data_dir, tmp_path, num_train_epochs=0.01, expect=2)
    assert "0.01 epochs of 320 examples in batches of 8 are less than one step" in output
    assert not untrained(tmp_path)


def test_what_cannot_be_written_is_noticed_before_training(data_dir, tmp_path):
    write_lines(tmp_path / "file", "x")
    output = run(data_dir, tmp_path / "out", results_dir=str(tmp_path / "file" / "results"), expect=2)
    assert "cannot write" in output and "first loss" not in output


def test_a_model_on_the_plateau_is_no_good_start_and_its_recipe_is_named(data_dir, tmp_path):
    base = {"model_name": "m", "recipe": "electra_small", "vocab_file": str(golden.CHECKPOINT / "vocab.txt")}
    hparams = json.loads((golden.CHECKPOINT / "hparams.json").read_text())
    sizes = {name: hparams[name] for name in ("model_hparam_overrides", "embedding_size", "vocab_size")}
    config = base | sizes | {"model_size": "small", "do_lower_case": True}
    for path in golden.CHECKPOINT.glob("*c*kp*t*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    bad = {"plateau": 1.0, "hidden_masked_lm_loss": 6.0, "unigram_entropy": 6.1}
    for step, metrics in ((5, {"plateau": 0.0}), (10, bad)):
        write_lines(tmp_path / "eval" / f"step-{step}.json", json.dumps(metrics))
    write_lines(tmp_path / "results" / "unsup_results.json", "[]")
    output = run(data_dir, tmp_path, num_train_epochs=0.05, init_checkpoint=str(tmp_path))
    assert "the model to start from: on the plateau" in output
    assert "those of recipe electra_small for fine-tuning learning_rate 0.001, " in " ".join(output.split())


@pytest.mark.parametrize(("detects", "scope"), [(True, "discriminator_predictions"), (False, "generator_predictions")])
def test_a_modern_head_goes_on_from_that_of_pre_training(tmp_path, detects, scope):
    given = json.loads((golden.CHECKPOINT / "hparams.json").read_text())["model_hparam_overrides"]
    sizes = given | {"architecture": "modernbert"}
    first = PretrainingModel(golden.config(electra_objective=detects, model_hparam_overrides=sizes))
    for variable in first.trainable_variables:
        variable.assign_add(tf.fill(variable.shape, 0.125))  # so that nothing is as it starts
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "model.ckpt"))
    pretrained = {variable.name.split(":")[0]: variable.numpy() for variable in first.trainable_variables}
    start = {"init_checkpoint": path, "model_hparam_overrides": sizes}
    config = support.config("cola", "wic", **start)
    model = FinetuningModel(config, make_tasks(config, support.tokenizer()), seed=3)
    initial = {v.name.split(":")[0]: v.numpy() for v in model.trainable_variables}
    assert "the pre-trained head" in weights.start(model, config)
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        if not name.startswith("task_specific/"):
            continue
        kept = name.startswith("task_specific/cola/head/")  # WiC's reads three states
        there = pretrained[f"{scope}/{name.split('/', 3)[3]}"] if kept else initial[name]
        np.testing.assert_array_equal(variable, there, err_msg=name)


def test_a_fine_tuned_start_is_the_checkpoint_that_was_scored(tmp_path):
    config = support.config("cola", init_checkpoint=str(tmp_path))
    task = make_tasks(config, support.tokenizer())[0]
    model = FinetuningModel(config, [task], seed=3)
    for path, value in ((tmp_path / "model.ckpt-9", 0.5), (tmp_path / "best" / "model.ckpt-4", 0.25)):
        for variable in model.trainable_variables:
            variable.assign(tf.fill(variable.shape, value))
        tf.train.Checkpoint(model=model).write(str(path))
    (tmp_path / "config.json").write_text(config.to_json())
    write_lines(tmp_path / "checkpoint", 'model_checkpoint_path: "model.ckpt-9"')
    write_lines(tmp_path / "best" / "best.json", '{"step": 4, "score": 50.0, "path": "model.ckpt-4"}')
    started = FinetuningModel(config, [task], seed=4)
    weights.start(started, config)
    assert {float(tf.reduce_max(variable)) for variable in started.trainable_variables} == {0.25}


def test_a_training_that_ended_early_is_scored_again_as_one_that_went_to_its_end(copied):
    data, out, settings = copied
    folder = out / "finetuning_models" / "kind_model_1"
    made_of = json.loads((folder / "made_of.json").read_text())
    scores = json.loads((folder / "scores.json").read_text())
    assert made_of["steps"] == scores["training"]["steps"] == 80
    (folder / "made_of.json").write_text(json.dumps(made_of | {"steps": 200}))
    (folder / "scores.json").write_text(json.dumps(scores | {"errors": "old"}))
    (folder / "best").mkdir()
    for path in folder.glob("model.ckpt-80.*"):
        content = path.read_bytes().replace(b"model.ckpt-80", b"model.ckpt-40")  # in its checksums' file
        (folder / "best" / path.name.replace("-80", "-40")).write_bytes(content)
    (folder / "best" / "best.json").write_text('{"step": 40, "value": 1.0, "path": "model.ckpt-40"}')
    output = run(data, out, "--no-do-train", **settings | {"num_trials": 1})
    assert "step 40" in output and "not kept" not in output
    again = json.loads((folder / "scores.json").read_text())
    assert again["errors"] != "old" and again["training"] == scores["training"]
