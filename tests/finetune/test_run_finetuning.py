"""Fine-tuning from the command line: trials, several tasks, resuming, the best checkpoint, new text, bad input."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from electra_tf2 import load
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.trained_folder import find_trained, folder_to_use
from electra_tf2.formats.stored_weights import TensorFlowCheckpoint
from electra_tf2.inference.finetuning_run import check_folders
from electra_tf2.util.errors import UserError
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import TASKS, first_scores, line_of, results, run
from tests.support.programs import run_program


def test_a_task_is_learned_and_everything_is_written(trained):
    out, output, _ = trained
    scores, majority = first_scores(out)["kind"], results(out)["majority"]["kind"]["dev"]
    assert scores["dev"]["accuracy"] > 85 and scores["dev"]["loss"] < 0.6
    assert set(scores) == {"dev", "test"} and scores["test"]["accuracy"] > 60  # test data that have labels
    assert set(majority) == {"accuracy", "macro_f1"} and 50 <= majority["accuracy"] < scores["dev"]["accuracy"]
    assert "kind  dev    accuracy" in output and "accuracy of the commonest label" in output
    assert re.search(r"(?m)^examples +320 ", output) and re.search(r"(?m)^tokens, median +1?\d +", output)
    assert "new heads start from random values" in output
    folder = out / "finetuning_models" / "kind_model_1"
    answers = [json.loads(line) for line in (folder / "predictions" / "kind_dev.jsonl").read_text().splitlines()]
    assert len(answers) == 40 and sum(answers[0]["probabilities"].values()) == pytest.approx(1)
    assert list(answers[0]) == ["text", "gold", "label", "probabilities"]
    assert 100 * np.mean([answer["gold"] == answer["label"] for answer in answers]) == scores["dev"]["accuracy"]
    of_labels = results(out)["trials"][0]["errors"]["kind dev"]["by_label"].values()
    assert np.mean([label["f1"] for label in of_labels]) == pytest.approx(scores["dev"]["macro_f1"])
    assert (out / "results" / "kind_results.txt").read_text().startswith("task")
    assert len((out / "test_predictions" / "kind_test_1_predictions.jsonl").read_text().splitlines()) == 10
    assert json.loads((folder / "tasks.json").read_text()) == {"kind": {"labels": ["none", "some"]}}


def test_new_text_is_labelled(trained, data_dir, tmp_path):
    out, _, settings = trained
    file = write_lines(tmp_path / "new.jsonl", '{"text": "error error", "id": 7}', '{"text": "the list of names"}')
    run(data_dir, out, "--predict", str(file), **settings)
    rows = [json.loads(line) for line in (tmp_path / "new.jsonl.predictions.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["some", "none"] and rows[0]["id"] == 7
    output = run(
        data_dir, out, "--predict", str(write_lines(tmp_path / "bad.jsonl", '{"txt": 1}')), expect=2, **settings
    )
    assert "bad.jsonl, line 1: no field 'text'" in output


def test_running_again_trains_nothing_and_other_hparams_are_refused(trained, data_dir):
    out, _, settings = trained
    before = results(out)
    output = run(data_dir, out, "--test-predictions", str(out / "other"), **settings)
    assert "done before" in output and results(out) == before
    assert "done without write_test_outputs: --no-do-train" in output and "distill_outputs:" not in output
    output = run(data_dir, out, expect=2, **settings | {"learning_rate": 5e-4})
    assert "learning_rate was 0.002, is 0.0005" in output


def test_with_do_train_false_the_fine_tuned_model_of_init_checkpoint_is_scored(copied):
    """As the original's README has it; wherever the model lies."""
    data, out, settings = copied
    first, second = (Path(f"{out}/finetuning_models/kind_model_{trial}") for trial in (1, 2))
    assert first.is_dir() and second.is_dir()
    moved = out / "moved"
    shutil.copytree(second, moved)
    losses = [trial["scores"]["kind"]["dev"]["loss"] for trial in results(out)["trials"][:2]]
    scoring = settings | {"num_trials": 1, "write_test_outputs": False, "write_distill_outputs": False}
    for start, loss in ((first, losses[0]), (moved, losses[1])):
        run(data, out, "--no-do-train", **scoring | {"init_checkpoint": str(start)})
        assert first_scores(out)["kind"]["dev"]["loss"] == pytest.approx(loss, rel=1e-5)
    missing = run(data, out, "--no-do-train", expect=2, **scoring | {"init_checkpoint": str(out / "nowhere")})
    assert f"no model at {out}/nowhere" in line_of(missing)


