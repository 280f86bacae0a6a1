"""Tagging: files, label sets, words that do not fit, scores, new text."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf2.finetune.data_report import balance
from electra_tf2.finetune.mistakes import complaint, errors_of, shown_errors
from electra_tf2.finetune.tasks.tag_decoding import SpanDecoder
from electra_tf2.finetune.tasks.tags import bio, bioes, spans_of, tagging_scores, with_all_positions
from electra_tf2.inference.labelling import open_rows, read_rows
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import parse, write_lines

TYPES = st.sampled_from(["NP", "VP", "A-B"])


@st.composite
def span_lists(draw):
    spans, at = [], 0
    for _ in range(draw(st.integers(0, 5))):
        start = at + draw(st.integers(0, 3))
        end = start + draw(st.integers(0, 3))
        spans.append((start, end, draw(TYPES)))
        at = end + 1
    return spans, at + draw(st.integers(0, 2))


@given(span_lists())
def test_spans_survive_both_encodings(case):
    spans, length = case
    assert [tuple(span) for span in spans_of(bioes(spans, length))] == spans
    assert [tuple(span) for span in spans_of(bio(spans, length))] == spans


@given(st.lists(span_lists(), min_size=1, max_size=4).filter(lambda cases: any(spans for spans, _ in cases)))
def test_perfect_predictions_score_100(cases):
    tags = [bioes(spans, length) for spans, length in cases if length]
    assert tagging_scores(tags, tags, spans=True) == dict.fromkeys(["accuracy", "precision", "recall", "f1"], 100.0)


def test_rows_with_a_word_each_are_answered_as_they_are_learned(tmp_path):
    write_lines(tmp_path / "ner" / "train.csv", "sentence_id,word,tag", "1,Anna,B-PER", "1,sang,O", "2,Paris,B-LOC")
    task = support.task(tmp_path, "ner")
    task.load("train")
    for header, tags in (("sentence_id,word,tag", ["B-PER", "O"]), ("sentence_id,word,x", None)):
        write_lines(tmp_path / "new.csv", header, "1,Anna,B-PER", "1,sang,O")
        [row] = [row.values for row in open_rows(str(tmp_path / "new.csv"), task).rows]
        assert row == {"words": ["Anna", "sang"]} | ({"tags": tags} if tags else {})


def test_tags_that_seem_to_be_none_are_warned_of(tmp_path, capsys):
    lines = ["Where is Paris?", "", "It is Rome.", "", "A dog barks", "", "He ate it", ""]
    for split in ("train", "dev"):
        write_lines(tmp_path / "mine" / f"{split}.txt", *lines)
    support.task(tmp_path, "mine", described={"type": "tagging"}).load("train")
    assert "as if lines were texts" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("tag", "message"), [("X", "have the same tag, 'X'"), ("O", "have no spans: all words are O")])
def test_data_with_one_tag_are_refused(tmp_path, tag, message):
    write_lines(tmp_path / "mine" / "train.txt", f"a {tag}", f"b {tag}", "")
    with pytest.raises(UserError, match=message):
        support.task(tmp_path, "mine", described={"type": "tagging"}).load("train")


@pytest.mark.parametrize("name", ["words.csv", "word.csv", "tokens.jsonl", "text.csv"])
def test_words_are_no_tags_though_the_task_is_called_by_their_column(tmp_path, name):
    """A file's name is its task's, after which a column of tags may be called."""
    column = name.partition(".")[0]
    if name.endswith(".jsonl"):
        lines = [json.dumps({column: ["Anna", "sang"], "pos_tags": ["NN", "VB"]})]
    else:
        lines = [f"sentence_id,{column},label", "1,Anna,NN", "1,sang,VB"]
    path = write_lines(tmp_path / name, *lines)
    described = {"type": "tagging", "files": {"train": str(path), "dev": str(path)}}
    task = support.task(tmp_path, column, described)
    [example] = task.load("train").examples
    assert (list(example.words), example.labels) == (["Anna", "sang"], ["NN", "VB"])


def test_rows_of_a_word_in_the_column_text_are_words(tmp_path):
    lines = ["text,label", "Anna,B-PER", "sang,O", "", "Paris,B-LOC"]
    for split in ("train", "dev"):
        write_lines(tmp_path / "ner" / f"{split}.csv", *lines)
    task = support.task(tmp_path, "ner")
    assert [list(example.words) for example in task.load("dev").examples] == [["Anna", "sang"], ["Paris"]]
    assert task.load("dev").golds == ["B-PER", "O", "B-LOC"]
    write_lines(tmp_path / "new.csv", *lines)
    rows = [row.values for row in open_rows(str(tmp_path / "new.csv"), task).rows]
    assert [row["words"] for row in rows] == [["Anna", "sang"], ["Paris"]]


@pytest.mark.parametrize(
    "lines",
    [
        ["Satz;Token;Wortart", "1;Anna;NE", "1;singt;VV", "2;Eva;NE", "2;lacht;VV"],
        ["Token;Wortart", "Anna;NE", "singt;VV", "", "Eva;NE", "lacht;VV"],
        [
            '{"Token": ["Anna", "singt"], "Wortart": ["NE", "VV"]}',
            '{"Token": ["Eva", "lacht"], "Wortart": ["NE", "VV"]}',
        ],
    ],
    ids=["numbered", "blank lines", "lists"],
)
def test_columns_of_words_may_be_named(tmp_path, lines):
    ending = "jsonl" if lines[0].startswith("{") else "csv"
    write_lines(tmp_path / "mine" / f"train.{ending}", *lines)
    columns = ["Token", "Satz"] if "Satz" in lines[0] else ["Token"]
    described = {"type": "tagging", "text_columns": columns, "label_column": "Wortart", "held_out": 0}
    task = support.task(tmp_path, "mine", described)
    split = task.load("train")
    assert [list(example.words) for example in split.examples] == [["Anna", "singt"], ["Eva", "lacht"]]
    assert split.golds == ["NE", "VV", "NE", "VV"]
    new = write_lines(tmp_path / f"new.{ending}", *lines)
    _, read = read_rows(task, open_rows(str(new), task))
    assert read.split is not None
    assert [list(example.words) for example in read.split.examples] == [["Anna", "singt"], ["Eva", "lacht"]]


def test_columns_of_new_words_may_have_other_names_than_those_of_training(tmp_path):
    """Else each word was tagged as a text of its own."""
    write_lines(tmp_path / "mine" / "train.csv", "Satz,Wort,Art", "1,Anna,NE", "1,singt,VV")
    described = {"type": "tagging", "text_columns": ["Wort", "Satz"], "label_column": "Art", "held_out": 0}
    task = support.task(tmp_path, "mine", described)
    task.load("train")
    new = write_lines(tmp_path / "new.csv", "S,Token", "1,Eva", "1,lacht", "2,Ida")
    task.name_columns(["Token", "S"])
    assert [row.values for row in open_rows(str(new), task).rows] == [{"words": ["Eva", "lacht"]}, {"words": ["Ida"]}]
    with pytest.raises(UserError, match="one or two columns, got a, b, c"):
        task.name_columns(["a", "b", "c"])


def test_a_table_with_tags_in_the_middle_is_read_as_dev_data(tmp_path):
    rows = [f"{word}\t{tag}\t{number}" for number in range(12) for word, tag in (("Anna", "NE"), ("singt", "VV"))]
    for split in ("train", "dev"):
        write_lines(tmp_path / "mine" / f"{split}.tsv", "word\ttag\tsentence_id", *rows)
    task = support.task(tmp_path, "mine", {"type": "tagging"})
    task.load("train")
    assert len(task.load("dev").examples) == 12


def answered(tmp_path, described, lines, new, names=()):
    """The words that a tagger reads in a new file after it was trained on another."""
    write_lines(tmp_path / "mine" / "train.csv", *lines)
    task = support.task(tmp_path, "mine", {"type": "tagging", "held_out": 0} | described)
    task.load("train")
    if names:
        task.name_columns(names)
    path = write_lines(tmp_path / "new.csv", *new)
    _, read = read_rows(task, open_rows(str(path), task))
    assert read.split is not None
    return [list(example.words) for example in read.split.examples]


def test_named_columns_of_new_files(tmp_path):
    words = {"text_columns": ["Wort", "Satz"], "label_column": "Art"}
    lines = ["Satz,Wort,Art", "1,Anna,NE", "1,New York,NE", "1,singt,VV"]
    expected = [["Anna", "New York"], ["Eva"]]
    assert answered(tmp_path, words, lines, ["Satz,Wort", "1,Anna", "1,New York", "2,Eva"]) == expected
    assert answered(tmp_path, words, lines, ["Satz,Token", "1,Anna", "1,New York", "2,Eva"], ["Token"]) == expected
    with pytest.raises(UserError, match="`Tokn`, a list of words, or `text` is needed; it has 'Satz, Token, text'"):
        answered(tmp_path, words, lines, ["Satz,Token,text", "1,Anna,x"], ["Tokn"])
    lists = ["Woerter,Art", "\"['Ann', 'saw']\",\"['NE', 'VV']\""]
    assert answered(tmp_path, {"text_columns": ["Woerter"], "label_column": "Art"}, lists, lists) == [["Ann", "saw"]]
    marked = ["content,entities", '"Anna lives in Rome.","[[0, 4, ""PER""]]"']
    new = ["content,sent_id", "Eva lives in Rome.,1"]
    assert answered(tmp_path, {"text_columns": ["content"]}, marked, new) == [["Eva", "lives", "in", "Rome", "."]]


def test_a_named_text_of_label_studio_is_answered(tmp_path):
    data = {"title": "A title", "content": "Anna sang."}
    result = [{"value": {"start": 0, "end": 4, "labels": ["PER"]}}]
    row = {"data": data, "annotations": [{"result": result}]}
    write_lines(tmp_path / "mine" / "train.jsonl", json.dumps(row))
    task = support.task(tmp_path, "mine", {"type": "tagging", "text_columns": ["content"], "held_out": 0})
    task.load("train")
    assert list(task.example({"data": data}, "here", 0).words) == ["Anna", "sang", "."]


def test_words_without_tags_in_json_rows_leave_their_sentence_out(tmp_path):
    rows = [{"word": "Anna", "tag": "NE", "sentence_id": 1}, {"word": "singt", "tag": None, "sentence_id": 1}]
    rows += [{"word": "Eva", "tag": "NE", "sentence_id": 2}, {"word": "lacht", "tag": "VV", "sentence_id": 2}]
    rows += [{"word": "Ida", "sentence_id": 3}]
    write_lines(tmp_path / "mine" / "train.jsonl", *map(json.dumps, rows))
    task = support.task(tmp_path, "mine", {"type": "tagging", "held_out": 0})
    assert [list(example.words) for example in task.load("train").examples] == [["Eva", "lacht"]]


@pytest.mark.parametrize(
    "lines",
    [
        ["sentence_id;word;tag", ";Anna;NE", ";singt;VV", ";;", ";Eva;NE", ";lacht;VV"],
        ["sep=;", "sentence_id;word;tag", "1;Anna;NE", "1;singt;VV", "2;Eva;NE", "2;lacht;VV"],
    ],
    ids=["numbers that nobody filled in", "Excel's first line"],
)
def test_sentences_of_spreadsheets_are_told_apart(tmp_path, lines):
    write_lines(tmp_path / "mine" / "train.csv", *lines)
    task = support.task(tmp_path, "mine", {"type": "tagging", "held_out": 0})
    expected = [["Anna", "singt"], ["Eva", "lacht"]]
    assert [list(example.words) for example in task.load("train").examples] == expected
    new = write_lines(tmp_path / "new.csv", *lines)
    assert [row.values["words"] for row in open_rows(str(new), task).rows] == expected


def test_texts_with_marked_spans_may_stand_in_a_named_field(tmp_path):
    row = {"title": "A title", "Inhalt": "Anna sang.", "entities": [[0, 4, "PER"]]}
    write_lines(tmp_path / "mine" / "train.jsonl", json.dumps(row), json.dumps(row | {"Inhalt": None}))
    task = support.task(tmp_path, "mine", {"type": "tagging", "text_columns": ["Inhalt"], "held_out": 0})
    [example] = task.load("train").examples
    assert list(example.words) == ["Anna", "sang", "."]
    for new in ({"Inhalt": "Eva sang."}, {"text": "Eva sang."}):
        assert list(task.example(new, "here", 0).words) == ["Eva", "sang", "."]


def test_sentences_with_a_word_without_a_tag_are_left_out_and_counted(tmp_path, capsys):
    lines = ["sentence_id,word,tag", "1,Anna,NE", "1,singt,", "2,Eva,NE", "2,lacht,VV", "3,Ida,NE", "3,,VV"]
    write_lines(tmp_path / "mine" / "train.csv", *lines)
    task = support.task(tmp_path, "mine", {"type": "tagging", "held_out": 0})
    [example] = task.load("train").examples
    warned = " ".join(capsys.readouterr().err.split())
    assert list(example.words) == ["Eva", "lacht"]
    assert "2 sentences left out, in which a word or its tag is missing; the first: " in warned
    assert "line 3: 'singt'" in warned


@pytest.mark.parametrize(
    ("lines", "column"),
    [
        (["text,label", "Anna,B-PER", "sang,", "", "Paris,B-LOC"], ""),
        (["Text,Tag", "Anna,B-PER", "sang,O", "", "Paris,B-LOC"], ""),
        (["text,mine", "Anna,B-PER", "sang,O", "", "Paris,B-LOC"], "mine"),
    ],
)
def test_rows_of_a_word_in_the_column_text_are_answered_as_sentences(tmp_path, lines, column):
    write_lines(tmp_path / "ner" / "train.txt", "Anna B-PER", "sang O", "", "Paris B-LOC", "")
    task = support.task(tmp_path, "ner", {"type": "tagging", "label_column": column, "held_out": 0} if column else None)
    if column:
        write_lines(tmp_path / "ner" / "train.csv", *lines)
        (tmp_path / "ner" / "train.txt").unlink()
    task.load("train")
    new = write_lines(tmp_path / "new.csv", *lines)
    rows = [row.values for row in open_rows(str(new), task).rows]
    assert [row["words"] for row in rows] == [["Anna", "sang"], ["Paris"]]


def test_rows_without_words_or_tags_are_left_out_and_counted(tmp_path, capsys):
    rows = [{"words": ["Anna", "sang"], "tags": ["B-PER", "O"]}, {"words": None, "tags": None}]
    rows.append({"words": ["in", "Rome"], "tags": None})
    write_lines(tmp_path / "mine" / "train.jsonl", *map(json.dumps, rows))
    task = support.task(tmp_path, "mine", {"type": "tagging", "held_out": 0})
    [example] = task.load("train").examples
    warned = " ".join(capsys.readouterr().err.split())
    assert list(example.words) == ["Anna", "sang"]
    assert "1 text left out, without a word" in warned and "1 text left out, whose words have no tags" in warned


def test_words_whose_tags_are_missing_stay_words(tmp_path, capsys):
    for split in ("train", "dev"):
        write_lines(tmp_path / "ner" / f"{split}.txt", "Anna B-PER", "sang O", "")
    task = support.task(tmp_path, "ner")
    task.load("train")
    new = write_lines(tmp_path / "new.conll", "Anna B-PER", "lives", "here O", "", "Eva B-PER", "sang O")
    rows = [row.values for row in open_rows(str(new), task).rows]
    assert rows == [{"words": ["Anna", "lives", "here"]}, {"words": ["Eva", "sang"]}]
    assert "new.conll: some words have no tag" in capsys.readouterr().err


@pytest.mark.parametrize("letters", ["BLOU", "BESO", "MEBO", "BIOO", "blou"])
def test_letters_without_a_type_are_spans_of_one_type(letters):
    assert spans_of(list(letters)) == spans_of([letter if letter in "Oo" else f"{letter}-_" for letter in letters])
    tags = [list(letters.upper())]
    assert tagging_scores(tags, tags, spans=True)["f1"] == 100


LABELS = with_all_positions({"S-A", "S-B"})


@given(st.integers(0, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_the_likeliest_whole_spans_are_found(length, seed):
    """As by trying all sequences of labels. A sequence of whole spans is the same after its spans were read."""
    names = sorted(LABELS)
    scores = np.random.default_rng(seed).normal(scale=3, size=[length, len(names)])
    best = -np.inf
    for label_ids in itertools.product(range(len(names)), repeat=length):
        labels = [names[label_id] for label_id in label_ids]
        if bioes(spans_of(labels), length) == labels:
            best = max(best, scores[np.arange(length), label_ids].sum())
    predicted = SpanDecoder(names)(scores)
    labels = [names[label_id] for label_id in predicted]
    assert bioes(spans_of(labels), length) == labels
    assert scores[np.arange(length), predicted].sum() == pytest.approx(best)


def test_predicted_spans_are_whole_or_those_of_the_original(tmp_path):
    """The likeliest label of each word is B-NP, S-NP, E-NP, of which the original makes two spans."""
    write_lines(tmp_path / "chunk" / "train.txt", "the x B-NP", "old x I-NP", "file x E-NP", "is x S-NP", "")
    for compat, tags in {
        "none": ["B-NP", "I-NP", "E-NP", "S-NP"],
        "original": ["S-NP", "B-NP", "E-NP", "S-NP"],
    }.items():
        task = make(tmp_path, compat=compat)
        split = task.load("train")
        places = split.features[0].labels["labeled_positions"]
        logits = np.zeros([max(places) + 1, len(task.label_names)])
        for place, label in zip(places, ("B-NP", "S-NP", "E-NP", "S-NP"), strict=True):
            logits[place, task.label_names.index(label)] = 2.0
        logits[places[1], task.label_names.index("I-NP")] = 1.9
        (answer,) = task.answers(split, [{"logits": logits}])
        assert answer["tags"] == tags


def test_conllevals_rules():
    assert [tuple(span) for span in spans_of(["I-A", "I-B", "O", "I-C-D", "B-C-D"])] == [
        (0, 0, "A"),
        (1, 1, "B"),
        (3, 3, "C-D"),
        (4, 4, "C-D"),
    ]


def make(tmp_path, name="chunk", **overrides):
    return support.task(tmp_path, name, **overrides)


TRAIN = ("the x B-NP", "file x I-NP", "is x B-VP", "", "no x O", ". x O")


def test_a_type_has_all_its_labels(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    write_lines(tmp_path / "chunk" / "dev.txt", "is x B-VP", "not x I-VP", "open x I-VP")
    task = make(tmp_path)
    task.load("train")
    assert task.label_names == sorted(["O", *(f"{p}-{t}" for p in "BIES" for t in ("NP", "VP"))])
    assert task.load("dev").examples[0].labels == ["B-VP", "I-VP", "E-VP"]
    other = make(tmp_path)
    other.load("train")
    other.check_state(task.state())
    with pytest.raises(UserError, match="trained on the labels X, but the data has"):
        other.check_state({"labels": ["X"]})


def sure(task, split):
    """Predictions of a model that is sure of what it learned; zeros beyond the words that an input answers for."""
    rows = []
    for feature in split.features:
        rows.append(feature.labels["labels"])
    return at_words(task, split, rows)


def at_words(task, split, rows):
    """Predictions at every token, from the labels of the words that each input answers for."""
    predictions = []
    for feature, labels in zip(split.features, rows, strict=True):
        places = feature.labels["labeled_positions"]
        label_ids = np.zeros(max(places, default=0) + 1, int)
        label_ids[places] = labels
        predictions.append(sure_of(label_ids, len(task.label_names)))
    return predictions


def sure_of(label_ids, num_labels):
    """A prediction in which token i has its label with a probability from 0.5 (the first one) to 0.9."""
    probabilities = np.linspace(0.5, 0.9, len(label_ids))[:, np.newaxis]
    others = (1 - probabilities) / (num_labels - 1)
    is_label = np.eye(num_labels, dtype=bool)[label_ids]
    return {"logits": np.log(np.where(is_label, probabilities, others))}


@pytest.mark.parametrize(
    "tags",
    [
        ["B-NP", "I-NP", "I-NP", "O", "B-VP"],
        ["B-NP", "I-NP", "E-NP", "O", "S-VP"],
        ["B-NP", "I-NP", "L-NP", "O", "U-VP"],
        ["B-NP", "M-NP", "E-NP", "O", "S-VP"],
        ["B", "I", "I", "O", "B"],
    ],
)
def test_tags_are_shown_as_the_training_file_has_them(tmp_path, tags):
    """In the table of data, in predictions, beside them as what is right, in CoNLL files and in reports."""
    for name in ("train", "dev"):
        write_lines(tmp_path / "chunk" / f"{name}.txt", *(f"file x {tag}" for tag in tags))
    task = make(tmp_path)
    split = task.load("train")
    assert list(balance(split)) == list(dict.fromkeys(sorted(tags, key=lambda tag: -tags.count(tag))))
    reloaded = make(tmp_path)
    reloaded.check_state(task.state())
    for one in (task, reloaded):  # while it trains, and where a saved model labels
        split = one.load("dev")
        (answer,) = one.answers(split, sure(one, split))
        assert answer["tags"] == tags == one.inputs(split)[0]["gold"]
        assert one.scores(split, sure(one, split))["f1"] == 100
        assert one.majority(split)["accuracy"] <= 60
        written = one.write_submission("dev", split, [answer], tmp_path)[0].read_text()
        assert [line.split()[1] for line in written.splitlines() if line] == tags
        wrong = [answer | {"entities": [answer["entities"][0] | {"start": 0, "end": 4}]}]
        found = errors_of(one, split, wrong)
        assert sum(counts["count"] for counts in found["by_label"].values()) == 2
    write_lines(tmp_path / "chunk" / "dev.txt", "file x B-ZZ")
    assert make(tmp_path).load("dev").examples[0].labels == ["S-ZZ"]


def test_long_texts_are_learned_and_tagged_in_windows(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    tags = [f"{position}-{kind}" for kind in ("NP", "VP") for position in "BI"] * 10
    write_lines(tmp_path / "chunk" / "dev.txt", *(f"file x {tag}" for tag in tags), "", "no x O")
    task = make(tmp_path, max_seq_length=12)
    split = task.load("dev")
    assert split.counts == [len(split.features) - 1, 1] and len(split.features) > 5
    assert all(len(feature.input_ids) <= 12 for feature in split.features) and not any(split.cut)
    windows = split.examples[0].windows
    assert np.concatenate([window.words for window in windows]).tolist() == list(range(40))
    for feature, window in zip(split.features, windows, strict=False):
        labels = [task.label_names[number] for number in feature.labels["labels"]]
        assert labels == [split.examples[0].labels[word] for word in window.words]
        last = len(feature.input_ids) - 1
        for word, position in zip(window.words, window.positions, strict=True):
            assert position >= 3 or word < 3
            assert last - position >= 3 or word >= 37
    predictions = sure(task, split)
    assert task.scores(split, predictions)["f1"] == 100
    long, _ = task.answers(split, predictions)
    assert long["tags"] == tags and min(long["probabilities"]) > 0


def test_the_original_leaves_words_out(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    write_lines(tmp_path / "chunk" / "dev.txt", *["file x B-NP"] * 12, "")
    task = make(tmp_path, max_seq_length=24, compat="original")
    split = task.load("dev")
    answered = split.examples[0].windows[0].words
    assert 0 < len(answered) < 12 and split.cut == [12 - len(answered)]
    (answer,) = task.answers(split, sure(task, split))
    assert answer["probabilities"][len(answered) :] == [0.0] * (12 - len(answered)) and len(answer["tags"]) == 12


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("the  file\u200b\tis", [(0, 3), (5, 10), (11, 13)]),
        ("\n北京 Ａe\u0301 🙂", [(1, 3), (4, 7), (8, 9)]),
        ("the\u3000file is x\u200b", [(0, 8), (9, 11), (12, 14)]),
    ],
)
def test_words_and_entities_say_where_they_are(tmp_path, text, places):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path)
    task.load("train")
    row = [task.label_names.index(tag) for tag in ("B-NP", "E-NP", "S-VP")]
    split = parse(task, [{"text": text}, {"words": text.split(" ")}], "new")
    rows = [row[: len(window.words)] for example in split.examples for window in example.windows]
    answer, of_words = task.answers(split, at_words(task, split, rows))
    assert list(zip(answer["starts"], answer["ends"], strict=True)) == places
    assert answer["words"] == [text[start:end] for start, end in places]
    (first, _), (_, second), verb = places
    expected = [("NP", text[first:second], first, second), ("VP", text[slice(*verb)], *verb)]
    assert [tuple(entity.values())[:4] for entity in answer["entities"]] == expected
    written = " ".join(of_words["words"])
    assert [written[a:b] for a, b in zip(of_words["starts"], of_words["ends"], strict=True)] == of_words["words"]


def test_more_words_than_tokens(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path, max_seq_length=16)
    task.load("train")
    split = parse(task, [{"words": ["the", *["\u200b"] * 50, "file"]}, {"words": ["\u200b"] * 9}], "new")
    predictions = sure(task, split)
    assert [len(answer["tags"]) for answer in task.answers(split, predictions)] == [52, 9]


def test_words_without_pieces_take_no_tag_from_their_neighbours(tmp_path):
    """Such a word once had the piece, and the tag, of the next one, as a span of two words."""
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path)
    task.load("train")
    split = parse(task, [{"words": ["", "the", "\u200b", "file", ""]}], "new")
    [feature] = split.features
    assert feature.labels["labeled_positions"].tolist() == [1, 2]
    [answer] = task.answers(split, sure(task, split))
    assert [answer["tags"][place] for place in (0, 2, 4)] == ["O", "O", "O"]
    assert [answer["probabilities"][place] for place in (0, 2, 4)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("split", "lines", "message"),
    [
        ("train", ["the x B-NP", "alone"], r"train.txt, line 2: a word and a tag are needed"),
        ("train", ["", ""], "holds no sentences"),
        ("train", ["the x NP"], r"train.txt, line 1: 'NP' is neither O nor"),
        ("train", ["the 0", "file 3"], r"line 1: '0' is the number of a tag: give their names"),
        ("train", ["the 0", "file B-NP"], r"line 1: '0' is the digit: tag words outside of spans by the letter O"),
        ("dev", None, r"no file of split 'dev': looked for dev\.txt, .* in "),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, split, lines, message):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    if lines is not None:
        write_lines(tmp_path / "chunk" / f"{split}.txt", *lines)
    with pytest.raises(UserError, match=message):
        make(tmp_path).load(split)


def test_parts_of_speech_are_scored_by_word(tmp_path):
    write_lines(tmp_path / "pos" / "train.txt", "the DT", "file NN")
    task = make(tmp_path, "pos")
    split = task.load("train")
    wrong = task.label_names.index("NN")
    scores = task.scores(split, at_words(task, split, [[wrong, wrong]]))
    assert scores == {"accuracy": 50.0} and task.primary_metric == "accuracy"
    errors = errors_of(task, split, task.answers(split, at_words(task, split, [[wrong, wrong]])))
    assert errors["labels"] == ["DT", "NN"] and errors["confusion"] == [[0, 1], [0, 1]]
    assert errors["by_label"]["NN"] == pytest.approx({"count": 1, "precision": 50.0, "recall": 100.0, "f1": 200 / 3})
    assert [(one["word"], one["gold"], one["label"]) for one in errors["mistakes"]] == [("the", "DT", "NN")]
    assert "the: DT, predicted NN 0." in shown_errors("pos train", errors)


def test_accuracy_of_spans_is_that_of_the_tags_in_the_file(tmp_path):
    """It can be computed from the file of predictions. A wrong letter that no tag of the file has does not count."""
    write_lines(tmp_path / "chunk" / "train.txt", "the x B-NP", "old x I-NP", "file x I-NP", "is x O")
    task = make(tmp_path)
    split = task.load("train")
    label_ids = [task.label_names.index(label) for label in ("B-NP", "I-NP", "I-NP", "O")]
    scores = task.scores(split, at_words(task, split, [label_ids]))
    assert scores == dict.fromkeys(["accuracy", "precision", "recall", "f1"], 100.0)
    assert task.majority(split)["accuracy"] == 50.0


def test_the_probability_of_a_tag_is_that_of_all_labels_that_it_may_be(tmp_path):
    """In BIO, B-NP is the first word of a span or its only one."""
    write_lines(tmp_path / "chunk" / "train.txt", "the x B-NP", "file x I-NP", "is x O")
    task = make(tmp_path)
    split = task.load("train")
    places = split.features[0].labels["labeled_positions"]
    shares = np.full([max(places) + 1, len(task.label_names)], 1e-9)
    columns = [task.label_names.index(label) for label in ("B-NP", "S-NP", "E-NP", "I-NP", "O")]
    shares[places[0], columns[:2]] = 0.4, 0.6
    shares[places[1], columns[2:4]] = 0.75, 0.25
    shares[places[2], columns[4]] = 1.0
    (answer,) = task.answers(split, [{"logits": np.log(shares)}])
    assert answer["tags"] == ["B-NP", "I-NP", "O"]
    assert answer["probabilities"] == pytest.approx([1, 1, 1], abs=1e-5)
    assert answer["entities"][0]["probability"] == pytest.approx(1, abs=1e-5)


def test_tags_that_are_types_alone_mean_what_they_mean_in_the_training_data(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", "the PER", "old PER", "file O", "is O", "no O")
    write_lines(tmp_path / "chunk" / "dev.txt", "the PER", "old PER", "", "file O", "")
    task = make(tmp_path)
    task.load("train")
    assert [example.labels for example in task.load("dev").examples] == [["B-PER", "E-PER"], ["O"]]


def test_the_training_data_show_whether_tags_are_spans(tmp_path, capsys):
    path = tmp_path / "own.txt"
    described = {"type": "tagging", "held_out": 0, "files": {"train": str(path)}}
    write_lines(path, "the DT", "file NN", "", "the DT", "term NN", "")
    task = support.task(tmp_path, "own", described)
    task.load("train")
    assert (task.spans, task.primary_metric, task.label_names) == (False, "accuracy", ["DT", "NN"])
    assert "2 tags of single words" in capsys.readouterr().out
    reloaded = support.task(tmp_path, "own", described)
    reloaded.check_state(task.state())
    assert (reloaded.spans, reloaded.primary_metric) == (False, "accuracy")
    write_lines(path, "the O", "file B-NP", "", "the DT", "")
    with pytest.raises(UserError, match="line 4: 'DT' is neither O nor B-"):
        support.task(tmp_path, "own", described).load("train")
    write_lines(path, "the 0", "file 1", "")
    with pytest.raises(UserError, match="all tags are numbers: give their names"):
        support.task(tmp_path, "own", described).load("train")
    named = support.task(tmp_path, "own", described | {"labels": ["O", "B-NP"]})
    named.load("train")
    assert named.spans and named.label_names == ["B-NP", "E-NP", "I-NP", "O", "S-NP"]
    write_lines(path, "DT the", "NN file", "", "NN term", "")
    with pytest.raises(UserError, match=r"more different tags \(3\) than different words \(2\)"):
        support.task(tmp_path, "own", described).load("train")


def test_signs_that_stay_at_words_are_told_once(tmp_path, capsys):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path)
    task.load("train")
    capsys.readouterr()
    for tokens in ("the file , no .", "Mr. U.S. 1,000 3:4 n't the Corp", "no ( the file )"):
        assert list(task.example({"text": tokens}, "here", 0).words) == tokens.split()
    assert not capsys.readouterr().out
    for text in ("the file, no", "no."):
        task.example({"text": text}, "here", 0)
    assert capsys.readouterr().out.count("'file,' is one word") == 1


def test_new_text(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path)
    task.load("train")
    split = parse(task, [{"words": ["the", "file"]}, {"text": "no"}], "new.jsonl")
    names = task.label_names
    rows = [[names.index("B-NP"), names.index("E-NP")], [names.index("O")]]
    predictions = at_words(task, split, rows)
    assert [answer["tags"] for answer in task.answers(split, predictions)] == [["B-NP", "I-NP"], ["O"]]
    assert complaint(split, task.answers(split, predictions)) is None
    path = task.write_submission("test", split, task.answers(split, predictions), tmp_path)[0]
    assert path.read_text() == "the B-NP\nfile I-NP\n\nno O\n\n"
    rows_to_refuse: list[dict] = [{"words": []}, {"text": " "}, {}, {"words": "the file"}]
    for bad in rows_to_refuse:
        with pytest.raises(UserError, match=r"new.jsonl, line 1"):
            parse(task, [bad], "new.jsonl")


@pytest.mark.parametrize("name", ["people.txt", "people.tsv", "people.conll"])
def test_the_file_that_a_tagger_learned_from_is_read_as_sentences_again(tmp_path, name):
    learned = write_lines(tmp_path / "ner" / "train.txt", "Maria\tB-PER", "laughs\tO", "", "in\tO", "Rome\tB-LOC", "")
    task = support.task(tmp_path, "ner")
    task.load("train")
    file = tmp_path / name
    file.write_text(learned.read_text())
    rows = [row.values for row in open_rows(str(file), task).rows]
    assert rows == [
        {"words": ["Maria", "laughs"], "tags": ["B-PER", "O"]},
        {"words": ["in", "Rome"], "tags": ["O", "B-LOC"]},
    ]


def test_words_without_tags_one_a_line_are_read_as_sentences(tmp_path):
    """Else the neighbours of a word would not be seen."""
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path)
    task.load("train")
    path = tmp_path / "new.txt"
    write_lines(path, "the", "file", "", "no", "")
    rows = [row.values for row in open_rows(str(path), task).rows]
    assert rows == [{"words": ["the", "file"]}, {"words": ["no"]}]
    write_lines(path, "the", "file")  # without a blank line these are texts
    assert len(list(open_rows(str(path), task).rows)) == 2
    write_lines(path, "the file", "", "no")
    texts = [row.values["text"] for row in open_rows(str(path), task).rows]
    assert texts == ["the file", "", "no"]


def test_the_column_of_the_tasks_tags_is_found_in_a_file_with_others(tmp_path, capsys):
    """A line of a word and its tags is never read as a text."""
    write_lines(tmp_path / "pos" / "train.txt", "Rome NN", "is VB", ". .", "")
    task = support.task(tmp_path, "pos")
    task.load("train")
    lines = ["Rome NN B-NP", "is VB B-VP", "", "Ann NN B-NP", ". . O", ""]
    file = write_lines(tmp_path / "new.conll", *lines)
    assert [row.values["tags"] for row in open_rows(str(file), task).rows] == [["NN", "VB"], ["NN", "."]]
    file = write_lines(tmp_path / "other.conll", "Rome x B-NP", "is y B-VP", "", "Ann x B-NP", ". z O", "")
    assert [row.values for row in open_rows(str(file), task).rows] == [
        {"words": ["Rome", "is"]},
        {"words": ["Ann", "."]},
    ]
    assert "other tags than pos has: words alone are read" in " ".join(capsys.readouterr().err.split())


def test_tags_are_scored_by_their_own_column_where_others_stand_last(tmp_path, capsys):
    write_lines(tmp_path / "pos" / "train.txt", "Rome NN", "is VB", ". .", "")
    write_lines(tmp_path / "pos" / "dev.txt", "Rome NN B-NP", "is VB B-VP", "", "Ann NN B-NP", ". . O", "")
    task = support.task(tmp_path, "pos")
    task.load("train")
    assert task.load("dev").golds == ["NN", "VB", "NN", "."]
    assert "the tags of pos stand in column 1, counted from 0" in " ".join(capsys.readouterr().out.split())


def test_texts_that_end_in_a_tag_are_texts(tmp_path):
    write_lines(tmp_path / "pos" / "train.txt", "Rome NN", "is VB", ". .", "")
    task = support.task(tmp_path, "pos")
    task.load("train")
    for lines in (["Rome is big .", "Ann is small ."], ["Rome is VB"], ["NN", "VB"], ["a b NN", "c VB"]):
        file = write_lines(tmp_path / "new.txt", *lines)
        assert [row.values for row in open_rows(str(file), task).rows] == [{"text": line} for line in lines]
