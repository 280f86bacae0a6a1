"""Task files that cannot be used: one line that names file and line, whatever is wrong with them."""

import re

import pytest

from electra_tf2.inference.labelling import open_rows
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines

DEEP = "[" * 100_000 + "]" * 100_000
OWN = {"type": "classification"}


def make(tmp_path, name="mine", described=None, **overrides):
    return support.task(tmp_path, name, described, **overrides)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", "label": ["x", "y"]}', r"line 1: one label is needed, got \['x', 'y'\]"),
        ('{"text": "a"}', "line 1: no field 'label'; it has 'text'"),
        ('{"text": 3, "label": "x"}', "line 1: text must be text, got 3"),
        ('["a"]', "line 1: a JSON object is needed"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "line 1: an integer of 5000 digits"),
        ('{"text": "a", "label": ' + DEEP + "}", "line 1: lists and objects are nested more than"),
        ('{"text": "\\ud800", "label": "x"}', "line 1: .*half of a surrogate pair"),
        ("{", "line 1: not valid JSON"),
    ],
    ids=range(8),
)
@pytest.mark.parametrize("split", ["train", "dev"])
def test_json_lines(tmp_path, split, line, message):
    good = ['{"text": "a", "label": "x"}', '{"text": "b", "label": "y"}']
    for name in ("train", "dev"):
        write_lines(tmp_path / "mine" / f"{name}.jsonl", *([line] if name == split else []), *good)
    if split == "dev":
        message = message.replace("one label is needed, got", "unknown label")
    with pytest.raises(UserError, match=rf"{split}\.jsonl, {message}"):
        make(tmp_path, described=OWN).load(split)


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("none", ["null", '""', '"-"', "NaN", '"NaN"'])
def test_examples_without_a_label_are_left_out_aloud(tmp_path, capsys, kind, none):
    rows = [f'{{"text": "{n}", "label": {label}}}' for n, label in enumerate(["0.5", none, "1", "0.5", none])]
    write_lines(tmp_path / "mine" / "train.jsonl", *rows)
    task = make(tmp_path, described={"type": kind, "held_out": 0})
    assert [example.texts[0] for example in task.load("train").examples] == ["0", "2", "3"]
    assert "2 of 5 examples are left out, which have no label; the first: " in (said := capsys.readouterr().err)
    assert "train.jsonl, line 2" in " ".join(said.split())
    write_lines(tmp_path / "mine" / "train.jsonl", rows[1])
    with pytest.raises(UserError, match=r"train\.jsonl, line 1: a label is needed, got"):
        make(tmp_path, described={"type": kind, "held_out": 0}).load("train")


@pytest.mark.parametrize(
    ("labels", "learned"),
    [
        ("+-", ["+", "-"]),
        (["1", "-1"], ["-1", "1"]),
        (["0", "1", "2", "-1"], ["0", "1", "2"]),
        (["a", "b", "-"], ["a", "b"]),
    ],
)
def test_a_dash_or_minus_one_is_a_label_where_the_others_say_so(tmp_path, labels, learned):
    write_lines(tmp_path / "mine" / "train.csv", "text,label", *(f"{n},{label}" for n, label in enumerate(labels)))
    task = make(tmp_path, described=OWN | {"held_out": 0})
    assert len(task.load("train").examples) == len(learned) and list(task.label_names) == learned


def test_minus_one_beside_two_classes_is_unclear(tmp_path):
    write_lines(tmp_path / "mine" / "train.csv", "text,label", "a,0", "b,1", "c,-1")
    with pytest.raises(UserError, match=r'the label -1 beside 0 and 1 .* name the labels .*"labels"'):
        make(tmp_path, described=OWN | {"held_out": 0}).load("train")
    named = OWN | {"held_out": 0, "labels": [-1, 0, 1]}
    assert len(make(tmp_path, described=named).load("train").examples) == 3
    named = OWN | {"held_out": 0, "labels": [0, 1]}
    assert len(make(tmp_path, described=named).load("train").examples) == 2


