"""Question answering: bad files, windows, the answer head against plain loops, new questions, what is written."""

import dataclasses
import gzip
import io
import itertools
import json
import math
import shutil
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.vocabulary import SPECIAL_TOKENS
from electra_tf2.finetune import weights
from electra_tf2.finetune.data_report import data_table, trained_on
from electra_tf2.finetune.mistakes import (
    better_threshold,
    complaint,
    errors_of,
    hardly_answers,
    is_baseline,
    shown_errors,
)
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.results import figure_of, table
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.finetune.tasks.qa import QATask
from electra_tf2.finetune.tasks.qa_files import read_questions
from electra_tf2.finetune.tasks.qa_head import AnswerHead
from electra_tf2.finetune.tasks.qa_scores import COMPARISONS, squad_v2_scores
from electra_tf2.finetune.tasks.qa_windows import document_windows, max_context
from electra_tf2.formats.folders import SHIPPED
from electra_tf2.inference.labelling import open_rows
from electra_tf2.settings.kinds import KINDS
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support import stored_models
from tests.support.finetuning import parse, write_lines


@given(pieces=st.integers(1, 60), room=st.integers(1, 20), stride=st.integers(1, 25))
def test_windows_cover_a_document_and_share_out_its_pieces(pieces, room, stride):
    windows = document_windows(pieces, room, stride, 3)
    covered = np.zeros(pieces, int)
    owned = np.zeros(pieces, int)
    for window, best in zip(windows, max_context(windows), strict=True):
        assert 1 <= window.length <= room
        covered[window.start : window.start + window.length] += 1
        owned[window.start : window.start + window.length] += best
    assert covered.min() >= 1 and (owned == 1).all()
    assert all(b.start - a.start == min(stride, a.length) for a, b in itertools.pairwise(windows))


@given(st.data())
def test_the_best_threshold_as_printed_gives_the_best_score(data):
    """Also where it is best to answer nothing, or everything, and where odds are equal or next to each other."""
    odds = st.one_of(st.sampled_from([-2.75, -1.23456, -1.23449, 0.0, 3.0]), st.floats(-30, 30, width=32))
    drawn = data.draw(st.lists(odds, min_size=1, max_size=6))
    null_odds = {str(number): value for number, value in enumerate(drawn)}
    answers = {identity: data.draw(st.sampled_from([[], ["x"]])) for identity in null_odds}
    texts = {identity: data.draw(st.sampled_from(["x", "y", ""])) for identity in null_odds}
    scores = squad_v2_scores(answers, texts, null_odds, threshold=0.0)
    for name in ("exact", "f1"):
        threshold = float(figure_of(f"best_{name}_thresh", scores[f"best_{name}_thresh"]))
        again = squad_v2_scores(answers, texts, null_odds, threshold)
        assert again[name] == scores[f"best_{name}"]
        for other in (-31.0, *null_odds.values()):
            assert squad_v2_scores(answers, texts, null_odds, other)[name] <= again[name]


def test_a_clearly_better_threshold_is_named():
    def scores_of(questions: int) -> dict[str, float]:
        gold = {f"a{number}": ["x"] for number in range(questions)} | {f"b{number}": [] for number in range(questions)}
        answers = {name: "x" if name.startswith("a") else "y" for name in gold}
        null_odds = {name: -2.0 if name.startswith("a") else -1.5 for name in gold}
        return squad_v2_scores(gold, answers, null_odds, threshold=-2.75)

    assert better_threshold(scores_of(5)) == "with --qa-na-threshold -2 F1 is 100 in place of 50"
    assert better_threshold(scores_of(4)) == ""  # four questions may be chance
    assert better_threshold(scores_of(5) | {"best_f1": 50.5}) == better_threshold({"f1": 3.0}) == ""


