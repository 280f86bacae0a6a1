"""Decides all of a run that depends on the machine: products of bfloat16, XLA's vectors, worker processes.

Tests pretend to be on another processor by `monkeypatch.setattr(machine, "this_processor", ...)`. No TensorFlow here.
"""

import dataclasses
import functools
import math
import os
import platform
from pathlib import Path

# Units that multiply bfloat16, as Linux lists them. x86: AVX-512 (Cooper Lake, Zen 4 and later) and AMX (Sapphire
# Rapids and later). Arm, 64 bits: BFMMLA (Neoverse V1 and N2, Graviton3 and later).
_BFLOAT16_UNITS = {"avx512_bf16": "AVX-512", "amx_bf16": "AMX", "bf16": "BFMMLA"}
_CPUINFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of control groups of version 2: microseconds of each period, and the period
_OLD_QUOTA = tuple(Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))  # of version 1
# Where NVIDIA's driver leaves its marks.
NVIDIA_MARKS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))


@dataclasses.dataclass(frozen=True)
class Processor:
    """A processor, and what follows from it.

    Args:
      name: as the maker calls it.
      features: sets of instructions, as Linux names them; empty where the system lists none (macOS, Windows).
      cores: that this process may use.
    """

    name: str
    features: frozenset[str]
    cores: int

    @property
    def bfloat16_units(self) -> list[str]:
        """The units that multiply bfloat16; products of that type are slower than float32's without any."""
        return [unit for feature, unit in _BFLOAT16_UNITS.items() if feature in self.features]

    @property
    def has_bfloat16(self) -> bool:
        return bool(self.bfloat16_units)

    @property
    def xla_flags(self) -> dict[str, str]:
        """Flags of XLA's code for this processor.

        XLA prefers vectors of 256 bits, since the first processors with AVX-512 slowed down for longer ones. Those with
        AVX-512 for bfloat16 do not.
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
    """Reads the processor of this machine; the cores that it has for this process are counted once."""
    text = _CPUINFO.read_text(errors="replace") if _CPUINFO.exists() else ""
    return read_processor(text, cores())


def read_processor(cpuinfo: str, cores: int) -> Processor:
    """Reads a processor from the text of Linux's /proc/cpuinfo, "" where there is none."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())  # all cores are taken to be as the first
    features = fields.get("flags") or fields.get("Features") or ""  # x86's and Arm's word for it
    name = fields.get("model name") or platform.processor() or platform.machine() or "unknown processor"
    return Processor(name, frozenset(features.split()), cores)


def cores() -> int:
    """Number of cores that this process may use; all, where the system does not tell."""
    number = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        number = len(os.sched_getaffinity(0))
    quota = _quota_of_container()
    if quota is not None:
        number = min(number, max(1, math.ceil(quota)))
    return number


def _quota_of_container() -> float | None:
    """Cores' worth of time that a container may use (docker --cpus, a pod's limit); None without a limit.

    Such a container sees all cores of its host, and would start a process for each of them.
    """
    try:
        if _QUOTA.exists():
            quota, period = _QUOTA.read_text().split()
        else:
            quota, period = (file.read_text().strip() for file in _OLD_QUOTA)
        if float(quota) <= 0:
            return None
        return float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max": no limit; or no Linux
        return None


def has_nvidia_driver() -> bool:
    return any(path.exists() for path in NVIDIA_MARKS)


def hides_gpus() -> bool:
    """True if the environment keeps GPUs from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
