"""Muon against a float64 version by singular values; overflows; averages of weights."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.formats.readers import open_model
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.training.loss_scale import LossScale
from electra_tf2.training.muon import matrices_in, orthogonalised
from electra_tf2.training.optimization import AdamW, LearningRateSchedule
from electra_tf2.training.shared_hparams import OptimizerHparams
from tests.support import training as support

LAYER = "electra/encoder/layer_0"
SHAPES = {
    f"{LAYER}/attention/self/qkv/kernel": (8, 24),
    f"{LAYER}/attention/output/dense/kernel": (8, 8),
    f"{LAYER}/intermediate/dense/kernel": (8, 32),
    f"{LAYER}/output/dense/kernel": (32, 8),
    f"{LAYER}/output/dense/bias": (8,),
    "electra/embeddings/word_embeddings": (6, 8),
}
MATRICES = dict(zip(SHAPES, (3, 1, 1, 1, 0, 0), strict=True))
MOMENTUM, FACTOR, DECAY = 0.9, 0.5, 0.1
SCHEDULE = LearningRateSchedule(0.1, 10, 3)


def random_values(seed):
    random = np.random.RandomState(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def make_optimizer(dtype="float32", ema_decay=0.0):
    variables = [tf.Variable(value, name=name) for name, value in random_values(0).items()]
    hparams = OptimizerHparams(
        "muon",
        DECAY,
        muon_learning_rate_factor=FACTOR,
        muon_momentum=MOMENTUM,
        muon_precision=dtype,
        ema_decay=ema_decay,
    )
    return variables, AdamW(
        variables,
        SCHEDULE,
        decays=lambda variable: "bias" not in variable.name,
        hparams=hparams,
        lr_multiplier=lambda variable: 0.25 if "intermediate" in variable.name else 1.0,
    )


def gradients_of(step):
    return [tf.constant(value) for value in random_values(100 + step).values()]


def polynomial(singular, steps=5):
    """Singular values after Newton-Schulz's iteration, in float64."""
    for _ in range(steps):
        singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
    return singular


def orthogonal(matrix):
    u, singular, vt = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    return u * polynomial(singular / np.linalg.norm(singular)) @ vt


def reference(steps):
    """Variables and momenta of the matrices after some steps, in float64."""
    values = {name: value.astype(np.float64) for name, value in random_values(0).items() if MATRICES[name]}
    momenta = {name: np.zeros(SHAPES[name]) for name in values}
    for step in range(steps):
        gradients = {name: value.astype(np.float64) for name, value in random_values(100 + step).items()}
        norm = np.sqrt(sum((value**2).sum() for value in gradients.values()))
        rate = FACTOR * 0.1 * (1 - step / 10) * min(1, step / 3)
        for name in values:
            gradient = gradients[name] / max(1, norm)
            momenta[name] = MOMENTUM * momenta[name] + (1 - MOMENTUM) * gradient
            ahead = MOMENTUM * momenta[name] + (1 - MOMENTUM) * gradient
            parts = [orthogonal(part) * 0.2 * max(part.shape) ** 0.5 for part in np.split(ahead, MATRICES[name], 1)]
            own = rate * (0.25 if "intermediate" in name else 1)
            values[name] = values[name] * (1 - own * DECAY) - own * np.concatenate(parts, 1)
    return values, momenta


def check(variables, optimizer, steps, rtol=1e-4):
    values, momenta = reference(steps)
    for variable, (name, matrices) in zip(variables, MATRICES.items(), strict=True):
        if matrices:
            np.testing.assert_allclose(variable.numpy(), values[name], rtol=rtol, atol=rtol, err_msg=name)
    for slot, name in zip(optimizer.muon.momenta, momenta, strict=True):
        np.testing.assert_allclose(slot.numpy(), momenta[name], rtol=rtol, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("shape", "dtype", "tolerance"),
    [((3, 16, 16), "float32", 1e-4), ((1, 5, 300), "float32", 1e-4), ((2, 32, 128), "bfloat16", 0.06)],
)
def test_newton_schulz_against_the_singular_value_decomposition(shape, dtype, tolerance):
    matrices = 1e-3 * np.random.RandomState(0).standard_normal(shape).astype(np.float32)
    found = orthogonalised(tf.constant(matrices), 5, tf.as_dtype(dtype)).numpy()
    for one, matrix in zip(found, matrices, strict=True):
        u, singular, vt = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
        singular /= np.linalg.norm(singular)
        well = singular > 0.03  # what is smaller is noise to bfloat16
        turned = (u.T @ one @ vt.T)[well][:, well]  # the identity for U V^T
        sizes = np.diag(turned)
        np.testing.assert_allclose(turned, np.diag(sizes), atol=tolerance)
        # The known tolerance of these coefficients: the iteration swings about 1 instead of converging.
        assert (sizes > 0.6).all() and (sizes < 1.25).all()
        if dtype == "float32":
            np.testing.assert_allclose(sizes, polynomial(singular[well]), atol=tolerance)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_ten_steps_equal_the_reference_and_everything_else_is_adamws(is_compiled):
    variables, optimizer = make_optimizer()
    alone = [tf.Variable(variable) for variable in variables]
    plain = AdamW(alone, SCHEDULE, lambda variable: variable is not alone[4], OptimizerHparams(weight_decay_rate=DECAY))
    for one in (optimizer, plain):
        apply = tf.function(one.apply, jit_compile=True, autograph=False) if is_compiled else one.apply
        for step in range(10):
            apply(gradients_of(step))
    check(variables, optimizer, 10)
    for variable, other in zip(variables[4:], alone[4:], strict=True):
        np.testing.assert_allclose(variable, other, rtol=1e-6)
    assert [slot.name for slot in optimizer.means] == [f"{name}/adam_m:0" for name in list(SHAPES)[4:]]


