"""Devices to compile for, the search for what fits, and accelerators that are there and unused."""

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from benchmarks import compiled, compiled_step
from benchmarks.compiled_devices import DEVICES, find_devices
from benchmarks.compiled_program import Program
from benchmarks.compiled_step import lowered, tables_without_values
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.training import distribution
from electra_tf2.training.shared_hparams import DeviceHparams
from electra_tf2.util import machine
from electra_tf2.util.errors import UserError

H100, V5E = find_devices("h100,v5e")
GB = 10**9


def program_of(function: Any, *shapes: list[int]) -> Program:
    step = tf.function(function, jit_compile=True, autograph=False)
    return Program(lowered(step, *[tf.zeros(shape) for shape in shapes]))


def test_devices_are_found_by_name_and_unknown_ones_answered_with_the_list() -> None:
    assert [device.name for device in find_devices("H100, v5e")] == ["h100", "v5e"]
    with pytest.raises(UserError, match=r"'h10'; did you mean 'h100'\? \(one of t4, l4, a100_40.*v6e\)"):
        find_devices("h10")
    for device in DEVICES.values():
        assert device.is_tpu == device.name.startswith("v")


def test_a_program_is_read_for_constants_types_and_calls() -> None:
    program = program_of(lambda x: x + tf.reshape(tf.sin(tf.range(300 * 8, dtype=tf.float32)), [300, 8]), [300, 8])
    assert program.largest_constant == 4 * 300 * 8 and program.types >= {"F32"}
    assert program.host_calls() == [] and program.dynamic_shapes() == []
    double = program_of(lambda x: tf.cast(tf.cast(x, tf.float64) * 2, tf.float32), [8])
    assert "F64" in double.types
    dynamic = program_of(lambda x: tf.cast(tf.where(x > 0), tf.float32), [8])
    assert dynamic.dynamic_shapes()


@pytest.mark.parametrize(
    ("per_row", "fixed", "answer", "first"),
    [
        (1.0, 0.0, "it fits as configured", 1 << 17),
        (2.0, 0.0, "it fits as configured, gradient_accumulation_steps 2 (micro-batches of 32), or with", 1 << 17),
        (10.0, 0.0, "gradient_accumulation_steps 8 (micro-batches of 8), or with precision bfloat16", 1024),
        (10.0, 0.0, "or with recompute layers", 1 << 17),
        (10.0, 30.0, "gradient_accumulation_steps 16 (micro-batches of 4)", 1024),
        (900.0, 0.0, "precision bfloat16, recompute layers, gradient_accumulation_steps 64 (micro-batches of 1)", 1024),
        (1e6, 0.0, "it does not fit, whatever the micro-batch", 1 << 17),
    ],
)
def test_the_search_finds_the_largest_micro_batch(
    monkeypatch: pytest.MonkeyPatch, per_row: float, fixed: float, answer: str, first: int
) -> None:
    """Memory is linear in the rows: half of it with less precision, an eighth with recomputation."""
    monkeypatch.setattr(compiled, "_FIRST", first)
    config = PretrainingConfig.from_dict({"model_name": "m", "data_dir": "d", "train_batch_size": 64})
    tried: list[int] = []

    def memory_of(config: PretrainingConfig) -> tuple[int, int, float]:
        rows = config.train_batch_size // config.gradient_accumulation_steps
        tried.append(rows)
        share = (0.5 if config.precision == "bfloat16" else 1.0) * {"none": 1.0, "layers": 0.125}[config.recompute]
        return int((fixed + share * rows * per_row) * GB), 0, 1.0

    rows = compiled.search(config, H100._replace(memory=81 * GB), memory_of, lambda row: None)
    assert answer in compiled.verdict(config, rows)
    assert len(tried) <= 20 and tried[0] == (64 if first > 1024 else 8)


def test_what_compilers_say_of_steps_that_are_too_large() -> None:
    says = "RESOURCE_EXHAUSTED: the total memory required for HLO temporaries (41.04G) exceeds available HBM (15.75G)."
    assert compiled_step._refused_bytes(says, 100) == 100 + int(41.04 * 2**30)
    assert compiled_step._refused_bytes("Ran out of memory in memory space hbm. Used 17.5G of 15.75G hbm.", 100) == int(
        17.5 * 2**30
    )
    assert compiled_step._refused_bytes("INVALID_ARGUMENT: something else (41.04G)", 100) is None


