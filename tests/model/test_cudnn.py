"""Attention by cuDNN's kernels: their calls, with TensorFlow's operations in the kernels' place, and on a GPU if there
is one."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from tests.support.lowered_finetuning import Lowering
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.model.kernels import cudnn
from electra_tf2.model.kernels.compilation import one_program
from electra_tf2.model.layers import SeedStream
from electra_tf2.pretrain import lowering
from electra_tf2.training import distribution
from electra_tf2.training.accelerators import fitting
from electra_tf2.training.accelerators.compiling import lowered
from electra_tf2.training.accelerators.devices import find_devices
from electra_tf2.training.accelerators.program import Program
from electra_tf2.training.hparams import DeviceHparams
from electra_tf2.util.environment import before_tensorflow
from electra_tf2.util.errors import UserError

NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "distances": {"relative_positions": "t5", "relative_position_buckets": 8, "relative_position_max_distance": 16},
    "slopes": {"relative_positions": "alibi"},
    "turned": {"relative_positions": "rotary", "qk_norm": True, "norm_style": "pre"},
    "every other layer local": {"relative_positions": "rotary", "local_attention": 16, "global_attn_every_n_layers": 2},
}
ROWS, LENGTH = 3, 20


def sizes(**given: Any) -> Architecture:
    small = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    return make_architecture("small", small | {"initializer_range": 0.3, "max_position_embeddings": 32} | given, 50, 8)


def batch() -> list[tf.Tensor]:
    """Ids, mask and segments; the first row is full, the last has one token."""
    ids = np.random.RandomState(0).randint(0, 50, [ROWS, LENGTH])
    mask = np.arange(LENGTH) < np.array([[LENGTH], [13], [1]])
    return [tf.constant(value, tf.int32) for value in (ids, mask, mask * (np.arange(LENGTH) > 8))]


def passes(network: Encoder) -> list[tf.Tensor]:
    """States at real tokens and the gradients of a function of them."""
    ids, mask, segments = batch()
    real = tf.cast(mask, tf.float32)[..., tf.newaxis]
    weights = tf.constant(np.random.RandomState(2).standard_normal([ROWS, LENGTH, 16]), tf.float32)
    with tf.GradientTape() as tape:
        states = real * tf.cast(network(ids, mask, segments).sequence, tf.float32)
        loss = tf.reduce_sum(states * weights)
    return [states, *map(tf.convert_to_tensor, tape.gradient(loss, network.trainable_variables))]


def stand_in(
    name: str, config: str, operands: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Computes what the kernel of this name returns: forward [q, k, v, bias?, counts, counts] -> [output, log of the
    sums of exponentials], backward [q, k, v, that, upstream, bias?, output, counts, counts] -> gradients."""
    kernel = json.loads(config)["cudnn_fmha_backend_config"]
    backward, has_bias = name.endswith("Backward"), "ScaleBias" in name
    assert len(operands) == (8 if backward else 5) + has_bias and not kernel["dropout_rate"]
    q, k, v = operands[:3]
    bias = operands[5 if backward else 3] if has_bias else 0.0
    queries, keys = operands[-2:]
    real = tf.sequence_mask(queries, LENGTH)[:, tf.newaxis, :, tf.newaxis]
    real &= tf.sequence_mask(keys, LENGTH)[:, tf.newaxis, tf.newaxis]
    scores = kernel["fmha_scale"] * tf.einsum("bqad,bkad->baqk", q, k) + bias
    scores = tf.where(real, scores, -np.inf)
    if not backward:
        sums = tf.reduce_logsumexp(scores, -1)
        found = [tf.einsum("baqk,bkad->bqad", tf.exp(scores - sums[..., tf.newaxis]), v), sums]
    else:
        statistics, upstream, output = operands[3], operands[4], operands[-3]
        probabilities = tf.exp(scores - statistics[..., tf.newaxis])
        inner = tf.einsum("bqad,bqad->baq", output, upstream)[..., tf.newaxis]
        to_scores = probabilities * (tf.einsum("bqad,bkad->baqk", upstream, v) - inner)
        to_products = kernel["fmha_scale"] * to_scores
        found = [
            tf.einsum("baqk,bkad->bqad", to_products, k),
            tf.einsum("baqk,bqad->bkad", to_products, q),
            tf.einsum("baqk,bqad->bkad", probabilities, upstream),
            *([tf.reduce_sum(to_scores, 0, keepdims=True)] if has_bias else []),
        ]
    assert [(one.shape, one.dtype) for one in found] == [(spec.shape, spec.dtype) for spec in results]
    return found


