"""Classification and regression: files as they come, truncation, submissions, label sets, collapsed runs."""

import json
import math
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.corpus.encoding import truncated_lengths
from electra_tf2.finetune.data_report import data_table
from electra_tf2.finetune.evaluation import zip_submissions
from electra_tf2.finetune.mistakes import complaint, errors_of, is_baseline
from electra_tf2.finetune.tasks.targets import Classes
from electra_tf2.inference.example_rows import read_examples
from electra_tf2.settings.metrics import METRICS
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import parse, write_lines


@given(st.lists(st.integers(0, 60), min_size=1, max_size=2), st.integers(2, 60))
def test_texts_are_cut_as_little_as_possible_and_the_longer_first(lengths, room):
    kept = truncated_lengths(lengths, room)
    assert sum(kept) == min(sum(lengths), room)
    assert all(0 <= k <= n for k, n in zip(kept, lengths, strict=True))
    if len(lengths) == 2 and sum(lengths) > room:
        cut = [n - k for k, n in zip(kept, lengths, strict=True)]
        if all(cut):
            assert abs(kept[0] - kept[1]) <= 1
        else:  # only the longer was cut, and is not the shorter now
            longer = int(np.argmax(cut))
            assert kept[longer] >= kept[1 - longer] - 1


def test_of_texts_as_long_as_one_another_the_second_is_cut_first():
    """As BERT and ELECTRA do it: of a pair that differs in its last words alone, the first keeps one more."""
    assert truncated_lengths([5, 5], 7) == [4, 3] and truncated_lengths([9, 5], 7) == [4, 3]


def test_files_and_folders_as_glue_distributes_them(tmp_path):
    write_lines(tmp_path / "CoLA" / "train.tsv", "gj04\t1\t\tThe file is open.", "gj04\t0\t*\tThe file open is.")
    task = support.task(tmp_path, "cola")
    assert [example.label for example in task.load("train").examples] == ["1", "0"]
    lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tHe said "open.\tHe said open.']
    path = write_lines(tmp_path / "mrpc" / "dev.tsv", *lines)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert support.task(tmp_path, "mrpc").load("dev").examples[0].texts == ('He said "open.', "He said open.")
    write_lines(tmp_path / "rte" / "dev.jsonl", '{"premise": "a", "hypothesis": "b", "label": 1}')
    assert support.task(tmp_path, "rte").load("dev").examples[0].label == "not_entailment"
    write_lines(tmp_path / "mine" / "dev.csv", "title,body,kind", '"a, b","c\nd",x', "e,f,y")
    own = {"type": "classification", "text_columns": ["title", "body"], "label_column": "kind", "labels": ["x", "y"]}
    assert support.task(tmp_path, "mine", tasks={"mine": own}).load("dev").examples[0].texts == ("a, b", "c\nd")


def test_a_few_unusable_lines_in_thousands_are_passed_over(tmp_path, capsys):
    rows = [f"{i}\t1\t\tthe file is open" for i in range(1000)]
    write_lines(tmp_path / "cola" / "dev.tsv", *rows, "1000\t1")
    assert len(support.task(tmp_path, "cola").load("dev").examples) == 1000
    assert "dev.tsv, line 1001: 2 columns, but 4 are expected" in capsys.readouterr().err
    write_lines(tmp_path / "cola" / "dev.tsv", *rows[:9], "1000\t1")
    with pytest.raises(UserError, match="line 10: 2 columns"):
        support.task(tmp_path, "cola").load("dev")
    numbered = [f"{i}\tthe file is open" for i in range(1000)]
    write_lines(tmp_path / "cola" / "test.tsv", "index\tsentence", "0\t ", *numbered[1:])
    assert len(support.task(tmp_path, "cola").load("test").examples) == 1000  # the server has a number for each
    write_lines(tmp_path / "cola" / "test.tsv", "index\tsentence", *numbered[:500], "x", *numbered[500:])
    with pytest.raises(UserError, match=r"test\.tsv, line 502: 1 columns"):
        support.task(tmp_path, "cola").load("test")


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("cola", ["a\t2\t\tb"], r"dev.tsv, line 1: unknown label '2'.*one of 0, 1"),
        ("cola", ["a\t1\t\t "], r"line 1: an empty text"),
        ("sst", ["sentence\tlabel"], r"holds no examples"),
        ("rte", ["i\ta\tb\tl", "0\tx\ty\tentailmnt"], r"unknown label 'entailmnt'; did you mean 'entailment'"),
        ("sts", ["h" * 1, "x"], r"columns, but column 7 is needed"),
        ("mine", ["text\tname", "a b\tx"], r"train.tsv has no column 'label'"),
        ("mine", ["text\tlabel", "a b\tx", "c\tx"], "one label only: x"),
    ],
)
def test_bad_lines_are_named(tmp_path, name, lines, message):
    split, described = ("train", {"type": "classification"}) if name == "mine" else ("dev", None)
    write_lines(tmp_path / name / f"{split}.tsv", *lines)
    with pytest.raises(UserError, match=message):
        support.task(tmp_path, name, described).load(split)


