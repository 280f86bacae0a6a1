"""Time of a step by kind of operation, on one thread.

  taskset -c 1 python -m benchmarks.step_profile --model-size mini --batch-size 64 --max-seq-length 64
  taskset -c 1 python -m benchmarks.step_profile --what evaluation --contender ours_float32

TensorFlow's profiler times every operation, and every kernel of XLA's blocks. A kind's time is the median of each of
its operations over some steps, added up, so that work beside this one, which delays an operation now and then, counts
little. What a contender is, benchmarks/step_contenders.py says.
"""

import os
import re
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import ONE_THREAD, parser_of, processor
from benchmarks.step_contenders import make_step
from benchmarks.step_job import JOB_FLAGS, Job, product_flops
from electra_tf2.util.environment import before_tensorflow

# What the names of kernels (model/kernels/) and of TensorFlow's operations begin with.
KINDS = {
    "matrix products": ("_MklMatMul", "MatMul", "_MklBatchMatMul", "BatchMatMul"),
    "gelu": ("gelu",),
    "layer norms, sums, biases": ("layer_norm", "norm_of_sum", "sum_and_norm", "BiasAdd"),
    "attention between products": ("attention", "split_heads", "position_bias", "_MklTranspose", "Transpose", "Pack"),
    "vocabulary": ("block_", "weighted_", "TensorScatter", "GatherV2", "Cumsum", "LogSoftmax", "ArgMax", "Exp"),
    "embeddings": ("ResourceGather", "UnsortedSegmentSum", "dropped_out"),
    "optimizer": ("ResourceApplyAdam", "AssignVariable", "L2Loss"),
    "casts": ("Cast",),
    "starting blocks and operations": ("ExecutorState", "ThunkExecutor", "ExecutorDone"),
}


def operations(folder: Path) -> Iterator[tuple[str, str, float]]:
    """Reads a profile: the block or type of each operation, its name, and its milliseconds without its parts."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(next(folder.glob("**/*.xplane.pb")).read_bytes())
    (host,) = (plane for plane in space.planes if plane.name == "/host:CPU")
    for line in (line for line in host.lines if line.name.startswith("tf_Compute")):
        stack: list[tuple[int, list[Any]]] = []  # ends of what is running, and its entry
        entries = []
        for event in sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps)):
            name = host.event_metadata[event.metadata_id].name
            if name.startswith(("end: ", "Memory")):
                continue
            while stack and stack[-1][0] <= event.offset_ps:
                stack.pop()
            if stack:
                stack[-1][1][2] -= event.duration_ps / 1e9
            stats = {host.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
            what = name if "::" in name else name.rsplit(":", 1)[-1]
            if "hlo_module" in stats:
                module = stats["hlo_module"]
                module = module.str_value or host.stat_metadata[module.ref_value].name
                what, name = re.sub(r"^a_inference_+(.*?)_\d+_.*$", r"\1", module), f"{module} {name}"
            entry = [what, name, event.duration_ps / 1e9]
            entries.append(entry)
            stack.append((event.offset_ps + event.duration_ps, entry))
        yield from ((what, name, milliseconds) for what, name, milliseconds in entries)


def main() -> None:
    options = parser_of(__doc__, contender="ours_bfloat16", steps=15, **JOB_FLAGS).parse_args()
    job = Job.of(options, options.contender)
    os.environ |= ONE_THREAD
    before_tensorflow()
    import tensorflow as tf

    step = make_step(options.contender.rsplit("_", 1)[0], job)
    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=2))
        for _ in range(options.steps):
            step()
        tf.profiler.experimental.stop()
        times = defaultdict(list)
        for what, name, milliseconds in operations(Path(folder)):
            times[what, name].append(milliseconds)
    kinds = Counter[str]()
    for (what, _), found in times.items():
        kind = next((kind for kind, names in KINDS.items() if what.startswith(names)), "the rest")
        kinds[kind] += statistics.median(found) * len(found) / options.steps
    total = kinds.total()
    print(
        f"{options.what}, {job.size}, {job.batch_size} x {job.length}, {options.contender}, one thread, {processor()}"
    )
    print(f"{total:.0f} ms a step, {product_flops(job) / total / 1e6:.0f} GFLOP/s")
    for kind, milliseconds in kinds.most_common():
        print(f"| {kind} | {milliseconds:.1f} ms | {milliseconds / total:.0%} |")


if __name__ == "__main__":
    main()