@pytest.mark.parametrize(("name", "recompute"), [*((name, "none") for name in NETWORKS), ("distances", "layers")])
def test_an_encoder_has_the_values_and_gradients_that_xla_computes(
    name: str, recompute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, calls = Encoder("electra", sizes(**NETWORKS[name]), recompute=recompute), []

    def counted(*arguments: Any) -> list[tf.Tensor]:
        calls.append(arguments[0])
        return stand_in(*arguments)

    expected = one_program(lambda: passes(network))()
    monkeypatch.setattr(cudnn, "_call", counted)
    found = one_program(lambda: passes(network), attention="cudnn")()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 * float(tf.reduce_max(abs(other))))
    assert len(calls) == (4 if recompute == "none" else 6)
    assert sum(call.endswith("Backward") for call in calls) == 2


def program_of(network: Encoder, has_dropout: bool = True) -> hlo_pb2.HloModuleProto:
    def step(seed: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            seeds = SeedStream(seed) if has_dropout else None
            loss = tf.reduce_sum(tf.cast(network(*batch(), seeds).sequence, tf.float32))
        return [tf.convert_to_tensor(one) for one in tape.gradient(loss, network.trainable_variables)]

    return hlo_pb2.HloModuleProto.FromString(lowered(one_program(step, attention="cudnn"), tf.constant([1, 2])))


def calls_of(module: hlo_pb2.HloModuleProto) -> list[Any]:
    instructions = [one for computation in module.computations for one in computation.instructions]
    return [one for one in instructions if one.custom_call_target.startswith("__cudnn$")]


def test_a_program_calls_one_kernel_a_layer_and_one_for_its_gradient() -> None:
    network = Encoder("electra", sizes(**NETWORKS["distances"]), compute_dtype="bfloat16")
    module = program_of(network)
    calls = calls_of(module)
    kernel = "__cudnn$fmhaScaleBiasSoftmaxDropout"
    assert sorted(call.custom_call_target for call in calls) == [kernel] * 2 + [f"{kernel}Backward"] * 2
    for call in calls:
        for one in call.operand_shapes_with_layout:
            assert list(one.layout.minor_to_major) == list(range(len(one.dimensions)))[::-1]
        results = list(call.shape.tuple_shapes)
        is_gradient = call.custom_call_target.endswith("Backward")
        for one in results[: 3 if is_gradient else 1]:
            assert list(one.dimensions) == [ROWS, 2, LENGTH, 8] and list(one.layout.minor_to_major) == [3, 1, 2, 0]
        assert list(results[-2].dimensions) == ([1, 2, LENGTH, LENGTH] if is_gradient else [ROWS, 2, LENGTH])
        assert list(results[-1].dimensions) == [0]
    program = Program(module.SerializeToString())
    assert not program.host_calls()
    pairs = 2 * ROWS * 2 * LENGTH**2 * 8
    without = program.product_flops() - 2 * (2 + 5) * pairs
    dense = 2 * ROWS * LENGTH * (8 * 16 + 2 * (16 * 48 + 16 * 16 + 2 * 16 * 24))
    assert dense < without <= 3 * dense + 2 * ROWS * LENGTH * 50 * 8


def test_dropout_has_a_seed_for_each_layer_and_its_gradient_the_same() -> None:
    module = program_of(Encoder("electra", sizes(num_hidden_layers=3), compute_dtype="bfloat16"))
    seeds: dict[bool, list[int]] = {False: [], True: []}
    for call in calls_of(module):
        kernel = json.loads(call.backend_config)["cudnn_fmha_backend_config"]
        assert kernel["dropout_rate"] == pytest.approx(0.1)
        seeds[call.custom_call_target.endswith("Backward")].append(kernel["seed"])
    assert len(set(seeds[False])) == 3 and sorted(seeds[False]) == sorted(seeds[True])


@pytest.mark.parametrize("seed", [0, 1])
def test_another_run_s_dropout_has_other_seeds_and_what_is_computed_again_the_same(seed: int) -> None:
    network = Encoder("electra", sizes(), compute_dtype="bfloat16", seed=seed, recompute="layers")
    seeds = [
        json.loads(call.backend_config)["cudnn_fmha_backend_config"]["seed"] for call in calls_of(program_of(network))
    ]
    assert len(seeds) == 6 and {seeds.count(one) for one in seeds} == {3}
    other = Encoder("electra", sizes(), compute_dtype="bfloat16", seed=2)
    assert not set(seeds) & {
        json.loads(call.backend_config)["cudnn_fmha_backend_config"]["seed"] for call in calls_of(program_of(other))
    }


def write_vocabulary(path: Path, size: int) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, *(f"w{number}" for number in range(size - len(special)))]) + "\n")


