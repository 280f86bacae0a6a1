"""Start-up time of run_pretraining.py, beside what TensorFlow alone needs.

  python -m benchmarks.startup
  python -m benchmarks.startup --model-size base

Each round measures, in processes of their own: importing TensorFlow; tracing the training step of the same model (after
the import, timed inside); `--help`; a hyperparameter that does not exist; and run_pretraining.py from its launch until
its first step is done. The medians count. The target is a first step within 1.5 times import plus tracing.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, parser_of, write_records, write_vocabulary

_TRACE = """
import json, sys, time
from benchmarks.common import parser_of
from electra_tf2.util.environment import before_tensorflow
before_tensorflow()
import tensorflow as tf
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.task import PretrainingTask
config = PretrainingConfig.from_dict(json.loads(sys.argv[1]))
task = PretrainingTask(config, tf.distribute.get_strategy())
spec = tf.TensorSpec([config.train_batch_size, config.max_seq_length], tf.int32)
batch = {name: spec for name in ("input_ids", "input_mask", "segment_ids")}
start = time.perf_counter()
step = tf.function(task.train_step, autograph=False).get_concrete_function(batch, tf.TensorSpec([], tf.int64))
print("seconds", time.perf_counter() - start)
"""


def seconds(*words: str, until: str | None = None) -> float:
    """Seconds until a command ends, or prints a line that the regular expression `until` matches."""
    start = time.perf_counter()
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if until is not None and re.match(until, line):
                process.kill()
                return time.perf_counter() - start
    if until is not None:
        sys.exit(f"{' '.join(words)}\nended with exit code {process.returncode} before it printed {until!r}")
    return time.perf_counter() - start


def main() -> None:
    parser = parser_of(__doc__, batch_size=32, max_seq_length=128, rounds=3)
    parser.add_argument("--model-size", default="small", choices=("small", "base", "large"))
    options = parser.parse_args()
    # Nothing else of util.environment: the import that is measured is TensorFlow's as it comes.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_records(Path(folder) / "pretrain_tfrecords", options.max_seq_length, 2000, 1)
        write_vocabulary(Path(folder) / "vocab.txt")
        hparams = json.dumps(
            {
                "model_name": "startup",
                "model_size": options.model_size,
                "data_dir": folder,
                "train_batch_size": options.batch_size,
                "max_seq_length": options.max_seq_length,
                "iterations_per_loop": 1,
            }
        )
        script = [sys.executable, "run_pretraining.py"]
        for _ in range(options.rounds):
            times = {
                "import tensorflow": seconds(sys.executable, "-c", "import tensorflow"),
                "--help": seconds(*script, "--help"),
                "an unknown hyperparameter": seconds(*script, "--hparams", '{"num_train_stepz": 5}'),
                "first step": seconds(*script, "--overwrite", "--hparams", hparams, until=r"initial loss +\d"),
            }
            traced = subprocess.run(
                [sys.executable, "-c", _TRACE, hparams], cwd=ROOT, capture_output=True, text=True, check=True
            )
            times["tracing the step"] = float(traced.stdout.split("seconds")[1])
            for name, value in times.items():
                found.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, value in medians.items():
        print(f"{name:28} {value:7.2f} s")
    least = medians["import tensorflow"] + medians["tracing the step"]
    print(f"first step / (import + tracing) = {medians['first step'] / least:.2f}")


if __name__ == "__main__":
    main()
