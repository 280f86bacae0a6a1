"""The precision of a run on processors with and without units for bfloat16, chosen, resumed, loaded."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.starts import configuration
from electra_tf2.inference.finetuning_run import in_fitting_precision
from electra_tf2.model.kernels.products import matmul
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.training.precision import fitted_to_machine
from electra_tf2.util import machine
from tests.support import training as support
from tests.support.processors import pretend

WITHOUT, WITH = ("AVX2", "AVX-512", "Arm", "none"), ("AVX-512 bfloat16", "AMX", "Arm bfloat16")


def finetuning_hparams(folder):
    return {"data_dir": str(folder), "model_name": "m", "task_names": ["cola"], "precision": "bfloat16"}


def configured(**hparams):
    return PretrainingConfig.from_dict(support.hparams("data", precision="bfloat16", optimizer="muon") | hparams)


@pytest.mark.parametrize("name", WITHOUT + WITH)
def test_a_recipes_bfloat16_is_float32_without_units(monkeypatch, name):
    processor = pretend(monkeypatch, name)
    config, notes = fitted_to_machine(configured(), chosen=(), began={})
    expected = "bfloat16" if name in WITH else "float32"
    assert (config.precision, config.muon_precision) == (expected, expected)
    if name in WITH:
        assert notes == []
    else:
        assert processor.name in notes[0] and "--precision bfloat16" in notes[0]
        assert "--muon-precision bfloat16" in notes[1]


def test_what_the_user_chose_is_obeyed(monkeypatch):
    pretend(monkeypatch, "AVX2")
    assert fitted_to_machine(configured(), {"precision", "muon_precision"}, {}) == (configured(), [])


@pytest.mark.parametrize(("began", "name"), [("float32", "AMX"), ("bfloat16", "AVX2")])
def test_a_run_goes_on_as_it_began_on_another_machine(monkeypatch, began, name):
    pretend(monkeypatch, name)
    config, notes = fitted_to_machine(configured(), (), {"precision": began, "muon_precision": began})
    assert (config.precision, config.muon_precision) == (began, began)
    assert len(notes) == (2 if began == "float32" else 0)  # where it is not what the recipe says
    assert all("as the run began" in note for note in notes)


def test_muons_products_are_not_spoken_of_where_adamw_trains(monkeypatch):
    pretend(monkeypatch, "AVX2")
    _, notes = fitted_to_machine(configured(optimizer="adamw"), (), {})
    assert len(notes) == 1 and notes[0].startswith("precision float32")


@pytest.mark.parametrize("device", ["gpu", "hidden gpu", "tpu"])
def test_units_of_the_processor_do_not_count_where_something_else_computes(monkeypatch, tmp_path, device):
    pretend(monkeypatch, "AVX2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if device != "tpu":
        monkeypatch.setattr(machine, "NVIDIA_MARKS", (tmp_path,))
    if device == "hidden gpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    config, _ = fitted_to_machine(configured(use_tpu=device == "tpu"), (), {})
    assert config.precision == ("float32" if device == "hidden gpu" else "bfloat16")


@pytest.mark.parametrize(("name", "precision"), [("AVX2", "float32"), ("AMX", "bfloat16")])
def test_fine_tuning_says_in_which_precision_it_computes(monkeypatch, tmp_path, capsys, name, precision):
    processor = pretend(monkeypatch, name)
    config = configuration(finetuning_hparams(tmp_path))
    assert in_fitting_precision(config, given={}).precision == precision
    notes = capsys.readouterr().err
    assert (processor.name in notes) == (precision == "float32")
    assert in_fitting_precision(config, given={"precision": "bfloat16"}).precision == "bfloat16"


def test_fine_tuning_goes_on_as_its_first_trial_began(monkeypatch, tmp_path, capsys):
    pretend(monkeypatch, "AVX2")
    hparams = finetuning_hparams(tmp_path)
    config = configuration(hparams)
    first_trial = Path(f"{config.model_dir}_1")
    first_trial.mkdir(parents=True)
    (first_trial / "config.json").write_text(json.dumps({"precision": "bfloat16"}))
    assert in_fitting_precision(config, given={}).precision == "float32"  # nothing was trained there
    (first_trial / "scores.json").write_text("{}")
    assert in_fitting_precision(config, given={}).precision == "bfloat16"
    overwriting = configuration(hparams | {"overwrite": True})
    assert in_fitting_precision(overwriting, given={}).precision == "float32"


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_bfloat16_and_their_gradients_are_rounded_without_units(
    monkeypatch, batch, transpose_a, transpose_b
):
    """Each entry is the float32 product rounded: at most half a unit, 2^-8 of it, beside float32's own."""
    pretend(monkeypatch, "AVX2")
    sizes = {"x": (40, 64), "y": (64, 24), "upstream": (40, 24)}
    arrays = {}
    for number, (name, size) in enumerate(sizes.items()):
        arrays[name] = tf.cast(tf.random.stateless_normal((*batch, *size), [number, 0]), tf.bfloat16)
    x, y, upstream = arrays.values()
    if transpose_a:
        x = tf.linalg.matrix_transpose(x)
    if transpose_b:
        y = tf.linalg.matrix_transpose(y)

    def values(dtype, times):
        with tf.GradientTape() as tape:
            factors = [tf.cast(x, dtype), tf.cast(y, dtype)]
            tape.watch(factors)
            product = times(*factors, transpose_a=transpose_a, transpose_b=transpose_b)
        return [product, *tape.gradient(product, factors, tf.cast(upstream, dtype))]

    rounded = values(tf.bfloat16, matmul)
    for value, exact in zip(rounded, values(tf.float64, tf.matmul), strict=True):
        assert value.dtype == tf.bfloat16 and value.shape == exact.shape
        error = np.abs(tf.cast(value, tf.float64) - exact)
        assert np.all(error <= 2**-8 * np.abs(exact) * (1 + 1e-3) + 1e-5)


def operations(graph):
    """All operations of a function's graph and of the functions that it calls."""
    yield from graph.as_graph_def().node
    for function in graph.as_graph_def().library.function:
        yield from function.node_def


@pytest.mark.parametrize("name", ["AVX2", "AMX"])
def test_no_product_of_a_step_is_cut_off_without_units(monkeypatch, name):
    """A whole step of pre-training has products of bfloat16 by TensorFlow only where there are units for them."""
    pretend(monkeypatch, name)
    config = configured(sequence_contrast_objective=True)
    task = make_task(config, tf.distribute.OneDeviceStrategy("CPU:0"))
    step = tf.function(task.train_step, autograph=False)
    graph = step.get_concrete_function(support.batch_of(), tf.constant(0, tf.int64)).graph
    products = [node for node in operations(graph) if node.op in ("MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum")]
    types = {node.attr["T"].type for node in products}
    assert tf.float32.as_datatype_enum in types
    assert (tf.bfloat16.as_datatype_enum in types) == (name == "AMX")
