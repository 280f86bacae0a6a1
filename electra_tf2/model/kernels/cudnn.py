"""Attention by cuDNN's fused kernels for NVIDIA GPUs, which write no array of all pairs of positions to memory.

Dao et al. 2022, "FlashAttention". XLA gives calls of these names, with a description of the kernel in JSON, to cuDNN;
jax.nn.dot_product_attention makes the same calls. Dropout's masks come from cuDNN's own generator. Its seed is part of
the program, and its sequence goes on with each run of a kernel, of the gradient's as well. So kernels must not be
recorded and replayed (util.environment), and a program that starts again begins the sequence anew.
B batch, L length, A heads, D head size.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from electra_tf2.model.kernels.compilation import differentiable

_TYPES = {tf.bfloat16: "bf16", tf.float16: "f16", tf.float32: "f32", tf.int32: "i32"}
_CALL_MODULE_VERSION = 5  # the oldest that TensorFlow reads


@differentiable
def fused_attention(
    q: tf.Tensor,
    k: tf.Tensor,
    v: tf.Tensor,
    lengths: tf.Tensor,
    position_bias: tf.Tensor,
    scale: float,
    rate: float,
    seed: int,
) -> Any:
    """softmax(scale q k^T + position bias) v with dropout of the probabilities, [B, L, A, D].

    Args:
      q, k, v: [B, L, A, D], bfloat16 or float16, of a static shape.
      lengths: int32 [B], number of keys that may be attended to, the first ones; 1 at least.
      position_bias: [1, A, L, L] in the type of `q`, added to the scaled scores; [1, 1, 1, 1]: none.
      rate: of the dropout; seed: of its generator, another one for each place in a network.
    """
    batch, length, heads, _ = q.shape
    bias = [] if position_bias.shape.num_elements() == 1 else [position_bias]
    name = f"__cudnn$fmha{'ScaleBias' if bias else ''}Softmax{'Dropout' if rate else ''}"
    counts = [tf.fill([batch], length), lengths]  # of queries, of which all count, and of keys
    states, of_rows = tf.TensorSpec(q.shape, q.dtype), tf.TensorSpec([batch, heads, length], tf.float32)
    config = backend_config(states, scale, rate, seed, backward=False)
    output, statistics = _call(name, config, [q, k, v, *bias, *counts], [states, of_rows])

    def gradient(upstream: tf.Tensor) -> list[tf.Tensor | None]:
        config = backend_config(states, scale, rate, seed, backward=True)
        operands = [q, k, v, statistics, upstream, *bias, output, *counts]
        results = [states] * 3 + [tf.TensorSpec(one.shape, one.dtype) for one in bias]
        found = _call(f"{name}Backward", config, operands, results)
        return [*found[:3], None, found[3] if bias else tf.zeros_like(position_bias)]

    return output, gradient


def backend_config(states: tf.TensorSpec, scale: float, rate: float, seed: int, backward: bool) -> str:
    """Describes a kernel as XLA's GpuBackendConfig, in JSON.

    Args:
      states: shape and type of queries, keys and values, [B, L, A, D].
      backward: whether the kernel is the gradient's.
    """
    batch, length, heads, _ = states.shape
    # Axes of pairs [B, A, L, L] and of states [B, L, A, D]: of heads, and those that are summed.
    of_pairs, of_states = 1, 2
    if backward:
        products = {
            "bmm1_grad_gemm1": ((2, of_pairs), (1, of_states)),
            "bmm1_grad_gemm2": ((3, of_pairs), (1, of_states)),
            "bmm2_grad_gemm1": ((2, of_pairs), (1, of_states)),
            "bmm2_grad_gemm2": ((3, of_states), (3, of_states)),
        }
    else:
        products = {"bmm1": ((3, of_states), (3, of_states)), "bmm2": ((3, of_pairs), (1, of_states))}
    layout = {
        "dim_level_types": [],
        "dim_unique": [],
        "dim_ordered": [],
        "minor_to_major": ["3", "2", "1", "0"],
        "tiles": [],
        "element_size_in_bits": "0",
        "memory_space": "0",
        "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "dynamic_shape_metadata_prefix_bytes": "0",
    }
    kernel = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": scale,
        "intermediate_tensor_shape": {
            "element_type": _TYPES[states.dtype].upper(),
            "dimensions": [str(size) for size in (batch, heads, length, length)],
            "tuple_shapes": [],
            "layout": layout,
            "is_dynamic_dimension": [False] * 4,
        },
        "is_flash_attention": True,
        "mask_type": "PADDING",
        "dropout_rate": rate,
        "seed": seed,
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    for name, ((left, left_heads), (right, right_heads)) in products.items():
        kernel[f"{name}_dot_dimension_numbers"] = {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": ["0", str(left_heads)],
            "rhs_batch_dimensions": ["0", str(right_heads)],
        }
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": kernel})


def _call(name: str, config: str, operands: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Calls a kernel; its last result, a workspace, is left out."""
    return gen_xla_ops.xla_call_module(
        operands,
        version=_CALL_MODULE_VERSION,
        module=_module(name, config, operands, results).encode(),
        Sout=[one.shape for one in results],
        Tout=[one.dtype for one in results],
        platforms=[],
        dim_args_spec=[],
        function_list=[],
        has_token_input_output=False,
        disabled_checks=[],
    )


