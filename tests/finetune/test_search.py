"""Searches, shares of the data, both orders, an intermediate task and a teacher's outputs."""

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from finetune import search
from finetune.classification.distillation import TEACHER, read_outputs, soft_losses
from finetune.classification.head import ClassificationHead
from finetune.classification.targets import Classes, Scale
from finetune.evaluation import Evaluation
from finetune.task import HeadInput, make_tasks
from tests import finetuning_support as support
from tests.finetune.test_run_finetuning import data_dir, run, trained  # noqa: F401
from tests.finetuning_support import write_lines
from util.errors import UserError


def test_a_search_is_a_grid_or_a_part_of_it():
    text = '{"learning_rate": [0.1, 0.2, 0.3], "num_train_epochs": [1, 2]}'
    whole = search.read_search(text, 0, 0)
    assert len(whole.combinations) == whole.of == 6 and whole.names == ("learning_rate", "num_train_epochs")
    part = search.read_search(text, 2, 0)
    assert len(part.combinations) == 2 and part.of == 6
    assert all(one in whole.combinations for one in part.combinations) and part == search.read_search(text, 2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"learning_rate": 0.1}', "learning_rate needs a list of values, got 0.1"),
        ('{"learning_rat": [0.1]}', "learning_rat.*did you mean 'learning_rate'"),
        ('{"train_share": [0.5, 2]}', "train_share"),
        ('{"model_dir": ["a"]}', "not model_dir"),
        ("{}", "--search: give hparams of training"),
        ("[1]", "a JSON object is needed"),
    ],
)
def test_what_cannot_be_searched_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        search.read_search(text, 0, 0)


def test_the_best_is_kept_and_the_table_ranks(tmp_path):
    base = support.config("cola", results_dir=str(tmp_path), model_dir=str(tmp_path / "m"))
    plan = search.read_search('{"learning_rate": [0.1, 0.2], "train_share": [0.5]}', 0, 0)
    configs = search.configs(plan, {"task_names": ["cola"], "model_name": "none"}, base)
    assert [config.learning_rate for config in configs] == [0.1, 0.2]
    assert configs[0].model_dir == str(tmp_path / "m_search" / "learning_rate=0.1,train_share=0.5")
    task = make_tasks(base, support.tokenizer())[0]
    trials = [
        [{"scores": {"cola": {"dev": {"mcc": score, "loss": 9.0}}}} for score in scores] for scores in ((1, 3), (4,))
    ]
    found = [
        search.Found(hparams, *search.score_of([task], scores), config, scores)
        for hparams, scores, config in zip(plan.combinations, trials, configs, strict=True)
    ]
    assert [one.score for one in found] == [2, 4] and found[0].std == pytest.approx(2**0.5)
    assert search.best_of(found) is found[1]
    path = search.write(plan, found, base)
    assert [row["score"] for row in json.loads(path.read_text())["found"]] == [4, 2]
    lines = path.with_suffix(".txt").read_text().splitlines()
    assert lines[0].split() == ["learning_rate", "train_share", "score", "std"] and lines[1].split()[2] == "4"


def test_shares_of_the_training_data_are_nested(tmp_path):
    rows = [json.dumps({"sentence": f"the file {number}", "label": str(number % 2)}) for number in range(40)]
    for split in ("train", "dev"):
        write_lines(tmp_path / "cola" / f"{split}.jsonl", *rows)
    kept = {}
    for share in (0.1, 0.5, 1.0):
        config = support.config("cola", raw_data_dir=str(tmp_path), train_share=share)
        evaluation = Evaluation(config, make_tasks(config, support.tokenizer()))
        kept[share] = {example.texts for example in evaluation.load(evaluation.tasks[0], "train").examples}
        assert len(evaluation.load(evaluation.tasks[0], "dev").examples) == 40
    assert len(kept[0.1]) == 4 and len(kept[0.5]) == 20 and kept[0.1] < kept[0.5] < kept[1.0]


def test_both_orders_are_averaged(tmp_path):
    for name, label in (("sts", "2.5"), ("mrpc", "1"), ("rte", "entailment")):
        row = json.dumps({"sentence1": "the file", "sentence2": "a list", "label": label})
        write_lines(tmp_path / name / "dev.jsonl", row, row)
    config: dict[str, Any] = {"raw_data_dir": str(tmp_path), "average_orders": True}
    sts, mrpc, rte = (
        make_tasks(support.config(name, **config), support.tokenizer())[0] for name in ("sts", "mrpc", "rte")
    )
    split = sts.load("dev")
    shown = [sts.tokenizer.readable(feature.input_ids) for feature in split.features]
    assert split.counts == [2, 2] and shown[0] == "[CLS] the file [SEP] a list [SEP]"
    assert shown[1] == "[CLS] a list [SEP] the file [SEP]" and len(split.examples) == 2
    values = [{"predictions": np.array(value)} for value in (0.2, 0.4, 0.9, 0.5)]
    assert [answer["label"] for answer in sts.answers(split, values)] == pytest.approx([1.5, 3.5])
    logits = [np.array(pair) for pair in ((0.0, 1.0), (3.0, 0.0), (0.0, 1.0), (0.5, 0.0))]
    predictions = [{"logits": pair, "predictions": np.array(pair.argmax())} for pair in logits]
    split = mrpc.load("dev")
    assert [answer["label"] for answer in mrpc.answers(split, predictions)] == ["0", "1"]
    assert mrpc.scores(split, predictions)["accuracy"] == 50 and mrpc.complaint(split, predictions) is None
    assert rte.load("dev").counts is None


