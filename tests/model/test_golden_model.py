"""Forward passes, losses and gradients against the original program's."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.formats.readers import open_model
from electra_tf2.formats.warm_start import warm_start
from electra_tf2.pretrain.objectives.electra import Detection
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from tests.support import golden

VARIANTS = golden.load_json("variants")
MODES = [name for name in VARIANTS if name != "base(checkpoint)"]


def disc_logits(model, forward):
    return golden.objective_of(model, Detection).logits(forward)


@pytest.fixture(scope="module")
def batch():
    return golden.load_arrays("batch")


@pytest.fixture(scope="module")
def trained():
    """The model of the original's checkpoint."""
    model = PretrainingModel(golden.config())
    report = warm_start(model, open_model(str(golden.CHECKPOINT)))
    assert not report.missing and not report.unused
    return model


def losses_and_gradients(model, batch):
    masked = golden.masked_batch(model, batch)
    with tf.GradientTape() as tape:
        forward = model.forward(masked, sampled_ids=tf.constant(batch["sampled_tokids"]))
        outputs = model.outputs(forward)
    return forward, outputs, tape.gradient(outputs.loss, model.trainable_variables)


def is_rounding_only(name):
    """A key's bias shifts all scores of a query alike, which softmax ignores: its gradient is 0 but for rounding."""
    return name.endswith("/key/bias")


def test_checkpoint_forward(trained, batch):
    expected = golden.load_arrays("forward")
    forward, outputs, _ = losses_and_gradients(trained, batch)
    masked = forward.masked
    np.testing.assert_array_equal(masked.masked_input_ids, expected["masked_input_ids"])
    np.testing.assert_array_equal(masked.masked_lm_ids, expected["masked_lm_ids"])
    np.testing.assert_array_equal(forward.corrupted.input_ids, expected["fake/updated_input_ids"])
    np.testing.assert_array_equal(forward.corrupted.is_replaced, expected["fake/is_fake_tokens"])
    generator = trained.generator.encoder(masked.masked_input_ids, masked.input_mask, masked.segment_ids)
    main = trained.encoder(forward.corrupted.input_ids, masked.input_mask, masked.segment_ids)
    actual = {  # of the layers, the golden file keeps the first example
        "gen/embedding_output": generator.embeddings,
        "gen/all_layer_outputs": tf.stack(generator.layers)[:, :1],
        "gen/mlm_logits": forward.generator.softmax.logits,
        "gen/mlm_loss": outputs.losses["masked_lm_loss"],
        "disc/embedding_output": main.embeddings,
        "disc/all_layer_outputs": tf.stack(main.layers)[:, :1],
        "disc/logits": disc_logits(trained, forward),
        "disc/loss": outputs.losses["disc_loss"],
        "total_loss": outputs.loss,
    }
    errors = {name: golden.relative_error(value, expected[name]) for name, value in actual.items()}
    assert max(errors.values()) <= golden.FORWARD_TOLERANCE, errors


def test_checkpoint_metrics(trained, batch):
    expected = golden.load_arrays("forward")
    _forward, outputs, _ = losses_and_gradients(trained, batch)
    weights = batch["masked_lm_weights"]
    correct = expected["gen/mlm_preds"] == expected["masked_lm_ids"]
    numerator, denominator = outputs.metrics["masked_lm_accuracy"]
    assert float(numerator) == float((correct * weights).sum())
    assert float(denominator) == weights.sum()
    numerator, denominator = outputs.metrics["disc_accuracy"]
    right = (expected["disc/preds"] == expected["disc/labels"]) * batch["input_mask"]
    assert float(numerator / denominator) == pytest.approx(right.sum() / batch["input_mask"].sum())
    seen = np.take_along_axis(expected["masked_input_ids"], batch["masked_lm_positions"], 1)
    hidden = weights * (seen != expected["masked_lm_ids"])
    assert 0 < hidden.sum() < weights.sum()
    found = [float(part) for part in outputs.metrics["hidden_masked_lm_accuracy"]]
    assert found == [(correct * hidden).sum(), hidden.sum()]
    numerator, denominator = outputs.metrics["disc_loss"]
    assert float(numerator / denominator) == pytest.approx(expected["disc/per_example_loss"].mean(), rel=1e-5)