def _module(name: str, config: str, operands: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec]) -> str:
    """StableHLO of a call.

    Where cuDNN returns states it calls them [B, A, L, D]. They are [B, L, A, D] in memory, which the order of their
    axes there, the fastest first, says, so that the transposition costs nothing.
    """
    taken = [_type(one.dtype, one.shape) for one in operands]
    returned = [_type(one.dtype, one.shape) for one in results]
    found, orders, lines, names = [], [], [], []
    for number, spec in enumerate(results):
        if number > 2 or spec.shape.rank != 4:  # not the output, nor a gradient of queries, keys or values
            found.append(returned[number])
            orders.append(_row_major(spec.shape))
            names.append(f"%call#{number}")
            continue
        batch, length, heads, size = spec.shape
        found.append(_type(spec.dtype, [batch, heads, length, size]))
        orders.append(_layout([3, 1, 2, 0]))
        names.append(f"%states{number}")
        lines.append(
            f"{names[-1]} = stablehlo.transpose %call#{number}, dims = [0, 2, 1, 3] : ({found[-1]}) -> "
            f"{returned[number]}"
        )
    attributes = (
        f"api_version = 2 : i32, backend_config = {json.dumps(config)}, "
        f"operand_layouts = [{_joined(_row_major(one.shape) for one in operands)}], "
        f"result_layouts = [{_joined([*orders, _layout([0])])}]"
    )
    call = (
        f"%call:{len(results) + 1} = stablehlo.custom_call @{name}({_joined(f'%a{n}' for n in range(len(operands)))}) "
        f"{{{attributes}}} : ({_joined(taken)}) -> ({_joined([*found, 'tensor<0xui8>'])})"
    )
    arguments = _joined(f"%a{number}: {one}" for number, one in enumerate(taken))
    body = "\n".join([call, *lines, f"return {_joined(names)} : {_joined(returned)}"])
    return f"module @attention {{\nfunc.func public @main({arguments}) -> ({_joined(returned)}) {{\n{body}\n}}\n}}"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _type(dtype: tf.DType, shape: Iterable[int]) -> str:
    return f"tensor<{'x'.join(str(size) for size in shape)}x{_TYPES[dtype]}>"


def _row_major(shape: Sequence[int]) -> str:
    return _layout(list(range(len(shape)))[::-1])


def _layout(order: Sequence[int]) -> str:
    return f"dense<{list(order)}> : tensor<{len(order)}xindex>"