@given(st.integers(2, 60), st.integers(1, 200), st.data())
def test_half_a_window_lies_whole_in_one(room, pieces, data):
    """So that an answer of that length is seen whole, however short the input is."""
    windows = document_windows(pieces, room, min(128, room // 2), 3)
    length = data.draw(st.integers(1, min(pieces, room // 2)))
    first = data.draw(st.integers(0, pieces - length))
    assert any(window.positions(first, first + length - 1) for window in windows)


def test_windows_of_short_inputs_overlap(tmp_path):
    task = make(tmp_path, max_seq_length=40, doc_stride=128)
    original = make(tmp_path, max_seq_length=40, doc_stride=128, compat="original")
    steps = []
    for one in (task, original):
        first, second, *_ = parse(one, [{"question": "who", "context": "the " * 90}], "new").examples[0].windows
        steps.append((second.start, first.length))
    (step, room), (original_step, original_room) = steps
    assert step == room // 2 and original_step == original_room == room


def test_of_thresholds_that_are_as_good_the_first_is_the_best():
    scores = squad_v2_scores({"a": ["x"], "b": []}, {"a": "x", "b": ""}, {"a": 0.1, "b": 0.2}, threshold=0.0)
    assert (scores["best_exact"], scores["best_exact_thresh"], scores["best_f1_thresh"]) == (100, 0.1, 0.1)
    for threshold, expected in ((0.5, (50, 100, 0)), (0.4999, (50, 0, 100))):  # above it alone no answer is given
        scores = squad_v2_scores({"a": ["x"], "b": []}, {"a": "x", "b": "y"}, {"a": 0.5, "b": 0.5}, threshold)
        assert (scores["exact"], scores["HasAns_exact"], scores["NoAns_exact"]) == expected


@pytest.mark.parametrize(
    ("kind", "gold", "predicted", "exact", "f1"),
    [
        ("words", "北京市", "北京", 0, 0),
        ("characters", "서울특별시", "서울특별시에서", 0, 10 / 12),  # a particle
        ("characters", "《춘향전》", "'춘향전'", 1, 1),
        ("characters", "The BTS", "bts the.", 0, 1),  # characters, in whatever order
        ("chinese", "北京市", "北京", 0, 0.8),
        ("chinese", "“北京”。", "北京", 1, 1),
        ("chinese", "光荣三国志", "三国光荣志", 0, 4 / 10),  # of what is in common, the longest stretch
        ("chinese", "Windows 10系统", "windows 10", 0, 4 / 6),  # words of other scripts are one token each
    ],
)
def test_answers_are_compared_as_the_task_says(kind, gold, predicted, exact, f1):
    comparison = COMPARISONS[kind]
    assert (comparison.exact(gold, predicted), comparison.f1(gold, predicted)) == pytest.approx((exact, f1))


def make(tmp_path, name="squad", **overrides) -> QATask:
    return support.task(tmp_path, name, **overrides)


CONTEXT = "The first line of the file is a list of names, and the last line of it is empty."


def question(identity="a", text="Which line is empty?", answer="the last line", start=51, **more):
    answers = [{"text": answer, "answer_start": start}]
    return {"id": identity, "question": text, "answers": answers, **more}


def write(tmp_path, *questions, context=CONTEXT, split="train", name="squad"):
    path = tmp_path / name / f"{split}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
    return path


@pytest.mark.parametrize(
    ("questions", "context", "message"),
    [
        (None, CONTEXT, r"no file of split 'train': looked for train.json, .* in .*squad"),
        ([], CONTEXT, r"train.json holds no questions"),
        ([question(text=" ")], CONTEXT, r"train.json: 1 question left out: question a: an empty question"),
        ([question()], " ", r"train.json: 1 question left out: question a: an empty context"),
        ([question(), question()], CONTEXT, r"the question id a occurs twice"),
        ([question(answer="a table")], CONTEXT, r"question a: 'a table' is not at character 51, where 'the last'"),
        ([question(start=500)], CONTEXT, r"question a: 'the last line' ends outside of the context"),
        ([{"id": "a", "answers": []}], CONTEXT, r"train.json.*the field 'question' is missing"),
        ([question() | {"answers": [{"text": "x"}]}], CONTEXT, r"question a: the field 'answer_start' is missing"),
        ([question(start="x")], CONTEXT, "question a: answer_start must be a whole number, got 'x'"),
        ([question(start=10**200)], CONTEXT, "'the last line' ends outside of the context"),
        ([question() | {"answers": 5}], CONTEXT, "question a: answers must be a list, got 5"),
        ([question() | {"answers": [5]}], CONTEXT, "the field 'text' is missing or of the wrong type; got 5"),
        (b"", CONTEXT, "train.json.*not valid JSON"),
        (b"\xff\xfe", CONTEXT, "train.json is not UTF-8 text"),
        (b"[1]", CONTEXT, "train.json.*a JSON object is needed"),
        (b"[" * 100_000, CONTEXT, "train.json.*(nested more than|not valid JSON)"),
        (b'{"data": 5}', CONTEXT, "train.json.*the field 'data' is missing or of the wrong type"),
        (b'{"data": [5]}', CONTEXT, "train.json.*'paragraphs' is missing or of the wrong type; got 5"),
    ],
)
def test_bad_files_name_the_question(tmp_path, questions, context, message):
    if isinstance(questions, bytes):
        write(tmp_path).write_bytes(questions)
    elif questions is not None:
        write(tmp_path, *questions, context=context)
    with pytest.raises(UserError, match=message):
        make(tmp_path).load("train")


def test_questions_without_a_text_or_a_context_are_left_out_and_counted(tmp_path, capsys):
    write(tmp_path, question("a"), question("b", text=" "), question("c"))
    assert [example.question.id for example in make(tmp_path).load("train").examples] == ["a", "c"]
    assert "train.json: 1 question left out: question b: an empty question" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"": "0", "answer": "Anna"}, ["Anna"]),  # pandas' index
        ({"header": "a", "answer": "Anna"}, ["Anna"]),
        ({"answers": None, "answer": "Anna"}, ["Anna"]),
        ({"answers": {"text": [""], "answer_start": [0]}}, []),
        ({"answers": [{"text": " ", "answer_start": 4}]}, []),
        ({"answers": {"text": "", "answer_start": 0}}, []),
        ({"answer": "-"}, []),
        ({"answer": '"Anna"'}, ["Anna"]),
        ({"answer": "„Anna lives”."}, ["Anna lives"]),
        ({"answer": "“Anna.”"}, ["Anna"]),
    ],
)
def test_what_else_a_row_holds_is_no_question_and_blank_answers_are_none(tmp_path, row, answers):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row | {"question": "Who lives?", "context": "Anna lives here"}) + "\n")
    [read] = read_questions(path, v2=True, training=True)
    assert (read.text, read.paragraph.text) == ("Who lives?", "Anna lives here")
    assert read.answers == answers and read.is_impossible == (not answers)


