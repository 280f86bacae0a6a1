"""Speed of the pre-training input alone: TFRecords to batches of int32, nothing trained.

  python -m benchmarks.input_pipeline
  python -m benchmarks.input_pipeline --max-seq-length 512 --batch-size 256

Two contenders take turns on the same records: ours, and a pipeline that parses record by record into int64, shuffles in
a buffer of 100 and casts afterwards, as the original's does. A turn starts the pipeline anew and reads `--epochs`; the
median of the turns but the first counts. `--consumed` is the rate of the accelerator to compare with, which has 16
cores.
"""

import itertools
import os
import statistics
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import parser_of, seconds, turns, write_records
from electra_tf2.util.environment import before_tensorflow, cores


def record_by_record(files: list[str], length: int, batch_size: int) -> Any:
    import tensorflow as tf

    from electra_tf2.corpus.records import FIELDS

    features = {name: tf.io.FixedLenFeature([length], tf.int64) for name in FIELDS}

    def parse(serialized: Any) -> Any:
        example = tf.io.parse_single_example(serialized, features)
        return {name: tf.cast(value, tf.int32) for name, value in example.items()}

    dataset = tf.data.Dataset.from_tensor_slices(files).repeat().shuffle(len(files))
    dataset = dataset.interleave(tf.data.TFRecordDataset, 4, num_parallel_calls=4, deterministic=False).shuffle(100)
    dataset = dataset.map(parse, num_parallel_calls=os.cpu_count())
    return dataset.batch(batch_size, drop_remainder=True).prefetch(2)


def main() -> None:
    flags = {"max_seq_length": 128, "batch_size": 128, "records": 200_000, "rounds": 5, "epochs": 2}
    options = parser_of(__doc__, **flags, consumed=5000.0).parse_args()
    before_tensorflow()
    from electra_tf2.pretrain.pretrain_data import training_batches

    length, size = options.max_seq_length, options.batch_size
    number = options.epochs * options.records // size
    with tempfile.TemporaryDirectory() as folder:
        records = write_records(Path(folder), length, options.records, shards=16)
        makers = {
            "ours": lambda: training_batches(records, size, seed=1, position=0),
            "record by record": lambda: record_by_record(list(records.files), length, size),
        }

        def rate(make: Any) -> float:
            def read(batches: Iterable[Any]) -> None:
                for _ in itertools.islice(batches, number):
                    pass

            return number * size / seconds(lambda: read(make()))

        rates = turns({name: partial(rate, make) for name, make in makers.items()}, options.rounds + 1)
    medians = {name: statistics.median(values[1:]) for name, values in rates.items()}
    print(f"length {length}, batch {size}, {cores()} cores")
    for name, found in medians.items():
        share = 16 * found / cores() / options.consumed
        print(
            f"{name:18} {found:10,.0f} examples/s, {found / cores():9,.0f} per core, "
            f"{found / min(medians.values()):5.2f}x;"
            f" 16 such cores feed {share:.1f} accelerators of {options.consumed:,.0f} examples/s"
        )


if __name__ == "__main__":
    main()
