"""The machine and its input: the parts `machine` and `data` of benchmarks/on_gpu.py."""

import importlib.metadata
import os
import sys
import tempfile
import time

import numpy as np

from benchmarks.common import seconds
from benchmarks.on_gpu_results import Part
from benchmarks.on_gpu_steps import OURS

_PACKAGES = ("tensorflow", "tf-keras", "torch", "transformers", "numpy")


def machine(part: Part) -> None:
    """Records versions, devices, and the peak speed of matrix products and of memory."""
    import tensorflow as tf

    part.record("versions", ", ".join(versions()))
    names = []
    for gpu in tf.config.list_physical_devices("GPU"):
        names.append(tf.config.experimental.get_device_details(gpu).get("device_name", "?"))
    part.record("devices", ", ".join(names) or "no GPU: the processor", note=f"{len(os.sched_getaffinity(0))} cores")
    size = 128 if part.tiny else 8192
    calls = 2 if part.tiny else 30
    for name, dtype, has_tf32 in (
        ("bfloat16", tf.bfloat16, True),
        ("TF32", tf.float32, True),
        ("float32", tf.float32, False),
    ):
        tf.config.experimental.enable_tensor_float_32_execution(has_tf32)
        x = tf.cast(tf.random.normal([size, size]), dtype)

        def products(x: tf.Tensor = x) -> None:
            for _ in range(calls):
                y = tf.matmul(x, x)
            float(y[0, 0])  # waits for the device

        products()
        took = min(seconds(products) for _ in range(3))
        part.record(f"products, {name}", 2 * size**3 * calls / took / 1e12, "TFLOP/s", f"{size} x {size}")

    x = tf.zeros([1 << 16 if part.tiny else 1 << 28])
    add = tf.function(lambda x: x + 1.0, jit_compile=True)

    def sums() -> None:
        for _ in range(calls):
            y = add(x)
        float(y[0])

    sums()
    took = min(seconds(sums) for _ in range(3))
    part.record("memory", 8 * len(x) * calls / took / 1e9, "GB/s", "read and written")


def versions() -> list[str]:
    names = [f"Python {sys.version.split()[0]}"]
    for package in _PACKAGES:
        try:
            names.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            names.append(f"no {package}")
    return names


def data(part: Part) -> None:
    """Records how fast records are read, compared with a training step of electra_small."""
    import tensorflow as tf

    from electra_tf2.corpus.packing import Examples
    from electra_tf2.corpus.records import RecordEncoder, RecordFormat
    from electra_tf2.pretrain.pretrain_data import Records, training_batches

    job = part.job("small", 128, 128)
    shards = 8
    rows = 64 if part.tiny else 16_384  # in a shard
    enough_seconds = 0.2 if part.tiny else 5.0
    record_format = RecordFormat(job.length, job.size.vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{shard}.tfrecord" for shard in range(shards)]
        ids = np.random.RandomState(0).randint(5, job.size.vocabulary, [rows, job.length]).astype(np.int32)
        ones = np.ones(ids.shape, np.uint8)
        encoded = RecordEncoder(record_format).encode(Examples(ids, ones, ones))
        for file in files:
            with tf.io.TFRecordWriter(file) as writer:
                for record in encoded:
                    writer.write(record)
        batches = iter(training_batches(Records(files, [rows] * shards, record_format), job.batch_size, 0, 0, None))
        next(batches)
        count = 0
        began = time.perf_counter()
        while time.perf_counter() - began < enough_seconds:
            next(batches)
            count += job.batch_size
        rate = count / (time.perf_counter() - began)
    note = "no training step was timed"
    step_rate = part.last_value(OURS)
    if step_rate:
        note = f"{rate / step_rate:.1f} times what a step takes"
    part.record("records read", rate, "examples/s", note)
