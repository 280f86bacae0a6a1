"""Kernels: equal to their formulas in value and gradient, however compiled; passes over memory; dropout's draws."""

import gc
import math
import re
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_tf2.model import attention as attention_module
from electra_tf2.model import kernels, layers, relative_positions
from electra_tf2.model.gated import gated_gelu
from electra_tf2.model.kernels import activations, compilation, dropout, dtypes, norms, sums, whole_attention
from electra_tf2.util import machine
from tests.support.processors import pretend

SEED = tf.constant([3, 4])
ALLOWED = tf.constant([[True, True, True, False, True], [True, False, False, True, True]])[:, tf.newaxis, tf.newaxis]


def normal(*shape, seed=0, dtype=tf.float64):
    return tf.random.stateless_normal(shape, [seed, 1], dtype=dtype)


def attention(rate):
    return lambda scores, values, bias: attention_module.attention(
        scores, values, ALLOWED, bias, SEED, scale=0.5, rate=rate
    )


def of_branch(formula, rate):
    return lambda *tensors: formula(*tensors, SEED, rate=rate)


def rotated(x):
    angles = tf.range(5.0)[:, tf.newaxis] * tf.constant([1.0, 0.1])
    dtype = dtypes.to_float32(x).dtype
    cosine = tf.cast(tf.cos(angles), dtype)
    sine = tf.cast(tf.sin(angles), dtype)
    return relative_positions.rotated(x, cosine, sine)


ROW = (8,)
ROWS = (2, 5, 8)
BRANCH = (ROWS, ROWS, ROW, ROW, ROW)  # x, branch, bias, gamma, beta
FORMULAS = {
    "gelu": (layers.gelu, (ROWS, ROW)),
    "gated": (gated_gelu, ((2, 5, 16), (16,))),
    "layer norm": (layers.layer_norm, (ROWS, ROW, ROW)),
    "layer norm, epsilon": (lambda *tensors: layers.layer_norm(*tensors, epsilon=0.1), (ROWS, ROW, ROW)),
    "norm of sum": (of_branch(layers.norm_of_sum, 0.0), BRANCH),
    "norm of sum, dropout": (of_branch(layers.norm_of_sum, 0.3), BRANCH),
    "residual sum": (of_branch(layers.residual_sum, 0.0), BRANCH[:3]),
    "residual sum, dropout": (of_branch(layers.residual_sum, 0.3), BRANCH[:3]),
    "attention": (attention(0.0), ((2, 3, 5, 5), (2, 3, 5, 5), (1, 3, 5, 5))),
    "attention, dropout": (attention(0.3), ((2, 3, 5, 5), (2, 3, 5, 5), (1, 3, 1, 5))),
    "attention of nine heads, dropout": (attention(0.3), ((2, 9, 5, 5), (2, 9, 5, 5), (1, 1, 1, 5))),
    "attention of 64 heads, dropout": (attention(0.3), ((2, 64, 5, 5), (2, 64, 5, 5), (1, 1, 1, 5))),
    "bias": (layers.add_bias, (ROWS, ROW)),
    "heads split": (lambda x, bias: attention_module.split_heads(x, bias, heads=2), ((2, 5, 24), (24,))),
    "dropout": (lambda x: layers.dropped_out(x, SEED, rate=0.3), (ROWS,)),
    "rotation": (rotated, ((2, 3, 5, 4),)),
}


