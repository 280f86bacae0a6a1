"""Products of matrices: all of the program's go through the one function that rounds bfloat16 on every processor."""

import ast
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2
from electra_tf2.model import kernels
from electra_tf2.model.architecture import make_architecture
from electra_tf2.model.coco_lm_heads import ContrastHead
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.heads import LanguageModelHead, ReplacedTokenHead
from electra_tf2.model.kernels.products import matmul
from tests.support.processors import pretend

PACKAGE = Path(electra_tf2.__file__).parent
PRODUCTS = {"matmul", "tensordot", "einsum", "matvec"}
# Their factors are float32 whatever the precision of the run.
IN_FLOAT32 = {("papers/on_losses/halves.py", "einsum"), ("papers/amos/mixture.py", "einsum")}


def products_of_tensorflow(path):
    """Names of TensorFlow's products that a file calls: tf.matmul, tf.linalg.matmul, ..."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or node.attr not in PRODUCTS:
            continue
        if ast.unparse(node.value) in ("tf", "tf.linalg"):
            yield node.attr


def test_no_file_multiplies_around_the_function_that_rounds():
    calls = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("model/kernels/"):
            calls |= {(name, product) for product in products_of_tensorflow(path)}
    assert calls == IN_FLOAT32


def sizes(**overrides):
    small = {"num_hidden_layers": 1, "hidden_size": 64, "hidden_act": "linear"}
    return make_architecture("small", small | overrides, 96, 32)


def modernbert_head():
    return LanguageModelHead("head", Encoder("electra", sizes(architecture="modernbert")))


NETWORKS = {
    "language model": lambda: LanguageModelHead("head", Encoder("electra", sizes())).hidden,
    "language model, modernbert": lambda: modernbert_head().hidden,
    "replaced tokens": lambda: ReplacedTokenHead("head", sizes()),
    "contrast": lambda: ContrastHead("head", sizes()),
}


def operations(graph):
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


@pytest.mark.parametrize("kernels_are_on", [True, False])
@pytest.mark.parametrize("processor", ["AVX2", "AMX"])
@pytest.mark.parametrize("name", NETWORKS)
def test_heads_multiply_bfloat16_by_tensorflow_only_where_there_are_units(monkeypatch, name, processor, kernels_are_on):
    pretend(monkeypatch, processor)
    network = NETWORKS[name]()

    def call(states):
        if kernels_are_on:
            return network(states)
        with kernels.off():
            return network(states)

    graph = tf.function(call, autograph=False).get_concrete_function(tf.zeros([2, 3, 64], tf.bfloat16)).graph
    products = [node for node in operations(graph) if node.op in ("MatMul", "BatchMatMulV2", "Einsum")]
    types = {node.attr["T"].type for node in products}
    assert (tf.bfloat16.as_datatype_enum in types) == (processor == "AMX")


def test_products_are_rounded_with_kernels_off(monkeypatch):
    """Half a unit of bfloat16 is 2^-9 of the number below it, at most; cut products are up to twice as far."""
    pretend(monkeypatch, "AVX2")
    x = tf.cast(tf.random.stateless_normal([40, 64], [1, 2]), tf.bfloat16)
    y = tf.cast(tf.random.stateless_normal([64, 24], [3, 4]), tf.bfloat16)
    with kernels.off():
        product = matmul(x, y)
    exact = tf.matmul(tf.cast(x, tf.float64), tf.cast(y, tf.float64))
    error = np.abs(tf.cast(product, tf.float64) - exact)
    assert np.all(error <= 2**-8 * np.abs(exact) * (1 + 1e-3) + 1e-5)
    assert np.abs(np.mean((tf.cast(product, tf.float64) - exact) / exact)) < 2**-11
