"""Processors to pretend: what Linux says of them in /proc/cpuinfo, shortened."""

import pytest

from electra_tf2.util import machine

_X86 = "processor\t: 0\nmodel name\t: {}\nflags\t\t: fpu sse2 avx avx2 fma{}\n\nprocessor\t: 1\nmodel name\t: {}\n"
CPUINFO = {
    "AVX2": _X86.format("AMD EPYC", "", "AMD EPYC"),
    "AVX-512": _X86.format("Xeon (Skylake)", " avx512f avx512bw", "Xeon (Skylake)"),
    "AVX-512 bfloat16": _X86.format("AMD EPYC (Zen 5)", " avx512f avx512_bf16", "AMD EPYC (Zen 5)"),
    "AMX": _X86.format("Xeon (Sapphire Rapids)", " avx512f avx512_bf16 amx_bf16 amx_tile", "Xeon"),
    "Arm": "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd0c\n",
    "Arm bfloat16": "processor\t: 0\nFeatures\t: fp asimd sve bf16 i8mm\nCPU part\t: 0xd40\n",
    "none": "",  # macOS, Windows
}


def pretend(monkeypatch: pytest.MonkeyPatch, name: str) -> machine.Processor:
    """Makes this process believe that it runs on a machine with two cores of this kind and no GPU."""
    processor = machine.read_processor(CPUINFO[name], 2)
    monkeypatch.setattr(machine, "this_processor", lambda: processor)
    monkeypatch.setattr(machine, "NVIDIA_MARKS", ())
    return processor