def test_a_failed_lookup_of_a_spreadsheet_is_no_answer_that_says_none(tmp_path, capsys):
    lines = ["question,context,answer", "Who?,Anna lives here,#N/A", "Where?,Anna lives here,here"]
    path = write_lines(tmp_path / "a.csv", *lines)
    for training in (True, False):
        [read] = read_questions(path, v2=True, training=training)
        warned = " ".join(capsys.readouterr().err.split())
        assert read.answers == ["here"]
        assert "1 question left out: line 2: in the place of the answer a spreadsheet's failed lookup" in warned


@pytest.mark.parametrize(
    ("may_lack_answer", "flags", "said"),
    [
        (True, {}, "train with --no-joint-prediction --no-answerable-classifier"),
        (False, {}, "--no-joint-prediction trains a model that can leave"),
        (True, {"joint_prediction": False}, "--no-answerable-classifier trains a model that leaves whole"),
        (True, {"joint_prediction": False, "answerable_classifier": False}, ""),
        (False, {"joint_prediction": False}, ""),
    ],
)
def test_what_a_model_needs_to_leave_is_said_before_it_is_trained(tmp_path, capsys, may_lack_answer, flags, said):
    asked = [question()]
    if may_lack_answer:
        asked.append(question("b") | {"answers": [], "is_impossible": True})
    write(tmp_path, *asked, name="mine")
    make(tmp_path, "mine", tasks={"mine": {"type": "qa", "held_out": 0}}, **flags).load("train")
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed and ("Hugging Face" in printed) == bool(said)


def test_shipped_models_are_said_to_be_small_for_questions(tmp_path, capsys):
    write(tmp_path, question(), name="mine")
    for start in (str(SHIPPED / "electra_mini"), str(tmp_path)):
        task = make(tmp_path, "mine", tasks={"mine": {"type": "qa", "held_out": 0}})
        task.config = dataclasses.replace(task.config, init_checkpoint=start)
        task.load("train")
        printed = " ".join(capsys.readouterr().out.split())
        assert ("the shipped models are too small" in printed) == (start != str(tmp_path))


def test_the_number_of_a_line_is_no_others_id(tmp_path):
    path = tmp_path / "mine" / "train.jsonl"
    rows = [{"id": identity, "question": "Who?", "context": "Anna", "answer": "Anna"} for identity in (2, None)]
    write_lines(path, *map(json.dumps, rows))
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa"}})
    assert [read.id for read in task.read("train").examples] == ["2", "1-2"]


def test_answers_that_are_looked_for_are_those_of_the_context_and_are_told_where_inside_words(tmp_path, capsys):
    path = tmp_path / "a.csv"
    context = "No photographs: it is not allowed, E\u0301lodie says."
    decomposed = "E\u0301lodie"
    write_lines(path, "question,context,answer", f'Who?,"{context}",\u00c9lodie', f'What?,"{context}",ot all')
    first, second = read_questions(path, v2=True, training=True)
    assert first.answers == [decomposed] and second.answers == ["ot all"]
    warned = " ".join(capsys.readouterr().err.split())
    assert "1 answer found only inside other words, and learned so: line 3: 'ot all'" in warned


