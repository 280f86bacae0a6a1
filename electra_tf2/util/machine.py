"""Facts about the machine of a run: units for bfloat16, XLA's flags, number of cores, GPUs. No TensorFlow.

Tests simulate another processor by `monkeypatch.setattr(machine, "this_processor", ...)`.
"""

import dataclasses
import functools
import math
import os
import platform
from pathlib import Path

# Units that multiply bfloat16: Linux's name -> common name. x86: AVX-512 (Cooper Lake, Zen 4 and later) and AMX
# (Sapphire Rapids and later). 64-bit Arm: BFMMLA (Neoverse V1 and N2, Graviton3 and later).
_BFLOAT16_UNITS = {"avx512_bf16": "AVX-512", "amx_bf16": "AMX", "bf16": "BFMMLA"}
_CPUINFO = Path("/proc/cpuinfo")
# Limits of a control group: microseconds (quota) of each period. Version 2 has both in one file, version 1 in two.
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_OLD_QUOTA = (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
# Files that exist if NVIDIA's driver is loaded.
NVIDIA_MARKS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))


@dataclasses.dataclass(frozen=True)
class Processor:
    """A processor, and what follows from it.

    Args:
      name: the maker's name for it.
      features: Linux's names of its instruction sets; empty if the system lists none (macOS, Windows).
      cores: number of cores that this process may use.
    """

    name: str
    features: frozenset[str]
    cores: int

    @property
    def bfloat16_units(self) -> list[str]:
        """Names of the units that multiply bfloat16. Without any, products in bfloat16 are slower than in float32."""
        return [unit for feature, unit in _BFLOAT16_UNITS.items() if feature in self.features]

    @property
    def has_bfloat16(self) -> bool:
        return bool(self.bfloat16_units)

    @property
    def xla_flags(self) -> dict[str, str]:
        """XLA's flags for this processor.

        By default XLA prefers vectors of 256 bits, since the first processors with AVX-512 slowed down for longer ones.
        Those that have AVX-512 for bfloat16 do not.
        """
        if "avx512_bf16" in self.features:
            return {"--xla_cpu_prefer_vector_width": "512"}
        return {}

    def __str__(self) -> str:
        units = "no bfloat16 units"
        if self.has_bfloat16:
            units = f"bfloat16 units: {', '.join(self.bfloat16_units)}"
        width = self.xla_flags.get("--xla_cpu_prefer_vector_width", "default")
        return f"{self.name}, {self.cores} cores, {units}, XLA's vector width {width}"


@functools.cache
def this_processor() -> Processor:
    """The processor of this machine, which is read once."""
    text = _CPUINFO.read_text(errors="replace") if _CPUINFO.exists() else ""
    return read_processor(text, cores())


def read_processor(cpuinfo: str, cores: int) -> Processor:
    """Reads a processor from the text of Linux's /proc/cpuinfo; "" on other systems."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())  # the first core's stands for all
    features = fields.get("flags") or fields.get("Features") or ""  # on x86, on Arm
    name = fields.get("model name") or platform.processor() or platform.machine() or "unknown processor"
    return Processor(name, frozenset(features.split()), cores)


def cores() -> int:
    """Number of cores that this process may use."""
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # Linux
        count = len(os.sched_getaffinity(0))
    quota = _container_quota()
    if quota is not None:
        count = min(count, max(1, math.ceil(quota)))
    return count


def _container_quota() -> float | None:
    """Number of cores whose time a container may use (docker --cpus, a pod's limit); None without a limit.

    A container with such a limit sees all cores of its host, and would start a process for each of them.
    """
    try:
        if _QUOTA.exists():
            quota, period = _QUOTA.read_text().split()
        else:
            quota_file, period_file = _OLD_QUOTA
            quota = quota_file.read_text()
            period = period_file.read_text()
        if float(quota) <= 0:
            return None
        return float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # not Linux, or "max": no limit
        return None


def has_nvidia_driver() -> bool:
    return any(path.exists() for path in NVIDIA_MARKS)


def hides_gpus() -> bool:
    """True if the environment hides GPUs from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
