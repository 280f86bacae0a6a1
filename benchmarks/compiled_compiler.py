"""Compiles a program with XLA's compiler for an accelerator that this machine lacks. Runs as a program:

  python compiled_compiler.py PROGRAM TARGET
  python compiled_compiler.py gpu|tpu

in an environment with jax and libtpu (TPUs), or jax, jax-cuda12-plugin and jax-cuda12-pjrt (NVIDIA GPUs). PROGRAM is a
serialised HloModuleProto, TARGET a file with a topology's name or a GPU's description. The last line of the output is
JSON: processor seconds of the compilation, bytes of arguments, outputs, aliases (arguments that outputs replace),
temporaries and code; or `error`, the compiler's message. The second form tells which package is missing, or null.

It imports only the standard library at the start, since that environment may lack this project's packages.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

# Autotuning needs the device; without it, products are left to cuBLAS, whose bytes are known.
_GPU_FLAGS = "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"


def _prepare(is_gpu: bool) -> None:
    """Sets the environment that jax reads when it is imported."""
    os.environ |= {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TPU_SKIP_MDS_QUERY": "1",  # no question to Google's cloud which TPU this machine has
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nothing runs here, so no other process is in the way
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    if is_gpu:
        os.environ.pop("JAX_PLATFORMS", None)
        os.environ["XLA_FLAGS"] = _GPU_FLAGS
    else:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ.pop("XLA_FLAGS", None)


def compile_program(program: bytes, target: str) -> dict[str, Any]:
    """Compiles a program for one chip of a target. Returns what the module's docstring says."""
    is_gpu = "{" in target
    _prepare(is_gpu)
    import numpy as np
    from jax._src.interpreters import mlir as jax_mlir
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies
    from jaxlib import _hlo, _jax, xla_client
    from jaxlib._jax import mlir

    if is_gpu:
        topology = topologies.get_topology_desc(
            platform="cuda", topology_name="gpu:1x1x1", topology="1x1x1", target_config=target
        )
    else:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=target)
    chip = topology.devices[0]
    options = xla_client.CompileOptions()
    options.num_replicas = 1
    options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[chip.id]]))
    stable = mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(program))
    start = _processor_seconds()
    with jax_mlir.make_ir_context():
        compiled = chip.client.compile(ir.Module.parse(stable), _jax.DeviceList((chip,)), options)
    seconds = _processor_seconds() - start
    memory = compiled.get_compiled_memory_stats()
    return {
        "seconds": seconds,
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliases": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
    }


def _processor_seconds() -> float:
    """Processor time of this process, all its threads and its children, among them the assembler of GPUs' kernels."""
    return sum(os.times()[:4])


def missing(kind: str) -> str | None:
    """The first missing package for compiling for GPUs ("gpu") or TPUs ("tpu"); None if all are installed."""
    needed = {"gpu": ("jax", "jax_plugins.xla_cuda12", "jax_cuda12_plugin"), "tpu": ("jax", "libtpu")}[kind]
    for name in needed:
        try:
            is_installed = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:  # its parent package is missing
            is_installed = False
        if not is_installed:
            return name
    return None


def main() -> None:
    if len(sys.argv) == 2:
        print(json.dumps({"missing": missing(sys.argv[1])}))
        return
    program, target = (Path(path) for path in sys.argv[1:3])
    try:
        result = compile_program(program.read_bytes(), target.read_text())
    except Exception as error:  # whatever a compiler raises is an answer
        result = {"error": str(error)}
    print(json.dumps(result), flush=True)
    os._exit(0)  # the plugins' threads may wait for devices


if __name__ == "__main__":
    main()