def test_answers_in_text_without_blanks_stand_in_no_other_word(tmp_path, capsys):
    path = tmp_path / "a.csv"
    write_lines(path, "question,context,answer", "谁？,王明住在北京。,王明", "誰？,田中さんは東京に住む。,東京")
    assert [question.answer for question in read_questions(path, v2=True, training=True)] == ["王明", "東京"]
    assert "inside other words" not in capsys.readouterr().err


def test_answers_that_seem_to_say_that_there_is_none_are_told(tmp_path, capsys):
    path = tmp_path / "a.csv"
    write_lines(path, "question,context,answer", "Who?,Anna lives,Anna", "Where?,Anna lives,N/A")
    assert len(read_questions(path, v2=True, training=True)) == 1
    warned = " ".join(capsys.readouterr().err.split())
    assert "line 3: 'N/A' is not there. Leave the cell empty where there is no answer: 1 have n/a" in warned


def test_single_questions_are_held_out_where_documents_are_few(tmp_path, capsys):
    rows = [{"question": f"Who {number}?", "context": "Anna lives", "answer": "Anna"} for number in range(20)]
    write_lines(tmp_path / "mine" / "train.jsonl", *map(json.dumps, rows))
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa"}})
    assert [len(task.load(split).examples) for split in ("train", "dev")] == [18, 2]
    assert "10 % of train held out (seed 0), single questions" in " ".join(capsys.readouterr().out.split())


def test_swapped_columns_are_told(tmp_path):
    path = tmp_path / "a.csv"
    write_lines(path, "context,question,answer", *(f"Who is {n}?,Anna {n} is here,Anna {n}" for n in range(9)))
    with pytest.raises(UserError, match="9 answers stand in the question, not in the context: are the two columns"):
        read_questions(path, v2=True, training=True)


def test_the_head_of_other_questions_goes_on(tmp_path):
    """Whatever the task was called; its layer that tells whether there is an answer only if it has learned that."""
    stored = stored_models.fine_tuned(
        "old",
        stored_models.SPANS | stored_models.dense(1, "answerable"),
        {"v2": False},
        tasks={"old": {"type": "qa"}},
        joint_prediction=False,
        answerable_uses_start_logits=False,
    )
    task = make(
        tmp_path, "mine", tasks={"mine": {"type": "qa"}}, joint_prediction=False, answerable_uses_start_logits=False
    )
    model = FinetuningModel(task.config, [task], 0)
    names = weights.head_of_questions(model, task.config, stored)
    assert set(names) == {f"task_specific/mine/{part}" for part in stored_models.SPANS}
    stored = stored.changed(task_states={"old": {"v2": True}})
    assert len(weights.head_of_questions(model, task.config, stored)) == len(names) + 2


def test_no_answer_is_given_where_no_span_may_be_one(tmp_path):
    """The original then answers with the word "empty"."""
    write(tmp_path, question())
    for compat, text in (("none", ""), ("original", "empty")):
        task = make(tmp_path, max_seq_length=64, n_best_size=1, joint_prediction=False, compat=compat)
        split = task.load("train")
        logits = np.zeros(len(split.features[0].input_ids), np.float32)
        logits[0] = 9  # the likeliest start and end is [CLS]
        prediction: dict[str, Any] = {"start_logits": logits, "end_logits": logits, "answerable_logit": np.float32(-9)}
        [answer] = task.answers(split, [prediction])
        assert answer["prediction_text"] == text


def test_a_question_too_long_for_the_length_is_an_error(tmp_path):
    write(tmp_path, question(text="which line of the file is it " * 9))
    with pytest.raises(UserError, match="lower max_query_length"):
        make(tmp_path, max_seq_length=32, max_query_length=30).load("train")


BORN, UNSPACED = "Born (1895-1943), 1895 to 1943 in  Rome.", "北京在北方。後にカフェで北京オペラを見た。"


