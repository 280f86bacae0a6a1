"""Trials remember what they were made of: nothing made of other things is repeated, gone on with or averaged."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from electra_tf2.finetune.tasks.qa_answers import squad_v2_scores
from electra_tf2.finetune.trained_folder import digest
from electra_tf2.formats.original_config import find_prefix
from electra_tf2.formats.weights import find_checkpoint
from tests.finetune.test_run_finetuning import command, results, run
from tests.support import golden
from tests.support.finetuning import write_lines
from tests.support.programs import run_forked, run_program

QUICK: dict = {"num_train_epochs": 1.0, "save_checkpoints_steps": 4, "iterations_per_loop": 1}


def write_data(folder, flipped=(), rows=64):
    """A task whose labels are turned over in the splits that are named."""
    for split in ("train", "dev", "test"):
        labels = ["b", "a"] if split in flipped else ["a", "b"]
        lines = [json.dumps({"text": "error" if n % 2 else "the file", "label": labels[n % 2]}) for n in range(rows)]
        write_lines(folder / "finetuning_data" / "kind" / f"{split}.jsonl", *lines)
    write_lines(folder / "finetuning_data" / "count" / "train.tsv", "text\tlabel", "a\t1", "b\t2")
    write_lines(folder / "finetuning_data" / "count" / "dev.tsv", "text\tlabel", "a\t1", "b\t2")
    return folder


def trial(out, number, tasks="kind"):
    return out / "finetuning_models" / f"{tasks}_model_{number}"


def seconds(out, number):
    """Values that no two runs have alike."""
    return json.loads((trial(out, number) / "scores.json").read_text())["training"]["seconds"]


def line(output):
    return " ".join(output.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two trials of a model in a folder of its own."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(golden.CHECKPOINT, folder / "start")
    write_data(folder)
    run(folder, folder / "out", num_trials=2, init_checkpoint=str(folder / "start"), **QUICK)
    return folder


@pytest.fixture
def done(finished, tmp_path):
    """A copy of it, and what a command of it needs."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path, QUICK | {"num_trials": 2, "init_checkpoint": str(tmp_path / "start")}


def test_more_trials_keep_those_of_the_same_things_wherever_they_lie_now(done):
    folder, settings = done
    before = [seconds(folder / "out", number) for number in (1, 2)]
    output = run(folder, folder / "out", **settings | {"num_trials": 3})
    assert output.count("done before") == 2
    assert [seconds(folder / "out", number) for number in (1, 2)] == before
    made_of = [one["made_of"] for one in results(folder / "out")["trials"]]
    assert len(made_of) == 3 and made_of[0] == made_of[1] == made_of[2]
    assert made_of[0].keys() >= {"weights to start from", "kind train", "kind dev", "kind test", "qa_na_threshold"}


@pytest.mark.parametrize(
    ("flipped", "message"),
    [
        ("train", "kind_model_1 was trained with other kind train"),
        ("dev", "scores.json was made with other kind dev: --no-do-train scores the model"),
        ("test", "scores.json was made with other kind test: --no-do-train scores the model"),
    ],
)
def test_changed_data_are_refused_at_once(done, flipped, message):
    folder, settings = done
    before = results(folder / "out")
    write_data(folder, flipped=[flipped])
    output = run(folder, folder / "out", expect=2, **settings | {"num_trials": 3})
    assert message in line(output) and "examples" not in output
    assert results(folder / "out") == before and not trial(folder / "out", 3).exists()


def test_other_weights_under_the_same_name_are_refused(done):
    folder, settings = done
    [weights] = (folder / "start").glob("*.data-*")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(bytes(content))
    output = run(folder, folder / "out", expect=2, **settings | {"num_trials": 3})
    assert "kind_model_1 was trained with other weights to start from" in line(output)


def test_scores_of_changed_data_are_made_anew_without_training(done):
    folder, settings = done
    write_data(folder, flipped=["dev"])
    run(folder, folder / "out", "--no-do-train", **settings)
    turned = [one["scores"]["kind"]["dev"]["accuracy"] for one in results(folder / "out")["trials"]]
    assert run(folder, folder / "out", **settings).count("done before") == 2
    write_data(folder)
    run(folder, folder / "out", "--no-do-train", **settings)
    again = [one["scores"]["kind"]["dev"]["accuracy"] for one in results(folder / "out")["trials"]]
    assert np.allclose(np.add(turned, again), 100)


def test_scores_by_other_settings_are_not_averaged(done):
    folder, settings = done
    output = run(folder, folder / "out", expect=2, **settings | {"qa_na_threshold": 1.0})
    assert "scores.json was made with other qa_na_threshold: --no-do-train scores" in line(output)


def test_a_stopped_trial_does_not_go_on_with_other_data(done):
    folder, settings = done
    (trial(folder / "out", 2) / "scores.json").unlink()
    write_data(folder, flipped=["train"])
    shutil.rmtree(trial(folder / "out", 1))
    assert "kind_model_2 was trained with other kind train" in line(run(folder, folder / "out", expect=2, **settings))