def test_of_texts_from_python_the_wrong_one_is_named_by_its_number(tmp_path):
    task = support.task(tmp_path, "cola")
    rows: list[dict[str, Any]] = [{"sentence": "the file"}, {"sentence": 3}]
    places = ("text 1", "text 2")
    with pytest.raises(UserError, match=r"^text 2: .* must be text, got 3"):
        read_examples(task, zip(places, rows, strict=True))


def test_texts_that_are_empty_or_missing_have_no_answer_and_are_counted(tmp_path):
    task = support.task(tmp_path, "cola")
    rows = [{"sentence": text} for text in ("the file", "", None, "no", math.nan)]
    read = read_examples(task, [(f"text {number}", row) for number, row in enumerate(rows, 1)])
    assert read.split is not None and len(read.split.examples) == 2
    assert read.warning == "text 2 (and of 2 more): an empty text, so no answer"
    nothing = {"error": "an empty text"}
    answers = read.answers_of_all_rows([{"label": "0"}, {"label": "1"}])
    assert answers == [{"label": "0"}, nothing, nothing, {"label": "1"}, nothing]


def test_the_number_of_a_class_is_no_label_where_labels_are_numbers():
    for value in (1, "1"):
        assert Classes(("negative", "positive"), ("negative", "positive")).checked(value, "here") == "positive"
    stars = Classes(("1", "2", "4", "5"))  # as in a small training file
    assert stars.checked(4, "here") == "4"
    for value in (3, 0, True):
        with pytest.raises(UserError, match="here: unknown label"):
            stars.checked(value, "here")
    with pytest.raises(UserError, match="here: unknown label True"):
        Classes(("negative", "positive"), ("negative", "positive")).checked(True, "here")
    with pytest.raises(UserError, match="here: unknown label 1"):
        Classes(("negative", "positive")).checked(1, "here")


@pytest.mark.parametrize("name", ["mnli", "cb"])
def test_numbers_of_labels_are_those_of_datasets(tmp_path, name):
    row = {"premise": "a", "hypothesis": "b", "label": 0}
    write_lines(tmp_path / name / "train.jsonl", json.dumps(row))
    task = support.task(tmp_path, name)
    assert task.load("train").examples[0].label.lower() == "entailment" != task.label_names[0].lower()


@pytest.mark.parametrize("value", ["5.1", "-1", "high"])
def test_targets_outside_of_the_scale_are_refused(tmp_path, value):
    write_lines(tmp_path / "sts" / "dev.jsonl", json.dumps({"sentence1": "a", "sentence2": "b", "score": value}))
    with pytest.raises(UserError, match=r"dev.jsonl, line 1: the label"):
        support.task(tmp_path, "sts").load("dev")


def classes(task, *numbers):
    count = len(task.label_names)
    return [{"predictions": np.array(n), "logits": np.eye(count)[n]} for n in numbers]


def submit(task, name, predictions, folder):
    split = parse(task, [], "")
    return task.write_submission(name, split, task.answers(split, predictions), folder)


@pytest.mark.parametrize(
    ("name", "split", "file", "row"),
    [
        ("mnli", "test_mismatched", "MNLI-mm.tsv", "contradiction"),
        ("mnli", "diagnostic", "AX.tsv", "contradiction"),
        ("qnli", "test", "QNLI.tsv", "entailment"),
        ("cola", "test", "CoLA.tsv", "0"),
    ],
)
def test_glues_server_gets_its_names(tmp_path, name, split, file, row):
    task = support.task(tmp_path, name)
    path = submit(task, split, classes(task, 0, 1), tmp_path)[0]
    lines = path.read_text().splitlines()
    assert path.name == file and lines[:2] == ["index\tprediction", f"0\t{row}"] and len(lines) == 3


def test_what_was_predicted_so_far_is_one_archive_for_the_server(tmp_path):
    folder = tmp_path / "submission_1"
    for name, file in (("cola", "CoLA.tsv"), ("qnli", "QNLI.tsv")):
        task = support.task(tmp_path, name)
        submit(task, "test", classes(task, 0, 1), folder)
        archive_path, names = zip_submissions(folder, ".tsv")
        assert archive_path == tmp_path / "submission_1.zip" and names[0] == "CoLA.tsv"
        with zipfile.ZipFile(tmp_path / "submission_1.zip") as archive:
            assert file in archive.namelist() and archive.read(file) == (folder / file).read_bytes()
    assert archive.namelist() == ["CoLA.tsv", "QNLI.tsv"]
    write_lines(folder / "BoolQ.jsonl", "{}")  # SuperGLUE's server wants its own tasks alone
    assert zip_submissions(folder, ".tsv")[1] == ["CoLA.tsv", "QNLI.tsv"]
    assert zip_submissions(folder, ".jsonl") == (tmp_path / "submission_1_superglue.zip", ["BoolQ.jsonl"])


def test_submitted_similarities_stay_on_their_scale(tmp_path):
    task = support.task(tmp_path, "sts")
    values = [{"value": np.array(value)} for value in (-1.0, 2.5, 6.5)]
    path = submit(task, "test", values, tmp_path)[0]
    assert [line.split("\t")[1] for line in path.read_text().splitlines()[1:]] == ["0.000", "2.500", "5.000"]
    assert submit(task, "dev", values, tmp_path) == []


