"""Trials remember what they were made of: nothing made of other things is repeated, gone on with or averaged."""

import json
import shutil
from pathlib import Path

import pytest

from electra_tf2.finetune.trained_folder import digest
from electra_tf2.formats.checkpoint_files import find_prefix
from electra_tf2.formats.stored_weights import find_checkpoint
from electra_tf2.training.checkpoints import Checkpoints
from tests.support import golden
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import command, line_of, results, run
from tests.support.programs import run_program


def turn_over(data, split):
    """Swaps the labels of a split."""
    path = data / "finetuning_data" / "kind" / f"{split}.jsonl"
    text = path.read_text().replace('"none"', '"?"').replace('"some"', '"none"').replace('"?"', '"some"')
    path.write_text(text)


def trial(out, number):
    return out / "finetuning_models" / f"kind_model_{number}"


def seconds(out, number):
    """Values that no two runs have alike."""
    return json.loads((trial(out, number) / "scores.json").read_text())["training"]["seconds"]


def test_more_trials_keep_those_of_the_same_things_wherever_they_lie_now(copied):
    data, out, settings = copied
    before = [seconds(out, number) for number in (1, 2)]
    output = run(data, out, **settings | {"num_trials": 3})
    assert output.count("done before") == 2
    assert [seconds(out, number) for number in (1, 2)] == before
    made_of = [one["made_of"] for one in results(out)["trials"]]
    assert len(made_of) == 3 and made_of[0] == made_of[1] == made_of[2]
    assert made_of[0].keys() >= {"weights to start from", "kind train", "kind dev", "kind test", "qa_na_threshold"}


def another_start(data, _):
    [weights] = (data / "start").glob("*.data-*")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(bytes(content))


def stopped_and_turned_over(data, out):
    (trial(out, 2) / "scores.json").unlink()
    shutil.rmtree(trial(out, 1))
    turn_over(data, "train")


@pytest.mark.parametrize(
    ("change", "given", "message"),
    [
        (
            lambda data, _: turn_over(data, "train"),
            {},
            "kind_model_1 was trained with something else: other train data of kind",
        ),
        (another_start, {}, "kind_model_1 was trained with something else: other weights to start from"),
        (stopped_and_turned_over, {}, "kind_model_2 was trained with something else: other train data of kind"),
    ],
)
def test_trials_made_of_other_things_are_refused_at_once(copied, change, given, message):
    data, out, settings = copied
    before = results(out)
    change(data, out)
    output = run(data, out, expect=2, **settings | {"num_trials": 3} | given)
    assert message in line_of(output) and "examples" not in output
    assert results(out) == before and not trial(out, 3).exists()


def test_results_of_another_model_are_not_replaced_in_silence(copied):
    data, out, settings = copied
    assert "had the scores of another model" not in line_of(run(data, out, **settings))
    path = next(out.rglob("kind_results.json"))
    held = json.loads(path.read_text())
    held["trials"][0]["training"]["seconds"] += 1
    path.write_text(json.dumps(held))
    assert "kind_results.json had the scores of another model of that name" in line_of(run(data, out, **settings))
    assert json.loads(path.with_name("kind_results.json.old-1").read_text()) == held
    assert path.with_name("kind_results.txt.old-1").is_file()
    # What cannot be read does not keep a finished training from its results.
    for damaged in ("{", "[]", '{"trials": [{}]}'):
        path.write_text(damaged)
        run(data, out, **settings)
        assert json.loads(path.read_text())["trials"]


def test_scores_whose_weights_are_gone_are_not_made_anew(copied):
    data, out, settings = copied
    before = results(out)
    turn_over(data, "test")
    for path in trial(out, 1).glob("**/model.ckpt-*"):
        path.unlink()
    output = run(data, out, expect=2, **settings)
    assert "was made with other kind test, and the weights, which could be scored anew" in line_of(output)
    assert results(out) == before


@pytest.mark.parametrize("words", [["--no-do-train"], []], ids=["asked for", "noticed"])
def test_scores_of_changed_data_are_made_anew_without_training(copied, words):
    data, out, settings = copied
    [before, _] = [one["scores"]["kind"]["dev"]["accuracy"] for one in results(out)["trials"]]
    trained = seconds(out, 1)
    turn_over(data, "dev")
    settings = settings | {"num_trials": 1}
    output = run(data, out, *words, **settings)
    assert words or "is scored anew, with other kind dev; it is not trained again" in line_of(output)
    assert seconds(out, 1) == trained
    [turned] = [one["scores"]["kind"]["dev"]["accuracy"] for one in results(out)["trials"]]
    assert before + turned == pytest.approx(100)
    assert "done before" in run(data, out, **settings)


