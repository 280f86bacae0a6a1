"""Tasks of one's own: settings of their kind, files elsewhere, development data held out, and rows without a text."""

import json
import os
import threading
from collections import Counter

import numpy as np
import pytest

from electra_tf2.files.tables import Table, TableRow
from electra_tf2.finetune.starts import configuration, with_named
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.sampling import draw_held_out
from electra_tf2.finetune.trained_folder import fingerprint
from electra_tf2.inference.labelling import read_rows
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import line_of, run

QUESTION = {"qid": "1", "question": "?", "answers": ["a"], "detected_answers": [{"text": "a", "char_spans": [[0, 0]]}]}
RECIPE = {"num_train_epochs": 5, "per_task": {"sts": {"learning_rate": 0.25}, "chunk": {"learning_rate": 0.5}}}


def make(tmp_path, described, **overrides):
    config = support.config("mine", data_dir=str(tmp_path), raw_data_dir="", tasks={"mine": described}, **overrides)
    return make_tasks(config, support.tokenizer())[0]


@pytest.mark.parametrize(
    ("task", "described", "rate", "epochs", "length"),
    [
        ("mine", {"type": "regression"}, 0.25, 10, 128),
        ("mine", {"type": "tagging"}, 0.5, 5, 256),
        ("mine", {"type": "qa"}, 3e-4, 2, 512),
        ("mine", {"type": "classification"}, 3e-4, 5, 128),
    ],
)
def test_a_task_is_fine_tuned_as_the_one_that_it_is_like(tmp_path, task, described, rate, epochs, length):
    recipe = write_lines(tmp_path / "mine.json", json.dumps({"finetuning": RECIPE}))
    given = {"recipe": str(recipe), "data_dir": str(tmp_path), "task_names": [task], "tasks": {task: described}}
    config = configuration(given)
    assert (config.learning_rate, config.num_train_epochs, config.max_seq_length) == (rate, epochs, length)


@pytest.mark.parametrize(
    ("described", "lines"),
    [
        ({"type": "classification"}, ["text\tlabel", "a\tx", "b\ty"]),
        ({"type": "tagging"}, ["a B-X", "", "b O", ""]),
        (
            {"type": "qa", "mrqa": True},
            [json.dumps({"context": f"a b {name}", "qas": [QUESTION | {"qid": name}]}) for name in "12"],
        ),
    ],
)  # fmt: skip
def test_files_elsewhere_count_from_data_dir(tmp_path, monkeypatch, described, lines):
    path = write_lines(tmp_path / "data" / "elsewhere" / "one.tsv", *lines)
    for given in ("elsewhere/one.tsv", str(path)):
        task = make(tmp_path / "data", described | {"files": {"train": given}})
        assert task.load("train").examples and task.files_of("train") == [path]
    task = make(tmp_path / "data", described | {"files": {"train": "nowhere.tsv"}})
    with pytest.raises(UserError, match=rf"files: there is no file {tmp_path}/data/nowhere\.tsv"):
        task.load("train")
    for split in ("dev", "test"):
        with pytest.raises(UserError, match=rf"files: there is no file {tmp_path}/data/nowhere\.tsv"):
            make(tmp_path / "data", described | {"files": {"train": given, split: "nowhere.tsv"}}).load(split)
    monkeypatch.chdir(tmp_path / "data" / "elsewhere")  # as they used to
    assert make(tmp_path, described | {"files": {"train": "one.tsv"}}).load("train").examples


def test_without_development_data_a_share_is_held_out_or_the_error_says_how(tmp_path):
    rows = [f"text {number},{number % 2}" for number in range(20)]
    path = write_lines(tmp_path / "finetuning_data" / "mine" / "train.csv", "text,label", *rows)
    with pytest.raises(UserError, match=r"no file of split 'dev'.*\"files\" in .*\"held_out\": 0.1 scores"):
        make(tmp_path, {"type": "classification", "held_out": 0}).load("dev")
    described = {"type": "classification"}
    task = make(tmp_path, described)
    parts = [[example.texts[0] for example in task.load(split).examples] for split in ("train", "dev")]
    assert [len(part) for part in parts] == [18, 2] and sorted(parts[0] + parts[1]) == sorted(
        f"text {n}" for n in range(20)
    )
    again, other = make(tmp_path, described), make(tmp_path, described, seed=1)
    assert [one.texts[0] for one in again.load("dev").examples] == parts[1]
    assert [one.texts[0] for one in other.load("dev").examples] != parts[1]
    assert task.files_of("dev") == [path] and "mine dev" in fingerprint(task.config, [task], scores=True)
    write_lines(path.with_name("dev.csv"), "text,label", "own,1")
    assert [len(make(tmp_path, described).load(split).examples) for split in ("train", "dev")] == [20, 1]
    with pytest.raises(UserError, match="held_out is a share of the training data"):
        make(tmp_path, {"type": "classification", "held_out": 1})


