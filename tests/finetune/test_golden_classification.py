"""Features, head, scores and steps of fine-tuning equal the original program's."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.finetune.model import FinetuningTask, layer_multiplier, number_of_steps
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.settings import metrics
from electra_tf2.training.optimization import AdamW, LearningRateSchedule
from tests.support import finetuning as support
from tests.support import golden
from tests.support.golden import assign_original, original_values

FEATURES = golden.load_json("classification_features")
SCORERS = golden.load_json("classification_scorers")
NAMES = {"mnli": {"dev": "dev_matched"}}


@pytest.mark.parametrize("case", FEATURES["classification"])
def test_features_are_the_originals(case):
    task, split, *options = case.split("/")
    config = support.config(task, compat="original", max_seq_length=FEATURES_LENGTH, double_unordered=not options)
    loaded = make_tasks(config, support.tokenizer())[0].load(NAMES.get(task, {}).get(split, split))
    expected = FEATURES["classification"][case]["features"]
    assert len(loaded.features) == len(expected)
    for ours, (input_ids, segment_ids, label) in zip(loaded.features, expected, strict=True):
        assert ours.input_ids.tolist() == input_ids and ours.segment_ids.tolist() == segment_ids
        assert next(iter(ours.labels.values())) == pytest.approx(label)


FEATURES_LENGTH = max(len(ids) for case in FEATURES["classification"].values() for ids, _, _ in case["features"])


@pytest.mark.parametrize("name", ["cola", "mrpc"])
def test_the_number_of_steps_is_the_originals(name):
    size = FEATURES["sizes"][name]
    config = support.config(name, train_batch_size=8, num_train_epochs=3.0)
    examples = {"cola": 20, "mrpc": 40}[name]
    assert number_of_steps(config, examples) == size["train_steps_3_epochs_batch8"]


def test_scores_are_the_originals():
    labels, predictions = SCORERS["accuracy"]["labels"], SCORERS["accuracy"]["predictions"]
    assert metrics.accuracy(labels, predictions) == pytest.approx(SCORERS["accuracy"]["results"]["accuracy"])
    assert metrics.mcc(labels, predictions) == pytest.approx(SCORERS["mcc"]["results"]["mcc"])
    constant = SCORERS["mcc_constant_predictions"]
    assert metrics.mcc(constant["labels"], constant["predictions"]) == constant["results"]["mcc"] == 0
    regression = SCORERS["regression"]
    for name in ("pearson", "spearman"):
        value = metrics.METRICS[name](np.array(regression["targets"]), np.array(regression["predictions"]))
        assert value == pytest.approx(regression["results"][name])
    # The original's F1 takes its predictions for the labels, so its recall is its precision.
    assert metrics.f1(np.array(labels), np.array(predictions)) == pytest.approx(
        2 * 76.47058823529412 * recall(labels, predictions) / (76.47058823529412 + recall(labels, predictions))
    )


def recall(labels, predictions):
    hits = sum(label == prediction == 1 for label, prediction in zip(labels, predictions, strict=True))
    return 100 * hits / sum(labels)


def test_layers_learn_at_the_originals_rates():
    expected = golden.load_json("layer_lrs")["layer_lr_multipliers_n2_decay0.8"]
    names = {
        "/embeddings/": "electra/embeddings/word_embeddings:0",
        "/embeddings_project/": "electra/embeddings_project/kernel:0",
        "encoder/layer_0/": "electra/encoder/layer_0/attention/self/qkv/kernel:0",
        "encoder/layer_1/": "electra/encoder/layer_1/output/dense/bias:0",
        "task_specific/": "task_specific/cola/dense/kernel:0",
    }
    for key, name in names.items():
        assert layer_multiplier(name, 2, 0.8, "pooler") == pytest.approx(expected[key])
    assert layer_multiplier(names["encoder/layer_1/"], 2, 0.8, "head") == pytest.approx(0.8)
    assert layer_multiplier("electra/encoder/layer_1/x", 12, 0.8, "pooler") == pytest.approx(0.8**12)
    assert layer_multiplier("electra/encoder/layer_11/x", 12, 0.8, "pooler") == pytest.approx(0.8**2)


@pytest.mark.parametrize("case", ["decay0.8", "nodecay"])
def test_logits_losses_and_three_steps_are_the_originals(case):
    arrays = golden.load_arrays("finetune_steps")
    golden_batch = golden.load_arrays("batch")
    config = support.config("cola", layerwise_lr_decay=0.8 if case == "decay0.8" else 0.0, compat="original")
    task = make_tasks(config, support.tokenizer())[0]
    training = FinetuningTask(config, [task], tf.distribute.OneDeviceStrategy("CPU:0"), False, None, 0)
    model = training.model
    report = warm_start(model, open_model(str(golden.CHECKPOINT)))
    assert sorted(report.missing) == ["task_specific/cola/dense/bias", "task_specific/cola/dense/kernel"]
    initial = original_values(model.trainable_variables)
    for name in report.missing:
        initial[name] = arrays[next(key for key in arrays if key.endswith(f"init/{name}"))]
    assign_original(model.trainable_variables, initial)
    labels = arrays[f"{case}/labels"]
    batch = {name: tf.constant(golden_batch[name]) for name in ("input_ids", "input_mask", "segment_ids")}
    batch |= {"cola/label_ids": tf.constant(labels, tf.int32), "task_id": tf.zeros_like(labels, tf.int32)}

    output = model.predict(batch, 0)
    assert golden.relative_error(output.predictions["logits"], arrays[f"{case}/logits"]) < golden.FORWARD_TOLERANCE
    assert golden.relative_error(output.losses, arrays[f"{case}/per_example_loss"]) < golden.FORWARD_TOLERANCE

    optimizer: Any = training.optimizer
    optimizer.schedule = LearningRateSchedule(1e-3, 10, 1)
    for step in range(3):
        result = training.train_step(batch, tf.constant(step, tf.int64))
        loss = float(result["losses"]["loss"])
        assert loss == pytest.approx(float(arrays[f"{case}/loss/{step}"]), rel=golden.FORWARD_TOLERANCE)
        compared = compare_variables(arrays, f"{case}/step{step + 1}", original_values(model.trainable_variables))
        assert compared > 30 or step == 0


def test_by_default_the_norm_is_that_of_the_whole_gradient():
    slices = tf.IndexedSlices(tf.constant([[3.0], [3.0]]), tf.constant([0, 0]), tf.constant([2, 1]))
    variable = tf.Variable(tf.zeros([2, 1]))
    norms = [
        float(
            AdamW([variable], LearningRateSchedule(1.0, 10, 1), lambda variable: False, norm_of_slices=original).apply(
                [slices]
            )
        )
        for original in (False, True)
    ]
    assert norms == pytest.approx([6.0, math.sqrt(18.0)])


def compare_variables(arrays, prefix, values):
    """Samples of every variable; the key's bias has no gradient but rounding, which Adam blows up."""
    errors = {}
    for name, value in values.items():
        key = f"{prefix}/{name}#val"
        if key in arrays and "/key/bias" not in name:
            indices = arrays[f"index/{name}"]
            errors[name] = golden.relative_error(value.reshape(-1)[indices], arrays[key])
    worst = sorted(errors.items(), key=lambda item: -item[1])[:8]
    assert not errors or worst[0][1] < golden.GRADIENT_TOLERANCE, worst
    return len(errors)
