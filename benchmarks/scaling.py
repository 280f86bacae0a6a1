"""Growth of a pre-training step with batch, length, vocabulary, layers and width: time, memory, share of its limit.

  taskset -c 1 python -m benchmarks.scaling benchmarks/scaling.json
  python -m benchmarks.scaling benchmarks/scaling.json --figure docs/scaling.png

One factor at a time is varied round a base: four layers as wide as electra_small's, with its kind of generator. Every
point is a process of its own (benchmarks/step_contenders.py), because memory is a high-water mark, and so are the
matrix products of that step alone, its limit. Points are written as they are measured, and those that the file has are
not measured again. Times are processor time, which other work on the machine disturbs little: on one thread, the
default, the least of some steps is what a quiet core takes.

An exponent is the slope of the line through the logarithms, and in brackets that of the last two points, where what
does not grow counts least. Beside that of the time stands that of the FLOPs: a time that grows faster has a cause.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import ONE_THREAD, parser_of, processor
from benchmarks.step import Contender
from benchmarks.step_job import Job, Size, product_flops
from electra_tf2.util.files import write_json

BASE = Job("pretraining", Size(256, 4, 4, 128, 4, 32768), batch_size=32, length=128, precision="bfloat16")
FACTORS = {
    "vocabulary": (8192, 32768, 131072),
    "layers": (2, 4, 8, 24),
    "width": (128, 256, 512, 1024),
    "batch": (8, 32, 128, 512),
    "length": (64, 128, 256, 512, 1024, 2048),
}
_HEAD_SIZE = 64
_SECONDS = 4.0  # that a point's steps may take, once there are two of them
_STEPS = 3


class Point(NamedTuple):
    """A step, and what was measured of it.

    seconds, limit: of processor time, of a step and, where they were measured, of its products alone. memory: bytes,
      the most there ever was.
    """

    program: str
    job: Job
    seconds: float
    limit: float | None
    memory: float

    @property
    def flops(self) -> float:
        return product_flops(self.job)


def job_of(factor: str, value: int) -> Job:
    """The base, but for one factor."""
    if factor == "batch":
        return BASE._replace(batch_size=value)
    if factor == "length":
        return BASE._replace(length=value)
    changed = {"hidden": value, "heads": value // _HEAD_SIZE} if factor == "width" else {factor: value}
    return BASE._replace(size=BASE.size._replace(**changed))


# Beside the base's program: micro-batches, and layers computed again.
BESIDE = [
    ("ours_accumulated", job_of("batch", 128)),
    ("ours_recompute", job_of("batch", 128)),
    ("ours_recompute", job_of("layers", 24)),
]


class Measurements:
    """Points in a JSON file, measured where they are missing.

    Raises:
      SystemExit: the file is another processor's.
    """

    def __init__(self, path: Path, measure: bool) -> None:
        self._path, self._measure = path, measure
        self._found: dict[str, Any] = {"processor": processor(), "points": {}}
        if path.exists():
            self._found = json.loads(path.read_text(encoding="utf-8"))
        self.processor = self._found["processor"]
        if measure and self.processor != processor():
            sys.exit(f"error: {path} was measured on {self.processor}; give another file for this processor.")

    def point(self, program: str, job: Job) -> Point | None:
        """Reads or measures a point; None if it is neither there nor to be measured, or ended with an error."""
        step, products = (self._of(f"{name}_{job.precision}", job) for name in (program, "products"))
        if not step:
            return None
        return Point(program, job, step["seconds"], products["seconds"] if products else None, step["memory"])

    def _of(self, contender: str, job: Job) -> dict[str, float] | None:
        points, sizes = self._found["points"], ",".join(map(str, job.size))
        key = f"{contender} {sizes} {job.batch_size} {job.length} {job.what}"
        if key not in points and self._measure:
            points[key] = _measured(contender, job)
            write_json(self._path, self._found)
            print(key, points[key], flush=True)
        return points.get(key)


def _measured(contender: str, job: Job) -> dict[str, float] | None:
    """Measures a point; None if the process ended with an error, as for want of memory."""
    try:
        process = Contender(contender, job)
        wall = process.turn(1)
        for _ in range(min(_STEPS, max(2, int(_SECONDS / wall))) - 1):
            wall = min(wall, process.turn(1))
    except OSError as error:
        print(error, file=sys.stderr)
        return None
    process.end()
    return {"seconds": round(process.processor_seconds, 4), "wall": round(wall, 4), "memory": process.memory}


def exponents(values: list[int], measured: list[float]) -> tuple[float, float]:
    """Slopes between logarithms: of all points, and of the last two."""
    x, y = np.log(values), np.log(measured)
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def table(points: dict[str, list[tuple[int, Point]]]) -> str:
    """Markdown: a row per point and one of exponents per factor."""
    lines = ["| factor | | s a step | share of its products alone | GB |", "|---|---|---|---|---|"]
    for factor, rows in points.items():
        for value, point in rows:
            share = f"{point.limit / point.seconds:.0%}" if point.limit else ""
            lines.append(f"| {factor} | {value:,} | {point.seconds:.3g} | {share} | {point.memory / 1e9:.2f} |")
        if len(rows) > 1:
            values, found = zip(*rows, strict=True)
            measured = zip(*((p.seconds, p.flops, p.memory) for p in found), strict=True)
            time, flops, memory = ("{:.2f} ({:.2f})".format(*exponents(list(values), list(y))) for y in measured)
            lines.append(f"| | exponents | {time}; of FLOPs {flops} | | {memory} |")
    return "\n".join(lines)


def draw(path: Path, points: dict[str, list[tuple[int, Point]]]) -> None:
    """A panel per factor with the time of a step, and one with the memory of all."""
    from electra_tf2.analysis.figures import curve, panels

    titles = [*(f"time and {factor}" for factor in points), "memory"]
    with panels(path.with_suffix(""), titles) as axes:
        *of_factors, of_memory = axes
        for number, (axis, (factor, rows)) in enumerate(zip(of_factors, points.items(), strict=True)):
            values, found = (list(part) for part in zip(*rows, strict=True))
            seconds = [point.seconds for point in found]
            label = f"step, exponent {exponents(values, seconds)[0]:.2f}" if len(rows) > 1 else "step"
            curve(axis, values, seconds, 0, label)
            limits = {value: point.limit for value, point in rows if point.limit}
            curve(axis, list(limits), list(limits.values()), 1, "its products alone")
            base = next(value for value, point in rows if point.job == BASE)
            memory = [point.memory / 1e9 for point in found]
            curve(of_memory, [value / base for value in values], memory, number, factor)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xticks(values, [f"{value // 1024}k" if value > 4096 else str(value) for value in values])
            axis.minorticks_off()
            axis.set(xlabel=factor, ylabel="seconds of one core")
            axis.legend()
        of_memory.set(xlabel="multiple of the base", ylabel="gigabytes")
        of_memory.set_xscale("log", base=2)
        of_memory.set_yscale("log", base=2)
        of_memory.legend()


def main() -> None:
    parser = parser_of(__doc__, threads=1)
    parser.add_argument("file", type=Path, help="JSON, of points")
    parser.add_argument("--figure", type=Path, help="draw what the file has into this picture; nothing is measured")
    options = parser.parse_args()
    os.environ |= dict.fromkeys(ONE_THREAD, str(options.threads))
    measurements = Measurements(options.file, measure=options.figure is None)
    points = {}
    for factor, values in FACTORS.items():
        rows = [(value, measurements.point("ours", job_of(factor, value))) for value in values]
        points[factor] = [(value, point) for value, point in rows if point is not None]
    print(measurements.processor)
    print(table(points))
    for program, job in BESIDE:
        plain, other = measurements.point("ours", job), measurements.point(program, job)
        if plain and other:
            memory = f"{other.memory / 1e9:.2f} GB in place of {plain.memory / 1e9:.2f}"
            what = f"{program}, batch {job.batch_size}, {job.size.layers} layers"
            print(f"{what}: {other.seconds / plain.seconds:.2f} times the time, {memory}")
    if options.figure is not None:
        draw(options.figure, points)


if __name__ == "__main__":
    main()
