"""SuperGLUE's tasks: files as distributed, inputs, official scores, submissions in the server's format."""

import json
import re
from typing import Any

import numpy as np
import pytest

from electra_tf2.finetune.data_report import balance
from electra_tf2.finetune.mistakes import complaint
from electra_tf2.finetune.run_data import read_data
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.spans import wsc_spans
from electra_tf2.finetune.tasks.text_files import TextExample
from electra_tf2.inference.labelling import open_rows, read_rows
from electra_tf2.inference.scores_of_file import Answered, report_on_file
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines

PASSAGE = "The file was read by Ann in May. @highlight\nAnn opened the list"
WIC = {"word": "read", "sentence1": "I read the file.", "sentence2": "The value was read once", "idx": 3}
WIC |= {"start1": 2, "end1": 6, "start2": 14, "end2": 18, "version": 1.1}
WSC_TARGET = {"span1_index": 0, "span1_text": "The file", "span2_index": 5, "span2_text": "it"}
WSC = {"text": "The file was open because it is read", "idx": 9, "target": WSC_TARGET}
MULTIRC = {
    "idx": 4,
    "version": 1.1,
    "passage": {
        "text": "the file is open",
        "questions": [
            {
                "question": "what is open",
                "idx": 7,
                "answers": [
                    {"text": "the file", "idx": 20, "label": 1},
                    {"text": "the list", "idx": 21, "label": 0},
                    {"text": "a file", "idx": 22, "label": 1},
                ],
            },
            {"question": "is it", "idx": 8, "answers": [{"text": "no", "idx": 23, "label": 0}]},
        ],
    },
}
ENTAILED = {"premise": "a", "hypothesis": "b", "label": "entailment"}
RECORD = {
    "idx": 0,
    "source": "s",
    "passage": {
        "text": PASSAGE,
        "entities": [{"start": 21, "end": 23}, {"start": 28, "end": 30}, {"start": 44, "end": 46}],
    },
    "qas": [{"query": "@placeholder read it", "idx": 11, "answers": [{"start": 21, "end": 23, "text": "Ann"}]}],
}


RACE = {"article": "a", "questions": ["b", "c"], "options": [["d", "e", "f", "g"]] * 2, "answers": ["A", "B"]}


def lines_of(*rows):
    return [json.dumps(row) for row in rows]


def unlabelled(value):
    """A row as the test file has it."""
    if isinstance(value, list):
        return [unlabelled(one) for one in value]
    if not isinstance(value, dict):
        return value
    secret = {"label", "answers"} if "query" in value else {"label"}
    return {name: unlabelled(one) for name, one in value.items() if name not in secret}


def text_of(task, feature):
    return task.tokenizer.readable(feature.input_ids)


@pytest.mark.parametrize(
    ("name", "folder", "row", "texts", "label"),
    [
        ("boolq", "BoolQ", {"question": "is it", "passage": "it is", "label": True}, ("is it", "it is"), "true"),
        ("cb", "CB", {"premise": "a", "hypothesis": "b", "label": "neutral"}, ("a", "b"), "neutral"),
        ("superglue_rte", "SuperGLUE/RTE", ENTAILED, ("a", "b"), "entailment"),
        ("wic", "WiC", WIC | {"label": False}, (WIC["sentence1"], WIC["sentence2"]), "false"),
        ("wsc", "WSC", WSC | {"label": True}, (WSC["text"],), "true"),
    ],
)
def test_tasks_of_texts(tmp_path, name, folder, row, texts, label):
    row = {"idx": 5} | row
    write_lines(tmp_path / folder / "val.jsonl", *lines_of(row))
    write_lines(tmp_path / folder / "test.jsonl", *lines_of(unlabelled(row), unlabelled(row | {"idx": 6})))
    task = support.task(tmp_path, name)
    split = task.load("dev")
    assert split.examples[0].texts == texts and split.examples[0].label == label and split.labelled
    test = task.load("test")
    assert not test.labelled and not task.files.may_have_labels("test")
    number = task.label_names.index(label)
    predictions = [{"predictions": np.array(number), "logits": np.eye(3)[number][: len(task.label_names)]}] * 2
    (path,) = task.write_submission("test", test, task.answers(test, predictions), tmp_path)
    assert path.name == f"{folder.rpartition('/')[2]}.jsonl"
    spelled = {"wsc": "True"}.get(name, label)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"idx": row["idx"], "label": spelled},
        {"idx": 6, "label": spelled},
    ]