@pytest.mark.parametrize(
    ("context", "answer", "start", "said"),
    [
        (BORN, "1895", 6, "1895"),
        (BORN, "1895", 5, "1895"),  # the file is off by one
        (BORN, "1895", 18, "1895"),
        (BORN, "in rome", 31, "in  Rome"),
        (BORN, " Rome", 34, "Rome"),
        (BORN, "Ro", 35, "Rome"),  # all of a piece, but not the full stop behind it
        (UNSPACED, "北京", 0, "北京"),
        (UNSPACED, "北京", 12, "北京"),
        (UNSPACED, "カフェ", 8, "カフェ"),
    ],
)
def test_the_pieces_that_are_learned_are_those_of_the_answers_characters(tmp_path, context, answer, start, said):
    write(tmp_path, question(answer=answer, start=start), context=context)
    words = ["born", "1895", "1943", "to", "in", "rome", *"(-),.北京在方後に。", "##カ", "##フ", "##ェ", "##て"]
    tokenizer = WordpieceTokenizer([*SPECIAL_TOKENS, *words])
    (task,) = make_tasks(support.config("squad", raw_data_dir=str(tmp_path), max_seq_length=64), tokenizer)
    split = task.load("train")
    (feature,), (_, document, (window,)) = split.features, split.examples[0]
    first, last = (feature.labels[f"{end}_positions"] - window.offset for end in ("start", "end"))
    begin, behind = document.spans[first, 0], document.spans[last, 1]
    assert context[begin:behind] == said and abs(begin - start) <= 1
    (found,) = task.answers(split, [perfect(task, feature)])
    assert (found["start"], found["end"], found["prediction_text"]) == (begin, behind, " ".join(said.split()))
    assert found["nbest"][0] == {"text": found["prediction_text"], "probability": 1.0, "start": begin, "end": behind}


def test_squads_json_is_answered_as_it_is_learned(tmp_path, monkeypatch):
    path = write(tmp_path, question(), question("b", "Where is it?") | {"answers": []})
    rows = [row.values for row in open_rows(str(path), make(tmp_path)).rows]
    assert [(row["id"], row["question"], row["context"]) for row in rows] == [
        ("a", "Which line is empty?", CONTEXT),
        ("b", "Where is it?", CONTEXT),
    ]
    assert rows[0]["answers"] == ["the last line"] and "answers" not in rows[1]
    monkeypatch.setattr("sys.stdin", io.StringIO(path.read_text()))
    with pytest.raises(
        UserError, match=r"standard input holds SQuAD's .* a row a line, .\"question\": ..., \"context\""
    ):
        open_rows("-", make(tmp_path))


@pytest.mark.parametrize("policy", ["cls", "skip", "impossible"])
def test_windows_without_the_answer(tmp_path, policy):
    write(tmp_path, question())
    task = make(tmp_path, max_seq_length=24, doc_stride=8, qa_out_of_span=policy)
    labels = [feature.labels for feature in task.load("train").features]
    without = [label for label in labels if label["start_positions"] == 0]
    assert len(labels) > len(without)
    assert bool(without) == (policy != "skip")
    assert all(label["is_impossible"] == int(policy == "impossible") for label in without)
    whole = len(task.load("train").examples[0].windows)
    assert whole == len(labels)


def test_a_question_without_a_window_to_learn_from_is_left_out(tmp_path):
    """As where write_distill_outputs asks for the answers to what was trained on."""
    write(tmp_path, question("long", answer=CONTEXT, start=0), question())
    task = make(tmp_path, max_seq_length=24, doc_stride=8, qa_out_of_span="skip")
    split = task.load("train")
    answers = task.answers(split, [perfect(task, feature) for feature in split.features])
    assert [answer["id"] for answer in answers] == ["a"] and answers[0]["prediction_text"] == "the last line"


def naive_logits(head, states, allowed, start):
    """End logits given one start, by the concatenation that the paper describes; float64."""

    def dense(layer, x):
        return x @ np.float64(layer.kernel.numpy()) + np.float64(layer.bias.numpy())

    pairs = np.concatenate([np.repeat(states[start][None], len(states), 0), states], -1)
    hidden = dense(head.end_hidden, pairs)
    hidden = 0.5 * hidden * (1 + np.vectorize(math.erf)(hidden / np.sqrt(2)))
    return dense(head.end, hidden)[:, 0] + 1000 * (allowed - 1)


