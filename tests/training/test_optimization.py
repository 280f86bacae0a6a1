"""AdamW and its schedule against float64 references; replicas, XLA and loss scaling."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.training.loss_scale import LossScale
from electra_tf2.training.optimization import AdamW, LearningRateSchedule
from electra_tf2.training.shared_hparams import OptimizerHparams
from tests.support import training as support

SHAPES = {"dense/kernel": (3, 2), "dense/bias": (2,), "table": (5, 4)}
MULTIPLIERS = {"dense/kernel": 1.0, "dense/bias": 0.5, "table": 0.25}


def initial_values():
    random = np.random.RandomState(0)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def gradients_of_step(step):
    random = np.random.RandomState(100 + step)
    size = 10.0 ** random.uniform(-3, 1)  # some are clipped, some are not
    return {name: (size * random.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def make_optimizer(schedule, **arguments):
    variables = [tf.Variable(value, name=name) for name, value in initial_values().items()]
    return variables, AdamW(
        variables,
        schedule,
        decays=lambda variable: "bias" not in variable.name,
        lr_multiplier=lambda variable: MULTIPLIERS[variable.name.split(":")[0]],
        **arguments,
    )


def reference_rate(schedule, step):
    """The rate as the papers' text has it, in float64."""
    start = schedule.num_warmup_steps if schedule.separate else 0
    left = min(max(schedule.num_train_steps - step, 0) / max(schedule.num_train_steps - start, 1), 1)
    warm = min(1, step / schedule.num_warmup_steps) if schedule.num_warmup_steps else 1
    return schedule.peak * left**schedule.power * warm


def reference(schedule, steps, decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-6, clip=1.0, corrected=False):
    """Variables, means and variances after `steps` steps, and the global norms, in float64."""
    values = {name: value.astype(np.float64) for name, value in initial_values().items()}
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    norms = []
    for step in range(steps):
        gradients = {name: g.astype(np.float64) for name, g in gradients_of_step(step).items()}
        norms.append(np.sqrt(sum((g**2).sum() for g in gradients.values())))
        for name, gradient in gradients.items():
            clipped = gradient * min(1, clip / norms[-1])
            m[name] = beta1 * m[name] + (1 - beta1) * clipped
            v[name] = beta2 * v[name] + (1 - beta2) * clipped**2
            mean, variance = m[name], v[name]
            if corrected:
                mean, variance = mean / (1 - beta1 ** (step + 1)), variance / (1 - beta2 ** (step + 1))
            change = mean / (np.sqrt(variance) + epsilon)
            if "bias" not in name:
                change = change + decay * values[name]
            values[name] = values[name] - reference_rate(schedule, step) * MULTIPLIERS[name] * change
    return values, m, v, norms