def test_metrics_of_detection(trained, batch):
    """Invented logits, as the checkpoint calls nothing fake."""
    forward, _, _ = losses_and_gradients(trained, batch)
    logits = np.random.RandomState(0).standard_normal(batch["input_mask"].shape).astype(np.float32)
    labels, real = forward.corrupted.is_replaced.numpy(), batch["input_mask"]
    weights = tf.constant(real, tf.float32)
    objective = golden.objective_of(trained, Detection)
    metrics = objective.detection_metrics(forward, tf.constant(logits), tf.constant(labels), weights, 2 * weights)
    said, fake = (logits > 0) * real, labels * real
    both, right = (said * fake).sum(), (said == fake) * real
    assert 0 < both < fake.sum() < said.sum()
    sampled = forward.corrupted.was_sampled.numpy() * (1 - labels) * real
    expected = {
        "disc_accuracy": (right.sum(), real.sum()),
        "disc_precision": (both, said.sum()),
        "disc_recall": (both, fake.sum()),
        "disc_sampled_correctly_accuracy": ((right * sampled).sum(), sampled.sum()),
        "replaced_rate": (fake.sum(), real.sum()),
        "majority_baseline": ((real - fake).sum(), real.sum()),
    }
    for name, pair in expected.items():
        assert tuple(map(float, metrics[name])) == pair, name
    assert [float(part) for part in metrics["disc_loss"]] == pytest.approx([2 * len(real), len(real)])


def test_checkpoint_gradients(trained, batch):
    expected = golden.load_arrays("gradients")
    _, _, gradients = losses_and_gradients(trained, batch)
    actual = golden.original_gradients(trained, gradients)
    global_norm = float(expected["global_norm"])
    names = [key.removeprefix("grad/") for key in expected if key.startswith("grad/")]
    assert sorted(names) == sorted(actual)
    errors = {}
    for name in names:
        sampled = actual[name].reshape(-1)[expected[f"index1024/{name}"]]
        if is_rounding_only(name):
            assert np.abs(sampled).max() <= 1e-6 * global_norm
        else:
            errors[name] = golden.relative_error(sampled, expected[f"grad/{name}"])
    assert max(errors.values()) <= golden.GRADIENT_TOLERANCE, sorted(errors.items(), key=lambda item: -item[1])[:5]
    norm = float(tf.linalg.global_norm([tf.convert_to_tensor(g) for g in gradients if g is not None]))
    assert norm == pytest.approx(global_norm, rel=golden.GRADIENT_TOLERANCE)


@tf.custom_gradient
def relu_with_rounding(x):
    """relu with slope 0 to a little above 0.

    One input of `weights_heads` is -3e-7, less than the rounding of its sum: above 0 on another processor, the slope is
    1 there and a gradient's norm 1.3e-4 larger. The next ones are 5e-6 and more away from 0.
    """
    return tf.maximum(x, 0.0), lambda upstream: upstream * tf.cast(x > 1e-6, x.dtype)


@pytest.mark.parametrize("mode", MODES)
def test_variant(mode, batch, monkeypatch):
    monkeypatch.setattr(tf.nn, "relu", relu_with_rounding)
    spec, arrays = VARIANTS[mode], golden.load_arrays("variants")
    model = golden.model_with_crc_values(**spec["overrides"])
    expected_shapes = {name: tuple(shape) for name, shape in spec["variables"]}
    actual_shapes = {name: value.shape for name, value in golden.crc_values(model).items()}
    assert actual_shapes == expected_shapes

    forward, outputs, gradients = losses_and_gradients(model, batch)
    losses = {"total_loss": outputs.loss}
    if "cloze_loss" in outputs.losses:
        losses["cloze/loss"] = outputs.losses["cloze_loss"]
    numerator, denominator = outputs.metrics["masked_lm_loss"]
    losses["gen/mlm_loss"] = numerator / denominator
    if "disc_loss" in outputs.losses:
        losses["disc/loss"] = outputs.losses["disc_loss"]
    assert losses.keys() == spec["losses"].keys()
    errors = {name: golden.relative_error(value, spec["losses"][name]) for name, value in losses.items()}

    def expected(name):
        full = spec.get("same_as", {}).get(name, f"{mode}/{name}")
        return arrays.get(full)

    logits = expected("gen/mlm_logits")
    errors["gen/mlm_logits"] = golden.relative_error(forward.generator.softmax.logits[: len(logits)], logits)
    if forward.generator.cloze is not None and expected("cloze/logits") is not None:
        errors["cloze/logits"] = golden.relative_error(forward.generator.cloze.logits[:1], expected("cloze/logits"))
    if forward.encoded is not None:
        errors["disc/logits"] = golden.relative_error(disc_logits(model, forward), expected("disc/logits"))
        states = expected("disc/sequence_output")
        errors["disc/sequence_output"] = golden.relative_error(forward.states[: len(states)], states)
    assert max(errors.values()) <= golden.FORWARD_TOLERANCE, errors

    actual = golden.original_gradients(model, gradients)
    assert sorted(actual) == sorted(spec["grad_norm"])
    for name, norm in spec["grad_norm"].items():
        actual_norm = np.linalg.norm(actual[name].astype(np.float64))
        if is_rounding_only(name):
            assert actual_norm <= 1e-6 * spec["global_norm"]
        else:
            assert actual_norm == pytest.approx(norm, rel=golden.GRADIENT_TOLERANCE), name