@pytest.mark.parametrize(
    ("described", "rows"),
    [
        ({"type": "classification", "labels": ["a", "b"]}, [{"text": "the file"}, {"text": " "}, {"text": None}]),
        ({"type": "tagging"}, [{"text": "the file"}, {"text": ""}, {"words": []}, {"text": None}]),
        ({"type": "qa"}, [{"question": "?", "context": "a b"}, {"question": " ", "context": "a"}]),
    ],
)
def test_rows_without_a_text_are_told_from_wrong_ones(tmp_path, described, rows):
    write_lines(tmp_path / "finetuning_data" / "mine" / "train.txt", "a B-X", "")
    task = make(tmp_path, described)
    if described["type"] == "tagging":  # the training data say what tags there are
        task.target = task.read("train").target
    numbered = [TableRow(line, row) for line, row in enumerate(rows, start=3)]
    table_rows, read = read_rows(task, Table("new.jsonl", "line", iter(numbered)))
    assert table_rows == numbered and read.split is not None and len(read.split.examples) == 1
    assert read.has_text == [True] + [False] * (len(rows) - 1)
    _, read = read_rows(task, Table("new.jsonl", "line", iter(numbered[1:])))
    assert read.split is None and not any(read.has_text)
    assert read.warning.startswith("new.jsonl, line 4")
    with pytest.raises(UserError, match=r"new\.jsonl, line 9:"):
        read_rows(task, Table("new.jsonl", "line", iter([*numbered, TableRow(9, {"other": 1})])))


def test_sentences_and_documents_are_held_out_too(tmp_path):
    folder = tmp_path / "finetuning_data" / "mine"
    write_lines(folder / "train.txt", *(line for n in range(10) for line in ("the B-X", f"file{n} O", "")))
    task = make(tmp_path, {"type": "tagging", "held_out": 0.2})
    assert [len(task.load(split).examples) for split in ("train", "dev")] == [8, 2] and task.files_of("dev")
    asked = [QUESTION | {"qid": f"{n}"} for n in range(20)]
    documents = [{"context": f"a file {n}", "qas": asked[2 * n : 2 * n + 2]} for n in range(10)]
    write_lines(folder / "train.jsonl", *map(json.dumps, documents))
    task = make(tmp_path, {"type": "qa", "mrqa": True})
    ids = [{example.question.id for example in task.load(split).examples} for split in ("train", "dev")]
    assert [len(part) for part in ids] == [18, 2] and len(ids[0] | ids[1]) == 20
    assert len({int(i) // 2 for i in ids[1]}) == 1, "both questions about a document"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_of_a_share_goes_to_the_classes_that_lack_most(seed):
    """A tenth of 16, 15 and 12 is 1.6, 1.5 and 1.2, of all 4: the fourth example is of the first class."""
    classes = ["a"] * 16 + ["b"] * 15 + ["c"] * 12
    chosen = draw_held_out(range(len(classes)), classes, 0.1, np.random.default_rng(seed))
    assert Counter(classes[number] for number in chosen) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(("examples", "expected"), [(14, 1), (16, 2), (20, 2)])
def test_as_many_are_held_out_as_the_rounded_share(examples, expected):
    chosen = draw_held_out(range(examples), ["a"] * examples, 0.1, np.random.default_rng(0))
    assert len(chosen) == expected


@pytest.mark.parametrize("seed", range(3))
def test_where_the_share_rounds_to_none_one_example_of_the_largest_class_is_held_out(seed):
    chosen = draw_held_out(range(4), ["b", "a", "a", "a"], 0.1, np.random.default_rng(seed))
    assert len(chosen) == 1 and chosen < {1, 2, 3}


def test_a_pipe_is_no_training_data(tmp_path):
    os.mkfifo(tmp_path / "train.csv")
    with pytest.raises(UserError, match=r"train_file .*train\.csv is a pipe"):
        with_named({"train_file": str(tmp_path / "train.csv")})


def test_a_pipe_is_labelled_and_an_empty_text_does_not_stop_it(trained, data_dir, tmp_path):
    out, _, settings = trained
    pipe = tmp_path / "new.jsonl"
    os.mkfifo(pipe)
    lines = ['{"text": "error error", "id": 7}', '{"text": " ", "id": 8}', '{"text": "the list", "label": "mine"}']
    lines += ['{"text": "", "id": 9}', ""]
    threading.Thread(target=pipe.write_text, args=["\n".join(lines)], daemon=True).start()
    output = run(data_dir, out, "--predict", str(pipe), **settings)
    rows = [json.loads(line) for line in (tmp_path / "new.jsonl.predictions.jsonl").read_text().splitlines()]
    assert [(row.get("id"), row.get("label")) for row in rows] == [(7, "some"), (8, None), (None, "none"), (9, None)]
    assert [row.get("error") for row in rows] == [None, "an empty text", None, "an empty text"]
    assert "line 2 (and of 1 more): an empty text, so no answer" in line_of(output)
    assert rows[2]["given_label"] == "mine"
