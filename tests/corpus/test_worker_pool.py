"""Work on several processes: what happens to the rest of it when some fails."""

import functools
import os
from pathlib import Path

import pytest

from electra_tf2.corpus.worker_pool import run_on_processes
from electra_tf2.util import machine
from electra_tf2.util.errors import UserError
from electra_tf2.util.machine import cores
from electra_tf2.util.progress import Progress

LONG = 3_000_000  # reports of progress: seconds


def work(folder, name, *, advance):
    if name == "fails":
        raise UserError("it fails")
    for _ in range(LONG):
        advance(0.0)
    Path(folder, name).touch()


def test_there_are_cores_where_the_system_does_not_say_which(monkeypatch):
    monkeypatch.setattr(machine, "_container_quota", lambda: None)
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert cores() == (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "9900000 100000"}, 64),
        ({"quota": "300000\n", "period": "100000\n"}, 3),
        ({"quota": "-1\n", "period": "100000\n"}, 64),
        ({"cpu.max": "what"}, 64),
        ({}, 64),
    ],
    ids=str,
)
def test_a_container_has_the_cores_that_it_may_use(files, expected, monkeypatch, tmp_path):
    """Else it starts a process for each core of its host."""
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(machine, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "_OLD_QUOTA", (tmp_path / "quota", tmp_path / "period"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    assert cores() == expected


def test_nobody_works_on_when_one_has_failed(tmp_path):
    with Progress("item", 2) as progress, pytest.raises(UserError, match="it fails"):
        run_on_processes(functools.partial(work, str(tmp_path)), ["fails", "goes on"], 2, progress, "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [EOFError("unexpected EOF"), ConnectionResetError(104, "Connection reset by peer")])
def test_a_kill_of_the_process_that_workers_are_forked_from_is_one_line(error, monkeypatch, tmp_path):
    def killed(_):
        raise error

    monkeypatch.setattr("multiprocessing.forkserver.read_signed", killed)  # which waits for a worker's number
    with Progress("item", 1) as progress, pytest.raises(UserError, match=r"a worker process was killed .*; go on"):
        run_on_processes(functools.partial(work, str(tmp_path)), ["one", "two"], 2, progress, "go on")