def test_tables(tmp_path):
    path = tmp_path / "mine" / "train.csv"
    write_lines(path, "text,label", f'"{"word " * 40_000}",x', '"two\nlines",y')
    rows = make(tmp_path, described=OWN | {"held_out": 0}).load("train").examples
    assert [len(example.texts[0]) for example in rows] == [200_000, 9]
    write_lines(path, "text,label", "a,x", '"two\nlines",y', "b")
    with pytest.raises(UserError, match=r"train\.csv, line 5: 1 columns, but 2 are expected"):
        make(tmp_path, described=OWN).load("train")
    path.write_bytes(b"text,label\na,x\n\xff,y\n")
    with pytest.raises(UserError, match=r"train\.csv is not UTF-8 text \(byte 0xff in line 3\)"):
        make(tmp_path, described=OWN).load("train")


def test_a_forgotten_header(tmp_path, capsys):
    write_lines(tmp_path / "mine" / "train.tsv", "good film\tx", "bad film\ty", "fine\tx")
    with pytest.raises(UserError, match=r"no column 'text'.*first line is .*'good film'.*\"header\": false"):
        make(tmp_path, described=OWN).load("train")
    numbered = OWN | {"text_columns": [0], "label_column": 1, "held_out": 0}
    assert len(make(tmp_path, described=numbered).load("train").examples) == 2
    assert "its label 'x' is one: \"header\": false" in capsys.readouterr().err
    assert len(make(tmp_path, described=numbered | {"header": False}).load("train").examples) == 3


@pytest.mark.parametrize(("labels", "warned"), [(30, True), (16, True), (15, False), (2, False)])
def test_labels_that_stand_in_one_row_each_look_like_another_column(tmp_path, capsys, labels, warned):
    rows = [f"text {number},label {number % labels}" for number in range(30)]
    write_lines(tmp_path / "mine" / "train.csv", "text,label", *rows)
    assert len(make(tmp_path, described=OWN | {"held_out": 0}).load("train").examples) == 30
    error = " ".join(capsys.readouterr().err.split())
    assert (f"{labels} different labels in 30 rows" in error) is warned


def test_a_label_in_a_table_without_header_is_not_taken_for_the_number_of_a_column(tmp_path):
    described = OWN | {"text_columns": [1], "label_column": 0, "header": False, "labels": ["0", "1"]}
    table = open_rows(str(write_lines(tmp_path / "a.tsv", "1\tgood film")), make(tmp_path, described=described))
    assert table.columns == ["0", "1"] and not table.header
    table = open_rows(str(write_lines(tmp_path / "b.tsv", "index\tsentence", "0\ta")), make(tmp_path, "cola"))
    assert table.columns == ["index", "sentence"] and table.header


def test_a_scale_that_was_not_given_is_the_training_datas(tmp_path):
    described = {"type": "regression", "held_out": 0}
    train, dev = tmp_path / "mine" / "train.jsonl", tmp_path / "mine" / "dev.jsonl"
    write_lines(train, *(f'{{"text": "a", "label": {label}}}' for label in (4, 1, 2)))
    write_lines(dev, '{"text": "b", "label": 5}')
    task = make(tmp_path, described=described)
    assert [feature.labels["targets"] for feature in task.load("train").features] == [1, 0, pytest.approx(1 / 3)]
    assert task.load("dev").features[0].labels["targets"] == pytest.approx(4 / 3)
    assert task.state() == {"range": [1.0, 4.0]}
    answering = make(tmp_path / "elsewhere", described=described, do_train=False)
    answering.check_state(task.state())
    assert answering.target.answers([{"value": 2.5}]) == [{"label": 2.5}]
    with pytest.raises(UserError, match="trained on labels from 0 to 2, they are now from 1 to 4"):
        task.check_state({"range": [0.0, 2.0]})
    with pytest.raises(UserError, match="the label 4 is not between 0 and 1, the task's min and max"):
        make(tmp_path, described=described | {"min": 0, "max": 1}).load("train")
    write_lines(train, '{"text": "a", "label": 4}')
    with pytest.raises(UserError, match="one label only: 4"):
        make(tmp_path, described=described).load("train")


@pytest.mark.parametrize(
    ("labels", "told"), [(("1.5", "-2", "3"), True), (("1", "2", "10"), False), (("1.5", "2", "x"), False)]
)
def test_classes_that_are_numbers_with_fractions_are_told(tmp_path, capsys, labels, told):
    write_lines(tmp_path / "mine" / "train.csv", "text,label", *[f"a{label},{label}" for label in labels])
    make(tmp_path, described=OWN | {"held_out": 0}).load("train")
    assert ("of 3 numbers is a class of its own" in capsys.readouterr().err) == told