def test_a_trial_of_an_older_version_is_taken_with_a_warning(done):
    folder, settings = done
    (trial(folder / "out", 1) / "made_of.json").unlink()
    scores = trial(folder / "out", 1) / "scores.json"
    content = json.loads(scores.read_text())
    del content["made_of"]
    scores.write_text(json.dumps(content))
    output = run(folder, folder / "out", **settings)
    assert "kind_model_1 does not say what it was made of" in line(output) and output.count("done before") == 2


def test_overwriting_holds_for_all_trials_wherever_it_is_stopped(done):
    folder, settings = done
    before = [seconds(folder / "out", number) for number in (1, 2)]
    write_data(folder, flipped=("train",))
    words = command(folder, folder / "out", "--overwrite", **settings)[1:]
    assert run_forked(words, folder / "log", 5, signal.SIGKILL)[0] == -signal.SIGKILL
    for number in (1, 2):
        old = json.loads(Path(f"{trial(folder / 'out', number)}.old-1", "scores.json").read_text())
        assert old["training"]["seconds"] == before[number - 1]
        assert not (trial(folder / "out", number) / "scores.json").exists()
    output = run(folder, folder / "out", **settings)
    assert "resuming at step 4" in output and "done before" not in output
    assert run(folder, folder / "out", **settings).count("done before") == 2


def test_a_trial_that_was_stopped_is_not_done_for_having_been_scored(done):
    folder, settings = done
    one = settings | {"num_trials": 1}
    words = command(folder, folder / "new", **one)[1:]
    assert run_forked(words, folder / "log", 5, signal.SIGKILL)[0] == -signal.SIGKILL
    output = run(folder, folder / "new", "--no-do-train", **one)
    assert "stopped at step 4 of 8, so its scores are not kept" in line(output)
    assert "resuming at step 4 of 8" in run(folder, folder / "new", **one)


def test_overwriting_fewer_trials_leaves_the_others(done):
    folder, settings = done
    before = [seconds(folder / "out", number) for number in (1, 2)]
    run(folder, folder / "out", "--overwrite", **settings | {"num_trials": 1})
    assert run(folder, folder / "out", **settings).count("done before") == 2
    assert seconds(folder / "out", 1) != before[0] and seconds(folder / "out", 2) == before[1]


def test_of_several_tasks_each_counts(tmp_path):
    write_data(tmp_path)
    settings = QUICK | {"task_names": ["kind", "count"]}
    run(tmp_path, tmp_path / "out", **settings)
    write_lines(tmp_path / "finetuning_data" / "count" / "train.tsv", "text\tlabel", "a\t2", "b\t1")
    output = run(tmp_path, tmp_path / "out", expect=2, **settings)
    assert "kind,count_model_1 was trained with other count train" in line(output)


def test_files_that_this_trial_did_not_write_are_not_taken_for_its_own(done):
    folder, settings = done
    run(folder, folder / "out", "--overwrite", "--write-test-outputs", **settings | {"num_trials": 1})
    run(folder, folder / "out", "--overwrite", **settings | {"num_trials": 1})
    output = run(folder, folder / "out", "--write-test-outputs", **settings | {"num_trials": 1})
    assert "it was done without --write-test-outputs" in line(output)


def test_a_missing_data_folder_is_not_made(tmp_path):
    output = run_program(*command(tmp_path / "nowhere", tmp_path / "nowhere" / "out")[1:])
    assert output.returncode == 2 and "no file of split 'train'" in line(output.stderr)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_of_checkpoints_needs_no_file_that_names_the_newest(tmp_path):
    for step in (9, 10):
        for path in golden.CHECKPOINT.iterdir():
            if path.suffix == ".index" or ".data-" in path.name:
                shutil.copy(path, tmp_path / f"model.ckpt-{step}.{path.name.rpartition('.')[2]}")
    assert find_prefix(tmp_path) == find_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-10")
    write_lines(tmp_path / "checkpoint", 'model_checkpoint_path: "model.ckpt-7"')  # which is gone
    assert find_prefix(tmp_path) == find_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-10")


def test_a_digest_knows_where_a_file_ends(tmp_path):
    for name, text in zip("abcd", ("ab", "c", "a", "bc"), strict=True):
        (tmp_path / name).write_text(text)
    assert digest([tmp_path / "a", tmp_path / "b"]) != digest([tmp_path / "c", tmp_path / "d"])
    assert digest([tmp_path / "a", tmp_path / "b"]) != digest([tmp_path / "b", tmp_path / "a"])


def test_no_answer_is_given_above_the_threshold_alone():
    answers, predictions = {"a": ["x"], "b": []}, {"a": "x", "b": "y"}
    at = squad_v2_scores(answers, predictions, {"a": 0.5, "b": 0.5}, threshold=0.5)
    above = squad_v2_scores(answers, predictions, {"a": 0.5, "b": 0.5}, threshold=0.4999)
    assert (at["exact"], at["HasAns_exact"], at["NoAns_exact"]) == (50, 100, 0)
    assert (above["exact"], above["HasAns_exact"], above["NoAns_exact"]) == (50, 0, 100)
