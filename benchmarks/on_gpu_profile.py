"""Profiles a few steps with TensorFlow's profiler, and sums up the GPU's kernels and the gaps between them."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_SHOWN = 12  # names


class Times(NamedTuple):
    """Seconds of a GPU, from the start of its first kernel to the end of its last.

    Attributes:
      window: all of them. busy: those in which at least one kernel ran.
      kernels: name -> number of kernels, and their seconds.
      gaps: name of a kernel -> number of gaps before it, and their seconds. In a gap, no kernel runs.
    """

    window: float
    busy: float
    kernels: dict[str, tuple[int, float]]
    gaps: dict[str, tuple[int, float]]


def profiled(call: Callable[[], object], folder: Path) -> Times:
    """Profiles a call, which must wait for its device. Raises OSError if the profiler wrote nothing."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=1, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options)
    try:
        call()
    finally:
        tf.profiler.experimental.stop()
    files = sorted(folder.rglob("*.xplane.pb"))
    if not files:
        raise OSError("TensorFlow's profiler wrote no profile")
    return times_of(xplane_pb2.XSpace.FromString(files[-1].read_bytes()))


def times_of(space: Any) -> Times:
    """Sums up the first GPU of an XSpace. Raises OSError if it has none."""
    planes = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    if not planes:
        raise OSError("the profile holds no GPU")
    events = sorted(_events(planes[0]))
    kernels = defaultdict[str, list[float]](list)
    gaps = defaultdict[str, list[float]](list)
    begin = events[0][0] if events else 0.0
    busy = 0.0
    until = begin  # end of all kernels so far; kernels of different streams may overlap
    for start, end, name in events:
        kernels[name].append(end - start)
        if start > until:
            gaps[name].append(start - until)
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return Times(until - begin, busy, _summed(kernels), _summed(gaps))


def _events(plane: Any) -> Iterator[tuple[float, float, str]]:
    """Yields start, end and name of each kernel of a GPU, in seconds."""
    for line in plane.lines:
        if not line.name.startswith("Stream"):  # other lines have the same kernels, grouped by operation
            continue
        for event in line.events:
            start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
            end = start + event.duration_ps * 1e-12
            yield start, end, _short(plane.event_metadata[event.metadata_id].name)


def _summed(times: Mapping[str, list[float]]) -> dict[str, tuple[int, float]]:
    return {name: (len(seconds), sum(seconds)) for name, seconds in times.items()}


def rows(times: Times, steps: int) -> list[tuple[str, str]]:
    """Formats the profile of some steps: (title, text) of the whole, then of the largest sums by name."""
    count = sum(calls for calls, _ in times.kernels.values()) / steps
    idle = times.window - times.busy
    share = times.busy / times.window if times.window else 0.0
    text = f"{1e3 * times.window / steps:.2f} ms a step, {count:.0f} kernels, {1e3 * idle / steps:.2f} ms without any"
    shown = [(f"busy {share:.0%}", text)]
    for title, sums in (("kernel", times.kernels), ("gap before", times.gaps)):
        largest_first = sorted(sums.items(), key=lambda item: -item[1][1])
        for name, (calls, total) in largest_first[:_SHOWN]:
            shown.append((f"{title} {name}", f"{1e3 * total / steps:.3f} ms a step, {calls / steps:.1f} times"))
    return shown


def _short(name: str) -> str:
    """A kernel's name without its arguments and without the number that XLA gave it."""
    without_arguments = re.split(r"[(<]", name)[0].strip()
    without_number = re.sub(r"([._]\d+)+$", "", without_arguments)
    return without_number[:60] or name[:60]