def test_f1_of_cb_counts_the_classes_that_occur(tmp_path):
    row = {"premise": "a", "hypothesis": "b", "label": "neutral"}
    write_lines(tmp_path / "CB" / "val.jsonl", *lines_of(row, row))
    task = support.task(tmp_path, "cb")
    neutral, other = ({"logits": np.eye(3)[task.label_names.index(name)]} for name in ("neutral", "contradiction"))
    dev = task.load("dev")
    expected = pytest.approx({"macro_f1": 100, "accuracy": 100, "average": 100})
    assert task.scores(dev, [neutral, neutral]) == expected == task.majority(dev)
    # Of the two neutral ones half are found, and the one prediction of a contradiction is wrong.
    mixed = {"macro_f1": 100 / 3, "accuracy": 50.0, "average": 250 / 6}
    assert task.scores(dev, [neutral, other]) == pytest.approx(mixed)


def test_the_diagnostics_are_predicted_where_they_are(tmp_path):
    assert support.task(tmp_path, "superglue_rte").test_splits == ("test",)
    row = {"sentence1": "a", "sentence2": "b", "idx": 0, "label": "entailment", "logic": "x"}
    write_lines(tmp_path / "AX-b" / "AX-b.jsonl", *lines_of(row))
    task = support.task(tmp_path, "superglue_rte")
    assert task.test_splits == ("test", "AX-b") and not task.load("AX-b").labelled
    assert support.task(tmp_path, "rte").files.folders != task.files.folders, "GLUE's RTE is another task"


def marked(task, feature):
    """The pieces of each span."""
    names = np.array(task.tokenizer.convert_ids_to_tokens(feature.input_ids))
    return ["".join(names[feature.labels[f"span_{n}"] > 0]).replace("##", "") for n in (1, 2)]


def test_spans_are_marked_in_the_input(tmp_path):
    write_lines(tmp_path / "wic" / "train.jsonl", *lines_of(WIC | {"label": True}))
    near = {"span1_index": 0, "span1_text": "it", "span2_index": 6, "span2_text": "It"}
    rows = [WSC | {"label": True}, {"text": "it and the unit say it was", "target": near, "idx": 1, "label": False}]
    write_lines(tmp_path / "wsc" / "train.jsonl", *lines_of(*rows))
    wic, wsc = support.task(tmp_path, "wic"), support.task(tmp_path, "wsc")
    assert marked(wic, wic.load("train").features[0]) == ["read", "read"]
    features = wsc.load("train").features
    assert [marked(wsc, feature) for feature in features] == [["thefile", "it"], ["it", "it"]]
    assert features[1].labels["span_1"].argmax() == 1 and features[1].labels["span_2"].argmax() > 4
    whole = support.task(tmp_path, "cola").encode([TextExample((str(WSC["text"]),), None)], "new").features[0]
    np.testing.assert_array_equal(whole.input_ids, features[0].input_ids)  # cutting at spans changes no piece
    short = support.task(tmp_path, "wic", max_seq_length=8).load("train").features[0]
    assert all(len(short.labels[f"span_{n}"]) == len(short.input_ids) == 8 for n in (1, 2))


def test_rows_that_differ_by_their_marks_alone_keep_their_own_predictions(tmp_path):
    """Where a labelled file is scored by the answers that it gets."""
    other = WIC | {"start1": 7, "end1": 10, "label": False}
    write_lines(tmp_path / "wic" / "train.jsonl", *lines_of(WIC | {"label": True}, other))
    task = support.task(tmp_path, "wic")
    task.load("train")
    path = str(tmp_path / "wic" / "train.jsonl")
    _, read = read_rows(task, open_rows(path, task))
    assert read.split is not None
    predictions = []
    for right in ("true", "false"):
        predictions.append({"logits": np.array([float(label == right) for label in task.label_names])})
    no_other: Any = None  # predictions are those of the file
    report = report_on_file(task, path, Answered(read.split, predictions), no_other)
    assert re.search(r"accuracy +100", report), report


def test_a_span_does_not_mark_the_pieces_beside_it(tmp_path):
    """A word in brackets touches the pieces before and behind it."""
    row = WIC | {"sentence1": "I (read) the file.", "start1": 3, "end1": 7, "label": True}
    write_lines(tmp_path / "wic" / "train.jsonl", *lines_of(row))
    wic = support.task(tmp_path, "wic")
    assert marked(wic, wic.load("train").features[0]) == ["read", "read"]