def test_a_file_that_comes_later_is_scored_without_training(copied):
    data, out, settings = copied
    before = [seconds(out, number) for number in (1, 2)]
    [expected, _] = [one["scores"]["kind"]["test"] for one in results(out)["trials"]]
    path = trial(out, 1) / "scores.json"
    scored = json.loads(path.read_text())
    del scored["made_of"]["kind test"], scored["scores"]["kind"]["test"]
    path.write_text(json.dumps(scored))
    output = run(data, out, **settings)
    assert output.count("done before") == 1
    assert [seconds(out, number) for number in (1, 2)] == before
    assert results(out)["trials"][0]["scores"]["kind"]["test"] == expected
    assert run(data, out, **settings).count("done before") == 2


def test_overwriting_holds_for_all_trials_wherever_it_is_stopped(copied, monkeypatch):
    data, out, settings = copied
    before = [seconds(out, number) for number in (1, 2)]
    turn_over(data, "train")
    settings = settings | {"num_train_epochs": 0.2, "save_checkpoints_steps": 4, "iterations_per_loop": 4}
    save = Checkpoints.save

    def save_and_die(self, step):
        save(self, step)
        self.writer.wait()
        if step == 4:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(Checkpoints, "save", save_and_die)
        run(data, out, "--overwrite", **settings)
    for number in (1, 2):
        old = json.loads(Path(f"{trial(out, number)}.old-1", "scores.json").read_text())
        assert old["training"]["seconds"] == before[number - 1]
        assert not (trial(out, number) / "scores.json").exists()
    # A trial that was stopped is not done for having been scored.
    written = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    output = run(data, out, "--no-do-train", **settings | {"num_trials": 1})
    assert "stopped at step 4 of 8, so its scores are not kept" in line_of(output)
    assert "accuracy of the commonest label" in output
    assert "wrote " not in output and "to label other rows" not in output
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == written
    output = run(data, out, **settings | {"num_trials": 1})
    assert "resuming at step 4 of 8" in output and "done before" not in output


def test_overwriting_fewer_trials_leaves_the_others_and_what_the_old_one_wrote_is_not_its_own(copied):
    data, out, settings = copied
    before = [seconds(out, number) for number in (1, 2)]
    without = settings | {"write_test_outputs": False, "write_distill_outputs": False}
    run(data, out, "--overwrite", **without | {"num_trials": 1})
    assert run(data, out, **without).count("done before") == 2
    assert seconds(out, 1) != before[0] and seconds(out, 2) == before[1]
    output = run(data, out, "--write-test-outputs", **without | {"num_trials": 1})
    expected = "trial 1 was done without write_test_outputs: --no-do-train --write-test-outputs writes its files"
    assert expected in line_of(output)


def test_a_training_without_an_evaluation_neither_scores_nor_reports_trials_that_were_done(copied):
    data, out, settings = copied
    reports = sorted((out / "results").glob("*.json"))
    before = [report.read_text() for report in reports]
    without = {"write_test_outputs": False, "write_distill_outputs": False}
    output = run(data, out, "--no-do-eval", **settings | without | {"qa_na_threshold": 1.0})
    assert output.count("done before") == 2 and "scored anew" not in output
    assert [report.read_text() for report in reports] == before and reports


def test_a_missing_data_folder_is_not_made(tmp_path):
    output = run_program(*command(tmp_path / "nowhere", tmp_path / "nowhere" / "out")[1:])
    assert output.returncode == 2 and "task kind: there is no folder" in line_of(output.stderr)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_of_checkpoints_needs_no_file_that_names_the_newest(tmp_path):
    for path in golden.CHECKPOINT.glob("*.ckpt*"):
        for step in (9, 10):
            shutil.copy(path, tmp_path / f"model.ckpt-{step}.{path.name.rpartition('.')[2]}")
    assert find_prefix(tmp_path) == find_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-10")
    write_lines(tmp_path / "checkpoint", 'model_checkpoint_path: "model.ckpt-7"')  # which is gone
    assert find_prefix(tmp_path) == find_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-10")


def test_a_digest_knows_where_a_file_ends(tmp_path):
    for name, text in zip("abcd", ("ab", "c", "a", "bc"), strict=True):
        (tmp_path / name).write_text(text)
    assert digest([tmp_path / "a", tmp_path / "b"]) != digest([tmp_path / "c", tmp_path / "d"])
    assert digest([tmp_path / "a", tmp_path / "b"]) != digest([tmp_path / "b", tmp_path / "a"])
