"""Shares of the data, both orders, an intermediate task and a teacher's outputs."""

import json
import runpy
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.finetune.evaluation import Evaluation
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.heads import TEACHER, ClassificationHead, HeadInput
from electra_tf2.finetune.tasks.targets import Classes, Scale, read_outputs
from electra_tf2.model.softmax import soft_losses
from electra_tf2.util.errors import UserError
from tests.finetune.test_run_finetuning import run
from tests.support import finetuning as support
from tests.support.finetuning import write_lines
from tests.support.programs import PACKAGE, flags_of_its_own


def test_an_intermediate_task_has_settings_of_its_own():
    with flags_of_its_own():
        run_finetuning = runpy.run_path(str(PACKAGE / "run_finetuning.py"))
    network = {"pretrained_model_dir": "p", "vocab_size": 600, "precision": "bfloat16", "tasks": {}}
    own = {"few_shot": 16, "prompt": True, "prompt_template": "{0} [MASK]", "overwrite": True, "learning_rate": 1.0}
    config = support.config("rte", intermediate_task="mnli")
    first = run_finetuning["intermediate"](config, network | own | {"task_names": ["rte"], "num_trials": 5})
    assert first.task_names == ["mnli"] and first.vocab_size == 600 and first.precision == "bfloat16"
    assert (first.few_shot, first.prompt, first.overwrite, first.num_trials) == (0, False, False, 1)
    assert first.learning_rate != 1.0 and first.model_dir == "p/finetuning_models/mnli_model"
    assert first.init_checkpoint == "p"
    without = run_finetuning["intermediate"](config, network | {"task_names": ["rte"], "random_init": True})
    assert without.random_init and without.init_checkpoint is None


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


def test_a_share_of_tagged_sentences_leaves_development_data_whole(tmp_path):
    for split in ("train", "dev"):
        write_lines(tmp_path / "chunk" / f"{split}.txt", *(["the B-NP", ""] * 20))
    config = support.config("chunk", raw_data_dir=str(tmp_path), train_share=0.5)
    evaluation = Evaluation(config, make_tasks(config, support.tokenizer()))
    sizes = {split: len(evaluation.load(evaluation.tasks[0], split).examples) for split in ("train", "dev")}
    assert sizes == {"train": 10, "dev": 20}


def test_a_share_is_of_pairs_not_of_their_orders_and_demonstrations_are_of_it(tmp_path):
    pairs = [{"sentence1": f"file {i}", "sentence2": f"list {i}", "label": str(i % 2)} for i in range(40)]
    for split in ("train", "dev"):
        write_lines(tmp_path / "mrpc" / f"{split}.jsonl", *map(json.dumps, pairs))
    settings: dict[str, Any] = {"raw_data_dir": str(tmp_path), "train_share": 0.25}
    evaluation = Evaluation(config := support.config("mrpc", **settings), make_tasks(config, support.tokenizer()))
    examples = evaluation.load(evaluation.tasks[0], "train").examples
    assert len(examples) == 20 and len({frozenset(example.texts) for example in examples}) == 10
    words: dict[str, Any] = {"prompt_words": {"0": "file", "1": "list"}, "prompt_template": "{0} {1} [MASK]"}
    prompted = support.config("mrpc", prompt=True, max_seq_length=48, prompt_evaluation_draws=4, **words, **settings)
    task = make_tasks(prompted, support.tokenizer())[0]
    shared = {" ".join(sorted(example.texts)) for example in task.load("train").examples}
    assert len(shared) == 10
    dev = task.load("dev")
    for text in (task.tokenizer.readable(feature.input_ids) for feature in dev.features):
        for demonstration in text.split(" [SEP]")[1:3]:
            number = "".join(letter for letter in demonstration.split("list")[0] if letter.isdigit())
            assert f"file {number} list {number}" in shared


