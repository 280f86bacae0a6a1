"""Multiple choice: batches keep candidates together, the softmax runs over them, RACE's files."""

import dataclasses
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.evaluation import Evaluation
from electra_tf2.finetune.mistakes import complaint, errors_of
from electra_tf2.finetune.model import FinetuningTask
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.task import Features, Label
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from tests.support import finetuning as support
from tests.support.finetuning import write_lines


@pytest.mark.parametrize(("choices", "examples", "batch_size", "fixed"), [(2, 5, 2, False), (4, 2, 3, True)])
def test_candidates_stay_together(choices, examples, batch_size, fixed):
    lengths = np.random.default_rng(0).integers(1, 31, choices * examples)
    features = [Features(np.ones(n, np.int32), np.zeros(n, np.int32), {"right": 0}) for n in lengths]
    table = FeatureTable([TaskFeatures("t", features, {"right": Label("int32")})], 32, fixed, choices)
    assert table.examples == examples and len(table) == choices * examples
    training = list(itertools.islice(table.training_batches(batch_size, 0), 3))
    resumed = next(iter(table.training_batches(batch_size, 0, 2 * batch_size)))
    np.testing.assert_array_equal(resumed["row"], training[2]["row"])
    half = next(iter(table.training_batches(2 * batch_size, 0, 0, slice(batch_size, 2 * batch_size))))
    assert len(half["row"]) == batch_size * choices
    evaluated = list(table.evaluation_batches(batch_size))
    for batch in [*training, *evaluated]:
        rows = batch["row"].numpy().reshape(-1, choices)
        assert rows.shape == (batch_size, choices)
        for row in rows[rows[:, 0] >= 0]:
            assert row[0] % choices == 0 and (np.diff(row) == 1).all()
        assert (rows[rows[:, 0] < 0] == -1).all()
    seen = np.concatenate([batch["row"].numpy() for batch in evaluated])
    assert sorted(seen[seen >= 0]) == list(range(len(table)))


def race(level="high", number=1, answers=("B", "D")):
    return {
        "article": "the file is open",
        "questions": ["the file is _ .", "what is it"],
        "options": [["open", "read", "first", "all"], ["a file", "a list", "an error", "none"]],
        "answers": list(answers),
        "id": f"{level}{number}.txt",
    }


def test_races_files(tmp_path):
    for level, number, answers in (("middle", 1, "BD"), ("high", 2, "AA")):
        write_lines(tmp_path / "RACE" / "dev" / level / f"{number}.txt", json.dumps(race(level, number, answers)))
    task = support.task(tmp_path, "race")
    split = task.load("dev")
    assert split.counts == [8, 8] and [passage.items[0].level for passage in split.examples] == ["middle", "high"]
    shown = [task.tokenizer.readable(feature.input_ids).replace(" ", "") for feature in split.features[:5]]
    assert "thefileisread." in shown[1] and shown[4].endswith("whatisitafile[SEP]")
    assert [feature.labels["right"] for feature in split.features[::4]] == [1, 3, 0, 0]
    predictions = [{"log_probs": np.array(math.log(0.7 if i % 4 == 1 else 0.1))} for i in range(16)]  # always B
    assert task.scores(split, predictions) == {"accuracy": 25, "accuracy_middle": 50, "accuracy_high": 0}
    assert [one["label"] for one in task.answers(split, predictions)[0]["answers"]] == ["B", "B"]
    one = {"article": "a", "question": "the _", "options": list("abcd"), "answer": "C", "example_id": "middle5.txt"}
    write_lines(tmp_path / "race" / "train.jsonl", json.dumps(one))
    assert task.load("train").features[0].labels == {"right": 2}
    passage = task.load("train").examples[0]
    assert passage.id == "middle5.txt" and passage.items[0].level == "middle"
    assert not task.files.may_have_labels("test")  # is not there
    write_lines(tmp_path / "race" / "test" / "high" / "1.txt", json.dumps(race()))
    assert task.files.may_have_labels("test") and task.files.may_have_labels("train") and task.load("test").labelled