def test_hparams_that_only_the_original_has_are_accepted_with_a_note(copied):
    data, out, settings = copied
    output = run(data, out, **settings | {"results_pkl": "a.pkl", "use_tfrecords_if_existing": False})
    assert "note: results_pkl, use_tfrecords_if_existing: of the original, without effect here" in line_of(output)
    assert output.count("done before") == 2


def test_a_model_that_the_original_fine_tuned_is_named_as_such(data_dir, tmp_path):
    (tmp_path / "cola_model_1").mkdir()
    (tmp_path / "cola_model_1" / "model.ckpt-4.index").touch()
    with pytest.raises(UserError, match="cola_model_1 holds a checkpoint of the original, whose heads"):
        find_trained({"model_dir": str(tmp_path / "cola_model_1")}, 1)


def test_two_tasks_and_two_trials_make_one_table(copied):
    folder, _, _ = copied
    settings = {"task_names": ["kind", "count"], "num_trials": 2, "keep_all_models": False, "num_train_epochs": 0.25}
    output = run(folder, folder, **settings)
    assert "trial 2/2" in output
    file = folder / "results" / "kind,count_results.txt"
    table = file.read_text()
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == ["task", "split", "metric", "trial", "1", "trial", "2", "median", "mean", "std"]
    rows = {(line[0], line[2]): line[3:] for line in lines[1:] if line[1] == "dev"}
    assert {("kind", "accuracy"), ("count", "spearman"), ("kind", "loss"), ("count", "loss")} <= rows.keys()
    trials = [float(value) for value in rows["kind", "loss"][:2]]
    assert len(set(trials)) == 2  # seeds differ
    summary = results(folder, "kind,count")["summary"]["kind"]["dev"]["loss"]
    assert summary["mean"] == pytest.approx(np.mean(trials), rel=1e-3)
    assert summary["std"] == pytest.approx(np.std(trials, ddof=1), rel=1e-2)
    models = folder / "finetuning_models"
    own = {"tasks": TASKS, "model_dir": "a"}
    assert folder_to_use(configuration(settings | own)).name == "a_2"
    kept = [len(list((models / f"kind,count_model_{i}").glob("model.ckpt-*"))) for i in (1, 2)]
    assert kept[0] == 0 and kept[1] > 0
    run(folder, folder, **settings)
    assert file.read_text() == table  # of trials that were done before
    refused = run(folder, folder, "--no-do-train", expect=2, **settings)
    assert "model_1 holds scores alone: its weights were not kept (keep_all_models)" in line_of(refused)
    write_lines(folder / "finetuning_data" / "count" / "train.tsv", "text\tlabel", "a\t2", "b\t1")
    refused = run(folder, folder, expect=2, **settings)
    assert "kind,count_model_1 was trained with something else: other train data of count" in line_of(refused)


def test_the_average_of_the_weights_is_scored_and_kept(data_dir, tmp_path):
    settings = {"optimizer": "muon", "ema_decay": 0.9, "num_train_epochs": 1.0}
    run(data_dir, tmp_path, **settings)
    first = results(tmp_path)["trials"][0]["scores"]
    run(data_dir, tmp_path, "--no-do-train", **settings)
    assert results(tmp_path)["trials"][0]["scores"] == first
    checkpoint = TensorFlowCheckpoint(str(tmp_path / "finetuning_models" / "kind_model_1" / "model.ckpt-40"))
    name = "electra/encoder/layer_0/output/dense/kernel"
    assert (checkpoint[name] != checkpoint[f"{name}/average"]).any()


def test_the_best_checkpoint_is_scored(data_dir, tmp_path):
    settings = {"eval_every_steps": 5, "save_checkpoints_steps": 5, "keep_best": True, "num_train_epochs": 0.375}
    run(data_dir, tmp_path, **settings)
    (trial,) = results(tmp_path)["trials"]
    evaluations = {path.stem: json.loads(path.read_text()) for path in tmp_path.rglob("eval/step-*.json")}
    assert evaluations.keys() == {f"step-{step}" for step in (5, 10, 15)}
    best = max(metrics["score"] for metrics in evaluations.values())
    assert trial["scores"]["kind"]["dev"]["accuracy"] == best
    assert evaluations[f"step-{trial['training']['best_step']}"]["score"] == best


