"""Tagging: files, label sets, words that do not fit, scores, new text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.conll import bio, bioes, read_sentences, spans_of
from electra_tf2.finetune.tasks.tagging import TaggingTask, tagging_scores
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support.finetuning import write_lines

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


def test_conllevals_rules():
    assert [tuple(span) for span in spans_of(["I-A", "I-B", "O", "I-C-D", "B-C-D"])] == [
        (0, 0, "A"),
        (1, 1, "B"),
        (3, 3, "C-D"),
        (4, 4, "C-D"),
    ]


def make(tmp_path, name="chunk", tokenizer=None, **overrides):
    config = support.config(name, raw_data_dir=str(tmp_path), **overrides)
    return make_tasks(config, tokenizer or support.tokenizer())[0]


TRAIN = ("the x B-NP", "file x I-NP", "is x B-VP", "", "no x O", ". x O")


def test_a_type_has_all_its_labels(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    write_lines(tmp_path / "chunk" / "dev.txt", "is x B-VP", "not x I-VP", "open x I-VP")
    task = make(tmp_path)
    assert task.label_names == sorted(["O", *(f"{p}-{t}" for p in "BIES" for t in ("NP", "VP"))])
    assert task.load("dev").examples[0].labels == ["B-VP", "I-VP", "E-VP"]
    other = make(tmp_path)
    other.check_state(task.state())
    with pytest.raises(UserError, match="trained on the labels X, but the data has"):
        other.check_state({"labels": ["X"]})


def test_words_that_do_not_fit_are_scored_all_the_same(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    write_lines(tmp_path / "chunk" / "dev.txt", *(f"file x {tag}-NP" for tag in "BB"), *["file x B-NP"] * 10)
    task = make(tmp_path, max_seq_length=8)
    split = task.load("dev")
    fitting = len(split.features[0].labels["labels"])
    assert len(split.features[0].input_ids) <= 8 and 0 < fitting < 12
    perfect = {"predictions": np.array([*split.features[0].labels["labels"], 0, 0]), "scores": np.ones(8)}
    scores = task.scores(split, [perfect])
    assert scores["precision"] == 100 and scores["recall"] == pytest.approx(100 * fitting / 12)
    assert len(task.answers(split, [perfect])[0]["tags"]) == 12


@pytest.mark.parametrize(
    ("split", "lines", "message"),
    [
        ("train", ["the x B-NP", "alone"], r"train.txt, line 2: a word and a tag are needed"),
        ("train", ["", ""], "holds no sentences"),
        ("train", ["the x NP"], r"line 1: 'NP' is neither O nor"),
        ("dev", None, r"no file of split 'dev': looked for .*dev\.txt"),
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
    scores = task.scores(split, [{"predictions": np.array([wrong, wrong, 0]), "scores": np.ones(3)}])
    assert scores == {"accuracy": 50.0} and task.primary_metric == "accuracy"


def test_new_text(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path)
    split = task.parse([{"words": ["the", "file"]}, {"text": "no"}], "new.jsonl")
    names = task.label_names
    rows = [[names.index("B-NP"), names.index("E-NP")], [names.index("O")]]
    predictions = [{"predictions": np.array(row), "scores": np.full(len(row), 0.5)} for row in rows]
    assert [answer["tags"] for answer in task.answers(split, predictions)] == [["B-NP", "I-NP"], ["O"]]
    assert task.complaint(split, predictions) is None
    path = task.write_submission("test", split, predictions, tmp_path)[0]
    assert path.read_text() == "the B-NP\nfile I-NP\n\nno O\n\n"
    rows_to_refuse: list[dict] = [{"words": []}, {"text": " "}, {}, {"words": "the file"}]
    for bad in rows_to_refuse:
        with pytest.raises(UserError, match=r"new.jsonl, line 1"):
            task.parse([bad], "new.jsonl")


def test_words_that_did_not_fit_have_no_probability(tmp_path):
    write_lines(tmp_path / "chunk" / "train.txt", *TRAIN)
    task = make(tmp_path, max_seq_length=8)
    split = task.parse([{"words": ["the"] * 12}], "new.jsonl")
    (answer,) = task.answers(split, [{"predictions": np.zeros(8, np.int64), "scores": np.full(8, 0.5)}])
    assert answer["probabilities"] == [0.5] * 6 + [0.0] * 6 and len(answer["tags"]) == 12


def test_a_last_sentence_needs_no_blank_line(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a O\n\nb O")
    assert [sentence.words for sentence in read_sentences(path)] == [["a"], ["b"]]
    assert [sentence.line for sentence in read_sentences(path)] == [1, 3]


def test_ones_own_tagging_task(tmp_path):
    write_lines(tmp_path / "mine" / "train.txt", *TRAIN)
    task = make(tmp_path, "mine", tasks={"mine": {"type": "tagging", "held_out": 0}})
    assert isinstance(task, TaggingTask) and task.load("train").examples[0].labels == ["B-NP", "E-NP", "S-VP"]
    with pytest.raises(UserError, match="unknown key 'span'; did you mean 'spans'"):
        make(tmp_path, "mine", tasks={"mine": {"type": "tagging", "span": True}})
