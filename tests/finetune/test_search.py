"""Searches, shares of the data, both orders, an intermediate task and a teacher's outputs."""

import dataclasses
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.finetune import search
from electra_tf2.finetune.classification.targets import TEACHER, Classes, Scale, read_outputs
from electra_tf2.finetune.evaluation import Evaluation
from electra_tf2.finetune.task import HeadInput
from electra_tf2.finetune.task_classes import make_tasks
from electra_tf2.finetune.text_heads import ClassificationHead
from electra_tf2.model.vocabulary import soft_losses
from electra_tf2.util.errors import UserError
from tests import finetuning_support as support
from tests.finetune.test_run_finetuning import run
from tests.finetuning_support import write_lines
from tests.programs import PACKAGE, flags_of_its_own


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
        ('{"intermediate_task": ["", "mnli"]}', "not intermediate_task"),
        ('{"num_gpus": [0, 1], "vocab_size": [600]}', "not num_gpus, vocab_size"),
        ('{"learning_rate": [3, 1, 3.0]}', "learning_rate has 3.0 twice"),
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
    search.write(plan, found, base, {})
    path = search.results_path(plan, base)
    assert path == tmp_path / "cola_search_learning_rate,train_share.json"
    assert [row["score"] for row in json.loads(path.read_text())["found"]] == [4, 2]
    diverged = search.Found({"learning_rate": 9.0, "train_share": 0.5}, None, 0.0, configs[0], [])
    assert search.best_of([diverged, *found]) is found[1] and search.best_of([diverged]) is None
    search.write(plan, [diverged], base, {})  # begun again: what was found before stays
    assert [row["score"] for row in json.loads(path.read_text())["found"]] == [4, 2, None]
    assert "not finite" in path.with_suffix(".txt").read_text().splitlines()[-1]
    search.write(plan, found[:1], dataclasses.replace(base, num_train_epochs=9.0), {})  # other settings: another search
    assert [row["score"] for row in json.loads(path.read_text())["found"]] == [2]
    search.write(plan, found, base, {})
    lines = path.with_suffix(".txt").read_text().splitlines()
    assert lines[0].split() == ["learning_rate", "train_share", "score", "std"] and lines[1].split()[2] == "4"


def test_combinations_have_folders_of_their_own(tmp_path):
    base, given = support.config("cola", model_dir=str(tmp_path / "m")), {"task_names": ["cola"], "model_name": "none"}
    close = search.configs(search.read_search('{"learning_rate": [1e-4, 1.0000001e-4]}', 0, 0), given, base)
    assert len({config.model_dir for config in close}) == 2
    assert [config.results_dir for config in close] == [f"{config.model_dir}/results" for config in close]
    assert all(config.results_json.startswith(f"{config.model_dir}/results/") for config in close)
    assert [config.test_predictions for config in close] == [f"{config.model_dir}/test_predictions" for config in close]
    templates = json.dumps({"prompt": [True], "prompt_template": ["{0} a/b [MASK]", "{0} a_b [MASK]"]})
    with pytest.raises(UserError, match="two combinations would have the folder"):
        search.configs(search.read_search(templates, 0, 0), given, base)
    long = json.dumps({"prompt": [True], "prompt_template": [f"{{0}} {'word ' * 60}{end} [MASK]" for end in "ab"]})
    names = [Path(one.model_dir).name for one in search.configs(search.read_search(long, 0, 0), given, base)]
    assert len(set(names)) == 2 and max(map(len, names)) < 120


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
    values = [{"predictions": np.array(value)} for value in (0.2, 0.4, 0.9, 0.5)]
    assert [answer["label"] for answer in sts.answers(split, values)] == pytest.approx([1.5, 3.5])
    logits = [np.array(pair) for pair in ((0.0, 1.0), (3.0, 0.0), (0.0, 1.0), (0.5, 0.0))]
    predictions = [{"logits": pair, "predictions": np.array(pair.argmax())} for pair in logits]
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


