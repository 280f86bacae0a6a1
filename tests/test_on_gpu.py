"""benchmarks/on_gpu.py on a processor: its parts at tiny sizes, its limits, its tables, its reading of a profile."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks import on_gpu, on_gpu_profile, on_gpu_run_part
from benchmarks.on_gpu_results import Part, read_rows
from tests.support.programs import ROOT


def test_a_part_is_ended_at_its_limit_with_what_it_started_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "mark"
    child = f"import pathlib, time; time.sleep(3); pathlib.Path({str(mark)!r}).touch()"
    codes = {
        "machine": f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)",
        "small": "import sys; print('out of luck'); sys.exit(3)",
        "data": f"from benchmarks.on_gpu_results import Part; import pathlib; "
        f"Part('data', pathlib.Path({str(tmp_path)!r}), True, '').record('records', 2.0, 'examples/s')",
    }
    monkeypatch.setattr(Part, "command", lambda part, name: [sys.executable, "-c", codes[name]])
    monkeypatch.setattr(on_gpu, "SHARES", {"machine": 0.01, "small": 1.0, "data": 1.0})
    words = ["--out", str(tmp_path), "--minutes", "1", "--parts", "machine,small,data"]
    monkeypatch.setattr(sys, "argv", ["on_gpu", *words])
    began = time.monotonic()
    on_gpu.main()
    table = (tmp_path / "table.md").read_text()
    assert (
        "ended at its limit" in table and "failed with exit code 3" in table and "| records | 2.0 examples/s |" in table
    )
    assert "out of luck" in (tmp_path / "log.txt").read_text() and table.strip() in capsys.readouterr().out
    time.sleep(max(0.0, 4 - (time.monotonic() - began)))
    assert not mark.exists()


def test_what_a_machine_lacks_is_skipped_and_the_last_of_a_result_counts(tmp_path: Path) -> None:
    part = Part("small", tmp_path, True, "")
    for value in (1234.5678, 2000.0):
        part.record("ours", value, "examples/s")
    with part.recording_failure("theirs"):
        raise OSError("ModuleNotFoundError: No module named 'torch'")
    with part.recording_failure("too large"):
        raise OSError("out of memory")
    assert part.last_value("ours") == 2000.0 and part.last_value("theirs") is None
    lines = on_gpu.table(read_rows(tmp_path)).splitlines()
    assert "| ours | 2,000.0 examples/s | |" in lines and not any("1,235" in line for line in lines)
    assert any(line.startswith("| theirs | skipped | ModuleNotFoundError") for line in lines)
    assert "| too large | failed | out of memory |" in lines


def test_a_profile_is_summed_over_the_streams_of_a_gpu() -> None:
    space = xplane_pb2.XSpace()
    space.planes.add(name="/host:CPU")
    plane = space.planes.add(name="/device:GPU:0")
    names = {1: "loop_add_fusion_12", 2: "void cutlass::Kernel<bf16>(Params)", 3: "loop_add_fusion"}
    for number, name in names.items():
        plane.event_metadata[number].name = name
    us = 10**6  # picoseconds
    streams = {"Stream #1": [(1, 0, 10), (2, 15, 10), (3, 42, 10)], "Stream #2": [(1, 20, 10)], "XLA Ops": [(1, 0, 90)]}
    for name, events in streams.items():
        line = plane.lines.add(name=name, timestamp_ns=1000)
        for metadata, start, duration in events:
            line.events.add(metadata_id=metadata, offset_ps=start * us, duration_ps=duration * us)
    times = on_gpu_profile.times_of(space)
    assert times.window == pytest.approx(52e-6) and times.busy == pytest.approx(35e-6)
    assert times.kernels["loop_add_fusion"] == (3, pytest.approx(30e-6))
    assert times.gaps == {
        "void cutlass::Kernel": (1, pytest.approx(5e-6)),
        "loop_add_fusion": (1, pytest.approx(12e-6)),
    }
    rows: list[Any] = on_gpu_profile.rows(times, 1)
    assert rows[0] == ("busy 67%", "0.05 ms a step, 4 kernels, 0.02 ms without any")
    assert ("kernel loop_add_fusion", "0.030 ms a step, 3.0 times") in rows


def test_machine_and_input_are_measured(tmp_path: Path) -> None:
    for name in ("machine", "data"):
        on_gpu_run_part.PARTS[name](Part(name, tmp_path, True, sys.executable))
    found = {row["what"]: row["value"] for row in read_rows(tmp_path)}
    assert "tensorflow 2." in found["versions"] and found["products, bfloat16"] > 0 and found["records read"] > 0


def test_hugging_faces_contenders_need_none_of_our_packages() -> None:
    """--torch-python has torch and transformers, and not what this project needs."""
    absent = ["absl", "backports", "rich", "tensorflow", "tf_keras"]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import benchmarks.step_contenders"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.slow
def test_every_part_at_tiny_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["on_gpu", "--out", str(tmp_path), "--tiny", "--minutes", "30"])
    on_gpu.main()
    rows = read_rows(tmp_path)
    assert {row["part"] for row in rows} == set(on_gpu_run_part.PARTS)
    assert [row for row in rows if row["value"] == "failed" or "limit" in row["note"]] == []