@pytest.mark.parametrize(
    ("text", "number", "mention", "expected"),
    [
        ("it was\n  the file that Ann read", 2, "the  file\nthat ", "the file that"),  # blanks
        ("Ann opened the list", 2, "the list.", "the list"),  # a full stop that is not there
        ("Ann opened the list.", 2, "the list.", "the list"),
        ("Ann or Tom and May read it", 2, "Tom, and Ann", "Tom and May"),  # no such words: those at the number
        ("Ann read it", 2, "a file", "it"),
    ],
)
def test_no_mention_of_wsc_is_lost(text, number, mention, expected):
    target = {"span1_index": number, "span1_text": mention, "span2_index": 0, "span2_text": text.split()[0]}
    first, second = wsc_spans({"text": text, "target": target}, "line 1")
    assert " ".join(text[first.start : first.end].split()) == expected
    assert text[second.start : second.end] == text.split()[0]


def test_copa(tmp_path):
    row = {"premise": "the file is open", "choice1": "the list", "choice2": "all", "question": "effect", "idx": 2}
    write_lines(tmp_path / "COPA" / "val.jsonl", *lines_of(row | {"label": 1}, row | {"label": 0, "idx": 3}))
    write_lines(tmp_path / "COPA" / "train.jsonl", *lines_of(*(row | {"label": label} for label in (1, 0, 1))))
    write_lines(tmp_path / "COPA" / "test.jsonl", *lines_of(row))
    task = support.task(tmp_path, "copa")
    assert task.majority(task.load("train")) == {"accuracy": pytest.approx(200 / 3)}
    split = task.load("dev")
    assert split.choices == 2 and split.counts == [2, 2] and [f.labels["right"] for f in split.features] == [1, 1, 0, 0]
    assert re.search("as a result.*the list", text_of(task, split.features[0]))
    log_probs = [{"log_probs": np.log(p)} for p in (0.1, 0.9, 0.3, 0.7)]
    assert task.scores(split, log_probs) == {"accuracy": 50.0}
    assert task.answers(split, log_probs)[0]["label"] == 1 and task.inputs(split)[0]["gold"] == [[1]]
    assert complaint(split, task.answers(split, log_probs)) and balance(split) == {"1": 1, "0": 1}
    test = task.load("test")
    (path,) = task.write_submission("test", test, task.answers(test, log_probs[2:]), tmp_path)
    assert path.name == "COPA.jsonl" and path.read_text() == '{"idx": 2, "label": 1}\n'


def binary(*probabilities):
    return [{"logits": np.array([0.0, np.log(p / (1 - p))])} for p in probabilities]


def test_multirc(tmp_path):
    write_lines(tmp_path / "MultiRC" / "val.jsonl", *lines_of(MULTIRC))
    write_lines(tmp_path / "MultiRC" / "test.jsonl", *lines_of(unlabelled(MULTIRC)))
    task = support.task(tmp_path, "multirc")
    split = task.load("dev")
    assert (
        split.choices == 1 and split.counts == [4] and [f.labels["label_ids"] for f in split.features] == [1, 0, 1, 0]
    )
    predictions = binary(0.9, 0.2, 0.4, 0.1)
    # One of two right answers found and none besides: precision 1, recall 1/2; the second question is judged rightly.
    assert task.scores(split, predictions) == pytest.approx({"f1a": 200 / 3, "exact_match": 50, "average": 175 / 3})
    assert task.majority(split) == {"f1a": 0, "exact_match": 50, "average": 25}  # all answers wrong
    assert task.scores(split, binary(0.5, 0.5, 0.5, 0.5))["f1a"] == 0  # as likely wrong as right is wrong
    mostly = json.loads(json.dumps(MULTIRC))
    for answer in mostly["passage"]["questions"][0]["answers"]:
        answer["label"] = 1
    write_lines(tmp_path / "MultiRC" / "train.jsonl", *lines_of(mostly))
    all_right = task.majority(task.load("train"))  # of four answers three are
    assert all_right["f1a"] == pytest.approx(200 * 0.75 / 1.75) and all_right["exact_match"] == 50
    test = task.load("test")
    (path,) = task.write_submission("test", test, task.answers(test, predictions), tmp_path)
    labels = [{"idx": i, "label": label} for i, label in ((20, 1), (21, 0), (22, 0))]
    questions = [{"idx": 7, "answers": labels}, {"idx": 8, "answers": [{"idx": 23, "label": 0}]}]
    assert json.loads(path.read_text()) == {"idx": 4, "passage": {"questions": questions}}


