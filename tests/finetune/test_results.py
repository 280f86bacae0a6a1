"""Metrics that a model is scored by, and results over trials: their statistics, and the table that shows them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from electra_tf2.corpus.tokenization import joined
from electra_tf2.finetune.evaluation import Evaluation
from electra_tf2.finetune.mistakes import errors_of, learned_by_heart, note_on_sureness, remedy, shown_errors
from electra_tf2.finetune.results import notes_on_few, summarise_trials, table, wilson_interval
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.tags import spans_of
from tests.support import finetuning as support
from tests.support.finetuning import write_lines


def trials(*values):
    return [{"kind": {"dev": {"accuracy": value}}} for value in values]


def test_statistics_are_those_of_a_sample():
    values = summarise_trials(trials(10.0, 30.0, 26.0))["kind"]["dev"]["accuracy"]
    assert values == pytest.approx({"median": 26, "mean": 22, "std": 10.583, "min": 10, "max": 30}, abs=1e-3)
    alone = summarise_trials(trials(10.0))["kind"]["dev"]["accuracy"]
    assert alone == {"median": 10, "mean": 10, "std": 0, "min": 10, "max": 10}


def test_a_split_that_a_trial_lacks_has_no_statistics():
    several = trials(10.0, 30.0)
    several[0]["kind"]["test"] = {"accuracy": 5.0}
    assert summarise_trials(several)["kind"].keys() == {"dev"}


def test_a_table_shows_every_trial_and_what_the_commonest_label_gets():
    lines = table(trials(10.0, 30.0, 26.0), {"kind": {"dev": {"accuracy": 7.0}}}).splitlines()
    header = "task split metric trial 1 trial 2 trial 3 median mean std"
    assert lines[0].split() == header.split()
    assert lines[1].split() == ["kind", "dev", "accuracy", "10", "30", "26", "26", "22", "10.58"]
    assert lines[2].split() == ["kind", "dev", *["accuracy", "of", "the", "commonest", "label"], "7"]
    assert "median" not in table(trials(10.0), {})


def test_scores_of_few_examples_are_said_to_say_little():
    scores = {"sms": {"dev": {"accuracy": 100.0}, "test": {"accuracy": 100.0}}, "sim": {"dev": {"pearson": 70.0}}}
    examples = {"sms": {"dev": 11, "test": 50}, "sim": {"dev": 49}}
    first, second = notes_on_few(scores, examples, ["sms", "sim"], {})
    assert first == "sms dev: scores of 11 examples say little: accuracy 100 has a 95 % interval of 74 to 100"
    assert second == "sim dev: scores of 49 examples say little"
    assert notes_on_few(scores, examples, [], {}) == ["sms dev: scores of 11 examples say little", second]  # of words
    assert notes_on_few(scores, {}, ["sms"], {}) == []  # of a run that did not count them
    near = {"nli": {"dev": {"accuracy": 37.78}}}
    majority = {"nli": {"dev": {"accuracy": 35.56}}}
    [note] = notes_on_few(near, {"nli": {"dev": 90}}, ["nli"], majority)
    assert note.endswith("has a 95 % interval of 28 to 48, in which the commonest label's 35.56 lies")
    assert notes_on_few(near, {"nli": {"dev": 90_000}}, ["nli"], majority) == []
    assert wilson_interval(0.3, 40) == pytest.approx((0.1807, 0.4543), abs=1e-4)
    assert wilson_interval(0.0, 10)[0] == 0


def test_the_worst_mistakes_come_first():
    def mistakes(gold: list[Any], answers: list[dict[str, Any]]) -> list[Any]:
        task: Any = SimpleNamespace(
            inputs=lambda split: [{"id": number, "gold": one} for number, one in enumerate(gold)],
        )
        split: Any = None
        return [row["id"] for row in errors_of(task, split, answers)["mistakes"]]

    probabilities: list[dict[str, float]] = [
        {"a": 0.6, "b": 0.4},
        {"a": 0.9, "b": 0.1},
        {"a": 0.2, "b": 0.8},
        {"a": 0.7, "b": 0.3},
    ]
    classes = [{"label": "ab"[one["b"] > one["a"]], "probabilities": one} for one in probabilities]
    assert mistakes(["b", "b", "b", "b"], classes) == [1, 3, 0]
    assert mistakes([1.0, 2.0, 3.0], [{"label": 1.5}, {"label": 0.0}, {"label": 2.0}]) == [1, 2, 0]


def errors_in(gold: list[Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """`errors_of` a task that answers so. Answers of words with the field `entities` are of spans."""
    inputs: list[dict[str, Any]] = [{"gold": right} for right in gold]
    for row, answer in zip(inputs, answers, strict=True):
        if "entities" in answer:
            row["text"] = " ".join(answer["words"])
            row["gold_entities"] = entities_of(answer, row["gold"])
            answer["entities"] = entities_of(answer, answer["tags"])
    task: Any = SimpleNamespace(inputs=lambda split: inputs)
    split: Any = None
    return errors_of(task, split, answers)


def entities_of(answer: dict[str, Any], tags: list[str]) -> list[dict[str, Any]]:
    text = joined(answer["words"])
    entities = []
    for span in spans_of(tags):
        start = int(text.starts[span.start])
        end = int(text.starts[span.end]) + len(text.words[span.end])
        least = min(answer["probabilities"][span.start : span.end + 1])
        place = {"start": start, "end": end, "probability": least}
        entities.append({"type": span.type, "text": text.text[start:end]} | place)
    return entities


def test_long_labels_are_told_apart_where_they_are_cut() -> None:
    labels = ["very negative", "very positive", "neutral", "disappointment", "a", "b"]
    shown = shown_errors("sst", {"labels": labels, "confusion": np.zeros([6, 6], int).tolist()})
    heads = shown.splitlines()[1].split("  ")
    assert {"very nega…", "very posi…"} <= {head.strip() for head in heads}, heads


def test_metrics_that_a_trial_lacks_are_left_out_of_the_summary() -> None:
    trials = [{"a": {"dev": {"f1": 1.0, "best_f1": 2.0}, "test": {"f1": 1.0}}}, {"a": {"dev": {"f1": 3.0}}}]
    summary = summarise_trials(trials)
    assert list(summary["a"]) == ["dev"] and summary["a"]["dev"]["f1"]["mean"] == 2 and len(summary["a"]["dev"]) == 1


def test_precision_and_recall_of_each_label_stand_beside_the_confusion() -> None:
    answers = [{"label": label, "probabilities": {"a": 0.5, "b": 0.5}} for label in "abbb"]
    errors = errors_in(["a", "a", "a", "b"], answers)
    assert errors["confusion"] == [[1, 2], [0, 1]]
    assert errors["by_label"]["a"] == pytest.approx({"count": 3, "precision": 100.0, "recall": 100 / 3, "f1": 50.0})
    assert errors["by_label"]["b"] == pytest.approx({"count": 1, "precision": 100 / 3, "recall": 100.0, "f1": 50.0})
    cells = [line.split() for line in shown_errors("kind dev", errors).splitlines()]
    assert ["a", "100.0", "33.3", "50.0", "3"] in cells


def test_of_many_labels_those_that_are_confused_most_often_are_listed_first() -> None:
    labels = [f"kind {number}" for number in range(9)]
    probabilities = dict.fromkeys(labels, 1 / 9)
    gold: list[Any] = ["kind 0", "kind 3", "kind 3", "kind 3", "kind 5", "kind 5"]
    answers = [{"label": "kind 8", "probabilities": probabilities} for _ in gold]
    lines = shown_errors("own dev", errors_in(gold, answers)).splitlines()
    first = lines.index("own dev: most often") + 1
    assert lines[first : first + 3] == [
        "  kind 3 taken for kind 8: 3",
        "  kind 5 taken for kind 8: 2",
        "  kind 0 taken for kind 8: 1",
    ]


def test_spans_are_counted_by_type_and_the_worst_wrong_ones_are_listed() -> None:
    words = ["Ann", "saw", "New", "York"]
    gold = [["B-PER", "O", "B-LOC", "I-LOC"]]
    tags = ["B-PER", "O", "B-PER", "I-PER"]
    answer = {"words": words, "tags": tags, "probabilities": [0.9, 0.8, 0.7, 0.6], "entities": []}
    errors = errors_in(gold, [answer])
    assert errors["by_label"] == {
        "LOC": {"count": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
        "PER": {"count": 1, "precision": 50.0, "recall": 100.0, "f1": pytest.approx(200 / 3)},
    }
    assert errors["mistakes"] == [
        {
            "text": "New York",
            "label": "PER",
            "probability": 0.6,
            "gold": "New York (LOC)",
            "sentence": "Ann saw New York",
        }
    ]
    assert "New York (LOC), predicted New York (PER) 0.60: Ann saw New York" in shown_errors("tags dev", errors)


def test_a_text_stands_once_among_the_mistakes() -> None:
    """So it is for classes, numbers, spans and questions: data hold rows twice, and a sentence several wrong spans."""
    shares = {"a": 0.9, "b": 0.1}
    classes = [{"text": text, "label": "a", "probabilities": shares} for text in ("x", "x", "y", "x")]
    numbers = [{"text": text, "label": label} for text, label in (("x", 9.0), ("x", 8.0), ("y", 2.0))]
    words = ["Ann", "saw", "Rome"]
    spans = [{"words": words, "tags": ["B-A", "O", "B-A"], "probabilities": [0.9, 0.5, 0.8], "entities": []}] * 2
    cases: list[tuple[list[Any], list[dict[str, Any]], list[Any]]] = [
        (["b"] * 4, classes, [("x", "a"), ("y", "a")]),
        ([0.0] * 3, numbers, [("x", 9.0), ("y", 2.0)]),
        ([["O"] * 3] * 2, spans, [("Ann", "A")]),
    ]
    for gold, answers, expected in cases:
        mistakes = errors_in(gold, answers)["mistakes"]
        assert [(mistake["text"], mistake["label"]) for mistake in mistakes] == expected


def test_both_texts_of_a_pair_stand_in_a_mistake() -> None:
    mistake = {"text1": "first " * 100, "text2": "second " * 100, "gold": "a"}
    listed = shown_errors("own dev", {"mistakes": [mistake | {"label": "b", "probabilities": {"b": 0.9}}]})
    assert "first first …" in " ".join(listed.split()) and "second" in listed
    assert max(map(len, listed.splitlines())) <= 80


def test_precision_and_recall_of_each_label() -> None:
    shares = {"a": {"a": 0.9, "b": 0.1, "c": 0.0}, "b": {"a": 0.2, "b": 0.8, "c": 0.0}}
    answers = [{"label": label, "probabilities": shares[label]} for label in "aaab"]
    errors = errors_in(["a", "a", "b", "b"], answers)
    assert errors["by_label"] == {
        "a": {"count": 2, "precision": pytest.approx(200 / 3), "recall": 100, "f1": pytest.approx(80)},
        "b": {"count": 2, "precision": 100, "recall": 50, "f1": pytest.approx(200 / 3)},
        "c": {"count": 0, "precision": 0, "recall": 0, "f1": 0},
    }
    shown = [line.split() for line in shown_errors("own dev", errors).splitlines()]
    assert ["own", "dev", "precision", "recall", "f1", "count"] in shown and [
        "a",
        "66.7",
        "100.0",
        "80.0",
        "2",
    ] in shown


def test_spans_are_counted_by_their_type_and_the_surest_wrong_ones_listed() -> None:
    words = ["Ann", "Lee", "saw", "Rome"]
    shares = [0.9, 0.8, 0.5, 0.6]
    answers = [
        {"words": words, "tags": ["B-PER", "I-PER", "O", "B-PER"], "probabilities": shares, "entities": []},
        {"words": ["Ann", "Lee", "met", "Rome"], "tags": ["B-PER", "O", "O", "B-LOC"], "probabilities": shares}
        | {"entities": []},
    ]
    gold = ["B-PER", "I-PER", "O", "B-LOC"]
    errors = errors_in([gold, gold], answers)
    assert errors["by_label"] == {
        "LOC": {"count": 2, "precision": 100, "recall": 50, "f1": pytest.approx(200 / 3)},
        "PER": {"count": 2, "precision": pytest.approx(100 / 3), "recall": 50, "f1": 40},
    }
    wrong = [(mistake["text"], mistake["label"], mistake["gold"]) for mistake in errors["mistakes"]]
    assert wrong == [("Ann", "PER", "Ann Lee (PER)"), ("Rome", "PER", "Rome (LOC)")]
    assert "Rome (LOC), predicted Rome (PER) 0.60: Ann Lee saw Rome" in shown_errors("ner dev", errors)


class AlwaysZero:
    """A model that finds the first label most likely."""

    num_train_steps = 500

    def predict(self, number: int, table: Any, batch_size: int, progress: Any) -> tuple[list[dict[str, Any]], Any]:
        return [{"logits": np.array([1.0, 0.0]), "predictions": np.array(0)}] * len(table), np.zeros(len(table))


def test_the_best_checkpoint_is_chosen_by_the_mean_of_all_tasks(tmp_path: Path) -> None:
    rows = [json.dumps({"sentence": f"file {number}", "label": str(number % 2)}) for number in range(8)]
    for task in ("cola", "sst"):
        write_lines(tmp_path / task / "dev.jsonl", *rows)
    config = support.config("cola", "sst", raw_data_dir=str(tmp_path))
    model: Any = AlwaysZero()
    flat = Evaluation(config, make_tasks(config, support.tokenizer())).selecting(model)
    assert flat["cola_dev_mcc"] == 0 and flat["sst_dev_accuracy"] == pytest.approx(50)
    assert flat["score"] == pytest.approx(25)


def test_of_many_labels_precision_and_recall_of_the_commonest_are_shown() -> None:
    gold: list[Any] = []
    for number in range(10):
        gold += [f"kind {number}"] * (1 + number)
    probabilities = {f"kind {number}": 0.1 for number in range(10)}
    errors = errors_in(gold, [{"label": label, "probabilities": probabilities} for label in gold])
    lines = [" ".join(line.split()) for line in shown_errors("own dev", errors).splitlines()]
    header = lines.index("own dev precision recall f1 count")
    commonest = [f"kind {number} 100.0 100.0 100.0 {1 + number}" for number in (9, 8, 7, 6, 5, 4, 3, 2)]
    assert lines[header + 1 : header + 10] == [*commonest, "and 2 rarer labels"]


def test_as_many_trials_as_are_asked_for_write_predictions_of_test_data(tmp_path: Path) -> None:
    config = support.config("cola", write_test_outputs=True, n_writes_test=2)
    evaluation = Evaluation(config, make_tasks(config, support.tokenizer()))
    writing = [trial for trial in (1, 2, 3) if "write_test_outputs" in evaluation.files(trial, tmp_path)]
    assert writing == [1, 2]


def test_probabilities_that_are_far_too_sure_are_told() -> None:
    golds = ["a", "b"] * 10
    assert "their loss is 3.39, while the shares of the labels alone have 0.69" in note_on_sureness(
        {"accuracy": 56.0, "loss": 3.391}, golds
    )
    assert note_on_sureness({"accuracy": 84.0, "loss": 1.0}, golds) == ""
    assert note_on_sureness({"spearman": 84.0, "loss": 9.0}, golds) == ""


def test_a_model_that_learned_by_heart_is_told_from_one_that_learned_nothing() -> None:
    golds = ["a", "b", "c"] * 10
    assert learned_by_heart({"accuracy": 34.0, "loss": 1.32}, golds) and not learned_by_heart(
        {"accuracy": 34.0, "loss": 1.1}, golds
    )
    assert "learned its rows by heart" in remedy(300, by_heart=True) and "steps are few" in remedy(30, by_heart=True)