def test_a_collapsed_run_is_called_so(tmp_path):
    task = support.task(tmp_path, "cola")
    split = parse(task, [], "")
    assert "collapsed: the same answer, '1', 3 times, though" in str(
        complaint(split, task.answers(split, classes(task, 1, 1, 1)))
    )
    assert complaint(split, task.answers(split, classes(task, 1, 0, 1))) is None
    with np.errstate(all="raise"):
        assert METRICS["mcc"](np.array([0, 1]), np.array([1, 1])) == 0
        assert METRICS["pearson"](np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0


def test_a_split_of_one_label_may_be_answered_with_it_alone(tmp_path):
    task = support.task(tmp_path, "cola")
    rows = [f"x\t{label}\t\tthe file" for label in (1, 1, 1)]
    write_lines(tmp_path / "cola" / "dev.tsv", *rows)
    split = task.load("dev")
    assert complaint(split, task.answers(split, classes(task, 1, 1, 1))) is None
    write_lines(tmp_path / "cola" / "dev.tsv", *rows[1:], "x\t0\t\tthe file")
    split = support.task(tmp_path, "cola").load("dev")
    assert "collapsed" in str(complaint(split, task.answers(split, classes(task, 1, 1, 1))))


@pytest.mark.parametrize(("steps", "advice"), [(12, "12 steps are few: raise num_train_epochs"), (500, "another seed")])
def test_advice_for_a_collapsed_run_knows_its_steps(tmp_path, steps, advice):
    task = support.task(tmp_path, "cola")
    split = parse(task, [], "")
    assert advice in str(complaint(split, task.answers(split, classes(task, 1, 1, 1)), steps))


def test_errors_of_numbers_are_in_their_unit(tmp_path):
    rows = [json.dumps({"text": word, "label": label}) for word, label in (("a", 10), ("b", 20), ("c", 60))]
    for split in ("train", "dev"):
        write_lines(tmp_path / "own" / f"{split}.jsonl", *rows)
    task = support.task(tmp_path, "own", tasks={"own": {"type": "regression"}})
    dev = task.load("dev")
    scores = task.scores(dev, [{"value": np.float32(value)} for value in (12, 19, 45)])
    assert scores["mae"] == pytest.approx(6) and scores["spearman"] == pytest.approx(100)
    assert task.majority(dev) == {"mae": pytest.approx(50 / 3)}
    report = data_table(task, {"train": dev, "dev": dev}).splitlines()
    assert [line.split()[1] for line in report if line.startswith("label")] == ["lowest", "median", "highest"]


def test_numbers_that_are_all_alike_are_learned_well_by_one_answer(tmp_path):
    rows = [json.dumps({"text": word, "label": 1.0}) for word in "abc"]
    write_lines(tmp_path / "own" / "dev.jsonl", *rows)
    task = support.task(tmp_path, "own", tasks={"own": {"type": "regression", "min": 0, "max": 2}})
    dev = task.load("dev")
    predictions = [{"value": np.float32(1.0)}] * 3
    answers = task.answers(dev, predictions)
    assert complaint(dev, answers) is None
    assert not errors_of(task, dev, answers)["mistakes"]


def test_a_model_that_is_no_better_than_the_commonest_label_is_known():
    majority = {"accuracy": 60.0, "mcc": 0.0}
    assert is_baseline("accuracy", {"accuracy": 60.0, "mcc": 3.0, "loss": 0.7}, majority)
    assert not is_baseline("mcc", {"accuracy": 60.0, "mcc": 3.0, "loss": 0.7}, majority)
    assert not is_baseline("accuracy", {"accuracy": 62.0, "mcc": 0.0, "loss": 0.7}, majority)
    assert not is_baseline("f1", {"f1": 10.0, "loss": 0.7}, {})


def test_another_label_set_than_the_checkpoints_is_refused(tmp_path):
    rows = [json.dumps({"text": "a", "label": label}) for label in ("x", "y")]
    write_lines(tmp_path / "mine" / "train.jsonl", *rows)
    task = support.task(tmp_path, "mine", tasks={"mine": {"type": "classification", "held_out": 0}})
    task.load("train")
    task.check_state(task.state())
    with pytest.raises(UserError, match="mine: the model was trained on the labels x, z, but the data has x, y"):
        task.check_state({"labels": ["x", "z"]})


def test_mnlis_diagnostics_are_predicted_where_glue_has_them(tmp_path):
    assert support.task(tmp_path, "mnli").test_splits == ("test_matched", "test_mismatched")
    for name in ("diagnostic/diagnostic.tsv", "AX/AX.tsv", "MNLI/diagnostic.tsv"):
        path = write_lines(tmp_path / name, "index\tsentence1\tsentence2", f"0\ta\t{name}")
        task = support.task(tmp_path, "mnli")
        assert task.test_splits[-1] == "diagnostic" and task.load("diagnostic").examples[0].texts == ("a", name)
        path.unlink()
