"""Accelerators to compile for without having one: sizes and speeds from their makers' public data sheets.

XLA's compiler for GPUs reads a description of the device in the format of its own target configurations
(openxla/xla, xla/backends/gpu/target_config/specs); that for TPUs knows them by name. Peaks are dense products'. No
TensorFlow here.
"""

from typing import NamedTuple

from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import closest

# TensorFlow's allocator leaves a twentieth of a GPU's memory to the system (MinSystemMemory in gpu_device.cc).
_USABLE = 0.95


class Device(NamedTuple):
    """One chip.

    Attributes:
      memory: bytes that a step may take.
      bandwidth: of that memory, bytes a second.
      peaks: precision -> FLOP/s of matrix products in it.
      launch_seconds: least time between two kernels.
      target: what XLA's compiler is told: a description of a GPU, the name of a TPU's topology.
    """

    name: str
    full_name: str
    memory: int
    bandwidth: float
    peaks: dict[str, float]
    launch_seconds: float
    target: str

    @property
    def is_tpu(self) -> bool:
        return "{" not in self.target


def _gpu(
    name: str,
    full_name: str,
    *,
    capability: tuple[int, int],
    cores: int,
    units: int,
    threads: int,
    shared: int,
    cache: int,
    clock: float,
    memory: int,
    bandwidth: int,
    peaks: tuple[float, float, float],
) -> Device:
    """A GPU.

    Args:
      capability: CUDA's compute capability.
      cores: streaming multiprocessors.
      units: float32 units of a core.
      threads: of a core at most.
      shared: bytes of shared memory of a core; a block may use 1 kB less.
      cache: bytes of the second-level cache.
      clock: GHz.
      memory: bytes.
      bandwidth: bytes a second.
      peaks: TFLOP/s of products in float32 (TF32 where there is that), bfloat16, float16.
    """
    major, minor = capability
    target = f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: {threads}
  core_count: {cores}
  fpus_per_core: {units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {shared - (1024 if major > 7 else 0)}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
runtime_version {{ major: 12 minor: 8 }}
device_description_str: "{full_name}"
"""
    rates = {precision: peak * 1e12 for precision, peak in zip(("float32", "bfloat16", "float16"), peaks, strict=True)}
    return Device(name, full_name, int(_USABLE * memory), bandwidth, rates, 2e-6, target)


def _tpu(name: str, memory: float, bandwidth: float, peak: float) -> Device:
    """A TPU: GiB of a chip, GB/s, TFLOP/s in bfloat16, in which products of float32 are computed by default, too."""
    # Some hundred MB are the runtime's; the compiler itself refuses what does not fit.
    rates = dict.fromkeys(("float32", "bfloat16"), peak * 1e12)
    return Device(name, f"TPU {name}", int(memory * 2**30) - (256 << 20), bandwidth * 1e9, rates, 0.0, f"{name}:2x2x1")


_KIB, _MIB = 2**10, 2**20
DEVICES = {
    device.name: device
    for device in (
        _gpu(
            "t4",
            "Tesla T4",
            capability=(7, 5),
            cores=40,
            units=64,
            threads=1024,
            shared=64 * _KIB,
            cache=4 * _MIB,
            clock=1.59,
            memory=15_843_721_216,
            bandwidth=320_064_000_000,
            peaks=(8.1, 8.1, 65.0),
        ),
        _gpu(
            "l4",
            "NVIDIA L4",
            capability=(8, 9),
            cores=58,
            units=128,
            threads=1536,
            shared=100 * _KIB,
            cache=48 * _MIB,
            clock=2.04,
            memory=23_580_639_232,
            bandwidth=300_096_000_000,
            peaks=(60.0, 121.0, 121.0),
        ),
        _gpu(
            "a100_40",
            "NVIDIA A100-SXM4-40GB",
            capability=(8, 0),
            cores=108,
            units=64,
            threads=2048,
            shared=164 * _KIB,
            cache=40 * _MIB,
            clock=1.41,
            memory=42_331_013_120,
            bandwidth=1_555_200_000_000,
            peaks=(156.0, 312.0, 312.0),
        ),
        _gpu(
            "a100_80",
            "NVIDIA A100-SXM4-80GB",
            capability=(8, 0),
            cores=108,
            units=64,
            threads=2048,
            shared=164 * _KIB,
            cache=40 * _MIB,
            clock=1.41,
            memory=85_100_068_864,
            bandwidth=2_039_040_000_000,
            peaks=(156.0, 312.0, 312.0),
        ),
        _gpu(
            "h100",
            "NVIDIA H100 80GB HBM3",
            capability=(9, 0),
            cores=132,
            units=128,
            threads=2048,
            shared=228 * _KIB,
            cache=50 * _MIB,
            clock=1.98,
            memory=84_978_434_048,
            bandwidth=3_352_320_000_000,
            peaks=(495.0, 989.0, 989.0),
        ),
        _gpu(
            "h200",
            "NVIDIA H200 141GB HBM3e",
            capability=(9, 0),
            cores=132,
            units=128,
            threads=2048,
            shared=228 * _KIB,
            cache=50 * _MIB,
            clock=1.98,
            memory=151_397_597_184,
            bandwidth=4_800_000_000_000,
            peaks=(495.0, 989.0, 989.0),
        ),
        _tpu("v4", 32, 1228, 275),
        _tpu("v5e", 16, 819, 197),
        _tpu("v5p", 95, 2765, 459),
        _tpu("v6e", 32, 1640, 918),
    )
}


def find_device(name: str) -> Device:
    """The device of that name.

    Raises:
      UserError: there is none; the message lists those that there are.
    """
    if name not in DEVICES:
        raise UserError(f"unknown device {name!r}{closest(name, DEVICES)} (one of {', '.join(DEVICES)})")
    return DEVICES[name]


COMPILE_FOR_HELP = (
    "say whether the training step fits these devices, and with which settings if not, by their own compilers; nothing "
    f"is trained; needs the extra accelerators ({', '.join(DEVICES)})"
)


def find_devices(names: str | None) -> list[Device]:
    """Those of a list with commas; none for None. Raises UserError as `find_device`."""
    return [find_device(name.strip().lower()) for name in names.split(",")] if names else []