def test_both_orders_are_averaged(tmp_path):
    for name, label in (("sts", "2.5"), ("mrpc", "1"), ("qqp", "1"), ("rte", "entailment")):
        row = json.dumps({"sentence1": "the file", "sentence2": "a list", "label": label})
        for part in ("train", "dev"):
            write_lines(tmp_path / name / f"{part}.jsonl", row, row)
    config: dict[str, Any] = {"raw_data_dir": str(tmp_path), "average_orders": True}
    sts, mrpc, qqp, rte = (
        make_tasks(support.config(name, **config), support.tokenizer())[0] for name in ("sts", "mrpc", "qqp", "rte")
    )
    split = sts.load("dev")
    shown = [sts.tokenizer.readable(feature.input_ids) for feature in split.features]
    assert split.counts == [2, 2] and shown[0] == "[CLS] the file [SEP] a list [SEP]"
    assert shown[1] == "[CLS] a list [SEP] the file [SEP]" and len(split.examples) == 2
    values = [{"value": np.array(value)} for value in (1.0, 2.0, 4.5, 2.5)]
    assert [answer["label"] for answer in sts.answers(split, values)] == pytest.approx([1.5, 3.5])
    logits = [np.array(pair) for pair in ((0.0, 1.0), (3.0, 0.0), (0.0, 1.0), (0.5, 0.0))]
    predictions = [{"logits": pair} for pair in logits]
    split = mrpc.load("dev")
    assert [answer["label"] for answer in mrpc.answers(split, predictions)] == ["0", "1"]
    assert mrpc.scores(split, predictions)["accuracy"] == 50 and mrpc.complaint(split, predictions) is None
    assert rte.load("dev").counts is None and qqp.load("dev").counts == [2, 2]
    assert [len(task.load("train").features) for task in (sts, mrpc, qqp)] == [4, 4, 2]  # what is trained on is as ever


def test_averaging_orders_that_matter_is_noted():
    (note,) = support.config("rte", "chunk", average_orders=True).notes()
    assert note == "average_orders changes nothing: the order of texts matters in rte, chunk"
    assert not support.config("rte", "sts", average_orders=True).notes() and not support.config("rte").notes()


def test_soft_targets():
    random = np.random.default_rng(0)
    logits, teacher = random.normal(size=(2, 5, 3)).astype(np.float32)
    for temperature in (1.0, 2.0):
        p, q = (np.exp(x / temperature) / np.exp(x / temperature).sum(-1, keepdims=True) for x in (teacher, logits))
        expected = temperature**2 * (p * np.log(p / q)).sum(-1)
        np.testing.assert_allclose(soft_losses(teacher, logits, temperature), expected, atol=1e-5)
    np.testing.assert_allclose(soft_losses(logits + 3.0, logits, 2.0), 0, atol=1e-6)


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
    with pytest.raises(UserError, match="the teacher's labels are y, z, not x, y"):
        read_outputs(str(tmp_path), "mine", classes)
    with pytest.raises(UserError, match="fine-tune the teacher with write_distill_outputs"):
        read_outputs(str(tmp_path), "other", classes)


def test_a_student_that_learned_another_task_first(trained, data_dir, tmp_path):
    teacher = trained[0] / "finetuning_models" / "kind_model_1"
    words = ("--intermediate-task", "count", "--distill-from", str(teacher))
    output = run(data_dir, tmp_path, *words, num_train_epochs=1.5, learning_rate=2e-3)
    assert "intermediate task count" in output
    scores = json.loads((tmp_path / "results" / "count-kind_results.json").read_text())
    assert scores["trials"][0]["scores"]["kind"]["dev"]["accuracy"] > 85
    config = json.loads((tmp_path / "finetuning_models" / "count-kind_model_1" / "config.json").read_text())
    assert config["init_checkpoint"] == str(tmp_path / "finetuning_models" / "count_model_1")


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"intermediate_task": "cola"}, "intermediate_task cola is one of task_names"),
        ({"intermediate_task": "col"}, "unknown task"),
        ({"intermediate_task": "mnli", "prompt": True}, "prompt asks the pre-trained language model, which an inter"),
        ({"task_names": ["chunk"], "distill_from": "x"}, "distill_from is for classification and regression"),
        ({"prompt": True, "distill_from": "x"}, "not for prompts"),
        ({"prompt": True, "average_orders": True}, "average_orders is for heads"),
        ({"few_shot": 4, "train_share": 0.5}, "few_shot and train_share"),
        ({"train_share": 0.0}, "train_share"),
        ({"do_eval": False, "write_test_outputs": True}, "write_test_outputs needs do_eval"),
    ],
)
def test_what_does_not_go_together_is_refused(hparams, message):
    with pytest.raises(UserError, match=message):
        support.config("cola", **hparams)