@pytest.mark.parametrize("parts", [1, 2])
def test_a_pre_training_step_takes_the_implementation_that_is_asked_for(parts: int, tmp_path: Path) -> None:
    """Generator and main network, one layer each; evaluation has no gradients and no dropout."""
    write_vocabulary(tmp_path / "vocab.txt", 600)
    small = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2}
    given = {"model_name": "m", "data_dir": str(tmp_path), "vocab_size": 600, "model_hparam_overrides": small}
    given |= {"train_batch_size": 4, "gradient_accumulation_steps": parts, "generator_hidden_size": 0.5}
    config = PretrainingConfig.from_dict(given | {"precision": "bfloat16", "attention_implementation": "cudnn"})
    module = hlo_pb2.HloModuleProto.FromString(lowering.training_program(config))
    names = [call.custom_call_target.removeprefix("__cudnn$fmha") for call in calls_of(module)]
    assert sorted(names) == ["SoftmaxDropout"] * 2 + ["SoftmaxDropoutBackward"] * 2
    plain = lowering.training_program(dataclasses.replace(config, attention_implementation="xla"))
    assert not calls_of(hlo_pb2.HloModuleProto.FromString(plain))
    task = lowering.task_to_lower(config)
    evaluated = lowered(task.compiled(task.eval_step), lowering.empty_batch(config, 4), tf.constant(0, tf.int64))
    names = [call.custom_call_target for call in calls_of(hlo_pb2.HloModuleProto.FromString(evaluated))]
    assert names == ["__cudnn$fmhaSoftmax"] * 2


def test_a_fine_tuning_step_takes_the_implementation_that_is_asked_for(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocab.txt", 600)
    data = tmp_path / "finetuning_data" / "cola"
    data.mkdir(parents=True)
    (data / "train.tsv").write_text("".join(f"x\t{n % 2}\t\tw{n} w{n + 1}\n" for n in range(8)))
    small = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2}
    given = {"model_name": "m", "data_dir": str(tmp_path), "task_names": ["cola"], "random_init": True}
    given |= {"vocab_size": 600, "model_hparam_overrides": small, "precision": "bfloat16", "max_seq_length": 16}
    config = FinetuningConfig.from_dict(given | {"attention_implementation": "cudnn"})
    module = hlo_pb2.HloModuleProto.FromString(Lowering(config).training_program(config))
    assert len(calls_of(module)) == 2


def test_xla_is_told_not_to_replay_cudnn_s_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, said in (("", "-CUDNN"), ("--xla_gpu_enable_command_buffer=FUSION", "FUSION"), ("flags.txt", None)):
        monkeypatch.setenv("XLA_FLAGS", given)
        before_tensorflow()
        found = [one for one in os.environ["XLA_FLAGS"].split() if "command_buffer" in one]
        assert found == ([f"--xla_gpu_enable_command_buffer={said}"] if said else [])


@pytest.mark.parametrize("given", [{"relative_positions": "xl"}, {"direction": "left_to_right"}, {"odd": True}])
def test_what_the_kernels_cannot_do_xla_does(given: dict[str, Any]) -> None:
    direction = given.pop("direction", "both")
    length = LENGTH - given.pop("odd", False)
    network = Encoder("electra", sizes(**given), direction=direction, compute_dtype="bfloat16")
    ids, mask, segments = (one[:, :length] for one in batch())
    states = one_program(lambda: network(ids, mask, segments).sequence, attention="cudnn")
    np.testing.assert_array_equal(
        tf.cast(states(), tf.float32),
        tf.cast(one_program(lambda: network(ids, mask, segments).sequence)(), tf.float32),
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs precision bfloat16 or float16"),
        ({"precision": "bfloat16", "jit_compile": "false"}, "needs jit_compile true or auto"),
        ({"precision": "bfloat16", "use_tpu": True}, "is for NVIDIA GPUs"),
        ({"precision": "bfloat16", "num_attention_heads": 1}, "heads of a multiple of 8 columns, 128 at most, not 256"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], reason: str) -> None:
    config = {"model_name": "m", "data_dir": "d", "attention_implementation": "cudnn"}
    with pytest.raises(UserError, match=reason):
        PretrainingConfig.from_dict(config | given)


