"""Kernels and the gaps between them, from what TensorFlow's profiler writes of a few steps."""

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_SHOWN = 12  # names


class Times(NamedTuple):
    """Seconds of a device in a window from its first kernel to the end of its last.

    Attributes:
      window, busy: all, and those in which at least one kernel ran.
      kernels, gaps: by name the number and the seconds: of the kernels; of the time without any before one of them.
    """

    window: float
    busy: float
    kernels: dict[str, tuple[int, float]]
    gaps: dict[str, tuple[int, float]]


def profiled(call: Callable[[], object], folder: Path) -> Times:
    """Runs a call that waits for its device. Raises OSError if the profiler wrote nothing."""
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
    """Sums the streams of an XSpace's first GPU. Raises OSError if there is none."""
    plane = next((one for one in space.planes if one.name.startswith("/device:GPU")), None)
    if plane is None:
        raise OSError("the profile holds no GPU")
    events = []
    for line in plane.lines:
        if line.name.startswith("Stream"):  # others sum the same kernels by operation
            for event in line.events:
                start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                name = plane.event_metadata[event.metadata_id].name
                events.append((start, start + event.duration_ps * 1e-12, _short(name)))
    kernels, gaps = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    busy, until = 0.0, min(events)[0] if events else 0.0
    first = until
    for start, end, name in sorted(events):
        kernels[name].append(end - start)
        if start > until:
            gaps[name].append(start - until)
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    sums = [{name: (len(times), sum(times)) for name, times in found.items()} for found in (kernels, gaps)]
    return Times(until - first, busy, *sums)


def rows(times: Times, steps: int) -> list[tuple[str, str]]:
    """A profile of some steps, to show: a title, and the sums by name of a step, the largest first."""
    count = sum(number for number, _ in times.kernels.values()) / steps
    idle = times.window - times.busy
    share = times.busy / times.window if times.window else 0.0
    text = f"{1e3 * times.window / steps:.2f} ms a step, {count:.0f} kernels, {1e3 * idle / steps:.2f} ms without any"
    shown = [(f"busy {share:.0%}", text)]
    for title, sums in (("kernel", times.kernels), ("gap before", times.gaps)):
        largest = sorted(sums.items(), key=lambda item: -item[1][1])[:_SHOWN]
        shown += [
            (f"{title} {name}", f"{1e3 * total / steps:.3f} ms a step, {number / steps:.1f} times")
            for name, (number, total) in largest
        ]
    return shown


def _short(name: str) -> str:
    """A kernel's name without its arguments and without the number that XLA gave it."""
    return re.sub(r"([._]\d+)+$", "", re.split(r"[(<]", name)[0].strip())[:60] or name[:60]