def test_a_compilation_is_a_process_whose_answer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"seconds": 2.0, "arguments": 100, "outputs": 40, "aliases": 30, "temporaries": 1000, "code": 5}
    python = tmp_path / "python"
    monkeypatch.setenv("ACCELERATORS_PYTHON", str(python))
    product = tf.function(lambda x, w: tf.tanh(x @ w), jit_compile=True, autograph=False)
    program = lowered(product, tf.zeros([8, 16]), tf.zeros([16, 32]))
    with pytest.raises(UserError, match=r"ACCELERATORS_PYTHON: .* cannot be run"):
        compiled_step.memory_of(H100, program)
    python.write_text(f"#!/bin/sh\ngrep -q H100 \"$3\" && echo noise && echo '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    assert compiled_step.memory_of(H100, program) == (100 + 40 - 30 + 5 + 1000, 4 * (8 * 16 + 16 * 32), 2.0)
    python.write_text('#!/bin/sh\necho \'{"missing": "libtpu"}\'\n')
    with pytest.raises(UserError, match=r"for v5e needs libtpu, of .*: pip install '\.\[accelerators\]'"):
        compiled_step.check_compiler(V5E)


def test_a_step_is_lowered_without_the_values_of_its_weights() -> None:
    """The program is that of weights with values, and initial values are not asked for."""

    def program(first: Any) -> bytes:
        table = tf.Variable(first, shape=[64, 4], dtype=tf.float32)
        means, step = tf.Variable(tf.ones([64, 4])), tf.Variable(7, dtype=tf.int64)

        def update(x: tf.Tensor) -> tf.Tensor:
            means.assign(0.9 * means + 0.1 * tf.matmul(x, x, transpose_a=True)[:, :4])
            return tf.reduce_sum(table.assign_sub(means / tf.cast(step, tf.float32)))

        assert (table.dtype, means.dtype, step.numpy()) == (tf.float32, tf.float32, 7)
        return lowered(tf.function(update, jit_compile=True, autograph=False), tf.zeros([8, 64]))

    with tables_without_values():
        without = program(lambda: pytest.fail("the initial value was computed"))
    assert Program(without).argument_bytes == 4 * (2 * 64 * 4 + 8 * 64) + 8

    def names_left_out(text: bytes) -> list[tuple[str, list[int]]]:
        return [(i.opcode, list(i.shape.dimensions)) for i in Program(text).instructions()]

    assert names_left_out(without) == names_left_out(program(lambda: tf.ones([64, 4])))


@pytest.mark.parametrize(
    ("driver", "tpu", "settings", "gpus", "says"),
    [
        (True, False, {}, 0, "pip install '.[gpu]'"),
        (True, False, {}, 1, None),
        (True, False, {"num_gpus": 0}, 0, None),
        (False, True, {}, 0, "tensorflow-tpu in place of tensorflow"),
        (False, True, {"use_tpu": True}, 0, None),
        (False, False, {}, 0, None),
    ],
)
def test_accelerators_that_are_there_and_unused_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: bool,
    tpu: bool,
    settings: dict[str, Any],
    gpus: int,
    says: str | None,
) -> None:
    monkeypatch.setattr(machine, "NVIDIA_MARKS", (tmp_path / "version",))
    monkeypatch.setattr(distribution, "_TPU_FOLDERS", ((tmp_path, "accel*"), (tmp_path / "vfio", "[0-9]*")))
    for name in ("CUDA_VISIBLE_DEVICES", "TPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    if driver:
        (tmp_path / "version").touch()
    if tpu:
        (tmp_path / "accel0").touch()
    line = distribution.unused_accelerator(DeviceHparams(**settings), gpus)
    assert (line is None) == (says is None) and (says is None or (says in str(line) and "\n" not in str(line)))
    monkeypatch.setenv("TPU_NAME", "mine")
    assert gpus or settings or driver or distribution.unused_accelerator(DeviceHparams(), 0)


def test_a_gpu_that_cannot_be_used_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error(kind: str) -> None:
        raise tf.errors.InternalError(None, None, "cudaGetDevice() failed. Status: CUDA driver is insufficient\nmore")

    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu])
    monkeypatch.setattr(tf.config, "list_logical_devices", raise_error)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda device, enable: None)
    monkeypatch.setattr(tf.config.optimizer, "set_experimental_options", lambda options: None)
    with pytest.raises(UserError, match=r"CUDA driver is insufficient.*--num-gpus 0") as raised:
        distribution.make_strategy(DeviceHparams())
    assert "\n" not in str(raised.value)