def test_a_machine_without_a_gpu_for_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config = DeviceHparams(precision="bfloat16", attention_implementation="cudnn", jit_compile="true")
    gpus: list[Any] = []
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    with pytest.raises(UserError, match="no GPU is there, or to be used; use xla"):
        distribution.wants_xla(config)
    gpus.append(tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU"))
    details = {"device_name": "Tesla T4", "compute_capability": (7, 5)}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    with pytest.raises(UserError, match="Tesla T4 is older than the A100"):
        distribution.wants_xla(config)
    details["compute_capability"] = (8, 0)
    assert distribution.wants_xla(config)


@pytest.mark.parametrize("name", ["t4", "v5e"])
def test_compiling_for_a_device_without_the_kernels_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "check_compiler", lambda device: None)
    given = {"model_name": "m", "data_dir": "d", "attention_implementation": "cudnn", "precision": "float16"}
    config = PretrainingConfig.from_dict(given)
    with pytest.raises(UserError, match="has no fused attention of cuDNN"):
        fitting.report(config, find_devices(name), lambda config: pytest.fail("it was lowered"))


_JAX = """
import json
from jax._src.cudnn import fused_attention_stablehlo as peer
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
with mlir.make_ir_context():
    for dtype in (ir.BF16Type.get(), ir.F16Type.get()):
        for backward in (False, True):
            print(peer.create_dot_product_attention_backend_config(
                3, 2, 20, 20, dtype, 0.25, 7, 0.1, peer.MaskType.PADDING, 0, 0, 1, False, is_bwd=backward))
for kind in ((bias, dropout, backward) for bias in (0, 1) for dropout in (0, 1) for backward in (0, 1)):
    print(peer.get_custom_call_name(*map(bool, kind)))
"""


@pytest.mark.skipif("ACCELERATORS_PYTHON" not in os.environ, reason="ACCELERATORS_PYTHON names no Python with jax")
def test_kernels_are_described_as_jax_describes_them() -> None:
    done = subprocess.run([os.environ["ACCELERATORS_PYTHON"], "-c", _JAX], capture_output=True, text=True, check=True)
    described, names = done.stdout.splitlines()[:4], done.stdout.splitlines()[4:]
    kinds = [(dtype, backward) for dtype in (tf.bfloat16, tf.float16) for backward in (False, True)]
    for theirs, (dtype, backward) in zip(described, kinds, strict=True):
        ours = cudnn.backend_config(tf.TensorSpec([3, 20, 2, 8], dtype), 0.25, 0.1, 7, backward)
        assert json.loads(ours) == json.loads(theirs)
    calls = calls_of(program_of(Encoder("electra", sizes(), compute_dtype="bfloat16")))
    assert calls and {call.custom_call_target for call in calls} <= set(names)


@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", ["plain", "distances", "turned"])
def test_on_a_gpu_the_kernels_compute_what_xla_does(name: str) -> None:
    network, exact = (Encoder("electra", sizes(**NETWORKS[name]), compute_dtype=d) for d in ("bfloat16", "float32"))
    expected = one_program(lambda: passes(exact))()
    found = one_program(lambda: passes(network), attention="cudnn")()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.03 * float(tf.reduce_max(abs(other))))


@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs an NVIDIA GPU")
def test_on_a_gpu_each_run_draws_masks_that_its_gradient_draws_again() -> None:
    """The output is linear in the values, so that its product with its gradient is the values' with theirs."""
    random = np.random.RandomState(0)
    q, k, v, upstream = (tf.constant(random.standard_normal([4, 64, 2, 32]), tf.bfloat16) for _ in range(4))
    none = tf.zeros([1, 1, 1, 1], tf.bfloat16)

    def both() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(v)
            output = cudnn.fused_attention(q, k, v, tf.fill([4], 64), none, scale=0.2, rate=0.3, seed=5)
        return output, tape.gradient(output, v, upstream)

    program, outputs = one_program(both, attention="cudnn"), []
    for _ in range(8):
        output, to_values = (tf.cast(one, tf.float32) for one in program())
        outputs.append(output.numpy())
        left = tf.reduce_sum(output * tf.cast(upstream, tf.float32))
        np.testing.assert_allclose(left, tf.reduce_sum(to_values * tf.cast(v, tf.float32)), rtol=0.02, atol=1.0)
    assert all(np.abs(one - outputs[0]).max() > 0.1 for one in outputs[1:])
