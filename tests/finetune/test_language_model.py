"""Masked language modelling beside the tasks: what is masked, and that its loss falls with the step."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exchange.checkpoints import warm_start
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.model import FinetuningModel, FinetuningTask
from electra_tf2.finetune.task_classes import make_tasks
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests import finetuning_support as support
from tests import golden_support as golden
from tests import training_support
from tests.finetuning_support import write_lines


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A BERT of random weights with its configuration, and a task's files."""
    folder = tmp_path_factory.mktemp("bert")
    config = PretrainingConfig.from_dict(training_support.hparams(folder, electra_objective=False))
    tf.train.Checkpoint(model=PretrainingModel(config)).write(str(folder / "model.ckpt-1"))
    write_lines(folder / "checkpoint", 'model_checkpoint_path: "model.ckpt-1"')
    (folder / "config.json").write_text(config.to_json())
    rows = [json.dumps({"sentence": "the file is open", "label": str(number % 2)}) for number in range(16)]
    write_lines(folder / "cola" / "train.jsonl", *rows)
    saved = json.loads(config.to_json())
    sizes = {name: saved[name] for name in ("model_size", "model_hparam_overrides", "embedding_size", "vocab_size")}
    sizes["model_hparam_overrides"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return sizes | {"init_checkpoint": str(folder), "raw_data_dir": str(folder), "learning_rate": 1e-2}


def make(bert, **overrides):
    config = support.config("cola", **bert | {"num_train_epochs": 20.0, "train_batch_size": 8} | overrides)
    return config, make_tasks(config, support.tokenizer())


def test_the_language_model_is_learned_beside_the_task(bert):
    config, tasks = make(bert, auxiliary_lm_weight=0.5)
    table = FeatureTable([TaskFeatures("cola", tasks[0].load("train").features, tasks[0].labels)], 32)
    task = FinetuningTask(config, tasks, tf.distribute.get_strategy(), False, table, 0)
    report = warm_start(task.model, config.init_checkpoint)
    assert all(name.startswith("task_specific/") for name in report.missing), "the head is the pre-trained one"
    data, seen = iter(task.training_data(0)), []
    train_step = tf.function(task.train_step, autograph=False)
    for step in range(40):
        result = train_step(next(data), tf.constant(step))
        total, count = result["metrics"]["lm_loss"]
        seen.append(float(total / count))
    assert seen[0] == pytest.approx(math.log(600), rel=0.1) and np.mean(seen[-5:]) < 0.7 * seen[0]


def test_some_tokens_are_masked_and_only_they_count(bert, monkeypatch):
    config, tasks = make(bert, auxiliary_lm_weight=0.5)
    model = FinetuningModel(config, tasks, 0)
    language_model, seen = model.language_model, []
    assert language_model is not None
    special = tasks[0].tokenizer.special
    ids = np.full([3, 24], 50, np.int32)
    ids[:, 0], ids[:, 20], ids[:, 21:] = special.cls, special.sep, special.pad
    ids[2, 1:20] = special.sep  # nothing to mask
    mask = (ids != special.pad).astype(np.int32)

    def spy(masked, *rest):
        seen.append(masked.numpy())
        return model.encoder(masked, *rest)

    monkeypatch.setattr(language_model, "encoder", spy)
    losses = language_model(*map(tf.constant, (ids, mask, np.zeros_like(ids))), tf.constant([0, 1]))
    hidden = seen[0] == special.mask
    assert hidden.sum(1).tolist() == [3, 3, 0] and not hidden[:, [0, 20, 21, 22, 23]].any()
    assert (seen[0][~hidden] == ids[~hidden]).all()
    assert losses.numpy()[2] == 0 and (losses.numpy()[:2] > 1).all()


def test_a_question_with_candidates_counts_once(bert, tmp_path):
    row = {"premise": "the file", "choice1": "is open", "choice2": "is read", "question": "cause", "label": 1, "idx": 0}
    write_lines(tmp_path / "copa" / "train.jsonl", *[json.dumps(row)] * 4)
    losses, language = {}, 0.0
    for weight in (0.0, 0.5):
        of_copa = bert | {"raw_data_dir": str(tmp_path), "auxiliary_lm_weight": weight, "train_batch_size": 4}
        config = support.config("copa", **of_copa)
        tasks = make_tasks(config, support.tokenizer())
        features = TaskFeatures("copa", tasks[0].load("train").features, tasks[0].labels)
        table = FeatureTable([features], 32, choices=tasks[0].choices)
        task = FinetuningTask(config, tasks, tf.distribute.get_strategy(), False, table, 0)
        result = task.train_step(next(iter(task.training_data(0))), tf.constant(0))
        losses[weight] = float(result["losses"]["loss"])
        if weight:
            language, rows = map(float, result["metrics"]["lm_loss"])
            assert rows == 4 * 2
    assert losses[0.5] - losses[0.0] == pytest.approx(0.5 * language / 2, rel=1e-4)


def test_a_trained_model_needs_no_language_model(bert):
    config, tasks = make(bert, auxiliary_lm_weight=0.5, do_train=False)
    assert FinetuningModel(config, tasks, 0).language_model is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [({"prompt": True}, "no prompt that asks it"), ({"random_init": True, "init_checkpoint": None}, "pre-trained")],
)
def test_what_has_none_is_refused(bert, overrides, message):
    with pytest.raises(UserError, match=message):
        make(bert, auxiliary_lm_weight=0.5, **overrides)
    config, tasks = make(bert | {"init_checkpoint": str(golden.CHECKPOINT)} | SIZES, auxiliary_lm_weight=0.5)
    with pytest.raises(UserError, match=r"auxiliary_lm_weight: the main network of .* has no language-model head"):
        FinetuningModel(config, tasks, 0)


SIZES = {name: value for name, value in vars(support.config("cola")).items() if name in (
    "model_size", "model_hparam_overrides", "embedding_size", "vocab_size"
)}  # fmt: skip
