"""What depends on the processor: units for bfloat16, XLA's vectors, workers; by pretending to be on others."""

import os

import pytest

from electra_tf2.util import machine
from electra_tf2.util.environment import before_tensorflow
from tests.support.processors import CPUINFO, pretend


@pytest.mark.parametrize(
    ("name", "units", "vectors"),
    [
        ("AVX2", [], None),
        ("AVX-512", [], None),
        ("AVX-512 bfloat16", ["AVX-512"], "512"),
        ("AMX", ["AVX-512", "AMX"], "512"),
        ("Arm", [], None),
        ("Arm bfloat16", ["BFMMLA"], None),
        ("none", [], None),
    ],
)
def test_what_follows_from_a_processor(name, units, vectors):
    processor = machine.read_processor(CPUINFO[name], 2)
    assert processor.bfloat16_units == units and processor.has_bfloat16 == bool(units)
    assert processor.xla_flags.get("--xla_cpu_prefer_vector_width") == vectors
    assert processor.name and "2 cores" in str(processor)
    assert ("no bfloat16 units" in str(processor)) == (not units)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("AVX2", "", ""),
        ("AMX", "", "--xla_cpu_prefer_vector_width=512"),
        ("AMX", "--xla_a=1", "--xla_a=1 --xla_cpu_prefer_vector_width=512"),
        ("AMX", "--xla_cpu_prefer_vector_width=256", "--xla_cpu_prefer_vector_width=256"),  # the user's own
        ("AMX", "flags.txt", "flags.txt"),  # a file that holds them
    ],
)
def test_flags_of_xla_are_added_to_the_users(monkeypatch, name, before, after):
    pretend(monkeypatch, name)
    monkeypatch.setenv("XLA_FLAGS", before)
    before_tensorflow()
    assert os.environ["XLA_FLAGS"] == after


def test_this_processor_has_a_name_and_the_cores_of_this_process():
    processor = machine.this_processor()
    assert processor.name and processor.cores == machine.cores()