@pytest.mark.parametrize("padding", [{}, {"fixed_padding": True}])
def test_evaluation_alone_gives_the_same_scores(trained, data_dir, tmp_path, padding):
    out, _, settings = trained
    before = first_scores(out)["kind"]["dev"]
    again = settings | {"num_trials": 1, "results_dir": str(tmp_path)} | padding
    run(data_dir, out, "--no-do-train", **again)
    after = json.loads((tmp_path / "kind_results.json").read_text())["trials"][0]["scores"]["kind"]["dev"]
    assert after == before if not padding else after == pytest.approx(before, rel=1e-4)


def test_bad_data_and_a_missing_vocabulary_are_one_line(data_dir, tmp_path):
    tasks = {"kind": TASKS["kind"] | {"labels": ["none", "sone"]}}
    output = run(data_dir, tmp_path, tasks=tasks, expect=2)
    assert "unknown label 'some'; did you mean 'sone'?" in line_of(output)
    assert "nowhere.txt" in run(data_dir, tmp_path, vocab_file="nowhere.txt", expect=2)


def test_a_model_that_is_not_there_is_named_before_anything_is_said_of_it(tmp_path):
    result = run_program(
        "run_finetuning.py", "--data-dir", str(tmp_path), "--model-name", "electra_minni", "--task-names", "sst"
    )
    [error] = result.errors
    assert f"no model at {tmp_path / 'models' / 'electra_minni'}; did you mean 'electra_mini'?" in error
    assert "layers of" not in result.stdout


@pytest.mark.parametrize("begun", [True, False])
def test_a_model_that_has_no_checkpoint_yet_is_not_blamed_for_its_vocabulary(tmp_path, begun):
    """By fine-tuning and by whoever loads it."""
    folder = tmp_path / "models" / "young"
    folder.mkdir(parents=True)
    write_lines(tmp_path / "vocab.txt", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")
    if begun:
        config = PretrainingConfig.from_dict({"data_dir": str(tmp_path), "model_name": "young"})
        (folder / "config.json").write_text(config.to_json())
    result = run_program(
        "run_finetuning.py", "--data-dir", str(tmp_path), "--model-name", "young", "--task-names", "sst"
    )
    [error] = result.errors
    assert f"no checkpoint at {folder}: nothing was trained there yet" in error
    if begun:
        with pytest.raises(UserError, match="nothing was trained there yet"):
            load(folder)


def test_a_refused_folder_is_told_what_can_be_changed_alone(tmp_path):
    """Not what follows from that: sizes from the model, the least number of steps from the epochs."""
    write_lines(tmp_path / "rows.csv", "text,label", "a,x", "b,y")
    given = {"train_file": str(tmp_path / "rows.csv"), "model": "electra_mini", "model_dir": str(tmp_path / "model")}
    folder = tmp_path / "model_1"
    folder.mkdir()
    (folder / "model.ckpt-9.index").write_text("")
    changes: list[tuple[dict, str]] = [
        ({"num_train_epochs": 9.0}, r"num_train_epochs was (\S+), is 9\.0\. "),
        ({"model": "electra_deep"}, r"model was 'electra_mini', is 'electra_deep'\. "),
        ({"seed": 3, "learning_rate": 0.5}, r"learning_rate was (\S+), is 0\.5; seed was 0, is 3\. "),
        ({"task_type": "tagging"}, r"task_type was 'classification', is 'tagging'\. "),
    ]
    for change, message in changes:
        for before, now in ((given, given | change), (given | change, given)):
            (folder / "config.json").write_text(configuration(before).to_json())
            (folder / "vocab.txt").unlink(missing_ok=True)
            if now is not given:
                expected = f"holds a run with other hparams: {message}Do this"
            else:
                names = [part.split(" was ")[0] for part in message.split("; ")]
                expected = "hparams: " + "; ".join(rf"{name} was [^;]+, is [^;]+" for name in names) + r"\. Do this$"
            with pytest.raises(UserError, match=expected):
                check_folders(configuration(now), now, "Do this")
    # A run of debug is in nobody's way; one that is there is in the way of debug.
    (folder / "config.json").write_text(configuration(given | {"debug": True}).to_json())
    check_folders(configuration(given), given, "Do this")
    (folder / "config.json").write_text(configuration(given).to_json())
    with pytest.raises(UserError, match="holds a run with other hparams: debug was False, is True"):
        check_folders(configuration(given | {"debug": True}), given | {"debug": True}, "Do this")
