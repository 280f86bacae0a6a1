"""Speed of the pre-training input alone: TFRecords to batches of int32, nothing trained.

  python -m benchmarks.input_pipeline
  python -m benchmarks.input_pipeline --max-seq-length 512 --batch-size 256

Two contenders take turns on the same records: ours, and a pipeline that parses record by record into int64, shuffles in
a buffer of 100 and casts afterwards, as the original's does. A turn starts the pipeline anew and reads whole epochs;
the median of the turns counts. `--consumed` is the rate of the accelerator to compare with, which has 16 cores.
"""

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import parser_of
from electra_tf2.util.environment import before_tensorflow


def ours(files: list[str], counts: list[int], length: int, batch_size: int) -> Iterator[Any]:
    from benchmarks.common import VOCABULARY
    from electra_tf2.corpus.records import RecordFormat
    from electra_tf2.pretrain.pretrain_data import Records, training_batches

    records = Records(files, counts, RecordFormat(length, VOCABULARY))
    return iter(training_batches(records, batch_size, seed=1, position=0))


def record_by_record(files: list[str], length: int, batch_size: int) -> Iterator[Any]:
    import tensorflow as tf

    from electra_tf2.corpus.records import FIELDS

    features = {name: tf.io.FixedLenFeature([length], tf.int64) for name in FIELDS}

    def parse(serialized: Any) -> Any:
        example = tf.io.parse_single_example(serialized, features)
        return {name: tf.cast(value, tf.int32) for name, value in example.items()}

    dataset = tf.data.Dataset.from_tensor_slices(files).repeat().shuffle(len(files))
    dataset = dataset.interleave(tf.data.TFRecordDataset, 4, num_parallel_calls=4, deterministic=False).shuffle(100)
    dataset = dataset.map(parse, num_parallel_calls=os.cpu_count())
    return iter(dataset.batch(batch_size, drop_remainder=True).prefetch(2))


def main() -> None:
    parser = parser_of(__doc__, max_seq_length=128, batch_size=128, records=200_000, rounds=5)
    parser.add_argument("--epochs", type=int, default=2, help="of a turn")
    parser.add_argument("--consumed", type=float, default=5000.0, help="examples/s that an accelerator trains on")
    options = parser.parse_args()
    before_tensorflow()
    from benchmarks.common import write_records

    cores = len(os.sched_getaffinity(0))
    shards = 16
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder), options.max_seq_length, options.records, shards)
        files = sorted(map(str, Path(folder).glob("*.tfrecord*")))
        counts = [options.records // shards] * shards
        makers: dict[str, Callable[[], Iterator[Any]]] = {
            "ours": lambda: ours(files, counts, options.max_seq_length, options.batch_size),
            "record by record": lambda: record_by_record(files, options.max_seq_length, options.batch_size),
        }
        rates: dict[str, list[float]] = {name: [] for name in makers}
        number = options.epochs * options.records // options.batch_size
        for turn in range(options.rounds + 1):
            for name, make in makers.items():
                start = time.perf_counter()
                for _ in itertools.islice(make(), number):
                    pass
                if turn:  # the first one warms up
                    rates[name].append(number * options.batch_size / (time.perf_counter() - start))
    print(f"length {options.max_seq_length}, batch {options.batch_size}, {cores} cores")
    slowest = min(statistics.median(values) for values in rates.values())
    for name, values in rates.items():
        rate = statistics.median(values)
        share = 16 * rate / cores / options.consumed
        print(
            f"{name:18} {rate:10,.0f} examples/s, {rate / cores:9,.0f} per core, {rate / slowest:5.2f}x;"
            f" 16 such cores feed {share:.1f} accelerators of {options.consumed:,.0f} examples/s"
        )


if __name__ == "__main__":
    main()