def check(variables, optimizer, expected, rtol=1e-5):
    values, m, v, _ = expected
    for index, name in enumerate(SHAPES):
        np.testing.assert_allclose(variables[index].numpy(), values[name], rtol=rtol, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(optimizer.means[index].numpy(), m[name], rtol=rtol, atol=1e-7, err_msg=name)
        np.testing.assert_allclose(optimizer.variances[index].numpy(), v[name], rtol=rtol, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("is_compiled", "schedule", "corrected"),
    [
        (False, LearningRateSchedule(0.1, 10, 3), False),
        (True, LearningRateSchedule(0.1, 10, 3, power=2.0, separate=True), False),
        (False, LearningRateSchedule(0.1, 10, 3), True),  # bias correction, the published Adam's
    ],
)
def test_ten_steps_equal_the_reference(is_compiled, schedule, corrected):
    variables, optimizer = make_optimizer(schedule, hparams=OptimizerHparams(adam_bias_correction=corrected))
    apply = tf.function(optimizer.apply, jit_compile=True, autograph=False) if is_compiled else optimizer.apply
    norms = [float(apply([tf.constant(g) for g in gradients_of_step(step).values()])) for step in range(10)]
    expected = reference(schedule, 10, corrected=corrected)
    np.testing.assert_allclose(norms, expected[3], rtol=1e-5)
    assert min(norms) < 1 < max(norms)
    check(variables, optimizer, expected)
    assert int(optimizer.step) == 10


def test_replicas_sum_their_gradients_before_clipping():
    strategy = support.two_replicas()
    schedule = LearningRateSchedule(0.1, 10, 3)
    with strategy.scope():
        variables, optimizer = make_optimizer(schedule)

    @functools.partial(tf.function, autograph=False)
    def step(gradients):
        def on_replica():
            # Shares of 0.25 and 0.75: each would be clipped differently from their sum.
            share = 0.25 + 0.5 * tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
            return optimizer.apply([share * gradient for gradient in gradients])

        return strategy.run(on_replica)

    for number in range(10):
        step([tf.constant(gradient) for gradient in gradients_of_step(number).values()])
    check(variables, optimizer, reference(schedule, 10))
    for variable in variables:
        first, second = strategy.experimental_local_results(variable)
        np.testing.assert_array_equal(first.numpy(), second.numpy())
    assert optimizer.step.numpy() == 10


def test_a_variable_without_gradient_decays_only():
    variables, optimizer = make_optimizer(LearningRateSchedule(0.1, 10, 0))
    optimizer.apply([None, None, None])
    for variable, (name, value) in zip(variables, initial_values().items(), strict=True):
        factor = 1.0 if name == "dense/bias" else 1 - 0.1 * MULTIPLIERS[name] * 0.01
        np.testing.assert_allclose(variable.numpy(), value * factor, rtol=1e-6)


def test_sparse_gradients_count_repeated_rows():
    variable = tf.Variable(tf.ones([4, 2]), name="table")
    optimizer = AdamW([variable], LearningRateSchedule(0.1, 10, 0), decays=lambda _: False)
    optimizer.apply([tf.IndexedSlices(tf.constant([[3.0, 0.0], [1.0, 0.0]]), tf.constant([2, 2]), tf.constant([4, 2]))])
    assert optimizer.means[0].numpy()[2, 0] == pytest.approx(0.1)  # 4, clipped to 1
    assert np.count_nonzero(optimizer.means[0].numpy()) == 1


def test_the_schedule_at_its_corners():
    multiplied, separate = LearningRateSchedule(1.0, 100, 10), LearningRateSchedule(1.0, 100, 10, separate=True)
    assert [float(multiplied(step)) for step in (0, 5, 10, 100, 101)] == pytest.approx([0, 0.475, 0.9, 0, 0])
    assert [float(separate(step)) for step in (0, 5, 10, 55, 100)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    trapezoid = LearningRateSchedule(1.0, 100, 10, decay_steps=20)
    assert [float(trapezoid(step)) for step in (0, 5, 10, 80, 90, 100)] == pytest.approx([0, 0.5, 1, 1, 0.5, 0])
    longer = LearningRateSchedule(1.0, 1000, 10, decay_steps=20)
    assert [float(longer(step)) for step in range(80)] == [float(trapezoid(step)) for step in range(80)]
    assert float(LearningRateSchedule(1.0, 100, 0)(0)) == 1.0  # the original divides 0 by 0 here


def test_epsilon_is_added_after_the_bias_correction():
    """A gradient as small as epsilon makes half a step, which it would not if the root were corrected with it."""
    variable = tf.Variable([1.0])
    optimizer = AdamW(
        [variable], LearningRateSchedule(0.1, 10, 0), lambda _: False, OptimizerHparams(adam_bias_correction=True)
    )
    optimizer.apply([tf.constant([1e-6])])
    assert float(variable[0]) == pytest.approx(0.95, abs=1e-4)


def test_an_overflow_changes_the_scale_and_the_step_only():
    variables, optimizer = make_optimizer(LearningRateSchedule(0.1, 10, 0))
    scale = LossScale(initial=8.0, growth_steps=2)
    for bad in (np.inf, np.nan):
        optimizer.apply([tf.constant(g) * bad for g in gradients_of_step(0).values()], scale)
    for variable, value in zip(variables, initial_values().values(), strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert not any(slot.numpy().any() for slot in (*optimizer.means, *optimizer.variances))
    assert float(scale.scale) == 2.0 and int(optimizer.step) == 2
    assert float(scale.good_steps) == 0


def test_the_scale_divides_the_gradients_and_grows_after_good_steps():
    schedule = LearningRateSchedule(0.1, 10, 3)
    variables, optimizer = make_optimizer(schedule)
    scale = LossScale(initial=8.0, growth_steps=3)
    scales = []
    for step in range(7):
        scales.append(float(scale.scale))
        optimizer.apply([tf.constant(g) * scales[-1] for g in gradients_of_step(step).values()], scale)
    assert scales == [8, 8, 8, 16, 16, 16, 32]
    check(variables, optimizer, reference(schedule, 7))


def test_the_scale_counts_good_steps_anew_after_an_overflow_and_never_falls_below_one():
    scale, scales = LossScale(initial=8.0, growth_steps=2), []
    for finite in (True, False, True, True, False, False, False, False):
        scale.update(tf.constant(finite))
        scales.append(float(scale.scale))
    assert scales == [8, 4, 4, 8, 4, 2, 1, 1]