def test_soft_targets():
    random = np.random.default_rng(0)
    logits, teacher = random.normal(size=(2, 5, 3)).astype(np.float32)
    for temperature in (1.0, 2.0):
        p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum(-1, keepdims=True) for x in (teacher, logits))
        expected = temperature**2 * (p * np.log(p / q)).sum(-1)
        np.testing.assert_allclose(soft_losses(logits, teacher, temperature), expected, atol=1e-5)
    np.testing.assert_allclose(soft_losses(logits, logits + 3.0, 2.0), 0, atol=1e-6)


@pytest.mark.parametrize(("num_classes", "key"), [(3, "label_ids"), (None, "targets")])
def test_labels_and_teacher_share_the_loss(num_classes, key):
    states = np.random.default_rng(0).normal(size=(4, 2, 6)).astype(np.float32)
    ones = tf.ones([4, 2], tf.int32)
    teacher = tf.random.stateless_normal([4, num_classes or 1], [0, 0])
    labels = {key: tf.constant([0, 1, 0, 1]) if num_classes else tf.constant([0.0, 1.0, 0.0, 1.0]), TEACHER: teacher}

    def losses(weight, training=True):
        config = support.config("cola", distill_weight=weight, distill_temperature=2.0)
        head = ClassificationHead("task_specific/cola", 6, num_classes, config, 0)
        return head(HeadInput(tf.constant(states), ones, ones, labels), None, training).losses.numpy()

    np.testing.assert_allclose(losses(0.3), 0.7 * losses(0.0) + 0.3 * losses(1.0), atol=1e-5)
    np.testing.assert_array_equal(losses(1.0, training=False), losses(0.0))
    assert np.abs(losses(1.0) - losses(0.0)).max() > 0.1


def test_a_teachers_outputs_are_read(tmp_path):
    classes, scale = Classes(("x", "y")), Scale(0.0, 5.0)
    path = tmp_path / "predictions" / "mine_train.jsonl"
    write_lines(path, '{"text": "a", "gold": "x", "label": "y", "probabilities": {"y": 0.75, "x": 0.25}}')
    np.testing.assert_allclose(np.exp(read_outputs(str(tmp_path), "mine", classes)[("a",)]), [0.25, 0.75])
    write_lines(path, '{"text1": "a", "text2": "b", "label": 5.5}')
    np.testing.assert_allclose(read_outputs(str(tmp_path), "mine", scale)[("a", "b")], [1.1])
    with pytest.raises(UserError, match="line 1: these are no outputs"):
        read_outputs(str(tmp_path), "mine", classes)
    write_lines(path, '{"text": "a", "probabilities": {"y": 0.75, "z": 0.25}}')
    with pytest.raises(UserError, match="the teacher knows the labels y, z, not x, y"):
        read_outputs(str(tmp_path), "mine", classes)
    with pytest.raises(UserError, match="fine-tune the teacher with write_distill_outputs"):
        read_outputs(str(tmp_path), "other", classes)


def test_a_learning_curve_of_a_student_that_learned_another_task_first(trained, data_dir, tmp_path):  # noqa: F811
    teacher = trained[0] / "finetuning_models" / "kind_model_1"
    words = ("--search", '{"train_share": [0.25, 1.0]}', "--intermediate-task", "count", "--distill-from", str(teacher))
    output = run(data_dir, tmp_path, *words, num_train_epochs=3.0)
    assert "search: 2 of 2 combinations of train_share, 1 trial(s) each" in output
    assert "intermediate task count" in output
    results = tmp_path / "results"
    content = json.loads((results / "count-kind_search.json").read_text())
    assert content["searched"] == ["train_share"] and len(content["found"]) == 2
    assert content["found"][0]["score"] >= content["found"][1]["score"] > 40 and content["found"][0]["score"] > 85
    assert (results / "count-kind_search.png").is_file() and (results / "count-kind_results.json").is_file()
    best, other = (tmp_path / "finetuning_models" / f"{row['model_dir']}_1" for row in content["found"])
    assert (
        list(best.glob("model.ckpt-*")) and not list(other.glob("model.ckpt-*")) and (other / "scores.json").is_file()
    )
    config = json.loads((best / "config.json").read_text())
    assert config["init_checkpoint"] == str(tmp_path / "finetuning_models" / "count_model_1")
    again = run(data_dir, tmp_path, *words, num_train_epochs=3.0)
    assert again.count("done before") == 3


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"intermediate_task": "cola"}, "intermediate_task cola is one of task_names"),
        ({"intermediate_task": "col"}, "unknown task"),
        ({"task_names": ["chunk"], "distill_from": "x"}, "distill_from is for classification and regression"),
        ({"prompt": True, "distill_from": "x"}, "not for prompts"),
        ({"train_share": 0.0}, "train_share"),
    ],
)
def test_what_does_not_go_together_is_refused(hparams, message):
    with pytest.raises(UserError, match=message):
        support.config("cola", **hparams)