def test_a_learning_curve_of_a_student_that_learned_another_task_first(trained, data_dir, tmp_path):
    teacher = trained[0] / "finetuning_models" / "kind_model_1"
    words = ("--search", '{"train_share": [0.25, 1.0]}', "--intermediate-task", "count", "--distill-from", str(teacher))
    output = run(data_dir, tmp_path, *words, num_train_epochs=3.0)
    assert "search: 2 of 2 combinations of train_share, 1 trial(s) each" in output
    assert "intermediate task count" in output
    results = tmp_path / "results"
    content = json.loads((results / "count-kind_search_train_share.json").read_text())
    assert content["searched"] == ["train_share"] and len(content["found"]) == 2
    assert content["found"][1]["score"] > 40 and content["found"][0]["score"] > 85
    assert (results / "count-kind_search_train_share.png").is_file()
    chosen = json.loads((results / "count-kind_best_of_train_share.json").read_text())
    assert (chosen["chosen_on"], chosen["of"]) == ("dev", 2) and "chosen by these dev scores" in output
    assert chosen["trials"][0]["scores"] == content["found"][0]["trials"][0]
    assert not (results / "count-kind_results.json").exists()  # that is of a run without a search
    best, other = (tmp_path / "finetuning_models" / f"{row['model_dir']}_1" for row in content["found"])
    assert (
        list(best.glob("model.ckpt-*")) and not list(other.glob("model.ckpt-*")) and (other / "scores.json").is_file()
    )
    config = json.loads((best / "config.json").read_text())
    assert config["init_checkpoint"] == str(tmp_path / "finetuning_models" / "count_model_1")
    again = run(data_dir, tmp_path, *words, num_train_epochs=3.0)
    assert again.count("done before") == 3


def test_a_combination_that_is_not_finite_does_not_end_the_search(data_dir, tmp_path):
    words = ("--search", '{"learning_rate": [1e30, 1e-3]}', "--write-test-outputs")
    output = run(data_dir, tmp_path, *words, num_train_epochs=1.0)
    assert "combination 1 has no score: not finite" in output
    content = json.loads((tmp_path / "results" / "kind_search_learning_rate.json").read_text())
    assert [row["hparams"]["learning_rate"] for row in content["found"]] == [1e-3, 1e30]
    assert content["found"][1]["score"] is None
    best = Path(content["found"][0]["model_dir"])
    assert f"its test outputs: {best}" in output and list((best / "test_predictions").glob("kind_test_1_*"))
    assert not (tmp_path / "test_predictions").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--search", '{"learning_rat": [1]}', "--intermediate-task", "count"), "did you mean 'learning_rate'"),
        (("--search", '{"train_batch_size": [7]}', "--strategy", "mirrored"), "train_batch_size 7 is not divisible"),
        (("--search", '{"train_batch_size": [8]}', "--results-json", "x"), "give --results-dir alone"),
        (("--search-budget", "3"), "--search-budget needs --search"),
        (("--search", '{"train_batch_size": [8]}', "--predict", "x.txt"), "give one of them"),
    ],
)
def test_a_search_with_a_mistake_trains_nothing(data_dir, tmp_path, words, message):
    assert message in " ".join(run(data_dir, tmp_path, *words, expect=2).split())
    assert not (tmp_path / "finetuning_models").exists()


def test_scores_of_another_way_to_score_are_not_taken_for_these(trained, data_dir):
    out, _, settings = trained
    output = run(data_dir, out, "--average-orders", expect=2, **settings)
    assert "was made with average_orders False, not True: --no-do-train scores the model anew" in " ".join(
        output.split()
    )


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"intermediate_task": "cola"}, "intermediate_task cola is one of task_names"),
        ({"intermediate_task": "col"}, "unknown task"),
        ({"intermediate_task": "mnli", "prompt": True}, "prompt asks the pre-trained language model, which an inter"),
        ({"intermediate_task": "mnli", "auxiliary_lm_weight": 0.5}, "auxiliary_lm_weight needs the .* intermediate"),
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