def test_the_joint_head_is_the_papers(tmp_path):
    random = np.random.RandomState(0)
    batch, length, size = 3, 14, 8
    config = support.config("squad", beam_size=4)
    head = AnswerHead("task_specific/squad", size, config, seed=1)
    states = random.randn(batch, length, size).astype(np.float32)
    mask = np.ones((batch, length), np.int32)
    mask[1, 10:] = 0
    segments = np.zeros((batch, length), np.int32)
    segments[:, 5:] = mask[:, 5:]
    labels = {"start_positions": [6, 0, 9], "end_positions": [8, 0, 9], "is_impossible": [0, 1, 0]}
    inputs = HeadInput(
        tf.constant(states),
        tf.constant(mask),
        tf.constant(segments),
        {name: tf.constant(value) for name, value in labels.items()},
    )
    output = head.call(inputs, None, training=False)
    trained = head.call(inputs, None, training=True)
    for row in range(batch):
        allowed = segments[row].astype(float)
        allowed[0] = 1
        x = states[row].astype(np.float64)
        start = x @ head.start.kernel.numpy().astype(np.float64)[:, 0] + 1000 * (allowed - 1)
        start -= np.logaddexp.reduce(start)
        best = np.argsort(-start)[:4]
        assert output.predictions["start_top_index"][row].numpy().tolist() == best.tolist()
        np.testing.assert_allclose(output.predictions["start_top_log_probs"][row], start[best], rtol=1e-4)
        for k, position in enumerate(best):
            end = naive_logits(head, x, allowed, position)
            end -= np.logaddexp.reduce(end)
            top = np.argsort(-end)[:4]
            np.testing.assert_allclose(output.predictions["end_top_log_probs"][row][k], end[top], rtol=1e-4)
        gold = naive_logits(head, x, allowed, labels["start_positions"][row])
        gold -= np.logaddexp.reduce(gold)
        loss = -0.5 * (start[labels["start_positions"][row]] + gold[labels["end_positions"][row]])
        odds = float(output.predictions["answerable_logit"][row])
        sign = 1 if labels["is_impossible"][row] else -1
        loss += config.answerable_weight * np.logaddexp(0, -sign * odds)
        assert trained.losses is not None and float(trained.losses[row]) == pytest.approx(loss, rel=1e-4)
    assert trained.predictions == {} and output.losses is None, "the answers' places are known in training data alone"


def perfect(task, feature):
    """Predictions that are certain of the labels."""
    size = task.config.beam_size
    place = {name: np.zeros(size, np.int64) for name in ("start_top_index",)}
    scores = np.full(size, -50.0)
    scores[0] = 0.0
    start, end = feature.labels["start_positions"], feature.labels["end_positions"]
    place["start_top_index"][0] = start
    ends = np.zeros((size, size), np.int64)
    ends[0, 0] = end
    odds = 10.0 if feature.labels["is_impossible"] else -10.0
    return place | {
        "start_top_log_probs": scores,
        "end_top_index": ends,
        "end_top_log_probs": np.tile(scores, (size, 1)),
        "answerable_logit": np.float32(odds),
    }


def test_perfect_predictions_score_100_and_are_written(tmp_path):
    questions = [question(), question("b", is_impossible=True) | {"answers": []}]
    write(tmp_path, *questions)
    write(tmp_path, *questions, split="dev")
    task = make(tmp_path, max_seq_length=64)
    labelled, split = task.load("train"), task.load("dev")
    predictions = [perfect(task, feature) for feature in labelled.features]
    scores = task.scores(split, predictions)
    assert scores["exact"] == scores["f1"] == scores["best_f1"] == 100 and scores["NoAns_total"] == 1
    answers = task.answers(split, predictions)
    paths = task.write_submission("dev", split, answers, tmp_path)
    files = {path.name: json.loads(path.read_text()) for path in paths}
    assert files["squad_dev_preds.json"]["a"] == "the last line"
    assert files["squad_dev_null_odds.json"]["b"] == 10
    assert files["squad_dev_nbest.json"]["a"][0]["text"] == "the last line"
    assert [answer["prediction_text"] for answer in answers] == ["the last line", ""]
    at_threshold = make(tmp_path, max_seq_length=64, qa_na_threshold=-10.0).answers(split, predictions)
    assert at_threshold[0]["null_odds"] == -10 and at_threshold[0]["prediction_text"] == "the last line"


def test_new_questions(tmp_path):
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa", "v2": True}})
    split = parse(task, [{"question": "Which line?", "context": CONTEXT, "id": 5}], "new.jsonl")
    assert split.examples[0].question.id == "5" and len(split.features) == len(split.examples[0].windows)
    with pytest.raises(UserError, match=r"new\.jsonl, line 1: an empty context"):
        parse(task, [{"question": "x", "context": "\u200b"}], "new.jsonl")
    for row in ({"question": "x"}, {"question": "", "context": "a"}, {"question": "x", "context": " "}):
        with pytest.raises(UserError, match=r"new\.jsonl, line 1"):
            parse(task, [row], "new.jsonl")
    with pytest.raises(UserError, match="unknown key 'v3'; did you mean 'v2'"):
        make(tmp_path, "mine", tasks={"mine": {"type": "qa", "v3": True}})


