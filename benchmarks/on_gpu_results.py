"""Settings, the file of results and the command of every part of benchmarks/on_gpu.py."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.step_job import SIZES, Job, Size
from electra_tf2.files.writing import append_json_line

_TINY = Size(32, 2, 2, 32, generator_share=2, vocabulary=1200)


class Part(NamedTuple):
    """A part and its settings.

    out: folder of results.jsonl. tiny: True: sizes for a trial on any machine. torch_python: Python that runs Hugging
    Face's code.
    """

    name: str
    out: Path
    tiny: bool
    torch_python: str

    def record(self, what: str, value: float | str, unit: str = "", note: str = "") -> None:
        """Appends a result to results.jsonl."""
        if isinstance(value, float):
            value = float(f"{value:.4g}")
        row = {"part": self.name, "what": what, "value": value, "unit": unit, "note": note}
        append_json_line(self.out / "results.jsonl", row)

    def record_failure(self, what: str, error: Exception | str) -> None:
        """Records that something failed, or was skipped since a package is missing."""
        lacks_package = isinstance(error, ImportError) or "No module named" in str(error)
        self.record(what, "skipped" if lacks_package else "failed", note=str(error)[-300:])

    @contextlib.contextmanager
    def recording_failure(self, what: str) -> Iterator[None]:
        """Records a failure if a contender ends within, and goes on."""
        try:
            yield
        except OSError as error:
            self.record_failure(what, error)

    def last_value(self, what: str) -> float | None:
        """The newest number that any part has recorded under this name; None if there is none."""
        for row in reversed(read_rows(self.out)):
            if row["what"] == what and isinstance(row["value"], float):
                return row["value"]
        return None

    def command(self, part: str) -> list[str]:
        """The command that runs a part, or a piece of `correctness`, with these settings."""
        words = [sys.executable, "-m", "benchmarks.on_gpu_run_part", part, str(self.out)]
        words += ["--torch-python", self.torch_python]
        if self.tiny:
            words.append("--tiny")
        return words

    def job(self, size: str, batch_size: int, length: int, what: str = "pretraining") -> Job:
        """A job in bfloat16; in a trial, of tiny sizes."""
        if self.tiny:
            return Job(what, _TINY, 4, 16, "bfloat16")
        return Job(what, SIZES[size], batch_size, length, "bfloat16")


def read_rows(out: Path) -> list[dict[str, Any]]:
    """All results so far."""
    path = out / "results.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
