"""The machine and its input: the parts `machine` and `data` of benchmarks/on_gpu.py."""

import importlib.metadata
import os
import sys
import tempfile
import time

import numpy as np

from benchmarks.common import seconds
from benchmarks.on_gpu_part import Part
from benchmarks.on_gpu_steps import OURS

_PACKAGES = ("tensorflow", "tf-keras", "torch", "transformers", "numpy")


def machine(part: Part) -> None:
    """Versions, devices, and the speed of the largest products and of memory."""
    import tensorflow as tf

    part.found("versions", ", ".join(versions()))
    names = []
    for gpu in tf.config.list_physical_devices("GPU"):
        names.append(tf.config.experimental.get_device_details(gpu).get("device_name", "?"))
    part.found("devices", ", ".join(names) or "no GPU: the processor", note=f"{len(os.sched_getaffinity(0))} cores")
    size, calls = (128, 2) if part.tiny else (8192, 30)
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
        part.found(f"products, {name}", 2 * size**3 * calls / took / 1e12, "TFLOP/s", f"{size} x {size}")

    x = tf.zeros([1 << 16 if part.tiny else 1 << 28])
    add = tf.function(lambda x: x + 1.0, jit_compile=True)

    def sums() -> None:
        for _ in range(calls):
            y = add(x)
        float(y[0])

    sums()
    took = min(seconds(sums) for _ in range(3))
    part.found("memory", 8 * len(x) * calls / took / 1e9, "GB/s", "read and written")


def versions() -> list[str]:
    names = [f"Python {sys.version.split()[0]}"]
    for package in _PACKAGES:
        try:
            names.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            names.append(f"no {package}")
    return names


def data(part: Part) -> None:
    """Examples that the records' reader gives, beside those that a step of electra_small takes."""
    import tensorflow as tf

    from electra_tf2.corpus.packing import Examples
    from electra_tf2.corpus.records import RecordEncoder, RecordFormat
    from electra_tf2.pretrain.pretrain_data import Records, training_batches

    job = part.job("small", 128, 128)
    shards = 8
    rows = 64 if part.tiny else 16_384  # of a shard
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
    note = "of the steps nothing is known"
    taken = part.earlier(OURS)
    if taken:
        note = f"{rate / taken:.1f} times what a step takes"
    part.found("records read", rate, "examples/s", note)