def test_f1_is_for_two_labels(tmp_path):
    write_lines(tmp_path / "mine" / "train.jsonl", *[f'{{"text": "a", "label": "{label}"}}' for label in "xyz"])
    with pytest.raises(UserError, match="metric f1 is for two labels, there are 3: choose macro_f1"):
        make(tmp_path, described=OWN | {"metric": "f1"}).load("train")


@pytest.mark.parametrize(
    ("rows", "labelled", "warning"),
    [
        (["text\tlabel", "a\tx", "b\ty"], True, ""),
        (["text", "a", "b"], False, ""),
        (["text\tlabel", "a\t", "b\t"], False, ""),
        (["text\tlabel", "a\t-1", "b\t-1"], False, ""),
        (["text\tlabel", "a\tx", "b\tz"], False, "the test data is not scored: .*line 3: unknown label 'z'"),
    ],
)
def test_test_files_may_have_labels(tmp_path, capsys, rows, labelled, warning):
    write_lines(tmp_path / "mine" / "train.tsv", "text\tlabel", "a\tx", "b\ty")
    write_lines(tmp_path / "mine" / "test.tsv", *rows)
    task = make(tmp_path, described=OWN)
    split = task.load("test")
    assert split.labelled == labelled and task.files.may_have_labels("test")
    assert re.search(warning, capsys.readouterr().err)
    assert [row.get("gold") for row in task.inputs(split)] == (["x", "y"] if labelled else [None, None])


def test_tags(tmp_path, capsys):
    write_lines(tmp_path / "chunk" / "train.txt", "the x B-NP", "is x O")
    write_lines(tmp_path / "chunk" / "test.txt", "the DT", "is VB")
    task = make(tmp_path, "chunk")
    assert not task.load("test").labelled
    assert (
        "the test data is not scored: " in (warning := capsys.readouterr().err) and "'DT' is neither O nor" in warning
    )
    write_lines(tmp_path / "chunk" / "test.txt", "the x B-NP", "is x B-VP")
    task = make(tmp_path, "chunk")
    split = task.load("test")
    assert split.labelled and task.inputs(split)[0]["gold"] == ["B-NP", "B-VP"]
    (tmp_path / "chunk" / "train.txt").write_bytes(b"a\x80 O\n")
    with pytest.raises(UserError, match=r"train\.txt is not UTF-8 text"):
        make(tmp_path, "chunk").load("train")


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "mine" / "train.jsonl").mkdir(parents=True)
    with pytest.raises(UserError, match="no file of split 'train'"):
        make(tmp_path, described=OWN).load("train")


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (5, "mine needs a type, one of classification, regression, embedding, tagging, qa, or module:Class; got None"),
        ({"type": ["qa"]}, r"needs a type, .*got \['qa'\]"),
        (OWN | {"min": 0}, "unknown key 'min'.*classification has"),
        (OWN | {"text_column": ["a"]}, "unknown key 'text_column'; did you mean 'text_columns'"),
        (OWN | {"text_columns": []}, "one or two columns"),
        (OWN | {"labels": "x"}, "labels is 'x'"),
        (OWN | {"type": "regression", "metric": "mcc"}, "metric 'mcc'.*one of"),
        (OWN | {"type": "regression", "min": 2, "max": 1}, "min 2 must be below max 1"),
        (OWN | {"type": "tagging", "span": True}, "unknown key 'span'; did you mean 'spans'"),
        (OWN | {"labels": ["x"]}, "labels must be different names, at least two"),
        (OWN | {"labels": ["1", 1]}, "labels must be different names"),
        (OWN | {"labels": [["x"], "y"]}, r"one of labels is \['x'\], but must be text or a number"),
        (OWN | {"text_columns": [True]}, "a column of text_columns is True"),
        (OWN | {"header": 0}, "header is 0, but must be true or false"),
        (OWN | {"files": {"tets": "a.tsv"}}, "files: 'tets' is no split"),
        (OWN | {"files": {"train": 5}}, "files: train is 5, but must be text"),
        ({"type": "regression", "max": 1e300}, r"max is 1e\+300, but must be a number"),
    ],
)
def test_descriptions_are_checked_with_the_hparams(described, message):
    with pytest.raises(UserError, match=message):
        support.config("mine", tasks={"mine": described})
