"""Devices to compile for, what their compilers' programs are read for, the search for what fits, and what is unused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from electra_tf2.training.accelerators import compiling, fitting, unused
from electra_tf2.training.accelerators.compiling import Compiled, lowered, roofline_seconds, tables_without_values
from electra_tf2.training.accelerators.devices import DEVICES, find_device, find_devices
from electra_tf2.training.accelerators.program import Kernel, Program
from electra_tf2.training.hparams import DeviceHparams
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.programs import run_program

H100, V5E = find_device("h100"), find_device("v5e")


@dataclasses.dataclass(frozen=True)
class Config(DeviceHparams):
    train_batch_size: int = 64
    max_seq_length: int = 16
    gradient_accumulation_steps: int = 1


def program_of(function: Any, *shapes: list[int]) -> Program:
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return Program(lowered(compiled, *[tf.zeros(shape) for shape in shapes]))


def test_devices_are_found_by_name_and_unknown_ones_answered_with_the_list() -> None:
    assert [device.name for device in find_devices("H100, v5e")] == ["h100", "v5e"] and find_devices(None) == []
    with pytest.raises(UserError, match=r"'h10'; did you mean 'h100'\? \(one of t4, l4, a100_40.*v6e\)"):
        find_device("h10")
    for device in DEVICES.values():
        assert device.is_tpu == device.name.startswith("v") and device.peaks["bfloat16"] >= device.peaks["float32"]


def test_products_in_loops_count_as_often_as_they_run() -> None:
    def repeated(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        first = x @ w
        return tf.while_loop(lambda i, _: i < 5, lambda i, y: (i + 1, y @ w), (tf.constant(1), first))[1]

    program = program_of(repeated, [8, 16], [16, 16])
    assert program.product_flops() == 5 * 2 * 8 * 16 * 16
    assert program.argument_bytes == 4 * (8 * 16 + 16 * 16)


def test_a_program_is_read_for_constants_types_and_calls() -> None:
    program = program_of(lambda x: x + tf.reshape(tf.sin(tf.range(300 * 8, dtype=tf.float32)), [300, 8]), [300, 8])
    assert program.largest_constant == 4 * 300 * 8 and program.types >= {"F32"}
    assert program.host_calls() == [] and program.dynamic_shapes() == []
    double = program_of(lambda x: tf.cast(tf.cast(x, tf.float64) * 2, tf.float32), [8])
    assert "F64" in double.types
    dynamic = program_of(lambda x: tf.cast(tf.where(x > 0), tf.float32), [8])
    assert dynamic.dynamic_shapes()


def test_the_roofline_is_products_at_their_peak_and_the_rest_at_the_bandwidth() -> None:
    kernels = (
        Kernel(3, int(H100.bandwidth / 1000), False, "fusion", ""),
        Kernel(10, 8, False, "fusion", ""),
        Kernel(1, 8, True, "custom-call", ""),
    )
    flops = int(H100.peaks["bfloat16"] / 100)
    expected = 3 / 1000 + 10 * 2e-6 + 1 / 100
    assert roofline_seconds(H100, kernels, flops, "bfloat16") == pytest.approx(expected, rel=1e-4)


GB = 10**9


def compiler(per_row: float, fixed: float, memory: int, layers: float = 0.125) -> Any:
    """A compiler of steps whose memory is linear in the rows of a micro-batch: half as many bytes with less precision,
    so many of them with recomputation of layers, three quarters with that of what is cheap. A "program" is the JSON of
    a configuration."""

    def compile_for(device: Any, program: bytes, precision: str) -> Compiled:
        config = json.loads(program)
        rows = config["train_batch_size"] // config["gradient_accumulation_steps"]
        share = 0.5 if precision == "bfloat16" else 1.0
        share *= {"none": 1.0, "selective": 0.75, "layers": layers}[config["recompute"]]
        needed = int(fixed + share * rows * per_row)
        return Compiled(needed <= memory, needed, kernels=1, steps_per_second=1.0)

    return compile_for


class OfNothing:
    argument_bytes = 0

    def __init__(self, program: bytes) -> None:
        del program


def searched(
    monkeypatch: pytest.MonkeyPatch, per_row: float, fixed: float = 0.0, layers: float = 0.125, length: int = 16
) -> tuple[list[fitting.Row], list[fitting.Row]]:
    """The rows of a search on a device of 81 GB, and those that were shown."""
    monkeypatch.setattr(fitting, "compile_for", compiler(per_row * GB, fixed * GB, 81 * GB, layers))
    monkeypatch.setattr(fitting, "Program", OfNothing)
    shown: list[fitting.Row] = []
    device = H100._replace(memory=81 * GB)
    search = fitting.Fitting[Config](
        device, lambda config: json.dumps(dataclasses.asdict(config)).encode(), shown.append
    )
    return search.search(Config(max_seq_length=length)), shown


@pytest.mark.parametrize("first", [1 << 17, 8 * 16])
@pytest.mark.parametrize(
    ("per_row", "fixed", "answer"),
    [
        (1.0, 0.0, "it fits as configured"),
        (
            2.0,
            0.0,
            "precision bfloat16, or with recompute layers, or with gradient_accumulation_steps 2 (micro-batches of 32)",
        ),
        (1.5, 0.0, "precision bfloat16, or with recompute selective, or with recompute layers"),
        (10.0, 0.0, "recompute layers, or with gradient_accumulation_steps 8 (micro-batches of 8)"),
        (10.0, 30.0, "gradient_accumulation_steps 16 (micro-batches of 4)"),
        (80.0, 0.0, "gradient_accumulation_steps 64 (micro-batches of 1)"),
        (900.0, 0.0, "precision bfloat16, recompute layers, gradient_accumulation_steps 64 (micro-batches of 1)"),
        (1e6, 0.0, "it does not fit, whatever the micro-batch"),
    ],
)
def test_the_search_finds_the_largest_micro_batch(
    monkeypatch: pytest.MonkeyPatch, per_row: float, fixed: float, answer: str, first: int
) -> None:
    monkeypatch.setattr(fitting, "_FIRST", first)
    rows, shown = searched(monkeypatch, per_row, fixed)
    assert answer in fitting.verdict(rows)
    assert len(shown) <= 14 and all(len(fitting.cells(row, H100)) == len(fitting.HEADINGS) for row in shown)


@pytest.mark.parametrize(("layers", "least"), [(1.25, "selective"), (0.125, "layers")])
def test_micro_batches_go_with_the_recomputation_that_takes_the_least_memory(
    monkeypatch: pytest.MonkeyPatch, layers: float, least: str
) -> None:
    rows, _ = searched(monkeypatch, 900.0, layers=layers)
    assert rows[-1].name.startswith(f"precision bfloat16, recompute {least}, ")


def test_selective_recomputation_is_not_tried_where_it_is_always_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for length, tried in ((511, {"recompute selective", "recompute layers"}), (512, {"recompute layers"})):
        rows, _ = searched(monkeypatch, 2.0, layers=0.5, length=length)
        assert {row.name.split(",")[0] for row in rows if row.name.startswith("recompute")} == tried


def test_of_a_large_batch_a_micro_batch_is_compiled_and_the_whole_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_FIRST", 8 * 16)  # tokens: 8 of 64 sequences
    monkeypatch.setattr(fitting, "compile_for", compiler(9.0 * GB, 0, 81 * GB))
    monkeypatch.setattr(fitting, "Program", OfNothing)
    lowered_sizes: list[int] = []

    def lower(config: Config) -> bytes:
        lowered_sizes.append(config.train_batch_size // config.gradient_accumulation_steps)
        return json.dumps(dataclasses.asdict(config)).encode()

    search = fitting.Fitting[Config](H100._replace(memory=81 * GB), lower, lambda row: None)
    whole, part = search.as_it_is(Config(), "as it is")
    assert (whole.name, whole.micro_batch, whole.compiled.memory) == ("as it is, predicted", 64, 64 * 9 * GB)
    assert part.compiled.fits and lowered_sizes == [8]
    (largest,) = search.largest_micro_batch(Config(), [whole, part], "")
    assert largest is part and lowered_sizes == [8]  # 16 sequences would take 144 GB


def test_what_compilers_say_of_steps_that_are_too_large() -> None:
    says = "RESOURCE_EXHAUSTED: the total memory required for HLO temporaries (41.04G) exceeds available HBM (15.75G)."
    assert compiling._refused_bytes(says, 100) == 100 + int(41.04 * 2**30)
    assert compiling._refused_bytes("Ran out of memory in memory space hbm. Used 17.5G of 15.75G hbm.", 100) == int(
        17.5 * 2**30
    )
    assert compiling._refused_bytes("INVALID_ARGUMENT: something else (41.04G)", 100) is None


ANSWER = {
    "seconds": 2.0,
    "host_bytes": 7,
    "arguments": 100,
    "outputs": 40,
    "aliases": 30,
    "temporaries": 1000,
    "code": 5,
}


@pytest.mark.parametrize(("temporaries", "fits"), [(1000, True), (90 * GB, False)])
def test_a_compilation_is_a_process_whose_answer_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporaries: int, fits: bool
) -> None:
    """The compiler is one that gives the program back as it is."""
    python = tmp_path / "python"
    answer = json.dumps(ANSWER | {"temporaries": temporaries})
    python.write_text(f'#!/bin/sh\ngrep -q H100 "$3" && cp "$2" "$4" && echo noise && echo \'{answer}\'\n')
    python.chmod(0o755)
    monkeypatch.setenv("ACCELERATORS_PYTHON", str(python))
    product = tf.function(lambda x, w: tf.tanh(x @ w), jit_compile=True, autograph=False)
    found = compiling.compile_for(H100, lowered(product, tf.zeros([8, 16]), tf.zeros([16, 32])), "bfloat16")
    assert (found.fits, found.memory, found.seconds) == (fits, 100 + 40 - 30 + 5 + temporaries, 2.0)
    assert found.flops == 2 * 8 * 16 * 32
    (dot,) = [kernel for kernel in found.all_kernels if kernel.is_product]
    assert dot.bytes == 4 * (8 * 16 + 16 * 32 + 8 * 32) and dot.times == 1


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


def test_without_the_extra_one_line_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"missing": "libtpu"}\'\n')
    python.chmod(0o755)
    monkeypatch.setenv("ACCELERATORS_PYTHON", str(python))
    words = ["--data-dir", str(tmp_path), "--vocab-file", str(golden.CHECKPOINT / "vocab.txt"), "--vocab-size", "600"]
    words += ["--model-name", "electra_small", "--dry-run", "--compile-for"]
    done = run_program("run_pretraining.py", *words, "v5e")
    hint = "error: compiling for v5e needs libtpu, of the extra accelerators: pip install 'electra-tf2[accelerators]'"
    assert done.returncode == 2 and done.errors == [hint]
    done = run_program("run_pretraining.py", *words, "v5f")
    assert done.returncode == 2 and "unknown device 'v5f'" in done.errors[0]


@pytest.mark.parametrize(
    ("driver", "tpu", "settings", "gpus", "says"),
    [
        (True, False, {}, 0, "pip install 'electra-tf2[gpu]'"),
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
    monkeypatch.setattr(unused, "_NVIDIA", (tmp_path / "version",))
    monkeypatch.setattr(unused, "_TPU_FOLDERS", ((tmp_path, "accel*"), (tmp_path / "vfio", "[0-9]*")))
    for name in ("CUDA_VISIBLE_DEVICES", "TPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    if driver:
        (tmp_path / "version").touch()
    if tpu:
        (tmp_path / "accel0").touch()
    line = unused.unused_accelerator(Config(**settings), gpus)
    assert (line is None) == (says is None) and (says is None or (says in str(line) and "\n" not in str(line)))
    monkeypatch.setenv("TPU_NAME", "mine")
    assert gpus or settings or driver or unused.unused_accelerator(Config(), 0)