def test_damaged_mrqa_files_are_named(tmp_path):
    header = '{"header": {}}'
    fields: list[dict] = [
        {"detected_answers": [{"text": "a", "char_spans": spans}]} for spans in ([], [[0]], ["x"], [[0, 1e400]])
    ]
    messages = [r"char_spans must be like \[\[first, last\]\]"] * 4
    fields += [{"detected_answers": 5}, {"answers": "a"}, {"answers": [5]}]
    messages += ["detected_answers must be a list, got 5", "answers must be a list, got 'a'", "must be text, got 5"]
    for wrong, message in zip(fields, messages, strict=True):
        qa = {"qid": 1, "question": "c"} | wrong
        path = write_lines(tmp_path / "train.jsonl", header, json.dumps({"context": "a b", "qas": [qa]}))
        with pytest.raises(UserError, match=f"line 2, question 1: .*{message}"):
            read_questions(path, v2=False, training=True)
    packed = tmp_path / "train.jsonl.gz"
    packed.write_bytes(gzip.compress(header.encode() * 1000)[:-20])
    for _ in range(2):
        with pytest.raises(UserError, match=r"train\.jsonl\.gz cannot be read"):
            read_questions(packed, v2=False, training=True)
        packed.write_bytes(b"not gzip")


def test_a_document_whose_questions_are_left_out_moves_no_other_from_training_to_the_held_out_part(tmp_path, capsys):
    paragraphs = [{"context": f"{CONTEXT} {n}", "qas": [question(f"q{n}", start=51)]} for n in range(40)]
    paragraphs[5]["qas"][0]["answers"][0]["answer_start"] = 0
    path = write(tmp_path, name="mine")
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa", "held_out": 0.25}}, max_seq_length=64)
    train, dev = ({example.question.id for example in task.load(split).examples} for split in ("train", "dev"))
    assert not train & dev and len(train | dev) == 39
    assert "1 question left out" in capsys.readouterr().err


def test_the_same_question_about_another_document_is_no_repetition(tmp_path):
    write(tmp_path, question())
    write(tmp_path, question(), split="dev")
    task = make(tmp_path)
    assert trained_on(task, {name: task.load(name) for name in ("train", "dev")}).startswith("100 % of dev")
    write(tmp_path, question(start=60), split="dev", context=f"Another: {CONTEXT}")
    task = make(tmp_path)
    assert trained_on(task, {name: task.load(name) for name in ("train", "dev")}) == ""


def test_new_questions_may_share_an_id(tmp_path):
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa"}}, max_seq_length=64)
    rows = [{"question": text, "context": CONTEXT, "id": "7"} for text in ("Which line?", "Which list?")]
    split = parse(task, rows, "new.jsonl")
    answers = task.answers(split, [perfect(task, feature) for feature in split.features])
    assert [answer["id"] for answer in answers] == ["7", "7"]


def test_the_surest_wrong_answers_are_listed(tmp_path):
    write(tmp_path, *(question(name) for name in "abcd"), question("e", is_impossible=True) | {"answers": []})
    write(tmp_path, *(question(name) for name in "abcd"), split="dev")
    task = make(tmp_path, max_seq_length=64)
    split = task.load("train")
    gold = split.examples[0].question.answers[0]
    sure = [("a", "wrong", 0.6), ("b", gold.upper(), 0.9), ("c", "other", 0.8), ("d", "", 0.0), ("e", gold, 0.7)]
    answers = []
    for identity, text, probability in sure:
        nbest = [{"text": text, "probability": probability}]
        odds = -9.0 if text else 9.0
        answers.append({"id": identity, "prediction_text": text, "null_odds": odds, "nbest": nbest})
    mistakes = errors_of(task, split, answers)["mistakes"]
    listed = [(mistake["label"], mistake["gold"]) for mistake in mistakes]
    assert listed == [("(no answer)", gold), ("other", gold), (gold, "(no answer)"), ("wrong", gold)]
    shown = shown_errors("squad dev", {"mistakes": mistakes})
    assert f"{gold}, predicted other 0.80: " in shown
    assert f"{gold}, predicted (no answer): " in shown