def test_record(tmp_path):
    write_lines(tmp_path / "ReCoRD" / "val.jsonl", *lines_of(RECORD))
    write_lines(tmp_path / "ReCoRD" / "test.jsonl", *lines_of(unlabelled(RECORD)))
    task = support.task(tmp_path, "record", max_seq_length=64)
    split = task.load("dev")
    assert split.examples[0].items[0].names == ("Ann", "May") and split.counts == [2]
    assert [f.labels["label_ids"] for f in split.features] == [1, 0]
    assert "highlight" not in text_of(task, split.features[0]).replace(" ", "")
    assert "ann read it" in text_of(task, split.features[0]).lower()
    assert task.scores(split, binary(0.3, 0.2)) == {"f1": 100, "exact_match": 100, "average": 100}
    assert task.scores(split, binary(0.3, 0.4)) == {"f1": 0, "exact_match": 0, "average": 0}
    assert not task.majority(split)
    test = task.load("test")
    (path,) = task.write_submission("test", test, task.answers(test, binary(0.3, 0.4)), tmp_path)
    assert path.read_text() == '{"idx": 11, "label": "May"}\n'


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("boolq", {"question": "q", "passage": "p", "label": "maybe"}, "unknown label 'maybe'"),
        ("wic", WIC | {"label": True, "start2": 90, "end2": 95}, "characters 90 to 95 are beyond the text"),
        ("wic", WIC | {"label": True, "end1": "x"}, "end1 must be a number from 0 on, got 'x'"),
        ("wsc", WSC | {"label": True, "target": WSC_TARGET | {"span1_text": " ."}}, r"span1_text must be a mention"),
        (
            "wsc",
            WSC | {"label": True, "target": WSC_TARGET | {"span2_index": 99}},
            "span2_index 99 is beyond the 8 words",
        ),
        ("copa", {"premise": "a", "choice1": "b", "choice2": "c", "question": "why", "label": 0}, "cause or effect"),
        ("copa", {"premise": "a", "choice1": "b", "question": "cause", "label": 0}, "the field 'choice2' is missing"),
        ("copa", {"premise": "a", "choice1": "b", "choice2": "c", "question": "cause", "label": 2}, "0 or 1, got 2"),
        ("multirc", {"passage": {"text": "t", "questions": []}}, "no question"),
        ("multirc", {"passage": {"text": "t", "questions": [{"question": "q", "answers": [3]}]}}, "'text' is missing"),
        ("record", RECORD | {"qas": [{"query": "q", "answers": []}]}, "a query without @placeholder"),
        ("record", RECORD | {"passage": {"text": "t", "entities": [{"start": 0, "end": 9}]}}, "not within the text"),
        ("race", RACE | {"answers": ["E", "A"]}, "the answer must be one of A, B, C, D, got 'E'"),
        ("race", RACE | {"answers": ["A"]}, "not as many answers"),
        ("race", RACE | {"options": [["a", "b", "c"], ["a", "b", "c", "d"]]}, "3 candidates, but 4 are needed"),
        ("race", RACE | {"options": [["a", "b", "c", 5], ["a", "b", "c", "d"]]}, "options must be texts"),
        ("race", RACE | {"article": None}, "the field 'article' is missing or of the wrong type"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, row, message):
    write_lines(tmp_path / name / "train.jsonl", *lines_of(row))
    with pytest.raises(UserError, match=rf"train\.jsonl, line 1: .*{message}"):
        support.task(tmp_path, name).load("train")


def test_tasks_of_other_numbers_of_candidates_are_not_learned_together(tmp_path):
    copa = {"premise": "a", "choice1": "b", "choice2": "c", "question": "cause", "label": 1}
    write_lines(tmp_path / "copa" / "train.jsonl", *lines_of(copa))
    write_lines(tmp_path / "boolq" / "train.jsonl", *lines_of({"question": "q", "passage": "p", "label": True}))
    config = support.config("copa", "boolq", raw_data_dir=str(tmp_path), do_eval=False)
    tasks = make_tasks(config, support.tokenizer())
    with pytest.raises(UserError, match="copa has 2, boolq has 1"):
        read_data(config, tasks)


def test_labels_and_lists_may_be_text_as_tables_hold_them(tmp_path):
    row = {"premise": "a", "choice1": "b", "choice2": "c", "question": "cause"}
    write_lines(tmp_path / "copa" / "train.jsonl", *lines_of(row | {"label": "1"}, row | {"label": 1.0}))
    assert [passage.items[0].right for passage in support.task(tmp_path, "copa").load("train").examples] == [(1,), (1,)]
    written = RACE | {name: str(RACE[name]) for name in ("questions", "options", "answers")}
    write_lines(tmp_path / "race" / "train.jsonl", *lines_of(RACE, written))
    first, second = support.task(tmp_path, "race").load("train").examples
    assert first.items == second.items
    write_lines(tmp_path / "copa" / "train.jsonl", *lines_of(row | {"label": "yes"}))
    with pytest.raises(UserError, match=r"line 1: the field 'label'.* must be a whole number, got 'yes'"):
        support.task(tmp_path, "copa").load("train")