def test_a_choice_is_learned_and_answers_new_questions(tmp_path):
    """The right candidate holds the word "error"."""
    rows = []
    for number in range(32):
        choices = ["the error error", "the list of names"]
        row = {"premise": "the file", "question": "cause", "idx": number, "label": number % 2}
        rows.append(row | {"choice1": choices[number % 2], "choice2": choices[1 - number % 2]})
    for name in ("train", "val"):
        write_lines(tmp_path / "copa" / f"{name}.jsonl", *map(json.dumps, rows))
    small: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    small |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    given: dict[str, Any] = {"num_train_epochs": 10.0, "learning_rate": 1e-2, "train_batch_size": 8}
    given |= {"embedding_size": 32, "model_hparam_overrides": small, "max_seq_length": 24}
    config = support.config("copa", raw_data_dir=str(tmp_path), **given)
    task = make_tasks(config, support.tokenizer())[0]
    split = task.load("train")
    table = FeatureTable([TaskFeatures("copa", split.features, task.labels)], config.max_seq_length, False, 2)
    training = FinetuningTask(config, [task], tf.distribute.get_strategy(), False, table, 0)
    assert training.num_train_steps == 10 * 4
    untrained = Evaluation(config, [task]).selecting(training)["copa_dev_loss"]  # of a question, as training's
    assert untrained == pytest.approx(math.log(2), rel=0.2)
    data, train_step = iter(training.training_data(0)), tf.function(training.train_step, autograph=False)
    _, row_losses = training.predict(0, table, 5)
    assert row_losses is not None
    first_rows = next(iter(training.training_data(0)))["row"].numpy()
    losses = [float(train_step(next(data), tf.constant(step))["losses"]["loss"]) for step in range(40)]
    assert losses[0] == pytest.approx(row_losses[first_rows].sum(), rel=1e-4)
    predictions, row_losses = training.predict(0, table, 5)
    assert row_losses is not None
    assert task.scores(split, predictions)["accuracy"] > 90
    assert row_losses.mean() * split.choices < 0.4
    weights = {variable.name.split(":")[0]: variable.numpy() for variable in training.model.trainable_variables}
    given = {"hparams": dataclasses.asdict(config), "vocab_file": config.vocab_file}
    source = StoredModel("here").changed(**given, weights=weights, task_states={"copa": task.state()})
    new = [{name: value for name, value in row.items() if name != "label"} for row in rows]
    assert [answer["label"] for answer in Predictor(source, support.tokenizer())(new)] == [
        answer["label"] for answer in task.answers(split, predictions)
    ]


def test_a_task_learns_of_its_own_questions_alone_where_several_are_learned_together(tmp_path):
    row = {"premise": "the file", "choice1": "all", "choice2": "the list of names", "question": "cause"}
    questions = [json.dumps(row | {"label": number % 2, "idx": number}) for number in range(6)]
    write_lines(tmp_path / "copa" / "train.jsonl", *questions)
    pairs = [json.dumps({"text": f"the file {number}", "positive": f"a list {number}"}) for number in range(6)]
    write_lines(tmp_path / "sentence_embedding" / "train.jsonl", *pairs)
    small: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 32, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    given: dict[str, Any] = {"embedding_size": 16, "model_hparam_overrides": small, "init_checkpoint": None}
    given |= {"raw_data_dir": str(tmp_path), "train_batch_size": 8, "max_seq_length": 24}
    config = support.config("copa", "sentence_embedding", **given)
    tasks = make_tasks(config, support.tokenizer())
    parts = [TaskFeatures(task.name, task.load("train").features, task.labels) for task in tasks]
    training = FinetuningTask(config, tasks, tf.distribute.get_strategy(), False, FeatureTable(parts, 24, False, 2), 0)
    _, losses = training.predict(0, FeatureTable(parts[:1], 24, False, 2), 6)
    batch = next(iter(training.training_data(0)))
    rows = batch["row"].numpy()[batch["task_id"].numpy() == 0]
    assert losses is not None and 0 < len(rows) < 16
    with kernels.off():  # formulas, which nothing is compiled for
        result = tf.function(training.train_step, autograph=False)(batch, tf.constant(0))
    of_copa, of_pairs = (result["metrics"][f"{task.name}_loss"] for task in tasks)
    assert [float(value) for value in of_copa] == pytest.approx([losses[rows].sum(), len(rows) / 2], rel=1e-4)
    assert float(of_pairs[1]) == 8 - len(rows) / 2
    assert float(result["losses"]["loss"]) == pytest.approx(float(of_copa[0] + of_pairs[0]), rel=1e-4)


@pytest.mark.parametrize("questions", [1, 2])
def test_the_worst_mistakes_are_not_looked_for_among_candidates(tmp_path, questions):
    """Also for a passage with one question, whose answer looks like a label's."""
    row = {key: value[:questions] if isinstance(value, list) else value for key, value in race().items()}
    write_lines(tmp_path / "race" / "dev.jsonl", json.dumps(row))
    copa = {"premise": "the file", "question": "cause", "idx": 0, "label": 0, "choice1": "a", "choice2": "b"}
    write_lines(tmp_path / "copa" / "dev.jsonl", json.dumps(copa))
    for name in ("race", "copa"):
        task = support.task(tmp_path, name)
        split = task.load("dev")
        predictions = [{"log_probs": np.array(-1, np.float32)}] * len(split.features)
        assert split.labelled and errors_of(task, split, task.answers(split, predictions)) == {}


def test_records_answers_are_compared_as_they_are_chosen(tmp_path):
    """Where no candidate of many reaches one half, too."""
    entities = [{"start": 0, "end": 2}, {"start": 4, "end": 7}]
    queries = [{"idx": n, "query": "it is @placeholder", "answers": [{"text": "the"}]} for n in range(2)]
    row = {"passage": {"text": "the file", "entities": entities}, "qas": queries, "idx": 0}
    write_lines(tmp_path / "record" / "dev.jsonl", json.dumps(row))
    task = support.task(tmp_path, "record")
    split = task.load("dev")
    predictions = [{"logits": np.array([1, x], np.float32)} for x in (-1, -2, -2, -1)]
    answers = task.answers(split, predictions)
    assert [answer["label"] for answer in answers[0]["answers"]] == ["the", "file"]
    assert complaint(split, answers) is None