def test_a_model_that_never_answers_is_known_and_has_a_baseline_beside_it(tmp_path, capsys):
    write(tmp_path, *(question(name) for name in "abc"), question("d", is_impossible=True) | {"answers": []})
    shutil.copy(tmp_path / "squad" / "train.json", tmp_path / "squad" / "dev.json")
    task = make(tmp_path, max_seq_length=64)
    splits = {name: task.load(name) for name in ("train", "dev")}
    rows = [" ".join(line.split()) for line in data_table(task, splits).splitlines()]
    assert {"questions 4 4", "with an answer 3 (75 %) 3 (75 %)", "no answer 1 (25 %) 1 (25 %)"} <= {*rows}
    dev = splits["dev"]
    assert task.majority(dev) == {"exact": 25.0, "f1": 25.0} and task.num_scored(dev) == 4
    predictions = [perfect(task, feature) | {"answerable_logit": np.float32(9)} for feature in splits["train"].features]
    scores = task.scores(dev, predictions)
    assert is_baseline("f1", scores, task.majority(dev)) and (scores["exact"], scores["f1"]) == (25, 25)
    problem = complaint(dev, task.answers(dev, predictions), steps=40)
    assert "collapsed: no answer to any of 4 questions, though some have one; 40 steps are few" in str(problem)
    assert "40 steps" not in str(complaint(dev, task.answers(dev, predictions), steps=5000))
    shown = table([{"squad": {"dev": scores}}], {"squad": {"dev": task.majority(dev)}}, {"squad": "always no answer"})
    assert "f1 of always no answer" in shown
    right = [perfect(task, feature) for feature in splits["train"].features]
    assert complaint(dev, make(tmp_path, max_seq_length=64).answers(dev, right)) is None
    # Where no question has an answer, none is right.
    write(tmp_path, question("d", is_impossible=True) | {"answers": []}, split="dev")
    task = make(tmp_path, max_seq_length=64)
    task.load("train")
    alone = task.load("dev")
    assert complaint(alone, task.answers(alone, predictions[:1]) * 2) is None


def test_a_task_without_impossible_questions_has_no_baseline_and_tells_what_it_cannot_score(tmp_path, capsys):
    write(tmp_path, question("a"), name="mine")
    write(tmp_path, question("a"), question("b") | {"answers": []}, split="dev", name="mine")
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa"}}, max_seq_length=64)
    train, dev = task.load("train"), task.load("dev")
    assert task.majority(dev) == {} and task.num_scored(dev) == 1 and "answer" not in data_table(task, {"dev": dev})
    assert "mine dev: 1 of 2 questions have no answer and are not scored" in capsys.readouterr().err
    assert hardly_answers({"exact_match": 0.0, "f1": 19.0}) and not hardly_answers({"exact_match": 0.0, "f1": 21.0})
    assert hardly_answers({"f1": 60.0, "HasAns_f1": 9.0})
    same = task.answers(train, [perfect(task, feature) for feature in train.features]) * 3
    assert "collapsed: the same answer, 'the last line', 3 times, though" in str(complaint(train, same))


def test_windows_are_counted_apart_from_questions(tmp_path):
    write(tmp_path, question())
    task = make(tmp_path, max_seq_length=24, doc_stride=8)
    split = task.load("train")
    rows = [" ".join(line.split()) for line in data_table(task, {"train": split}).splitlines()]
    assert "questions 1" in rows and f"windows {len(split.features)}" in rows and len(split.features) > 1
    kind = KINDS["qa"]
    assert kind.name_of_inputs(65, 40) == "window" and kind.name_of_inputs(40, 40) == "question"


def test_questions_without_ids_are_numbered(tmp_path):
    """Written by hand, such files often have none. Messages name the question by its text."""
    asked = [{name: value for name, value in question(f"{n}").items() if name != "id"} for n in range(3)]
    asked[1]["id"] = None
    path = write(tmp_path, *asked, name="mine")
    read = read_questions(path, v2=True, training=True)
    assert [(one.id, one.has_id) for one in read] == [("1", False), ("2", False), ("3", False)]
    write(tmp_path, *asked, name="mine", split="dev")
    task = make(tmp_path, "mine", tasks={"mine": {"type": "qa"}})
    assert [example.question.id for example in task.load("dev").examples] == ["1", "2", "3"]
    asked[2]["question"] = 5
    with pytest.raises(UserError, match=r"train\.json, question 5: the field 'question' is missing or of the wrong"):
        read_questions(write(tmp_path, *asked, name="mine"), v2=True, training=True)


def test_paragraphs_of_squad_may_be_lines(tmp_path):
    """Only MRQA's questions under "qas" have qid and detected_answers."""
    whole = write(tmp_path, question(), question("b", "Which line is a list?", "The first line", 0))
    paragraph = json.loads(whole.read_text())["data"][0]["paragraphs"][0]
    lines = write_lines(tmp_path / "own.jsonl", json.dumps(paragraph))
    read = [read_questions(path, v2=True, training=True) for path in (whole, lines)]
    asked = [[(one.id, one.text, one.answers, one.place) for one in questions] for questions in read]
    assert asked[0] == asked[1] and len(asked[0]) == 2