def test_entries_of_an_update_are_as_large_as_adamws():
    matrix = np.random.RandomState(0).standard_normal([192, 768]).astype(np.float32)
    variable = tf.Variable(tf.zeros([192, 768]), name=f"{LAYER}/intermediate/dense/kernel")
    AdamW([variable], LearningRateSchedule(1.0, 10, 0), lambda _: False, OptimizerHparams(optimizer="muon")).apply(
        [tf.constant(matrix)]
    )
    assert np.sqrt((variable.numpy() ** 2).mean()) == pytest.approx(0.2, rel=0.25)  # Liu et al. 2025, section 2.2


def test_an_overflow_changes_no_momentum():
    variables, optimizer = make_optimizer()
    scale = LossScale(initial=8.0, growth_steps=3)
    optimizer.apply([gradient * np.inf for gradient in gradients_of(0)], scale)
    for variable, value in zip(variables, random_values(0).values(), strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert not any(slot.numpy().any() for slot in optimizer.muon.momenta)
    assert float(scale.scale) == 4.0


def test_muon_takes_the_kernels_of_encoder_layers(tmp_path):
    config = PretrainingConfig.from_dict(support.hparams(tmp_path, sizes={"relative_positions": "t5"}))
    variables = PretrainingModel(config).trainable_variables
    taken = {variable.name.split(":")[0]: matrices_in(variable) for variable in variables if matrices_in(variable)}
    kernels = ("attention/self/qkv", "attention/output/dense", "intermediate/dense", "output/dense")
    expected = [f"{network}/encoder/layer_0/{name}/kernel" for network in ("electra", "generator") for name in kernels]
    assert sorted(taken) == sorted(expected)
    assert {name: count for name, count in taken.items() if count > 1} == dict.fromkeys(
        [name for name in expected if "qkv" in name], 3
    )
    gated = PretrainingModel(PretrainingConfig.from_dict(support.hparams(tmp_path, sizes={"gated_mlp": True})))
    counts = [matrices_in(one) for one in gated.trainable_variables if "intermediate/gated/kernel" in one.name]
    assert counts == [2, 2]  # a gate beside what it opens, in both networks


def test_averages_follow_the_variables_and_stand_in_for_them(tmp_path):
    variables, optimizer = make_optimizer(ema_decay=0.7)
    with optimizer.averaged():  # nothing to average yet
        np.testing.assert_array_equal(variables[4].numpy(), random_values(0)[f"{LAYER}/output/dense/bias"])
    expected: list[np.ndarray] = []
    for step in range(30):
        optimizer.apply(gradients_of(step % 10))
        value = [variable.numpy().astype(np.float64) for variable in variables]
        decay = min(0.7, step / (step + 10))
        expected = [decay * a + (1 - decay) * b for a, b in zip(expected or value, value, strict=True)]
    before = [variable.numpy() for variable in variables]
    assert expected is not None
    with optimizer.averaged():
        for variable, average in zip(variables, expected, strict=True):
            np.testing.assert_allclose(variable.numpy(), average, rtol=1e-5, atol=1e-5)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    path = tf.train.Checkpoint(variables=variables, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    found = open_model(path)
    assert sorted(found.weights) == sorted(SHAPES)
    for name, average in zip(SHAPES, optimizer.averages, strict=True):
        np.testing.assert_array_equal(found.weights[name], average.numpy())
