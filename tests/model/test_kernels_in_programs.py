"""Work on all weights at once where the whole step is one program."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.model.initializers import truncated_normal
from electra_tf2.model.kernels import barriers, compilation, dtypes, joined
from electra_tf2.model.layers import Dense, LayerNorm


def normal(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 1])


def operations(function, *tensors):
    """Types of the operations that a function traces as one program."""
    program: Any = compilation.one_program(function)
    graph = program.get_concrete_function(*tensors).graph
    return [operation.type for operation in graph.get_operations()]


@pytest.mark.parametrize("most", [2, 64])
def test_sums_at_once_are_the_sums(most):
    arrays = [normal(*shape, seed=i) for i, shape in enumerate([(4, 3), (4, 5), (2, 3), (4, 1), (4, 2)])]

    def sums(*arrays):
        each = [tf.reduce_sum(array, 0) for array in arrays]
        others = [tf.reduce_sum(arrays[0], 1), arrays[1][0], None]
        return [one for one in joined.sums_at_once([*each, *others], most) if one is not None]

    found = compilation.one_program(sums)(*arrays)
    expected = [*(array.numpy().sum(0) for array in arrays), arrays[0].numpy().sum(1), arrays[1][0]]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_sums_of_a_step_end_side_by_side():
    """Four vectors have gradients here, which are summed over the rows of the batch in one operation."""
    dense, norm = Dense("dense", 6, 6, truncated_normal(0.1), act="gelu"), LayerNorm("norm", 6)
    variables = [dense.kernel, dense.bias, norm.gamma, norm.beta]

    def gradients(x, at_once):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(norm(dense(x)) ** 3)
        found = tape.gradient(loss, variables)
        return joined.sums_at_once(found) if at_once else found

    x = normal(4, 5, 6)
    programs = [compilation.one_program(lambda x: gradients(x, True))(x)]
    programs.append(compilation.one_program(lambda x: gradients(x, False))(x))
    for one, other in zip(*programs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert operations(lambda x: gradients(x, True), x).count("SplitV") == 1


@pytest.mark.parametrize("read", ["both", "rows", "product", "neither"])
def test_a_table_s_rows_are_added_to_its_other_gradient(read):
    """The product's gradient is an array, the rows' one of zeros with rows added; where both are, the zeros go."""
    table, ids, x = tf.Variable(normal(11, 3)), tf.constant([[4, 0, 4], [10, 4, 1]]), normal(5, 3, seed=1)

    def gradient(replaced):
        with tf.GradientTape() as tape:
            loss = tf.constant(0.0)
            if read in ("both", "rows"):
                loss += tf.reduce_sum(tf.gather(table, ids) ** 3)
            if read in ("both", "product"):
                loss += tf.reduce_sum(tf.matmul(x, table, transpose_b=True) ** 2)
        found = tape.gradient(loss, table)
        found = joined.scattered(found) if replaced else found
        return found if found is None else tf.convert_to_tensor(found)

    found, expected = (compilation.one_program(lambda how=how: gradient(how))() for how in (True, False))
    if read == "neither":
        assert found is None
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    replaced = operations(lambda: gradient(True))
    assert replaced.count("TensorScatterAdd") == (read == "both")


@pytest.mark.parametrize("most", [2, 64])
def test_the_norm_of_all_tensors(most):
    tensors = [normal(*shape, seed=i) for i, shape in enumerate([(4, 3), (5,), (), (2, 3, 2), (1, 1)])]
    found = compilation.one_program(lambda *tensors: joined.global_norm(tensors, most))(*tensors)
    np.testing.assert_allclose(found, tf.linalg.global_norm(tensors), rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32])
def test_weights_are_cast_as_tensorflow_casts_them(dtype):
    weight, factor = tf.Variable(normal(7, 9)), normal(7, 9, seed=1)

    def cast():
        with tf.GradientTape() as tape:
            narrow = dtypes.cast_weight(weight, dtype)
            loss = tf.reduce_sum(tf.cast(narrow, tf.float32) * factor)
        return narrow, tape.gradient(loss, weight)

    narrow, gradient = compilation.one_program(cast)()
    assert narrow.dtype == dtype and gradient.dtype == tf.float32
    np.testing.assert_array_equal(tf.cast(narrow, tf.float32), tf.cast(tf.cast(weight, dtype), tf.float32))
    np.testing.assert_allclose(gradient, tf.cast(tf.cast(factor, dtype), tf.float32), rtol=1e-6)


def test_scalars_come_back_from_their_array():
    found = compilation.one_program(lambda a, b: barriers.in_one_array([a, b]))(tf.constant(2.5), tf.constant(-1.0))
    assert [float(one) for one in found] == [2.5, -1.0]
