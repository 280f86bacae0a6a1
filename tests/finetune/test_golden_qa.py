"""Windows, positions, decoding and scores of question answering equal the original's and the official scripts'."""

import numpy as np
import pytest

from electra_tf2.finetune.tasks.qa import QATask
from electra_tf2.finetune.tasks.qa_answers import final_text
from electra_tf2.finetune.tasks.qa_files import read_questions
from electra_tf2.finetune.tasks.qa_scores import WORDS, answered_scores, normalize_answer, squad_v2_scores
from electra_tf2.finetune.tasks.qa_windows import max_context
from tests.support import finetuning as support
from tests.support import golden

FEATURES = golden.load_json("qa_features")
SCORERS = golden.load_json("qa_scorers")


def make_task(name, **settings) -> QATask:
    longer = {"max_position_embeddings": 512}
    return support.task(None, name, compat="original", model_hparam_overrides=longer, **settings)


@pytest.mark.parametrize("case", FEATURES)
def test_windows_are_the_originals(case):
    name, split, _ = case.split("/")
    loaded = make_task(name, **FEATURES[case]["config"]).load(split)
    features = iter(loaded.features)
    assert [example.question.id for example in loaded.examples] == [row[0] for row in FEATURES[case]["examples"]]
    for example, (_, start, end, impossible, words, rows) in zip(
        loaded.examples, FEATURES[case]["examples"], strict=True
    ):
        question = example.question
        assert words in (None, len(question.paragraph.words))  # the golden file lists each document's once
        assert question.is_impossible == impossible or split == "dev"
        if start is not None:
            assert (question.start, question.end) == (start, end)
        assert len(example.windows) == len(rows)
        for window, best, row in zip(example.windows, max_context(example.windows), rows, strict=True):
            feature = next(features)
            assert feature.input_ids.tolist() == row["input_ids"]
            assert feature.segment_ids.tolist() == row["segment_ids"]
            for label in ("start_positions", "end_positions", "is_impossible"):
                if label in row:
                    assert feature.labels[label] == row[label], label
            if "map" in row:
                pieces = range(window.start, window.start + window.length)
                ours = [
                    [str(window.offset + i), int(example.document.word_of_piece[piece])]
                    for i, piece in enumerate(pieces)
                ]
                assert ours == [list(pair) for pair in row["map"]]
                assert best.astype(int).tolist() == row["max_context"]
    assert next(features, None) is None


@pytest.mark.parametrize("number", range(len(SCORERS["span_scorer"]["cases"])))
def test_answers_and_scores_are_the_originals(number):
    case = SCORERS["span_scorer"]["cases"][number]
    task = make_task(case["task"], **case["config"])
    split = task.load("dev")
    assert len(split.features) == case["n_features"]
    random = np.random.RandomState(case["seed"])
    predictions = [random_outputs(random, task.config, feature) for feature in split.features]
    answers = {answer["id"]: answer for answer in task.answers(split, predictions)}
    texts = {identity: decoded.nbest[0][0] for identity, decoded in task.decoded(split, predictions)}
    assert texts == case["predictions"]
    for identity, odds in case.get("null_odds", {}).items():
        assert answers[identity]["null_odds"] == pytest.approx(odds, rel=1e-6)
    assert task.scores(split, predictions) == pytest.approx(case["results"])


def random_outputs(random, config, feature):
    """Input of the golden scorers: random logits, where the head allows answers."""
    length, beam = config.max_seq_length, config.beam_size
    allowed = np.zeros(length)
    allowed[: len(feature.segment_ids)] = feature.segment_ids
    allowed[0] = 1
    penalty = 1000 * (allowed - 1)

    def log_softmax(x):
        return x - np.logaddexp.reduce(x, -1, keepdims=True)

    starts = random.randn(length) * 3 + penalty
    if not config.joint_prediction:
        ends = random.randn(length) * 3 + penalty
        logits = {"start_logits": starts.astype(np.float32), "end_logits": ends.astype(np.float32)}
        return logits | {"answerable_logit": np.float32(random.randn())}
    ends = random.randn(min(beam, length), length) * 3 + penalty
    start_log_probs, end_log_probs = log_softmax(starts), log_softmax(ends)
    top = np.argsort(-start_log_probs)[:beam]
    end_top = np.argsort(-end_log_probs, axis=-1)[:, :beam]
    return {
        "start_top_index": top,
        "start_top_log_probs": start_log_probs[top].astype(np.float32),
        "end_top_index": end_top,
        "end_top_log_probs": np.take_along_axis(end_log_probs, end_top, -1).astype(np.float32),
        "answerable_logit": np.float32(random.randn()),
    }


def golden_answers(v2):
    questions = read_questions(support.TASKS / "squad" / "dev.json", v2=v2, training=False)
    return {question.id: question.answers for question in questions}


def test_squad_2_scores_are_the_official_scripts():
    official = SCORERS["squad_official"]
    for threshold, expected in official["v2"].items():
        scores = squad_v2_scores(
            golden_answers(True), official["predictions"], official["na"], float(threshold), official_thresholds=True
        )
        assert scores == pytest.approx(expected)


def test_squad_1_and_mrqa_scores_are_the_official_scripts():
    official = SCORERS["squad_official"]
    predictions = {i: text for i, text in official["predictions"].items() if i != "q6"}  # as its note says
    answers = golden_answers(False)
    assert answered_scores(answers, predictions) == pytest.approx(official["v1"])


@pytest.mark.parametrize(("text", "expected"), SCORERS["normalize"])
def test_answers_are_normalised_as_officially(text, expected):
    assert normalize_answer(text) == expected


@pytest.mark.parametrize("row", SCORERS["f1_exact"], ids=str)
def test_scores_of_pairs_are_the_official_ones(row):
    gold, predicted, exact_v2, f1_v2, exact_v1, f1_v1 = row
    assert (WORDS.exact(gold, predicted), WORDS.f1(gold, predicted)) == pytest.approx((exact_v2, f1_v2))
    assert (bool(WORDS.exact(gold, predicted)), WORDS.overlap_f1(gold, predicted)) == (exact_v1, pytest.approx(f1_v1))


@pytest.mark.parametrize(("predicted", "original", "expected"), SCORERS["get_final_text"])
def test_the_answers_own_spelling(predicted, original, expected):
    assert final_text(predicted, original, support.tokenizer().normalize) == expected


def test_the_mrqa_files_answers_are_scored():
    task = make_task("newsqa", max_seq_length=48, doc_stride=20, max_query_length=12)
    answers = {example.question.id: example.question.answers for example in task.load("dev").examples}
    right = {question: texts[-1] for question, texts in answers.items()}
    assert right["mq2"] == "John Smith (1895-1943)" and right["mq7"] == "line 7 of the text."
    found = sum(bool(normalize_answer(text)) for text in right.values())  # an article alone is no answer
    assert found >= len(answers) - 1
    assert answered_scores(answers, right)["f1"] == pytest.approx(100 * found / len(answers))
    assert answered_scores(answers, right | {"mq2": "nobody"})["f1"] == pytest.approx(100 * (found - 1) / len(answers))