def values_and_gradients(block, *tensors):
    """The outputs, and the gradients of the sum of their squares."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = tf.nest.flatten(block(*tensors))
        loss = sum(tf.reduce_sum(tf.square(output)) for output in outputs)
    return [*outputs, *tape.gradient(loss, tensors)]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_kernel_equals_its_formula_however_it_is_compiled(name):
    formula, shapes = FORMULAS[name]
    tensors = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    with kernels.off():
        plain = values_and_gradients(formula, *tensors)
    alone = values_and_gradients(formula, *tensors)
    part = compilation.one_program(lambda *tensors: values_and_gradients(formula, *tensors))(*tensors)
    for expected, *found in zip(plain, alone, part, strict=True):
        for value in found:
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in FORMULAS if "heads," not in name])
def test_formulas_and_kernels_keep_the_type_of_what_they_read(name):
    (formula, shapes), dtype, tolerance = FORMULAS[name], tf.bfloat16, 0.03
    tensors = [normal(*shape, seed=i, dtype=tf.float32) for i, shape in enumerate(shapes)]
    narrow = [tf.cast(t, dtype) if t.shape == tensors[0].shape else t for t in tensors]
    with kernels.off():
        exact, plain = values_and_gradients(formula, *tensors), values_and_gradients(formula, *narrow)
    outputs = len(exact) - len(tensors)
    part = compilation.one_program(lambda *tensors: values_and_gradients(formula, *tensors))(*narrow)
    for found in (plain, values_and_gradients(formula, *narrow), part):
        assert all(value.dtype == dtype for value in found[:outputs])
        assert [value.dtype for value in found[outputs:]] == [tensor.dtype for tensor in narrow]
        for value, expected in zip(found, exact, strict=True):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(tf.cast(value, tf.float32), expected, atol=tolerance * scale)


TOKENS, WIDTH, LENGTH, HEADS = 1024, 128, 64, 2


def big(*shape, dtype=tf.bfloat16):
    return tf.zeros(shape, dtype)


_X, _ROW, _COLUMN = big(TOKENS, WIDTH), big(WIDTH, dtype=tf.float32), big(TOKENS, 1, dtype=tf.float32)
_SCORES, _BIAS = big(8, HEADS, LENGTH, LENGTH), big(1, HEADS, LENGTH, LENGTH, dtype=tf.float32)
_VALUES = big(8, HEADS, LENGTH, WIDTH // HEADS)
_NORM = norms._Norm(_ROW, _COLUMN, _COLUMN)
_KEYS = tf.ones([8, 1, 1, LENGTH], tf.bool)
_TWO = (big(TOKENS, 2 * WIDTH), big(2 * WIDTH, dtype=tf.float32))
_IS_NEWER = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 21)  # its XLA gives the mean a pass of its own


class Passes(NamedTuple):
    """What a compiled function should become: a number of passes over memory, and of temporary arrays of full size."""

    function: Any
    arguments: tuple[Any, ...]
    static: dict[str, Any]
    kernels: int
    temporaries: int = 0


_RATE = {"rate": 0.1}
_NO_DROPOUT = {"rate": 0.0}
_EPSILON = {"epsilon": 1e-12}
_QKV = (big(8, LENGTH, 3 * WIDTH), big(3 * WIDTH))
_SUM = (_X, _X, _ROW)  # x, branch, bias
PASSES = {
    "gelu": Passes(activations._gelu, (_X, _ROW), {}, 1),
    "gelu's gradient": Passes(activations._gelu_gradient, (_X, _X, _ROW), {}, 1),
    "gated": Passes(activations._gated_gelu, _TWO, {}, 1),
    "gated's gradient of the activated half": Passes(activations._activated_gradient, (_X, *_TWO), {}, 1),
    "gated's gradient of the factor": Passes(activations._factor_gradient, (_X, *_TWO), {}, 1),
    "layer norm": Passes(norms._layer_norm, (_X, _ROW, _ROW), _EPSILON, 5),
    "layer norm's gradient": Passes(norms._layer_norm_gradient, (_X, _X, _NORM), {}, 7),
    "norm of sum": Passes(
        norms._norm_of_sum, (*_SUM, _ROW, _ROW, SEED), _NO_DROPOUT | _EPSILON, 6 + _IS_NEWER, temporaries=1
    ),
    "norm of sum's gradient": Passes(norms._norm_of_sum_gradient, (_X, *_SUM, _NORM, SEED), _NO_DROPOUT, 7),
    "residual sum": Passes(norms._residual_sum, (*_SUM, SEED), _RATE, 1),
    "residual sum's gradient": Passes(norms._branch_gradient, (_X, SEED), _RATE, 1),
    "heads split": Passes(whole_attention.heads_apart, _QKV, {"heads": HEADS}, 3),
    "attention, before the softmax": Passes(
        whole_attention.biased_scores, (_SCORES, _KEYS, _BIAS), {"scale": 0.125}, 1
    ),
    "attention, after it": Passes(whole_attention._probabilities_after_dropout, (_SCORES, SEED), _RATE, 1),
    "attention's gradient": Passes(
        whole_attention._attention_gradient, (_SCORES, _SCORES, _VALUES, _VALUES, SEED), _RATE | {"scale": 0.125}, 2
    ),
}
_VIEWS = re.compile(r" (parameter|constant|bitcast|tuple|get-tuple-element|broadcast)\(")  # none of these is a pass


@pytest.mark.parametrize("name", PASSES)
def test_a_block_is_as_many_kernels_and_stores_as_many_arrays_as_it_should(name):
    expected = PASSES[name]
    compiler_ir = expected.function.program.experimental_get_compiler_ir(*expected.arguments, **expected.static)
    text = compiler_ir(stage="optimized_hlo")
    entry = text[text.index("ENTRY") :].split("\n}")[0].splitlines()[1:]
    passes = [line for line in entry if not _VIEWS.search(line)]
    # Where there are several results, the last line joins them: what it names is no temporary.
    results = set()
    if "tuple(" in entry[-1]:
        results.update(re.findall(r"%[\w.-]+", entry[-1].split("(", 1)[1]))
    size = int(np.prod(tf.nest.flatten(expected.arguments)[0].shape))
    temporaries = []
    for line in passes:
        name_of_result, instruction = line.split(" = ")
        is_result = "ROOT" in line or name_of_result.strip() in results
        if not is_result and _elements(instruction) >= size:
            temporaries.append(line)
    # More would be a regression of speed; fewer, an improvement to be written down here.
    assert (len(passes), len(temporaries)) == (expected.kernels, expected.temporaries), "\n".join(passes)


def _elements(instruction: str) -> int:
    return math.prod(int(size) for size in instruction[instruction.index("[") + 1 : instruction.index("]")].split(","))


def test_numbers_are_rounded_to_the_nearest_bfloat16():
    bits = np.random.RandomState(0).randint(0, 2**32, 10_000, np.uint32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], np.float32)
    numbers = np.concatenate([special, bits.view(np.float32)])
    normal = ~(np.abs(numbers) < 2.0**-126) | (numbers == 0)  # XLA's functions may flush the others to 0
    numbers = tf.constant(numbers[normal & ((np.abs(numbers) <= 3.4e38) | np.isin(numbers, special))])
    found = tf.function(lambda x: dtypes.to_compute_dtype(x, tf.bfloat16), jit_compile=True)(numbers)
    np.testing.assert_array_equal(tf.cast(found, tf.float32), tf.cast(tf.cast(numbers, tf.bfloat16), tf.float32))


@pytest.mark.parametrize("processor", ["AVX2", "AMX"])
def test_the_gradient_of_a_bias_adds_up_more_than_bfloat16_can_tell_apart(monkeypatch, processor):
    """The sum is rounded once: by half a unit of bfloat16, at most 2^-8 of it, on every processor."""
    if processor == "AMX" and not machine.this_processor().has_bfloat16:
        pytest.skip("products of bfloat16 by TensorFlow are rounded where there are units for them")
    pretend(monkeypatch, processor)
    x = tf.cast(normal(4096, 8), tf.bfloat16) + 1
    exact = tf.reduce_sum(tf.cast(x, tf.float64), 0)
    for compiled in (sums.bias_gradient, compilation.one_program(sums.bias_gradient)):
        np.testing.assert_allclose(compiled(x), exact, rtol=2**-8)


def test_the_gradient_of_gelu_in_float32_is_as_good_as_float32():
    x = tf.linspace(tf.constant(-12.0, tf.float64), 12.0, 4001)[:, tf.newaxis]
    exact, found = (
        values_and_gradients(lambda x: layers.gelu(x, tf.zeros([1], x.dtype)), tf.cast(x, dtype))[1]
        for dtype in (tf.float64, tf.float32)
    )
    np.testing.assert_allclose(found, exact, rtol=4e-7, atol=4e-7)


@pytest.mark.parametrize("name", ["norm of sum, dropout", "attention, dropout"])
def test_gradients_of_a_graph_that_a_tape_has_seen_called(name):
    block, shapes = FORMULAS[name]
    tensors = [tf.cast(normal(*shape, seed=i), tf.bfloat16) for i, shape in enumerate(shapes)]
    called = values_and_gradients(tf.function(block, autograph=False), *tensors)
    for value, expected in zip(called, values_and_gradients(block, *tensors), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_graph_with_blocks_in_it_is_given_back():
    x = normal(4, 8, dtype=tf.float32)
    traced = tf.function(lambda x: values_and_gradients(lambda x: layers.gelu(x, x[0]), x), autograph=False)
    graph = weakref.ref(traced.get_concrete_function(x).graph)
    assert graph() is not None
    del traced
    gc.collect()
    assert graph() is None


def test_dropout_keeps_the_mean_and_its_gradient_drops_the_same():
    x, rate = tf.ones([400, 500]), 0.1
    seeds = layers.SeedStream(SEED)
    with tf.GradientTape() as tape:
        tape.watch(x)
        dropped = layers.dropout(x, rate, seeds)
    share = float(tf.reduce_mean(tf.cast(dropped == 0, tf.float32)))
    assert abs(share - rate) < 5 * (rate * (1 - rate) / 2e5) ** 0.5
    np.testing.assert_allclose(tf.unique(tf.reshape(dropped, [-1])).y.numpy().max(), 1 / (1 - rate), rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(dropped, x), dropped)


@settings(max_examples=25, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 2))
def test_draws_are_uniform_and_those_of_neighbouring_seeds_are_unrelated(first, second):
    size = 1 << 14
    draws = [
        dropout.random_bits(dropout.places_in(tf.constant([size])), tf.constant(seed)).numpy().astype(np.float64)
        / 2**32
        for seed in ([first, second], [first, second + 1], [first ^ 1, second])
    ]
    for draw in draws:
        counts = np.bincount((draw * 16).astype(int), minlength=16)
        assert ((counts - size / 16) ** 2 / (size / 16)).sum() < 60  # chi-square of 15 degrees: beyond 1 in 10^6
        assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 0.05
    for other in draws[1:]:
        assert abs(np.corrcoef(draws[0], other)[0, 1]) < 0.05


@pytest.mark.parametrize("shape", [[], [7], [3, 5], [2, 3, 5, 4]])
def test_every_element_has_the_draw_of_its_place_in_memory(shape):
    bits = dropout.random_bits(dropout.places_in(tf.constant(shape, tf.int32)), tf.constant(SEED))
    flat = dropout.random_bits([tf.bitcast(tf.range(int(np.prod(shape))), tf.uint32)], tf.constant(SEED))
    np.testing.assert_array_equal(tf.reshape(bits, [-1]), flat)


def test_places_go_on_counting_beyond_what_int32_holds():
    rows = tf.constant([2**16, 2**16, 1])  # 2^32 elements: the terms broadcast, their sum is never formed here
    first, second, _ = dropout.places_in(rows)
    assert int(first[-1, 0, 0]) + int(second[-1, 0]) == 2**32 - 1


def test_a_rate_of_zero_is_the_identity():
    x = normal(4, 3)
    assert dropout.dropped_out(x, SEED, 0.0) is x and layers.dropout(x, 0.0, layers.SeedStream(SEED)) is x
    assert layers.dropout(x, 0.3, None) is x
