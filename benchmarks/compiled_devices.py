"""The accelerators that benchmarks.compiled can compile for, with sizes from their makers' public data sheets.

XLA's compiler for GPUs reads a description of the device in the format of its own target configurations
(openxla/xla, xla/backends/gpu/target_config/specs); that for TPUs knows them by name. No TensorFlow here.
"""

from typing import Any, NamedTuple

from electra_tf2.util.errors import UserError, closest

# TensorFlow's allocator leaves a twentieth of a GPU's memory to the system (MinSystemMemory in gpu_device.cc).
_USABLE = 0.95


class Device(NamedTuple):
    """One chip.

    Attributes:
      memory: bytes that a step may take.
      target: for XLA's compiler, the description of a GPU or the name of a TPU's topology.
    """

    name: str
    full_name: str
    memory: int
    target: str

    @property
    def is_tpu(self) -> bool:
        return "{" not in self.target


# Name, model, CUDA's compute capability, number of streaming multiprocessors; float32 units, most threads and KiB of
# shared memory of each; MiB of second-level cache, GHz, bytes of memory, GB/s.
_GPUS = (
    ("t4", "Tesla T4", (7, 5), 40, 64, 1024, 64, 4, 1.59, 15843721216, 320.064),
    ("l4", "NVIDIA L4", (8, 9), 58, 128, 1536, 100, 48, 2.04, 23580639232, 300.096),
    ("a100_40", "NVIDIA A100-SXM4-40GB", (8, 0), 108, 64, 2048, 164, 40, 1.41, 42331013120, 1555.2),
    ("a100_80", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 2048, 164, 40, 1.41, 85100068864, 2039.04),
    ("h100", "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 2048, 228, 50, 1.98, 84978434048, 3352.32),
    ("h200", "NVIDIA H200 141GB HBM3e", (9, 0), 132, 128, 2048, 228, 50, 1.98, 151397597184, 4800.0),
)


def _gpu(name: str, full_name: str, capability: tuple[int, int], *sizes: Any) -> Device:
    """Makes a device from a row of `_GPUS`."""
    cores, units, threads, shared, cache, clock, memory, bandwidth = sizes
    major, minor = capability
    usable_shared = shared - 1 if major > 7 else shared  # KiB for a block; newer GPUs keep one
    target = f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared << 10}
  threads_per_core_limit: {threads}
  core_count: {cores}
  fpus_per_core: {units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {round(bandwidth * 1e9)}
  l2_cache_size: {cache << 20}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {usable_shared << 10}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
runtime_version {{ major: 12 minor: 8 }}
device_description_str: "{full_name}"
"""
    return Device(name, full_name, int(_USABLE * memory), target)


def _tpu(name: str, memory: float) -> Device:
    """Makes a TPU with so many GiB for a chip."""
    # The runtime takes some hundred MB. The compiler itself refuses what does not fit.
    return Device(name, f"TPU {name}", int(memory * 2**30) - (256 << 20), f"{name}:2x2x1")


_ALL = [_gpu(*row) for row in _GPUS] + [_tpu("v4", 32), _tpu("v5e", 16), _tpu("v5p", 95), _tpu("v6e", 32)]
DEVICES = {device.name: device for device in _ALL}


def find_devices(names: str) -> list[Device]:
    """The devices of a comma-separated list. Raises UserError for an unknown one; lists the valid names."""
    devices = []
    for name in names.split(","):
        name = name.strip().lower()
        if name not in DEVICES:
            raise UserError(f"unknown device {name!r}{closest(name, DEVICES)} (one of {', '.join(DEVICES)})")
        devices.append(DEVICES[name])
    return devices
